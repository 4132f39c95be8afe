"""Whom to give a task.

A choice among agents that are there; COMA compares it with what the policy would have done on average.
"""

from __future__ import annotations

from baton.learn.decisions.contract import Decision

__all__ = ["DELEGATE"]

DELEGATE = Decision(
    name="delegate",
    code="O2",
    question="who gets which task",
    units=("orchestrator",),
    estimators=("coma", "siblings", "telescope"),
)
