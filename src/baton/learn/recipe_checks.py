"""What a recipe cannot be, refused before anything is computed: each refusal is one message with the way to mend it.

`check_numbers` refuses values that cannot be, `check_names` names that nobody knows, `check_idle` and `check_asked`
settings that would do nothing where they stand (whoever writes one means something by it), `check_credit` credit that
does not fit the team, the policies, the rollouts or the critic. What an estimator needs is declared by the estimator,
so that one of another package is refused alike.
"""

from __future__ import annotations

import math

from msgspec import structs

from baton import registry
from baton.credit import find
from baton.credit.estimator import Estimator
from baton.credit.stack import StackedCredit, check_stack
from baton.errors import UsageError, nearest
from baton.games.library import GAMES
from baton.learn.critics.critic import CRITICS
from baton.learn.decisions import DECISIONS
from baton.learn.loss import Loss
from baton.learn.policy import roles_of
from baton.learn.recipe import (
    CreditPart,
    LossPart,
    PolicyPart,
    Recipe,
    RolloutPart,
    ScalePart,
    TrainPart,
    extensions,
)
from baton.learn.stage import Stage
from baton.settings import check
from baton.team.team import Topology
from baton.trace.acts import EVENT_UNITS

_OPTIONS_CREDIT = "coma"
"""The credit that says on the traces what `options = "all"` trains by: values of options, by the critic."""
_ALL = 'train.options = "all" moves the policy towards the options that the critic values'


def check_idle(recipe: Recipe) -> None:
    """Whether what the recipe sets does something. Settings of the targets of all options may stay where a recipe is
    switched to sampled ones."""
    _check_learning(recipe)
    _check_scale(recipe.scale)
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
        if part.masters and part.train != "full":
            why = "adapters are float32 already" if part.train == "lora" else "nothing is stepped"
            raise UsageError(
                f"policies.{name}.masters is of weights that are trained in half precision, and train is "
                f'{part.train!r}: {why}. Write train = "full", or leave masters out.'
            )


def loss_of(recipe: Recipe) -> Loss:
    """The loss that a recipe trains by."""
    if recipe.train.options == "all":  # the cross-entropy to a target: weights are the target's chances
        return Loss(kind="reinforce", correction="off")
    return Loss(**{key: value for key, value in structs.asdict(recipe.loss).items() if value is not None})


_OF_WORKERS = ("workers", "restarts", "patience", "address", "worker_cpus", "worker_gpus", "placement")
_OF_RAY = ("address", "worker_cpus", "worker_gpus", "placement")


def _check_scale(scale: ScalePart) -> None:
    """What is said of rollout workers needs some, and what is said of a Ray cluster needs one."""
    plain = ScalePart()
    for name in _OF_WORKERS if not scale.rollout_workers else _OF_RAY if scale.workers != "ray" else ():
        if (given := getattr(scale, name)) != getattr(plain, name):
            needs, of = "scale.workers=ray", "Ray's, and workers are processes"
            if not scale.rollout_workers:
                needs, of = "scale.rollout_workers=2", "rollout workers, and there are none"
            raise UsageError(
                f"scale.{name} = {given!r} is of {of}, so it would do nothing. Type: --set {needs}, or leave it out."
            )


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
    if recipe.critic is None or recipe.critic.kind in ("agents", "graph"):
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
    rule = loss.rule
    if not rule.uses_ratio and (given.low is not None or given.high is not None or given.against_now):
        raise UsageError(
            f"loss.kind is {rule.name}, which has no ratio, so loss.low, loss.high and loss.against_now would do "
            "nothing. Leave them out, or take another kind."
        )
    bounds = given.correction_low is not None or given.correction_high is not None
    if loss.samples_needed and (given.correction != "auto" or bounds):
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
    if rule.whole_sequences and math.prod(recipe.rollout.fan_out) > 1 and recipe.pack.duplicates == "once":
        raise UsageError(
            f"loss {rule.name} needs whole answers, and with rollout.fan_out branches share some, of which each is "
            'trained once. Set pack.duplicates = "row_exact", or take a loss of single tokens (ppo, cispo).'
        )


_VERBS = {
    "spawn": ("spawn",),
    "delegate": ("delegate",),
    "communicate": ("send", "return", "write"),
    "aggregate": ("aggregate",),
    "stop": ("stop",),
}
"""Decision -> what an agent may say to make it."""


def check_numbers(recipe: Recipe) -> None:
    """Whether every number is one that a run can have, also where a recipe was made in Python."""
    check(recipe)
    for name, part in recipe.policies.items():
        size = part.tiny
        if min(size.width, size.layers, size.heads, size.context) < 1 or size.width % (2 * size.heads):
            raise UsageError(
                f"[policies.{name}.tiny]: width {size.width} with {size.heads} heads and {size.layers} layers cannot "
                "be. Expected a width that is a multiple of twice the heads, and at least one of each."
            )


_NAMED = ("surface", "aggregator", "tool", "critic", "loss", "monitor", "metric", "logger")
"""Kinds that are resolved here. The others are looked up by whoever makes them, before anything is computed as well."""


def check_names(recipe: Recipe) -> None:
    """Whether everything that the recipe names is there."""
    for kind, name in extensions(recipe):
        if kind in _NAMED:
            registry.resolve(kind, name)
    for name, part in recipe.policies.items():
        if part.engine is not None and not part.engine.startswith(("vllm:", "tinker:")):
            raise UsageError(
                f"policies.{name}.engine is {part.engine!r}; expected vllm:local, vllm:URL or tinker:URL, which are "
                f'given what is trained. Leave it out, or ask a server as it is, frozen: model = "{part.engine}".'
            )


def check_credit(recipe: Recipe, stage: Stage) -> None:
    """Whether the recipe's credit fits its team, its policies, its rollouts and its critic."""
    frozen = _frozen_roles(recipe, stage)
    _check_learned(recipe, stage)
    check_stack(
        StackedCredit(
            place=f"credit.{number}",
            estimator=find(part.estimator),
            unit=part.unit,
            decisions=part.decisions,
            roles=part.roles,
        )
        for number, part in enumerate(recipe.credit)
    )
    for part in recipe.credit:
        estimator = find(part.estimator)
        _check_decisions(part, estimator, stage)
        _check_options(estimator, stage)
        _check_settings(part, estimator)
        _check_group(part, estimator, recipe, stage)
        _check_critic(part, estimator, recipe)
        for role in part.roles:
            if role not in stage.roles:
                raise UsageError(f"[[credit]] names role {role!r}. {nearest(role, stage.roles)}")
        if part.roles and frozen.issuperset(part.roles):
            raise UsageError(
                f"[[credit]] {estimator.name} is for {', '.join(part.roles)}, whose weights are frozen and cannot "
                'learn. Set train = "full" or "lora" for the policy, or leave this credit out.'
            )


def _frozen_roles(recipe: Recipe, stage: Stage) -> frozenset[str]:
    found: set[str] = set()
    for name, roles in roles_of(recipe, stage.roles).items():
        part = recipe.policies[name]
        if part.train == "frozen":
            if part.learning_rate is not None:
                raise UsageError(
                    f"[policies.{name}] is frozen and has a learning_rate: it cannot learn. Take one of them out."
                )
            found.update(roles)
    return frozenset(found)


def _check_settings(part: CreditPart, estimator: Estimator) -> None:
    """Its unit and its settings, as far as a recipe gives them; functions come later, from the run."""
    later = {name: _later for name, setting in estimator.settings.items() if setting.default is setting.empty}
    estimator.bind(unit=part.unit, **{**later, **part.settings})


def _later() -> None:
    """Stands for a function that the run gives."""


def _check_group(part: CreditPart, estimator: Estimator, recipe: Recipe, stage: Stage) -> None:
    """Whether enough rollouts are compared with each other."""
    rollout = recipe.rollout
    critic = any("values" in find(each.estimator).needs for each in recipe.credit)
    if "group" not in estimator.needs and (critic or "values or group" not in estimator.needs):
        return
    if "lucks" in estimator.needs and stage.game is not None:
        _check_lucks(part, estimator, rollout)
    each = math.prod(rollout.fan_out) * (rollout.groups if part.group_by == "task" else 1)
    compared = rollout.group_size * each
    if compared < estimator.at_least:
        least = math.ceil(estimator.at_least / max(1, each))
        other = ', or group_by = "task"' if part.group_by == "instance" else ""
        raise UsageError(
            f"estimator {estimator.name} compares rollouts of one {part.group_by}, at least {estimator.at_least}, and "
            f"there {'is' if compared == 1 else 'are'} {compared}. Set rollout.group_size to {least} or more{other}."
        )


def _check_lucks(part: CreditPart, estimator: Estimator, rollout: RolloutPart) -> None:
    """What going on is worth is learned over the luck of several instances, or it would be known in hindsight."""
    lucks = rollout.groups if part.group_by == "task" else 1
    if lucks < estimator.at_least:
        raise UsageError(
            f"estimator {estimator.name} learns what going on is worth from rollouts with luck of their own, at least "
            f"{estimator.at_least}; those of one instance of a game share it, so there {'is' if lucks == 1 else 'are'} "
            f'{lucks}. Set group_by = "task" and rollout.groups to {estimator.at_least} or more.'
        )


def _check_critic(part: CreditPart, estimator: Estimator, recipe: Recipe) -> None:
    asked = [
        name
        for name, setting in estimator.settings.items()
        if name in ("value", "q") and setting.default is setting.empty and name not in part.settings
    ]
    if not asked:
        return
    kinds = estimator.critics
    has = None if recipe.critic is None else recipe.critic.kind
    if has not in kinds and (has is None or has in CRITICS):
        there = "none" if has is None else f"{has!r}"
        raise UsageError(
            f"estimator {estimator.name} asks a critic of kind {' or '.join(map(repr, kinds))}, and the recipe has "
            f'{there}. Write under [critic]: kind = "{kinds[-1]}".'
        )


def _check_decisions(part: CreditPart, estimator: Estimator, stage: Stage) -> None:
    if part.decisions and not EVENT_UNITS & set(estimator.units):
        raise UsageError(
            f"estimator {estimator.name} gives credit to {', '.join(estimator.units)}, which is no single decision, so "
            "`decisions` cannot choose among it. Leave `decisions` out, or take an estimator on the unit "
            f"orchestrator, such as {DECISIONS[part.decisions[0]][0]}."
        )
    for decision in sorted({*part.decisions, *estimator.decisions}):
        if not _made(stage, decision):
            raise UsageError(
                f"[[credit]] {estimator.name} is for the decision to {decision}, and "
                f"{_nobody(stage, decision)}, or leave this credit out."
            )


def _check_options(estimator: Estimator, stage: Stage) -> None:
    """Of estimators that compare what was said with all that could have been."""
    if "options" in estimator.needs and stage.assignment(0).options is None:
        raise UsageError(
            f"estimator {estimator.name} asks for the chance of every option, and {stage.task.name} names no options: "
            "an answer may be any text. Take a task that names them (baton game), or credit on turns or agents, such "
            'as estimator = "group".'
        )


def _check_learned(recipe: Recipe, stage: Stage) -> None:
    wanted = recipe.train.decisions
    if wanted and not any(_made(stage, decision) for decision in wanted):
        raise UsageError(
            f"train.decisions names {', '.join(wanted)}, so nothing would be learned: "
            f"{_nobody(stage, wanted[0])}, or name others."
        )


def _made(stage: Stage, decision: str) -> bool:
    """Whether anyone's policy makes a decision."""
    if stage.game is not None:
        return decision in stage.game.decisions
    return any(_decides(stage.topology, role, decision) for role in stage.roles)


def _nobody(stage: Stage, decision: str) -> str:
    """Says that nobody makes a decision, and where someone would."""
    if stage.game is not None:
        has = ", ".join(dict.fromkeys(stage.game.decisions))
        other = next(name for name, kind in GAMES.items() if decision in kind.decisions)
        return (
            f"{stage.task.name} has no decision to {decision} (only {has}). "
            f"Take a game that has it, such as game:{other}"
        )
    return (
        f"nobody's policy in a {stage.topology.name} team of {stage.task.name} makes it. "
        f"Take a team whose policies do (centralized, for one)"
    )


def _decides(topology: Topology, role_name: str, decision: str) -> bool:
    """Whether a role's policy makes a decision: a program makes some for it, except where it asks for a turn."""
    role = next(role for role in topology.roles if role.name == role_name)
    if role_name in topology.asks:
        return bool(set(_VERBS[decision]) & set(role.verbs))
    asks = topology.name == "debate" and topology.built_from.get("method", "majority") is None
    if role_name in topology.programs and not (asks and decision in ("aggregate", "stop")):
        return False
    return bool(set(_VERBS[decision]) & set(role.verbs))
