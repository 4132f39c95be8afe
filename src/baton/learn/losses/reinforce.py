"""REINFORCE: -A log pi. Its value means nothing; its gradient is the policy gradient.

Williams, "Simple statistical gradient-following algorithms", 1992 [M].
"""

from __future__ import annotations

from torch import Tensor

from baton.learn.losses.contract import Kind, Tokens

__all__ = ["REINFORCE"]


def _each(tokens: Tokens, low: float, high: float) -> Tensor:  # noqa: ARG001  # no bounds
    return -tokens.advantage * tokens.new


REINFORCE = Kind(
    name="reinforce",
    each=_each,
    low=0.0,
    high=0.0,
    takes_ratio=False,
    formula="-A log pi",
    source="Williams 1992",
    evidence="M",
)
