"""When to stop.

Trained by what going on would have been worth: forced continuation, shadow aggregation and backward regression, or
a critic's value of going on. A stop that a cap forced is nobody's choice and is never trained as chosen.
"""

from __future__ import annotations

from baton.learn.decisions.contract import Decision

__all__ = ["STOP"]

STOP = Decision(
    name="stop",
    code="O5",
    question="whether to stop now",
    units=("orchestrator",),
    estimators=("stop-value", "coma", "telescope"),
)
