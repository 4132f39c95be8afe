"""Credit by comparison within a group of rollouts: of teams, agents, roles and tool calls.

A team has one number for a whole rollout, against the other rollouts of its task. Agents are compared with their own
kind or with the team without them, roles with all who play the same part or with the part's running average, and tool
calls with the other calls of the same tool.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import accumulate
from statistics import fmean

from msgspec import Struct, field

from baton.credit.core.acts import Counts, agent_returns, own_rewards
from baton.credit.core.baseline import (
    BY_SPREAD,
    EPS,
    OF_BASELINE,
    Advantage,
    Part,
    baseline_errors,
    centred,
    left_out,
    normal_ranks,
    normalised,
    parts,
    pooled,
    running_error,
    std,
)
from baton.credit.estimator import (
    CreditError,
    Credits,
    Group,
    RewardOf,
    estimator,
    make_credit,
    returns,
    write_credits,
)
from baton.errors import UsageError
from baton.settings import NotNegative
from baton.trace.acts import acts, agents
from baton.trace.outcome import team_return
from baton.trace.trace import Trace
from baton.trace.vocabulary import CreditUnit

_SAME_TASK = ("rollouts are independent draws of one task under one policy", OF_BASELINE)


@estimator("group", "team", needs=["group"], source="GRPO, arXiv 2402.03300", evidence="P", own_scale=True)
def group_relative(group: Group, *, reward: RewardOf = team_return, eps: NotNegative = EPS) -> Credits:
    """A_i = (R_i - mean R) / (std R + eps), over the rollouts of one task.

    Source: GRPO, arXiv 2402.03300 [P]; std with n - 1 and eps = 1e-4 as in TRL [C].
    """
    found = normalised(returns(group, reward, at_least=2, what="group"), eps)
    return _on_team("group", group, found, "the group's std is its scale")


@estimator("mean", "team", needs=["group"], source="Dr. GRPO, arXiv 2503.20783", evidence="P")
def mean_only(group: Group, *, reward: RewardOf = team_return) -> Credits:
    """A_i = R_i - mean R: no division by the std, which would weigh easy and hard tasks up.

    Source: Dr. GRPO, arXiv 2503.20783 [P].
    """
    return _on_team("mean", group, centred(returns(group, reward, at_least=2, what="mean")))


@estimator("leave-one-out", "team", needs=["group"], source="RLOO, arXiv 2402.14740", evidence="P")
def leave_one_out(group: Group, *, reward: RewardOf = team_return) -> Credits:
    """A_i = R_i - mean of the others' R = G/(G-1) (R_i - mean R): an unbiased baseline.

    Source: RLOO, arXiv 2402.14740 [P].
    """
    return _on_team(
        "leave-one-out", group, left_out(returns(group, reward, at_least=2, what="leave-one-out"))
    )


@estimator(
    "rank",
    "team",
    needs=["group"],
    source="MPDF / SoftRankPO, arXiv 2509.03817",
    evidence="A/I",
    own_scale=True,
)
def rank(group: Group, *, reward: RewardOf = team_return) -> Credits:
    """A_i = Phi^-1((rank_i - 1/2)/G): only the order of returns counts, so no outlier sets the scale.

    Source: MPDF / SoftRankPO, arXiv 2509.03817 [A]; equal returns share their mean rank [I].
    """
    found = normal_ranks(returns(group, reward, at_least=2, what="rank"))
    return _on_team("rank", group, found, "only the order of returns matters")


def _on_team(name: str, group: Group, found: Sequence[Advantage], *assumes: str) -> Credits:
    rows = [[(trace.trace_id, *advantage)] for trace, advantage in zip(group, found, strict=True)]
    return write_credits(name, "team", rows, *_SAME_TASK, *assumes)


def compared(
    name: str,
    unit: CreditUnit,
    group: Group,
    draws: Iterable[tuple[Hashable, int, str, float]],
    eps: float,
    *assumes: str,
    alone: str = "",
) -> Credits:
    """Each (pool, place in the group, target, value) normalised within its pool. `alone`: what one by itself says.

    The draws are rollouts: what one of them brings into a pool several times tells of its baseline once.
    """
    pools: dict[Hashable, list[tuple[int, str, float]]] = {}
    for pool, place, target, value in draws:
        pools.setdefault(pool, []).append((place, target, value))
    credits: Credits = [[] for _ in group]
    for mine in pools.values():
        notes = (*assumes, OF_BASELINE, *((alone,) if alone and len(mine) == 1 else ()))
        values = [value for _, _, value in mine]
        errors = baseline_errors(parts((place, value) for place, _, value in mine))
        scale = std(values) + eps if len(values) > 1 else 1.0
        for (place, target, _), (value, _) in zip(mine, normalised(values, eps), strict=True):
            error = errors[place]
            stderr = None if error is None else error / scale
            credits[place].append(make_credit(name, unit, target, value, stderr=stderr, assumes=notes))
    return credits


# Credit on agents: each against its own kind, or against the team without it.


@estimator(
    "agent-group", "agent", needs=["group"], source="Dr. MAS, arXiv 2602.08847", evidence="C", own_scale=True
)
def agent_group(
    group: Group, *, reward: RewardOf = team_return, counts: Counts = "both", eps: NotNegative = EPS
) -> Credits:
    """A_ik = (R_ik - mean_k) / (std_k + eps), over the rollouts in which agent k took part.

    Each rollout counts once, however often the agent was called in it; an agent that took part in one
    rollout alone gets 0. (The authors' code pools calls, so frequent callers dominate, and leaks the raw
    reward for singletons.)
    Source: Dr. MAS, arXiv 2602.08847 [C].
    """
    draws = (
        (agent, place, agent, value)
        for place, trace in enumerate(group)
        for agent, value in agent_returns(trace, reward, counts).items()
    )
    note, alone = (
        "an agent's name means the same in every rollout",
        "in one rollout alone, nothing to compare with",
    )
    return compared("agent-group", "agent", group, draws, eps, note, alone=alone)


@estimator("difference", "agent", needs=["counterfactuals"], source="Wolpert & Tumer 2002", evidence="M")
def difference(
    group: Group,
    *,
    without: Callable[[Trace, str], float],
    reward: RewardOf = team_return,
) -> Credits:
    """D_i = G(z) - G(z_-i, c): the return, less what it would have been with agent i replaced by a default.

    `without(trace, agent)` is that counterfactual return: from a model, a table, or forks made before.
    Standard error: the spread of the agent's differences over the other rollouts, each being one draw of its mean
    difference. None: the agent took part in fewer than three rollouts, or in the others its differences are alike.
    Source: difference rewards, Wolpert & Tumer 2002 [M].
    """
    found = [
        {agent: whole - without(trace, agent) for agent in agents(trace)}
        for trace, whole in zip(group, returns(group, reward), strict=True)
    ]
    errors = iter(pooled(pair for mine in found for pair in mine.items()))
    rows = ([(agent, value, next(errors)) for agent, value in mine.items()] for mine in found)
    return write_credits("difference", "agent", rows, "the counterfactual returns given are right", BY_SPREAD)


# Credit by role: against all who play the same part, or against the part's running average.


def common_count(counts: list[int], share: float = 0.99) -> int:
    """The least d with at least `share` of the rollouts at or under it; rollouts without any do not count."""
    there = sorted(count for count in counts if count)
    return there[min(len(there) - 1, max(0, math.ceil(share * len(there)) - 1))] if there else 0


def aligned(count: int, d: int) -> list[int]:
    """How often each of `count` sub-trajectories enters a row of d: repeated in turn, or the rest dropped."""
    return [d // count + (place < d % count) if place < d else 0 for place in range(count)]


@estimator(
    "role-group",
    "agent",
    "role",
    needs=["group"],
    source="M-GRPO, arXiv 2511.13288",
    evidence="P",
    own_scale=True,
)
def role_group(
    group: Group,
    *,
    unit: CreditUnit = "agent",
    reward: RewardOf = team_return,
    counts: Counts = "both",
    d: int | None = None,
    eps: NotNegative = EPS,
) -> Credits:
    """A = (R - mean) / (std + eps) over a role's K x d sub-trajectories of one task.

    Each agent of the role is one sub-trajectory. Rollouts are brought to a common d (by default the count
    that 99 % of them do not exceed): where there are fewer they are repeated in turn, where there are more
    the later ones are dropped and get no credit. One that stands in the batch m times carries m A, so the
    credits of a role sum to zero over the K x d. On unit `role`, a rollout's value is its mean over the d.
    Standard error: of the baseline, from the means of the other rollouts; copies are no draws, and agents of a rollout
    share its luck. None: the role took part in fewer than three rollouts, or the others came out alike.
    Source: M-GRPO, arXiv 2511.13288 [P]; which to repeat and drop is random there and in order here [I].
    """
    if d is not None and d < 1:
        raise UsageError(f"d is {d}; expected how many sub-trajectories to bring each rollout to, 1 or more.")
    rows: dict[str, list[tuple[int, list[tuple[str, float]]]]] = {}  # role -> (place, [(agent, return)])
    for place, trace in enumerate(group):
        for role, members in _by_role(trace, reward, counts).items():
            rows.setdefault(role, []).append((place, members))
    credits: Credits = [[] for _ in group]
    for role, found in rows.items():
        width = common_count([len(members) for _, members in found]) if d is None else d
        batch = [
            (place, agent, value, times)
            for place, members in found
            for (agent, value), times in zip(members, aligned(len(members), width), strict=True)
            if times
        ]
        values, errors = _repeated([(place, value, times) for place, _, value, times in batch], eps)
        note = (
            f"rollouts brought to {width} sub-trajectories of {role!r}",
            "a role's agents are alike",
            OF_BASELINE,
        )
        per_place: dict[int, list[float]] = {}
        for (place, agent, _, times), value in zip(batch, values, strict=True):
            per_place.setdefault(place, []).append(value * times)
            if unit == "agent":
                error = errors[place]
                stderr = None if error is None else error * times
                credits[place].append(
                    make_credit("role-group", "agent", agent, value * times, stderr=stderr, assumes=note)
                )
        if unit == "role":
            for place, mine in per_place.items():
                total = math.fsum(mine) / width
                credits[place].append(
                    make_credit("role-group", "role", role, total, stderr=errors[place], assumes=note)
                )
    return credits


def _by_role(trace: Trace, reward: RewardOf, counts: Counts) -> dict[str, list[tuple[str, float]]]:
    roles = agents(trace)
    found: dict[str, list[tuple[str, float]]] = {}
    for agent, value in agent_returns(trace, reward, counts).items():
        found.setdefault(roles[agent] or "", []).append((agent, value))
    return found


def _repeated(
    batch: list[tuple[int, float, int]], eps: float
) -> tuple[list[float], dict[Hashable, float | None]]:
    """Of (rollout, return, times): advantages normalised over all copies, one for each original; errors by rollout."""
    copies = [value for _, value, times in batch for _ in range(times)]
    found = [advantage.value for advantage in normalised(copies, eps)]
    first = accumulate((times for _, _, times in batch), initial=0)
    values = [found[at] for at, _ in zip(first, batch, strict=False)]
    rollouts = parts((place, value) for place, value, times in batch for _ in range(times))
    # Every rollout fills d places, so the baseline is the plain mean of the rollouts' own.
    scale = (std(copies) if len(copies) > 1 else 0.0) + eps
    errors = baseline_errors({place: Part(own.sum / own.num, 1) for place, own in rollouts.items()})
    return values, {place: None if error is None else error / scale for place, error in errors.items()}


class Ema(Struct, kw_only=True):
    """Running averages by role, which a trainer keeps from step to step."""

    decay: float = 0.95
    values: dict[str, float] = field(default_factory=dict)

    def advantage(self, role: str, value: float) -> float:
        """R - b with b as it was before, then b <- decay b + (1 - decay) R. It starts at zero."""
        before = self.values.get(role, 0.0)
        self.values[role] = self.decay * before + (1.0 - self.decay) * value
        return value - before


@estimator("role-ema", "role", source="SPIRAL, ICLR 2026", evidence="C")
def role_ema(
    group: Group,
    *,
    reward: RewardOf = team_return,
    counts: Counts = "both",
    ema: Ema | None = None,
) -> Credits:
    """A = R - b_role, b_role <- 0.95 b_role + 0.05 R; the baseline is the one from before the update.

    Takes rollouts in their order. Pass an `Ema` to go on from earlier groups; it is brought up to date. A
    role's return is the mean over its agents.
    Standard error: of the baseline, by the mean m of the role's returns in this group, known to s/sqrt(n): 1.96 of it
    hold 95 % of where b may stand from what m is a draw of (it starts at zero). None: the role took part in one
    rollout, or its returns are all alike.
    Source: SPIRAL, ICLR 2026 [C]; the error [I].
    """
    kept = Ema() if ema is None else ema
    found = [
        {
            role: fmean(value for _, value in members)
            for role, members in _by_role(trace, reward, counts).items()
        }
        for trace in group
    ]
    pools: dict[str, list[float]] = {}
    for mine in found:
        for role, value in mine.items():
            pools.setdefault(role, []).append(value)
    assumes = ("returns of a role drift slowly", "error: of the running mean, from the group's")
    credits: Credits = []
    for mine in found:
        credits.append([])
        for role, value in mine.items():
            error = running_error(kept.values.get(role, 0.0), pools[role])
            above = kept.advantage(role, value)
            credits[-1].append(make_credit("role-ema", "role", role, above, stderr=error, assumes=assumes))
    return credits


# Credit on tool calls: each against the other calls of the same tool. (`siblings` and `coma` apply too.)


@estimator(
    "tool-group",
    "tool_call",
    needs=["tool_rewards"],
    source="GRPO per tool, ours",
    evidence="I",
    own_scale=True,
)
def tool_group(group: Group, *, eps: NotNegative = EPS) -> Credits:
    """A = (r - mean) / (std + eps) over the calls of one tool in all rollouts, r the reward on the call.

    Calls without a reward of their own are left out; a tool called once gets 0.
    Source: GRPO's normaliser with the tool as group [I].
    """
    own = [own_rewards(trace, ("tool_call",)) for trace in group]
    draws = (
        (event.tool or "", place, event.id, own[place][event.id])
        for place, trace in enumerate(group)
        for _, event in acts(trace, "tool_call")
        if event.id in own[place]
    )
    credits = compared("tool-group", "tool_call", group, draws, eps, "calls of one tool are comparable")
    if not any(credits):
        raise CreditError(
            "none of these traces has rewards on tool calls. Score them first (`baton reward` with the tool family)."
        )
    return credits
