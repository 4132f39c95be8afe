"""What a recipe cannot ask of a policy at a service, refused with a sentence before anything is computed."""

from __future__ import annotations

from collections.abc import Sequence

from baton.errors import UsageError
from baton.learn.loss import Loss
from baton.learn.recipe import PackPart, PolicyPart, Recipe
from baton.learn.scoring import balanced
from baton.reward.rule import Rule

_THERE = "its weights are at a service"


def check_tinker(recipe: Recipe, loss: Loss, rules: Sequence[Rule]) -> None:
    """Whether the Tinker protocol can express what the recipe asks for."""
    names = [name for name, part in recipe.policies.items() if (part.engine or "").startswith("tinker:")]
    for name in names:
        _check_part(name, recipe.policies[name])
    if names:
        _check_loss(loss)
        _check_run(recipe, names[0], rules)


def _check_part(name: str, part: PolicyPart) -> None:
    where = f"policies.{name}"
    if part.train != "lora":
        raise UsageError(
            f"{where}.train is {part.train!r}, and the Tinker protocol trains adapters alone. "
            'Write train = "lora", or leave engine out.'
        )
    for setting in ("device", "dtype"):
        if getattr(part, setting) is not None:
            raise UsageError(f"{where}.{setting} would do nothing: {_THERE}. Leave it out.")


def _check_loss(loss: Loss) -> None:
    if loss.kl:
        raise UsageError(
            f"loss.kl is {loss.kl:g}, and the Tinker protocol has no reference to take KL to. Set loss.kl to 0, or "
            "leave engine out."
        )
    if loss.entropy:
        raise UsageError(
            f"loss.entropy is {loss.entropy:g}, and the Tinker protocol tells the chances of drawn tokens alone, which "
            "have no entropy. Set loss.entropy to 0, or leave engine out."
        )
    if loss.rule.labels == "pairs":
        raise UsageError(
            f"loss {loss.kind} compares pairs with a reference, which the Tinker protocol does not have. Take another "
            "loss.kind, or leave engine out."
        )


def _check_run(recipe: Recipe, name: str, rules: Sequence[Rule]) -> None:
    train, scale = recipe.train, recipe.scale
    refused = (
        (train.options == "all", 'train.options = "all" asks for the chances of options that were not taken'),
        (train.conflict != "add", f'train.conflict = "{train.conflict}" compares gradients'),
        (bool(balanced(rules)), 'a reward with balance = "gradient" measures gradients'),
        (recipe.warm is not None, "[warm] trains an adapter on scripted play before the run"),
        (scale.lag > 0 or recipe.rollout.overlap, "scale.lag and rollout.overlap sample from older weights"),
        (scale.rollout_workers > 0, "scale.rollout_workers play with copies of the weights"),
        (scale.trainer_processes > 1, "scale.trainer_processes share the weights between them"),
        (recipe.program is not None, "[program] is answered by a model of this process"),
    )
    for asked, what in refused:
        if asked:
            raise UsageError(
                f"{what}, and {_THERE} that speaks the Tinker protocol (policies.{name}.engine). Leave it out, or "
                "leave engine out."
            )
    if recipe.team.temperature != 1:
        raise UsageError(
            f"team.temperature is {recipe.team.temperature:g}, and a service of the Tinker protocol trains what was "
            "drawn at 1. Set it to 1, or leave engine out."
        )
    plain = PackPart()
    if (recipe.pack.packing, recipe.pack.max_tokens) != (plain.packing, plain.max_tokens):
        raise UsageError(f"pack.packing and pack.max_tokens would do nothing: {_THERE}. Leave them out.")
