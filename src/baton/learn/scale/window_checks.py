"""What a window cannot be: settings of `[rollout]` and `[scale]` that would train on nothing, or on the wrong thing."""

from __future__ import annotations

from baton.errors import UsageError
from baton.learn.loss import Loss
from baton.learn.recipe import Recipe, ScalePart
from baton.learn.stage import Stage


def check_window(recipe: Recipe, loss: Loss, stage: Stage) -> None:
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
    _check_stragglers(recipe, stage)
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


def _check_stragglers(recipe: Recipe, stage: Stage) -> None:
    """What a step that does not wait for all its groups cannot be together with."""
    scale, plain = recipe.scale, ScalePart()
    if scale.stragglers == "wait":
        for name in ("wait_for", "clock"):
            if getattr(scale, name) != getattr(plain, name):
                raise UsageError(
                    f"scale.{name} is of steps that do not wait for all, and scale.stragglers is 'wait', so it would "
                    f'do nothing. Write stragglers = "cut" or "carry", or leave {name} out.'
                )
        return
    given = f'scale.stragglers = "{scale.stragglers}"'
    if scale.wait_for in (0.0, 1.0):
        whom = "waits for all" if scale.wait_for else "waits for nobody"
        raise UsageError(
            f"{given} with scale.wait_for = {scale.wait_for:g} {whom}. "
            'Give a share between 0 and 1, or write stragglers = "wait".'
        )
    for name, value, why in (
        (
            "scale.rollout_workers",
            scale.rollout_workers,
            "looks at runs of its own process, and workers play in others",
        ),
        (
            "scale.batch",
            scale.batch,
            "looks at all groups of a step, and lots are played one after the other",
        ),
        (
            "rollout.fan_out",
            recipe.rollout.fan_out,
            "ends rollouts in the middle, and branches grow from whole ones",
        ),
        (
            "[program]",
            recipe.program,
            "goes on with a run from its trace, and a program cannot be held in the middle",
        ),
    ):
        if value:
            raise UsageError(
                f'{given} {why}: {name} cannot be set with it. Write stragglers = "wait", or leave it out.'
            )
    if scale.stragglers == "cut" and recipe.critic is not None:
        raise UsageError(
            f"{given} weighs what it takes, and a critic learns from it unweighed: its values would be those of short "
            'rollouts. Write stragglers = "carry" or "wait", or take an estimator without a critic.'
        )
    if scale.stragglers == "carry":
        _check_carried(recipe, stage)


def _check_carried(recipe: Recipe, stage: Stage) -> None:
    if recipe.staleness <= recipe.lag:
        raise UsageError(
            f'scale.stragglers = "carry" trains on rollouts that began a step before or more, and rollout.staleness is '
            f"{recipe.staleness}, which leaves none. Set it to {recipe.lag + 1} or more, or leave it out."
        )
    tools = {tool.name: tool for tool in stage.assignment(0).tools.values()}
    for tool in tools.values():
        if not (tool.pure or tool.idempotent):
            raise UsageError(
                f'scale.stragglers = "carry" may call a tool again whose result had not come when a rollout was held, '
                f'and {tool.name!r} acts on the world. Write stragglers = "cut" or "wait", or make it pure.'
            )
