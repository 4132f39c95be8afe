"""How to aggregate what others returned."""

from __future__ import annotations

from baton.learn.decisions.contract import Decision

__all__ = ["AGGREGATE"]

AGGREGATE = Decision(
    name="aggregate",
    code="O4",
    question="how results become one",
    units=("orchestrator",),
    estimators=("coma", "siblings", "telescope"),
)
