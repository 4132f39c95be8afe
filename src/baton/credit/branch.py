"""Credit on turns by the scope of their branch: FoldGRPO."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import fmean

from baton.credit.acts import Turn, turns
from baton.credit.baseline import EPS, OF_BASELINE, std
from baton.credit.contract import Credits, Group, RewardOf, estimator, make_credit, returns, team_return
from baton.trace.forest import Forest
from baton.trace.trace import Trace

__all__ = ["branch_scope", "process_rewards"]

_SENDS_OUT = ("spawn", "delegate", "aggregate", "stop")


@estimator("branch-scope", "turn", needs=["group"], source="FoldGRPO, arXiv 2510.11967", evidence="A/C")
def branch_scope(
    group: Group,
    *,
    reward: RewardOf = team_return,
    in_scope: Callable[[Trace, str], bool | None] | None = None,
    main_limit_tokens: int | None = None,
    eps: float = EPS,
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
    error = std(totals) / math.sqrt(len(totals)) / scale
    return [
        [
            make_credit(
                "branch-scope",
                "turn",
                turn.call,
                (min(1.0, max(0.0, total + extra)) - mean) / scale,
                stderr=error,
                assumes=("returns lie in [0, 1]", "the verdicts on scope are right", OF_BASELINE),
            )
            for turn, extra in process_rewards(trace, in_scope, main_limit_tokens)
        ]
        for trace, total in zip(group, totals, strict=True)
    ]


def process_rewards(
    trace: Trace,
    in_scope: Callable[[Trace, str], bool | None] | None = None,
    main_limit_tokens: int | None = None,
) -> list[tuple[Turn, float]]:
    """Q_t of every turn."""
    root = Forest.of(trace).root
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
