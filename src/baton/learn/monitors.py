"""Collapse while training: four ways a team degenerates, seen on the step's traces, with what to do about it.

    serial-collapse       nobody is spawned any more, though the task lets agents be spawned (O1)
    dominant-agent        one agent does nearly all the work of a team (O2)
    over-communication    messages grow while the return does not (O3)
    aggregation-leakage   the final answer repeats one source whatever the others said (O4)

Each compares with the run's own first steps, so a team that never spawned is not called collapsed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from baton.learn.recipe import Recipe
from baton.trace.trace import Trace

__all__ = ["Warned", "Watch"]


class Warned(Struct, frozen=True, kw_only=True):
    """One monitor that fired."""

    monitor: str
    message: str


class Watch:
    """Watches a run."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe

    def observe(self, metrics: Mapping[str, Any], traces: Sequence[Trace]) -> list[Warned]:
        """What is to be said after a step."""
        return []

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        pass
