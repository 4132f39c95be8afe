"""Negative control for O5: Pandora with something good in hand. The right answer is to stop at once.

Every reservation value is below what is in hand, so no box is worth opening and V* = in_hand.
Source: as `pandora` (Weitzman 1979).
"""

from __future__ import annotations

from typing import ClassVar

from baton.games.library.pandora import Pandora


class Enough(Pandora, frozen=True, kw_only=True):
    """Nothing left worth opening."""

    name: ClassVar[str] = "enough"

    scales: tuple[float, ...] = (1.0, 1.0, 1.0)
    costs: tuple[float, ...] = (0.05, 0.1, 0.2)
    in_hand: float = 0.75
