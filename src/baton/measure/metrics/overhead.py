"""E4, protocol overhead: what being a team costs, against one agent, resource by resource.

O_x = (x_team - x_single)/x_single for tokens, turns, calls, tool calls and seconds apart. What of a team's cost is
protocol: protocol.py; what a delegation costs: delegation.py.
Coordination efficiency = S/(turns/turns_single), as arXiv 2512.08296 has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from baton.measure.figure import Figure, NotMeasured, not_measured, ratio, told
from baton.measure.measured import MeasuredTrace
from baton.measure.metric import metric


@metric("tokens", "E4", unit="tokens")
def tokens(reading: MeasuredTrace) -> float:
    """Tokens of the whole trace."""
    return reading.tokens


@metric("turns", "E4", unit="turns")
def turns(reading: MeasuredTrace) -> float:
    """Answered calls; where a trace records none, the acts of its agents."""
    said = {event.call for event in reading.trace.events if event.call is not None}
    return len(said) or reading.stages.total_steps


@metric("calls", "E4", unit="calls")
def calls(reading: MeasuredTrace) -> float:
    """LLM calls."""
    return reading.num_calls


@metric("tool_calls", "E4", unit="calls")
def tool_calls(reading: MeasuredTrace) -> float:
    """Tool calls."""
    return sum(event.type == "tool_call" for event in reading.trace.events)


RESOURCES: dict[str, Callable[[MeasuredTrace], float]] = {
    "tokens": tokens.of,
    "turns": turns.of,
    "calls": calls.of,
    "tool_calls": tool_calls.of,
    "seconds": lambda reading: reading.seconds,
}


def overhead_of(team: float, single: float) -> float:
    """(x_team - x_single)/x_single."""
    if single <= 0:
        raise NotMeasured("the single agent used none of it")
    return (team - single) / single


def overhead(team: Iterable[MeasuredTrace], single: Iterable[MeasuredTrace], resource: str) -> Figure:
    """How much more of a resource the team used than the single agent, by means over traces; pair these by task."""
    both: list[list[float]] = []
    for readings in (team, single):
        values, why_not = told(readings, lambda reading: float(RESOURCES[resource](reading)))
        if not values:
            return why_not
        both.append(values)
    found = ratio(*both)
    if found.value is None:
        return not_measured("the single agent used none of it")
    low, high = (None if end is None else end - 1 for end in (found.low, found.high))
    return Figure(found.value - 1, None if low is None else max(-1.0, low), high, found.n)


def coordination_efficiency(success: float, turns: float, turns_single: float) -> float:
    """S/(turns/turns_single): success for each turn that a single agent would have taken."""
    return success / (turns / turns_single)
