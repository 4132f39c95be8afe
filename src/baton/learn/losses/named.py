"""The published losses by name, and what a recipe makes of one."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from baton.errors import UsageError, nearest
from baton.learn.losses.total import Loss

__all__ = ["LOSSES", "named_loss"]

LOSSES: dict[str, tuple[Loss, str]] = {
    "reinforce": (Loss(kind="reinforce"), "Williams 1992 [M]"),
    "ppo": (Loss(kind="ppo"), "arXiv 1707.06347 [P]"),
    "grpo": (Loss(kind="ppo", scale=("turn",)), "arXiv 2402.03300 [P]: the mean over calls of token means"),
    "dr_grpo": (Loss(kind="ppo", length=1024), "arXiv 2503.20783 [P]: a constant length; set it to yours"),
    "dapo": (Loss(kind="ppo", low=0.2, high=0.28), "arXiv 2503.14476 [P]: asymmetric clip, mean over tokens"),
    "gspo": (Loss(kind="gspo", scale=("turn",)), "arXiv 2507.18071 [P]"),
    "cispo": (Loss(kind="cispo"), "arXiv 2506.13585 [P]"),
    "masked": (Loss(kind="masked"), "Kimi PARL [A]"),
}
"""Name -> settings and where they are from. Advantages (with or without a deviation) are credit's."""


def named_loss(name: str, **given: Any) -> Loss:
    """A loss by name, with other settings where they are given; None: its own."""
    if name not in LOSSES:
        raise UsageError(f"there is no loss {name!r}. {nearest(name, LOSSES)}")
    return structs.replace(
        LOSSES[name][0], **{key: value for key, value in given.items() if value is not None}
    )
