"""What a team stands beside: a single agent, and best-of-n of it, with as many tokens as the team spent.

Best-of-n takes, for each task, single-agent samples in the order of their ids until the next would go past
the tokens that the team's traces of that task took on average (at least one), and succeeds if any of them
does: the verifier picks. Only tasks that both sides have are compared; with no task in common, all are,
and the report says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from baton.errors import TraceError
from baton.measure.figure import Figure, NotMeasured, mean, not_measured, proportion, told
from baton.measure.measured import MeasuredTrace

_MATCHED = 0.1
"""Tokens within a tenth of each other count as matched."""


class BestOf(Struct, frozen=True, kw_only=True):
    """Token-matched best-of-n."""

    success: Figure
    samples: Figure
    """n: how many samples the team's tokens bought, on average over tasks."""
    token_match: Figure
    """Their tokens over the team's."""


def matched(
    team: Sequence[MeasuredTrace], other: Sequence[MeasuredTrace]
) -> tuple[Sequence[MeasuredTrace], Sequence[MeasuredTrace], bool]:
    """Both sides on the tasks they share; False: they share none, and all are given back."""
    shared = {r.trace.header.task_id for r in team} & {r.trace.header.task_id for r in other}
    if not shared:
        return team, other, False
    ours, theirs = ([r for r in side if r.trace.header.task_id in shared] for side in (team, other))
    return ours, theirs, True


def token_match(team: Sequence[MeasuredTrace], other: Sequence[MeasuredTrace]) -> Figure:
    """The other side's mean tokens over the team's; 1 is a fair comparison."""
    try:
        ours, theirs = (math.fsum(r.tokens for r in side) / len(side) for side in (team, other))
    except (TraceError, ZeroDivisionError):
        return not_measured("tokens were not counted on both sides")
    return Figure(theirs / ours, None, None, len(other)) if ours else not_measured("the team spent no tokens")


def is_matched(figure: Figure) -> bool:
    """Whether that is close enough to call it token-matched."""
    return figure.value is not None and abs(figure.value - 1) <= _MATCHED


def best_of(team: Sequence[MeasuredTrace], samples: Sequence[MeasuredTrace]) -> BestOf:
    """Best-of-n from single-agent samples, several a task."""
    tasks: dict[str, list[MeasuredTrace]] = {}
    for reading in sorted(samples, key=lambda r: r.trace.trace_id):
        tasks.setdefault(reading.trace.header.task_id, []).append(reading)

    def tried(task: str) -> tuple[bool, int, float]:
        budget = _budget(team, task)
        used, tokens = _within(tasks[task], budget)
        return any(reading.succeeded for reading in used), len(used), tokens / budget

    found, why_not = told(sorted(tasks), tried)
    if not found:
        return BestOf(success=why_not, samples=why_not, token_match=why_not)
    won, taken, spent = zip(*found, strict=True)
    return BestOf(success=proportion(sum(won), len(won)), samples=mean(taken), token_match=mean(spent))


def _budget(team: Sequence[MeasuredTrace], task: str) -> float:
    same = [r.tokens for r in team if r.trace.header.task_id == task]
    if not same:
        raise NotMeasured("the team has no trace of the same task")
    budget = math.fsum(same) / len(same)
    if budget <= 0:
        raise NotMeasured("the team spent no tokens")
    return budget


def _within(samples: Sequence[MeasuredTrace], budget: float) -> tuple[list[MeasuredTrace], float]:
    used: list[MeasuredTrace] = []
    tokens = 0.0
    for reading in samples:
        if used and tokens + reading.tokens > budget:
            break
        used.append(reading)
        tokens += reading.tokens
    return used, tokens
