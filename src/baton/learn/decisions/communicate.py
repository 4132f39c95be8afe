"""How to communicate.

Message credit by causal replay asks what would have come of another message at the same moment.
"""

from __future__ import annotations

from baton.learn.decisions.contract import Decision

__all__ = ["COMMUNICATE"]

COMMUNICATE = Decision(
    name="communicate",
    code="O3",
    question="what is said to whom",
    units=("message",),
    estimators=("message-replay", "coma", "siblings"),
)
