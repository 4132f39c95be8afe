"""Negative control for O3: a message that informs but does not pay. The right answer is silence.

The one-shot message with a nearly deaf scout: VOI is below the message's cost.
Source: as `one-shot-message` (Howard 1966).
"""

from __future__ import annotations

from typing import ClassVar

from baton.games.library.one_shot_message import OneShotMessage, Rows


class Quiet(OneShotMessage, frozen=True, kw_only=True):
    """A scout not worth asking."""

    name: ClassVar[str] = "quiet"

    prior: tuple[float, ...] = (0.5, 0.5)
    channel: Rows = ((0.55, 0.45), (0.45, 0.55))
    utility: Rows = ((1.0, 0.0), (0.0, 1.0))
    cost: float = 0.1
