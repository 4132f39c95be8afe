"""What cannot be computed by several processes together, refused before anything is made."""

from __future__ import annotations

from collections.abc import Sequence

from baton.errors import UsageError
from baton.learn.recipe import Recipe, ScalePart
from baton.learn.scoring import balanced
from baton.reward.rule import Rule


def check_sharded(recipe: Recipe, rules: Sequence[Rule], *, restored: bool) -> None:
    """Whether `scale.trainer_processes` can train by this. `restored`: what a run began with may stand idle."""
    world = recipe.scale.trainer_processes
    if world == 1:
        if not restored and recipe.scale.trainer_patience != ScalePart().trainer_patience:
            raise UsageError(
                "scale.trainer_patience is how long processes wait for each other, and scale.trainer_processes is 1, "
                "so it would do nothing. Leave it out, or write trainer_processes = 2."
            )
        return
    said = f"scale.trainer_processes is {world}"
    if recipe.train.conflict != "add":
        raise UsageError(
            f'{said}, and train.conflict = "{recipe.train.conflict}" compares whole gradients, of which each process '
            'has a share. Write conflict = "add", or set trainer_processes to 1.'
        )
    if named := [rule.name for rule in balanced(rules)]:
        raise UsageError(
            f'{said}, and reward {named[0]} is balanced by the norms of whole gradients (balance = "gradient"), of '
            "which each process has a share. Balance it otherwise, or set trainer_processes to 1."
        )
