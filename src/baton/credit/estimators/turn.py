"""Credit on turns: what came after them, the same turn of other rollouts, the scope of their branch (FoldGRPO), or
values backed up the tree of rollouts (MALT).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from statistics import fmean
from typing import Literal

from msgspec import structs

from baton.credit.core.acts import Counts, agent_returns, of_turns, turn_rewards, turns
from baton.credit.core.baseline import (
    BY_SPREAD,
    EPS,
    OF_BASELINE,
    Part,
    baseline_errors,
    centred,
    parts,
    pooled,
    std,
)
from baton.credit.core.tree import Tree, context_key, turn_steps
from baton.credit.estimator import (
    CreditError,
    Credits,
    Group,
    RewardOf,
    estimator,
    returns,
    widened,
    write_credits,
)
from baton.credit.estimators.group import compared
from baton.settings import NotNegative, Share
from baton.trace.acts import Turn
from baton.trace.graph.lineage import Lineage
from baton.trace.outcome import team_return
from baton.trace.trace import Trace


@estimator(
    "turn-group", "turn", needs=["group"], source="AT-GRPO, arXiv 2510.11062", evidence="C", own_scale=True
)
def turn_group(
    group: Group,
    *,
    reward: RewardOf = team_return,
    state: Literal["index", "context"] = "index",
    share: float = 1.0,
    eps: NotNegative = EPS,
) -> Credits:
    """A = (r - mean) / (std + eps) over the same turn of the same agent, r = share x R + own rewards.

    `state="index"` takes an agent's t-th turns as the same; `"context"` only those with the very same prompt,
    as where N samples are drawn from one state. A turn without another to compare with gets 0. What branches of a
    rollout share was drawn once: it counts once, with the return of the first of them, and has that credit in all.
    Source: AT-GRPO, arXiv 2510.11062 [C].
    """
    draws = []
    copies: dict[Hashable, list[tuple[int, str]]] = {}
    for place, (trace, total) in enumerate(zip(group, returns(group, reward), strict=True)):
        own = turn_rewards(trace)
        for turn in turns(trace):
            shared = copies.setdefault(_draw(trace, turn.call, place), [])
            shared.append((place, turn.call))
            if len(shared) == 1:
                key = (turn.agent, turn.index if state == "index" else context_key(trace, turn.call))
                draws.append((key, place, turn.call, share * total + own.get(turn.call, 0.0)))
    by_index = state == "index"
    note = "an agent's t-th turns start from the same state" if by_index else "same prompt, same state"
    alone = "alone in its group, nothing to compare with"
    credits = compared("turn-group", "turn", group, draws, eps, note, alone=alone)
    first = {(place, credit.target): credit for place, mine in enumerate(credits) for credit in mine}
    for shared in copies.values():
        for place, call in shared[1:]:
            credits[place].append(structs.replace(first[shared[0]], target=call))
    return _in_order(group, credits)


def _draw(trace: Trace, call_id: str, place: int) -> Hashable:
    """Names what was drawn: branches of a rollout share the key and the prompt of every turn before they part."""
    call = trace.call_by_id.get(call_id)
    key = None if call is None or call.sampling is None else call.sampling.key
    if call is None or key is None:
        return place, call_id
    return key, call.policy_version, context_key(trace, call_id)


@estimator("return-to-go", "turn", needs=["group"], source="MARSHAL, ICLR 2026", evidence="C")
def return_to_go(
    group: Group,
    *,
    reward: RewardOf = team_return,
    gamma: Share = 1.0,
    per: Literal["agent", "role"] = "agent",
    counts: Counts = "team",
) -> Credits:
    """A_t = G_t - mean G, G_t = r_t + gamma G_{t+1} along a player's own turns; the return is at its last.

    The return is the team's, or with `counts` what the player itself won, as in games against each other. The mean is
    over all turns of the player in all rollouts (the authors' code takes unique values, which distorts it). With no
    rewards on turns, G is the discounted return.
    Source: MARSHAL, ICLR 2026 [C].
    """
    samples: dict[str, list[tuple[int, Turn, float]]] = {}
    for place, trace in enumerate(group):
        own, ends = turn_rewards(trace), agent_returns(trace, reward, counts)
        for agent, mine in of_turns(turns(trace), "agent").items():
            ahead = 0.0
            for turn in reversed(mine):
                last = ends.get(agent, 0.0) if turn is mine[-1] else 0.0
                ahead = own.get(turn.call, 0.0) + last + gamma * ahead
                player = turn.agent if per == "agent" else turn.role or ""
                samples.setdefault(player, []).append((place, turn, ahead))
    if all(len(pool) == 1 for pool in samples.values()):
        raise CreditError(
            "return-to-go is centred over a player's turns, and every player here has taken one turn in one rollout. "
            "Run the task again with other seeds."
        )
    rows: list[list[tuple[str, float, float | None]]] = [[] for _ in group]
    for pool in samples.values():
        errors = baseline_errors(parts((place, value) for place, _, value in pool))
        for (place, turn, _), (value, _) in zip(pool, centred([value for _, _, value in pool]), strict=True):
            rows[place].append((turn.call, value, errors[place]))
    notes = ("a player's turns share one baseline", OF_BASELINE)
    return _in_order(group, write_credits("return-to-go", "turn", rows, *notes))


@estimator("maporl", "turn", needs=["turn_rewards"], source="MAPoRL, arXiv 2502.18439", evidence="C")
def maporl(group: Group, *, discount: Share = 0.3) -> Credits:
    """R(t,i) = [v(t,i) + sum_{t'>t} g^{t'-t} mean_j v(t',j)] / sum_{t'>=t} g^{t'-t}, g = 0.3.

    v(t,i) is the reward on agent i's t-th turn; later turns count by what all agents reached in them.
    Standard error: the spread of R(t,i) over the other rollouts, each being one draw. None: fewer than two others
    have an agent i with a t-th turn, or came out alike.
    Source: MAPoRL, arXiv 2502.18439 [C].
    """
    found = [_weighted_ahead(trace, discount) for trace in group]
    errors = iter(pooled(((turn.agent, turn.index), value) for mine in found for turn, value in mine))
    rows = ([(turn.call, value, next(errors)) for turn, value in mine] for mine in found)
    return write_credits("maporl", "turn", rows, "an agent's t-th turn is round t", "no baseline", BY_SPREAD)


def _weighted_ahead(trace: Trace, discount: float) -> list[tuple[Turn, float]]:
    scores = turn_rewards(trace)
    found = turns(trace)
    if not scores:
        raise CreditError(
            f"trace {trace.trace_id} has no rewards on turns, which maporl weighs. Score them first (`baton reward` "
            "with a process or debate family), or use return-to-go."
        )
    rounds: dict[int, list[float]] = {}
    for turn in found:
        rounds.setdefault(turn.index, []).append(scores.get(turn.call, 0.0))
    means = [fmean(rounds[index]) for index in range(len(rounds))]
    credits = []
    for turn in found:
        weights = [discount**ahead for ahead in range(len(means) - turn.index)]
        values = [scores.get(turn.call, 0.0), *means[turn.index + 1 :]]
        value = math.fsum(w * v for w, v in zip(weights, values, strict=True)) / math.fsum(weights)
        credits.append((turn, value))
    return credits


def _in_order(group: Group, credits: Credits) -> Credits:
    """Each trace's credits by the order of its turns, whatever pool they came from."""
    places = [{turn.call: number for number, turn in enumerate(turns(trace))} for trace in group]
    return [
        sorted(mine, key=lambda credit, place=place: place[credit.target])  # type: ignore[misc]  # bound at once
        for mine, place in zip(credits, places, strict=True)
    ]


# Credit on turns by the scope of their branch: FoldGRPO.

_SENDS_OUT = ("spawn", "delegate", "aggregate", "stop")


@estimator(
    "branch-scope",
    "turn",
    needs=["group"],
    source="FoldGRPO, arXiv 2510.11967",
    evidence="A/C",
    own_scale=True,
)
def branch_scope(
    group: Group,
    *,
    reward: RewardOf = team_return,
    in_scope: Callable[[Trace, str], bool | None] | None = None,
    main_limit_tokens: int | None = None,
    eps: NotNegative = EPS,
) -> Credits:
    """A_t = (clip(R + Q_t, 0, 1) - mean R) / (std R + eps), Q_t the turn's process reward.

    Q adds up: -1 on the main agent's turns beyond `main_limit_tokens` of context, unless they branch or
    finish; +0.2 or -0.2 on every turn of a branch that kept to its task or did not, as `in_scope(trace, agent)`
    tells (None: no verdict); -1 on a turn whose tool call failed or whose answer was invalid.
    Source: FoldGRPO, arXiv 2510.11967 [A], authors' code [C]. Returns are taken to lie in [0, 1]. Where all of a
    group's returns are alike, Q stands as it is: divided by eps alone it would drown everything else [I].
    """
    totals = returns(group, reward, at_least=2, what="branch-scope")
    mean, scale = fmean(totals), (std(totals) or 1.0) + eps
    errors = baseline_errors({place: Part(total, 1) for place, total in enumerate(totals)})
    rows = (
        [
            (
                turn.call,
                (min(1.0, max(0.0, total + extra)) - mean) / scale,
                None if (error := errors[place]) is None else error / scale,
            )
            for turn, extra in process_rewards(trace, in_scope, main_limit_tokens)
        ]
        for place, (trace, total) in enumerate(zip(group, totals, strict=True))
    )
    notes = ("returns lie in [0, 1]", "the verdicts on scope are right", OF_BASELINE)
    return write_credits("branch-scope", "turn", rows, *notes)


def process_rewards(
    trace: Trace,
    in_scope: Callable[[Trace, str], bool | None] | None = None,
    main_limit_tokens: int | None = None,
) -> list[tuple[Turn, float]]:
    """Q_t of every turn."""
    root = Lineage.of(trace).root
    wrong = _failed_calls(trace)
    verdicts: dict[str, bool | None] = {}
    found = []
    for turn in turns(trace):
        value = -1.0 if turn.call in wrong else 0.0
        if turn.agent == root:
            if main_limit_tokens is not None and _is_long(trace, turn, main_limit_tokens):
                value -= 1.0
        elif in_scope is not None:
            if turn.agent not in verdicts:
                verdicts[turn.agent] = in_scope(trace, turn.agent)
            verdict = verdicts[turn.agent]
            value += 0.0 if verdict is None else 0.2 if verdict else -0.2
        found.append((turn, value))
    return found


def _is_long(trace: Trace, turn: Turn, limit: int) -> bool:
    """Past the limit, and not about to branch or finish."""
    if any(trace.events[place].decision in _SENDS_OUT for place in turn.events):
        return False
    call = trace.call_by_id.get(turn.call)
    if call is None:
        return False
    whole = trace.prompt_ids(call)
    size = call.prompt_tokens if whole is None else len(whole)
    return size is not None and size > limit


def _failed_calls(trace: Trace) -> set[str]:
    """Calls whose answer was invalid or whose tool failed."""
    found = {event.call for event in trace.events if event.status == "invalid" and event.call is not None}
    for edge in trace.edges:
        if edge.type != "tool_dependency":
            continue
        asked, result = trace.event(edge.src), trace.event(edge.dst)
        if (
            asked.type == "tool_call"
            and result.type == "tool_result"
            and result.status == "failed"
            and asked.call
        ):
            found.add(asked.call)
    return found


# Credit on turns by backing values up the tree of rollouts: MALT.


@estimator(
    "tree-backup", "turn", needs=["group", "shared_prefixes"], source="MALT, arXiv 2412.01928", evidence="P"
)
def tree_backup(
    group: Group, *, reward: RewardOf = team_return, threshold: float = 0.5, label: bool = False
) -> Credits:
    """V(node) = mean of its children, V(leaf) = R; a turn gets V - threshold, or its sign as a label.

    The mean is over children, not over rollouts below, so a branch that was sampled more often weighs no more.
    Labels (+1, -1) sort turns into chosen and rejected, as for supervised and preference training of each role.
    Source: MALT, arXiv 2412.01928 [P].
    """
    totals = returns(group, reward, at_least=2, what="tree-backup")
    tree = Tree.of([turn_steps(trace) for trace in group])
    values = tree.backed_up(totals)
    rows: list[list[tuple[str, float, float | None]]] = []
    for path, trace in zip(tree.paths, group, strict=True):
        rows.append([])
        for node, turn in zip(path[1:], turns(trace), strict=True):
            value = values[node] - threshold
            below = [values[c] for c in tree.children[node]] + [totals[r] for r in tree.ends[node]]
            spread = std(below) / math.sqrt(len(below)) if len(below) > 1 and not label else None
            error = widened(spread or None, len(below) - 1)
            rows[-1].append((turn.call, (1.0 if value > 0 else -1.0) if label else value, error))
    notes = ("same turns before, same state", "children are drawn by the policy")
    return write_credits("tree-backup", "turn", rows, *notes)
