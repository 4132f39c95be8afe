"""Whether a budget ended a rollout."""

from __future__ import annotations

from baton.trace.trace import Trace


def cut_off(trace: Trace) -> bool:
    """Whether a budget, and not the team, ended it. Such rollouts are kept and weighted, never dropped silently:
    dropping the long ones would teach the team that long work does not exist."""
    return any(event.status == "forced" and event.decision == "stop" for event in trace.events)
