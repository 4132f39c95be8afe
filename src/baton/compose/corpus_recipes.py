"""Which training recipes this installation has, and the line to type for one."""

from __future__ import annotations

from importlib.resources import files


def installed_recipes() -> frozenset[str]:
    """Names of the training recipes that ship with this Baton."""
    folder = files("baton").joinpath("learn", "recipes")
    if not folder.is_dir():
        return frozenset()
    return frozenset(
        place.name.removesuffix(".toml") for place in folder.iterdir() if place.name.endswith(".toml")
    )


def train_line(recipe: str) -> str:
    return f"baton train {recipe}"
