"""Which training recipes this installation has, and the line to type for one."""

from __future__ import annotations

from baton.learn.recipe import RECIPES


def installed_recipes() -> frozenset[str]:
    """Names of the training recipes that ship with this Baton."""
    return frozenset(RECIPES)


def train_line(recipe: str) -> str:
    """What to type to train by a recipe."""
    return f"baton train {recipe}"
