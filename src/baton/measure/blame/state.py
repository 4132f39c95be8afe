"""Bad states that a run can be blamed for: a failure, a violation, an event that should not have been.

Invariant: how bad a run is follows from its trace alone, so a fork of it is judged by the same rule.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from baton.errors import UsageError, nearest
from baton.measure.safety.taint import taint
from baton.trace.outcome import final_event, task_score
from baton.trace.trace import Trace

FAILURE, VIOLATION = "failure", "violation"


class BadState(Struct, frozen=True, kw_only=True):
    """What went wrong in a run."""

    name: str
    """failure, violation, or the event's id."""
    told: str
    """In words."""
    at: str | None
    """The event that shows it; None: the run came to no end."""
    badness: Callable[[Trace], float]
    """0: it is not there. 1: it is."""


def bad_state(trace: Trace, name: str | None = None) -> BadState:
    """What is wrong with a trace: what is named, else that it failed, else that a call violated the rules of taint."""
    if name is None:
        name = FAILURE if _shortfall(trace) else VIOLATION if taint(trace).violations else None
    if name is None:
        raise UsageError(
            f"nothing is known to be wrong with trace {trace.trace_id}: {_how_it_came_out(trace)}. Name the event that "
            "should not have been: --state EVENT"
        )
    if name == FAILURE:
        short = _shortfall(trace)
        if not short:
            raise UsageError(f"trace {trace.trace_id} did not fail: {_how_it_came_out(trace)}.")
        final = final_event(trace)
        score = task_score(trace)
        told = "the run did not finish" if score is None else f"the team scored {score[0]:g} of 1"
        return BadState(
            name=name,
            told=told,
            at=None if final is None else final.id,
            badness=lambda t: _shortfall(t) or 0.0,
        )
    if name == VIOLATION:
        found = taint(trace).violations
        if not found:
            raise UsageError(f"trace {trace.trace_id} has no violation. Type: baton measure, which says why.")
        told = f"{found[0]} called {trace.event(found[0]).tool} on strangers' words"
        return BadState(name=name, told=told, at=found[0], badness=lambda t: float(bool(taint(t).violations)))
    if name not in trace.position:
        hint = nearest(name, (FAILURE, VIOLATION, *trace.position))
        raise UsageError(f"there is no event {name!r} in trace {trace.trace_id}. {hint}")
    said = _what(trace, name)
    return BadState(
        name=name,
        told=f"{name} should not have been",
        at=name,
        badness=lambda t: float(name in t.position and _what(t, name) == said),
    )


def _what(trace: Trace, name: str) -> tuple[object, ...]:
    event = trace.event(name)
    return event.type, event.agent, event.to, event.tool, event.content_ref, event.status


def _shortfall(trace: Trace) -> float | None:
    """By how much a run fell short of the full score. None: it has none."""
    score = task_score(trace)
    if score is None:
        return None if trace.finished else 1.0
    return min(1.0, max(0.0, 1.0 - score[0]))


def _how_it_came_out(trace: Trace) -> str:
    score = task_score(trace)
    return "nobody scored it" if score is None else f"the team scored {score[0]:g} of 1"
