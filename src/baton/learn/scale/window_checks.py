"""What a window cannot be: settings of `[rollout]` and `[scale]` that would train on nothing, or on the wrong thing."""

from __future__ import annotations

from baton.errors import UsageError
from baton.learn.loss import Loss
from baton.learn.recipe import Recipe


def check_window(recipe: Recipe, loss: Loss) -> None:
    """Refuse bounds that would leave nothing to train on, and older weights that nothing corrects for."""
    rollout, lag = recipe.rollout, recipe.lag
    if rollout.grow == "best" and not rollout.fan_out:
        raise UsageError(
            'rollout.grow = "best" chooses among branches, and rollout.fan_out has none, so it would do nothing. '
            "Write fan_out = [4, 4], for one, or leave grow out."
        )
    if rollout.overlap and recipe.scale.lag:
        raise UsageError(
            f"rollout.overlap is the word for scale.lag = 1 in one process, and scale.lag is {recipe.scale.lag}. "
            "Leave overlap out (--set rollout.overlap=false)."
        )
    _check_staleness(recipe)
    # Labels are imitated, whoever drew them; the targets of all options are made by the weights of now.
    policy_gradient = recipe.train.options != "all" and loss.rule.labels == "none"
    if policy_gradient and loss.correction == "off" and not loss.samples_needed and (lag or rollout.replay):
        why = f"a lag of {lag}" if lag else "rollout.replay"
        raise UsageError(
            f"loss.correction is off, and with {why} rollouts of older weights are trained on: they would count as if "
            'the weights of now had drawn them. Leave correction out, or write correction = "truncate" or "mask".'
        )


def _check_staleness(recipe: Recipe) -> None:
    rollout, lag = recipe.rollout, recipe.lag
    setting = "rollout.overlap" if rollout.overlap else f"scale.lag = {lag}"
    if lag > recipe.staleness:
        old = "one step" if lag == 1 else f"{lag} steps"
        raise UsageError(
            f"{setting} trains on rollouts that are {old} old, and rollout.staleness is {recipe.staleness}. "
            f"Set staleness to {lag} or more or leave it out, or the lag to {recipe.staleness}."
        )
    if rollout.replay and recipe.staleness < 1 + lag:
        raise UsageError(
            f"rollout.replay trains on rollouts of earlier steps, and rollout.staleness is {recipe.staleness}, which "
            f"leaves none. Set staleness to {1 + lag} or more or leave it out, or replay to 0."
        )
