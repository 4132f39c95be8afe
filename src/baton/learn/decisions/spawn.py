"""When to spawn, and when not to.

Not spawning is a choice and earns credit too: paired forks run both branches under the same luck, and the one not
taken gets minus the chance-weighted effect (Observation 2 of the survey: on-policy data alone cannot tell it).
"""

from __future__ import annotations

from baton.learn.decisions.contract import Decision

__all__ = ["SPAWN"]

SPAWN = Decision(
    name="spawn",
    code="O1",
    question="how many agents, and whether any",
    units=("orchestrator",),
    estimators=("spawn-fork", "spawn-combined", "spawn-doubly-robust", "coma"),
)
