"""Check a recipe: all that it names is there, nothing in it is refused, and what a run keeps of it gives it again."""

from __future__ import annotations

from pathlib import Path

from baton.errors import BatonError
from baton.learn.recipe import Recipe, load, parse, resolved
from baton.testing.check_tools import CheckFailed, require


def check_recipe(recipe: str | Path | Recipe) -> Recipe:
    """`recipe` is a name, the path of a TOML file, `module:attr`, or the recipe itself, which comes back.

    All that it names is looked up and made, models alone excepted, so its code is imported: check what you trust.
    """
    from baton.compose.training import check_trainable  # takes seconds: it brings torch

    where = "the recipe" if isinstance(recipe, Recipe) else f"recipe {str(recipe)!r}"
    try:
        found = recipe if isinstance(recipe, Recipe) else load(str(recipe), trust=True)
        again = parse(resolved(found), trust=True)
        check_trainable(found)
    except BatonError as error:
        raise CheckFailed(f"{where} is refused: {error}") from error
    require(again == found, f"{where}: written out and read again it is another. Use values that TOML has.")
    require(found.about.strip(), f"{where} does not say in `about` what it is.")
    learning = [name for name, part in found.policies.items() if part.train != "frozen"]
    require(learning, f"{where}: all of its policies are frozen, so nothing would be learned.")
    scripted = [name for name, part in found.policies.items() if part.model == "tiny"]
    require(
        not scripted or found.warm is not None,
        f"{where}: {', '.join(scripted)} is tiny, which says nothing before a [warm] start. Add [warm].",
    )
    return found
