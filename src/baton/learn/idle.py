"""Settings that would do nothing where they stand, refused: whoever writes one means something by it."""

from __future__ import annotations

import math

from msgspec import structs

from baton.credit import find
from baton.errors import UsageError
from baton.learn.losses import KINDS, Loss, named_loss
from baton.learn.recipe import CreditPart, LossPart, PolicyPart, Recipe, TrainPart

__all__ = ["check_asked", "check_idle", "loss_of"]

_OPTIONS_CREDIT = "coma"
"""The credit that says on the traces what `options = "all"` trains by: values of options, by the critic."""
_ALL = 'train.options = "all" moves the policy towards the options that the critic values'


def check_idle(recipe: Recipe) -> None:
    """Whether what the recipe sets does something. Settings of the targets of all options may stay where a recipe is
    switched to sampled ones."""
    _check_learning(recipe)
    if recipe.train.options == "all":
        _check_all_options(recipe)
    else:
        _check_loss(recipe)
    for name, part in recipe.policies.items():
        if part.train != "lora" and part.rank != PolicyPart().rank:
            raise UsageError(
                f"policies.{name}.rank is LoRA's, and train is {part.train!r}, so it would do nothing. "
                'Write train = "lora", or leave rank out.'
            )


def loss_of(recipe: Recipe) -> Loss:
    """The loss that a recipe trains by."""
    if recipe.train.options == "all":  # the cross-entropy to a target: weights are the target's chances
        return Loss(kind="reinforce", correction="off")
    given = structs.asdict(recipe.loss)
    return named_loss(given.pop("kind"), **given)


def _check_learning(recipe: Recipe) -> None:
    """Something has credit, and is trained by it."""
    if not recipe.credit:
        raise UsageError(
            'the recipe has no credit, so nothing would be learned. Add [[credit]] with estimator = "group", for one.'
        )
    learned = recipe.train.decisions
    if not learned:
        raise UsageError(
            "train.decisions is empty, so nothing would be learned. Name decisions, or leave it out for all five."
        )
    for number, part in enumerate(recipe.credit):
        if part.weight == 0:
            raise UsageError(
                f"credit.{number}.weight is 0, so {part.estimator} would train nothing. Give another, or leave this "
                "credit out."
            )
        if part.decisions and not set(part.decisions) & set(learned):
            raise UsageError(
                f"credit.{number} is for {', '.join(part.decisions)}, and train.decisions names {', '.join(learned)}, "
                "so it would train nothing. Name one of them in both."
            )


def _check_all_options(recipe: Recipe) -> None:
    """There the critic's values train, and credit is only told: of its settings, `decisions` count."""
    # Runs of old write an empty scale where none was given.
    if structs.replace(recipe.loss, scale=recipe.loss.scale or None) != LossPart():
        raise UsageError(
            'train.options = "all" has a loss of its own, the cross-entropy to a target, so [loss] would do nothing. '
            "Leave [loss] out, or leave options out."
        )
    if recipe.critic is None or recipe.critic.kind == "agents":
        raise UsageError(
            'train.options = "all" asks a critic what options not taken are worth, and the recipe has none that can '
            'tell. Add [critic] with kind = "table" or "network", or leave options out.'
        )
    for number, part in enumerate(recipe.credit):
        if part.estimator != _OPTIONS_CREDIT:
            raise UsageError(
                f"{_ALL}, so estimator {part.estimator} would train nothing. "
                f'Write estimator = "{_OPTIONS_CREDIT}", or options = "sampled".'
            )
        plain = CreditPart(estimator=part.estimator)
        for name in ("unit", "settings", "weight", "centre", "normalise", "group_by", "roles"):
            _check_default(f"credit.{number}.{name}", getattr(part, name), getattr(plain, name))
    for name in ("invalid", "decision_only"):
        _check_default(f"train.{name}", getattr(recipe.train, name), getattr(TrainPart(), name))


def _check_default(path: str, value: object, default: object) -> None:
    if value != default:
        raise UsageError(
            f'{_ALL}, so {path} = {value} would do nothing. Leave it out, or write options = "sampled".'
        )


def check_asked(recipe: Recipe) -> None:
    """A critic is there for somebody: some estimators go without, and ask where there is one."""
    found = [find(part.estimator) for part in recipe.credit]
    asking = [
        name
        for estimator in found
        for name, setting in estimator.settings.items()
        if name in ("value", "q") and setting.default in (setting.empty, None)
    ]
    if recipe.critic is not None and not asking:
        raise UsageError(
            f"[critic] would do nothing: {', '.join(estimator.name for estimator in found)} asks none. Leave it out "
            "(--set critic=null), or take an estimator that asks one (baton credit --list: values)."
        )


def _check_loss(recipe: Recipe) -> None:
    given, loss = recipe.loss, loss_of(recipe)
    if loss.kind == "reinforce" and (given.low is not None or given.high is not None or given.against_now):
        raise UsageError(
            "loss.kind is reinforce, which has no ratio, so loss.low, loss.high and loss.against_now would do nothing. "
            "Leave them out, or take another kind."
        )
    bounds = given.correction_low is not None or given.correction_high is not None
    if KINDS[loss.kind].takes_ratio and not loss.against_now and (given.correction != "auto" or bounds):
        raise UsageError(
            f"loss.correction is for losses without a ratio to the sampler, and {given.kind} has one, so it would do "
            "nothing. Leave it and its bounds out, or set loss.against_now = true."
        )
    if given.correction_low is not None and given.correction != "mask":
        raise UsageError(
            f"loss.correction_low is a bound of masks, and loss.correction is {given.correction!r}, so it would do "
            'nothing. Write correction = "mask", or leave correction_low out.'
        )
    if given.correction_high is not None and given.correction == "off":
        raise UsageError(
            "loss.correction is off, so loss.correction_high would do nothing. Leave one of them out."
        )
    if loss.kind == "gspo" and math.prod(recipe.rollout.fan_out) > 1 and recipe.pack.duplicates == "once":
        raise UsageError(
            "loss gspo needs whole answers, and with rollout.fan_out branches share some, of which each is trained "
            'once. Set pack.duplicates = "row_exact", or take a loss of single tokens (ppo, cispo).'
        )
