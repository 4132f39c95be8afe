"""Training from a recipe: its names become components, its run a folder; begin, go on, measure again.

Every component can be given as an object instead (`Own`). What a recipe file names is looked up only when the person
trusts the file (`baton.compose.trust`); what is given here as an object needs no leave.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field, structs

from baton.compose.stage_from_recipe import make_stage
from baton.compose.team_from_settings import refuse_given
from baton.compose.trust import recipe_in
from baton.credit import find
from baton.credit.estimator import RewardOf
from baton.errors import UsageError, nearest
from baton.learn.conflict import check_conflict
from baton.learn.critics.critic import Critic, learns, make_critic
from baton.learn.judging import check_judges
from baton.learn.loss import Loss
from baton.learn.models.start import starting_adapters, starting_models
from baton.learn.phases import Phase, spans, with_all_credits
from baton.learn.policy import Adapt, Load, Policy, roles_of
from baton.learn.preference import check_labels
from baton.learn.recipe import PolicyPart, Recipe, RewardPart
from baton.learn.recipe_checks import (
    check_asked,
    check_credit,
    check_idle,
    check_names,
    check_numbers,
    loss_of,
)
from baton.learn.rollouts import Players
from baton.learn.run import checkpoint
from baton.learn.run.evaluate import optimum_of
from baton.learn.run.folder import Folder
from baton.learn.run.loggers import check_loggers
from baton.learn.run.session import Session
from baton.learn.scale.sharded_checks import check_sharded
from baton.learn.scale.window_checks import check_window
from baton.learn.scoring import Scoring, check_balance
from baton.learn.stage import Stage
from baton.learn.trainer import Closing, Components, Trainer
from baton.learn.watch import Watch
from baton.reward.reward_recipe import RewardRecipe, change_rules, load_reward_recipe, make_rules
from baton.tasks.task import Task
from baton.team.credentials import NO_CREDENTIALS, Credentials
from baton.team.team import Topology

if TYPE_CHECKING:
    from baton.learn.constraint.constraints import Constraints

Progress = Callable[[str], None]
MakePlayers = Callable[[Mapping[str, Policy]], Players]

MAY_CHANGE = (
    "train.steps",
    "train.learning_rate",
    "train.clip_norm",
    "train.checkpoint_every",
    "train.loggers",
    "train.logger_settings",
    "scale.rollout_workers",
    "scale.workers",
    "scale.restarts",
    "scale.patience",
    "scale.address",
    "scale.worker_cpus",
    "scale.worker_gpus",
    "scale.placement",
    "scale.trainer_processes",
    "scale.trainer_patience",
)
"""Settings with which a run can go on that it did not begin with: what is done stays as it is. So are other rates of
learning, where there are such (see `may_change`)."""


class Own(Struct, frozen=True, kw_only=True):
    """Components that a program gives as objects, in the place of those that the recipe names."""

    task: Task | None = None
    topology: Topology | None = None
    models: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    """Policy -> model and tokenizer."""
    reward: RewardRecipe | None = None
    loss: Loss | None = None
    credentials: Credentials = NO_CREDENTIALS
    """Where the secrets are that tools need."""


OWN_NOTHING = Own()


def make_trainer(
    recipe: Recipe, own: Own = OWN_NOTHING, *, progress: Progress | None = None, restored: bool = False
) -> Trainer:
    """A trainer by a recipe.

    `restored`: a checkpoint's weights follow, so adapters need no supervised start; and what the run began with cannot
    be changed any more, so nothing of it is refused for doing nothing.
    """
    stage, phases = check_trainable(recipe, own, restored=restored)
    asked = with_all_credits(recipe, [phase.span for phase in phases])
    constraints = _constraints(recipe)
    load, adapt = starts_of(recipe, stage, progress)
    parts = Components(
        stage=stage,
        load=_loading(own, load, recipe),
        adapt=None if restored else adapt,
        phases=phases,
        critic=lambda policies, reward: _critic(asked, policies, reward, constraints),
        constraints=constraints,
        watch=Watch(recipe),
        players=_players(recipe, own, stage, progress),
        ranks=_ranks(recipe),
    )
    return Trainer(recipe, parts)


def _constraints(recipe: Recipe) -> Constraints | None:
    """What the recipe keeps within limits; None: nothing."""
    if not recipe.constraints:
        return None
    from baton.learn.constraint.constraints import Constraints  # nobody else meets it

    return Constraints(recipe)


def _critic(
    recipe: Recipe, policies: Mapping[str, Policy], reward: RewardOf, constraints: Constraints | None
) -> Critic:
    """The recipe's critic; where costs are priced, one that keeps them apart from what is earned."""
    part = recipe.critic
    if constraints is not None and part is not None and part.kind == "table":
        from baton.learn.constraint.constraints import PricedCritic

        return PricedCritic(recipe, policies, reward, constraints)
    return make_critic(recipe, policies, reward)


def _players(recipe: Recipe, own: Own, stage: Stage, progress: Progress | None) -> MakePlayers | None:
    """Who plays past this process, where the recipe asks for that."""
    if not recipe.scale.rollout_workers:
        return None
    from baton.compose.rollout_worker import check_workers, make_players  # nobody else meets it

    if own.credentials.by_name:
        raise UsageError(
            f"scale.rollout_workers={recipe.scale.rollout_workers}: workers are other processes, perhaps on other "
            "machines, and credentials stay in the one that they were given to. Leave rollout_workers out."
        )
    given = {"the task": own.task, "the topology": own.topology, "a model": own.models or None}
    check_workers(recipe, [what for what, each in given.items() if each is not None])
    return make_players(recipe, stage, progress)


def _ranks(recipe: Recipe) -> Callable[[Mapping[str, Policy]], Closing] | None:
    """Who computes updates together; None: this process alone."""
    if recipe.scale.trainer_processes == 1:
        return None
    from baton.learn.scale.sharded import shard  # a run of one process does not meet it

    return partial(shard, recipe)


def starts_of(recipe: Recipe, stage: Stage, progress: Progress | None) -> tuple[Load, Adapt]:
    """How policies and their adapters get their first weights."""
    if recipe.program is not None:
        from baton.learn.program.stage import ProgramStage
        from baton.learn.program.start import program_adapters, program_models

        assert isinstance(stage, ProgramStage)
        return program_models(recipe, stage, progress), program_adapters(recipe, stage, progress)
    return starting_models(recipe, stage, progress), starting_adapters(recipe, stage, progress)


def check_trainable(
    recipe: Recipe, own: Own = OWN_NOTHING, *, restored: bool = False
) -> tuple[Stage, tuple[Phase, ...]]:
    """Refuse what cannot be trained by, before any weights are made; where it is played, and the run's phases."""
    check_numbers(recipe)
    check_names(recipe)
    check_loggers(recipe)
    found = spans(recipe)
    stage = make_stage(recipe, task=own.task, topology=own.topology, credentials=own.credentials)
    stage.check_tools()
    phases: list[Phase] = []
    for span in found:
        now = span.recipe
        if not restored:
            check_idle(now)
        check_credit(now, stage)
        loss = own.loss or loss_of(now)
        check_window(now, loss, stage)
        _check_engines(now, stage)
        if not restored:
            check_labels(now, loss.rule)
        same = next((each for each in phases if each.span.recipe.reward == now.reward), None)
        # One reward's schedule goes on from phase to phase.
        scoring = same.scoring if same else Scoring(own.reward or reward_of(now.reward))
        check_balance(now, scoring.rules)
        check_judges(now)
        check_conflict(now, scoring.rules, loss, roles_of(now, stage.roles))
        if any((part.engine or "").startswith("tinker:") for part in now.policies.values()):
            from baton.learn.scale.tinker_checks import check_tinker

            check_tinker(now, loss, scoring.rules)
        check_sharded(now, scoring.rules, restored=restored)
        if now.program is not None:
            from baton.compose.program_stage import check_without_forks

            check_without_forks(now, scoring.rules)
        if now.acts:
            from baton.learn.acting import check_acts

            check_acts(now, scoring.rules)
        phases.append(Phase(span=span, scoring=scoring, loss=loss))
    if recipe.constraints:
        from baton.learn.constraint.constraints import check_constraints

        check_constraints(recipe)
    if not restored:
        check_asked(with_all_credits(recipe, found))
    return stage, tuple(phases)


def _check_engines(recipe: Recipe, stage: Stage) -> None:
    """Whether policies can be answered for by the engines that they name."""
    named = [part.engine for part in recipe.policies.values() if part.engine is not None]
    if any(each.startswith("vllm:") for each in named):
        from baton.learn.scale.served import check_served

        asking = [part.estimator for part in recipe.credit if "options" in find(part.estimator).needs]
        named_options = recipe.program is None and stage.assignment(0).options is not None
        check_served(recipe, options=named_options, asks_options=asking)
    elif recipe.scale.updates != "pinned":
        raise UsageError(
            'scale.updates = "in-flight" is of weights that are pushed to a vLLM server, and no policy has one. '
            "Leave it out, "
            'or write engine = "vllm:local" for a policy.'
        )


def reward_of(part: RewardPart) -> RewardRecipe | None:
    """The rules that `[reward]` names and writes out, with its changes. None: what the task itself scores.

    Whoever loads a training recipe asks for the person's leave for all that it names.
    """
    if part.recipe is not None:
        refuse_given("reward", part.recipe)
    named = load_reward_recipe(part.recipe, trust=True) if part.recipe else None
    written = make_rules(part.rules, "[reward]", trust=True) if part.rules else ()
    if named is None and not written:
        if part.settings:
            raise UsageError('[reward] has settings and no recipe to change. Add recipe = "NAME".')
        return None
    rules = (*(() if named is None else named.rules), *written)
    about = "the rules of [reward]" if named is None else named.about
    return RewardRecipe(about=about, rules=change_rules(rules, part.settings))


def _loading(own: Own, named: Load, recipe: Recipe) -> Load:
    """Models that were given, else those that the recipe names."""
    given = {recipe.policies[name].model: pair for name, pair in own.models.items()}

    def load(part: PolicyPart) -> tuple[Any, Any]:
        return given[part.model] if part.model in given else named(part)

    return load


def begin(
    recipe: Recipe,
    name: str,
    out: Path,
    progress: Progress | None = None,
    own: Own = OWN_NOTHING,
    *,
    profile: bool = False,
) -> Session:
    """A new run in a new folder. `profile`: with where the time of each step goes (`Session.profile`)."""
    folder = Folder(out)
    folder.check_free()
    for span in spans(recipe):
        if progress is not None and span.first > recipe.train.steps:
            progress(
                f"phase {span.name} begins with step {span.first}, and the run ends with step {recipe.train.steps}"
            )
    trainer = make_trainer(recipe, own, progress=progress)
    game = trainer.stage.game
    solution = None if game is None else optimum_of(game)
    optimum = None if solution is None else solution.value
    folder.begin(recipe, {"recipe": name, **_facts(recipe), "optimum": optimum})
    session = Session(trainer, folder, name=name, note=progress)
    return (session.profile() if profile else session).measure_untrained(progress)


def open_run(
    out: Path,
    progress: Progress | None = None,
    recipe: Recipe | None = None,
    own: Own = OWN_NOTHING,
    *,
    trust: bool = False,
) -> Session:
    """The run in a folder as its latest checkpoint left it, by another recipe if given. Nothing is written."""
    folder = Folder(out)
    told = folder.told()
    recipe = recipe or _recipe(out, trust=trust)
    place = checkpoint.latest(folder.checkpoints, progress)
    trainer = make_trainer(recipe, own, progress=progress, restored=True)
    saved = checkpoint.restore(place, trainer.policies)
    trainer.recall(saved)
    session = Session(trainer, folder, name=told["recipe"], note=progress)
    session.recall(saved.remembered)
    return session


def go_on(
    out: Path,
    progress: Progress | None = None,
    changes: Sequence[str] = (),
    own: Own = OWN_NOTHING,
    *,
    trust: bool = False,
    profile: bool = False,
) -> Session:
    """Go on with the run in a folder; from its beginning, where it was cut off before the first checkpoint.

    `changes` are `train.steps=80` and the like, of settings that what was done so far does not depend on.
    """
    folder = Folder(out)
    told = folder.told()
    recipe = _recipe(out, changes, trust=trust)
    steps = told.get("steps")
    if told["status"] == "finished" and isinstance(steps, int) and recipe.train.steps <= steps:
        named = shlex.quote(str(out))
        raise UsageError(
            f"the run in {out} is finished: all {steps} steps are done. Type: baton eval {named}, to measure "
            f"it again; or go on: baton train --resume --out {named} --set train.steps={2 * steps}"
        )
    if not (folder.checkpoints / "latest").exists():
        folder.forget_after(-1)
        folder.change(recipe, 0, changes)
        trainer = make_trainer(recipe, own, progress=progress)
        session = Session(trainer, folder, name=told["recipe"], note=progress)
        return (session.profile() if profile else session).measure_untrained(progress)
    session = open_run(out, progress, recipe, own)
    done = session.trainer.step_number
    if recipe.train.steps < done:
        raise UsageError(f"train.steps is {recipe.train.steps}, and {done} are done. Give more.")
    session.go_on_from(done)
    session.folder.change(recipe, done, changes)
    session.folder.tell({**_facts(recipe), "status": "running", "why": ""})
    session.trainer.set_rates()
    return session.profile() if profile else session


def measure_again(
    out: Path,
    *,
    episodes: int | None = None,
    seed: int | None = None,
    keep: bool = False,
    progress: Progress | None = None,
    own: Own = OWN_NOTHING,
    trust: bool = False,
) -> list[dict[str, Any]]:
    """The untrained team and the team of the latest checkpoint, on the same held-out instances."""
    note = progress or (lambda _: None)
    session = open_run(out, progress, own=own, trust=trust)
    recipe = session.recipe
    if episodes is not None:
        recipe = structs.replace(recipe, eval=structs.replace(recipe.eval, episodes=episodes))
    if seed is not None:
        recipe = structs.replace(recipe, train=structs.replace(recipe.train, seed=seed))
    session.recipe = recipe  # the trainer keeps the one that its weights were made by
    try:
        note("measuring the trained team")
        after = session.evaluate("team", keep=False)
        note("measuring the untrained team")
        checkpoint.load_weights(session.folder.checkpoints / "step-00000", session.trainer.policies)
        before = session.evaluate("untrained", keep=False) | {"step": 0}
        lines = [line | {"seed": recipe.train.seed} for line in (before, after)]
        for line in lines if keep else ():
            session.folder.add("evals", line)
    finally:
        session.close()
    return lines


def may_change(recipe: Recipe) -> tuple[str, ...]:
    """What a run of this recipe can go on with otherwise than it began."""
    learning = [name for name, part in recipe.policies.items() if part.train != "frozen"]
    critics = ["critic.learning_rate"] if learns(recipe.critic) else []
    return (*MAY_CHANGE, *(f"policies.{name}.learning_rate" for name in learning), *critics)


def _facts(recipe: Recipe) -> dict[str, Any]:
    """What run.json says that follows from the recipe."""
    return {
        "about": recipe.about,
        "task": recipe.task.name,
        "seed": recipe.train.seed,
        "steps": recipe.train.steps,
        **({"phases": _reached(recipe)} if recipe.phases else {}),
    }


def _reached(recipe: Recipe) -> list[dict[str, Any]]:
    """The phases that the run gets to, and the first step of each."""
    return [
        {"name": each.name, "first": each.first} for each in spans(recipe) if each.first <= recipe.train.steps
    ]


def _recipe(out: Path, changes: Sequence[str] = (), *, trust: bool) -> Recipe:
    """The run's recipe, with changes that a run can go on with."""
    known = may_change(recipe_in(out, trust=trust))
    for change in changes:
        path = change.partition("=")[0]
        if not any(f"{path}.".startswith(f"{each}.") for each in known):
            raise UsageError(
                f"--set {change}: a run goes on with the settings it began with. {nearest(path, known)} "
                "For others, train anew into another --out."
            )
    recipe = recipe_in(out, changes, trust=trust)
    check_numbers(recipe)
    return recipe
