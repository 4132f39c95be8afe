"""Train and evaluate for Python programs: a recipe, with any of its components given as an object instead of a name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from baton import registry
from baton.compose.run_settings import given_name, name_of
from baton.compose.trust import check_recipe, recipe_in
from baton.credit.estimator import Estimator
from baton.learn.recipe import Recipe, load, parse, resolved
from baton.learn.run.folder import Folder, read_lines
from baton.reward.reward_recipe import RewardRecipe
from baton.reward.rule import Rule
from baton.settings import plain
from baton.tasks.task import Task
from baton.team.credentials import Credentials, credentials_of
from baton.team.protocol import Engine
from baton.team.surface.parsing import Surface
from baton.team.team import Topology

if TYPE_CHECKING:
    from baton.compose.training import Own
    from baton.learn.critics.critic import Critic
    from baton.learn.loss import Loss, LossKind
    from baton.learn.run.session import Session

Model = str | tuple[Any, Any]
"""A model's name, or the model and its tokenizer."""
Credit = str | Estimator | Mapping[str, Any]
"""An estimator's name, an estimator, or a table as under [[credit]] in a recipe."""
RewardLike = str | Rule | Sequence[Rule] | RewardRecipe


class TrainedRun(Struct, frozen=True, kw_only=True):
    """A training run: where it is kept, what it measured, and the policies it ended with."""

    out: Path
    """The run's folder: recipe, metrics, evaluations, traces, checkpoints."""
    engines: Mapping[str, Engine]
    """Role -> the trained policy's engine, to run teams with: `baton.run(task, policy=run.engines)`."""
    own: Own
    """The components that were given as objects."""

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One line of each step."""
        return read_lines(self.out / "metrics.jsonl")

    @property
    def evals(self) -> list[dict[str, Any]]:
        """What was measured before, after and beside: one line each, `who` says of whom."""
        return read_lines(self.out / "evals.jsonl")

    @property
    def profile(self) -> dict[int, dict[str, float]]:
        """Step -> seconds by part (`rollout/play/engine/decode`), which add up to the step. Empty: not profiled."""
        from baton.learn.run.profile_parts import steps_of

        return steps_of(self.out)

    @property
    def before(self) -> dict[str, Any] | None:
        """The untrained team on held-out instances."""
        return self._measured("untrained")

    @property
    def after(self) -> dict[str, Any] | None:
        """The trained team on the same instances."""
        return self._measured("team")

    def _measured(self, who: str) -> dict[str, Any] | None:
        return next((line for line in reversed(self.evals) if line.get("who") == who), None)


def train(
    recipe: str | Path | Recipe = "grpo",
    *,
    task: Task | str | None = None,
    topology: Topology | str | None = None,
    policy: Model | Mapping[str, Model] | None = None,
    reward: RewardLike | None = None,
    credit: Credit | Sequence[Credit] | None = None,
    loss: Loss | LossKind | str | None = None,
    critic: Critic | Callable[..., Critic] | str | None = None,
    surface: Surface | str | None = None,
    tools: Sequence[Any] = (),
    aggregators: Sequence[Any] = (),
    monitors: Sequence[Any] = (),
    metrics: Sequence[Any] = (),
    loggers: Sequence[Any] = (),
    steps: int | None = None,
    seed: int | None = None,
    settings: Mapping[str, Any] | None = None,
    credentials: Credentials | str | None = None,
    out: str | Path | None = None,
    progress: Callable[[dict[str, Any]], None] | None = None,
    profile: bool = False,
    trust: bool = False,
) -> TrainedRun:
    """Make a team better by a recipe, with any of its parts replaced.

    `settings` are those of `baton train --set`, such as `{"rollout.groups": 4}`. `progress` is called with each step's
    line of metrics. With `profile` the folder has where the time of each step went (`TrainedRun.profile`). A recipe
    that is a file may name code and servers only with `trust`. `credentials` are those of tools, or their file.
    """
    own, changes = _components(task, topology, policy, reward, credentials)
    changes |= _registered(
        credit,
        critic,
        surface,
        tools=tools,
        aggregators=aggregators,
        monitors=monitors,
        metrics=metrics,
        loggers=loggers,
    )
    if loss is not None:
        changes["loss"] = _loss_table(loss)
    if steps is not None:
        changes["train.steps"] = steps
    if seed is not None:
        changes["train.seed"] = seed
    made = _recipe(recipe, changes, settings or {}, policy, trust=trust)
    name = "run" if isinstance(recipe, Recipe) else Path(recipe).name.removesuffix(".toml")
    place = Path(out) if out is not None else Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S-%f}"
    from baton.compose.training import begin

    return _to_its_end(begin(made, name, place, own=own, profile=profile), own, progress)


def resume_training(
    run: str | Path | TrainedRun,
    *,
    settings: Mapping[str, Any] | None = None,
    progress: Callable[[dict[str, Any]], None] | None = None,
    profile: bool = False,
    trust: bool = False,
    **components: Any,
) -> TrainedRun:
    """Go on with a training run that was cut off, or further than it was to go: `settings={"train.steps": 80}`.

    Components that were given as objects are given again, or come with the run where it is a `TrainedRun`.
    """
    out, own = _place(run, trust, components)
    from baton.compose.training import go_on

    changes = [f"{key}={_json(value)}" for key, value in (settings or {}).items()]
    return _to_its_end(go_on(out, None, changes, own, trust=True, profile=profile), own, progress)


def evaluate(
    run: str | Path | TrainedRun,
    *,
    episodes: int | None = None,
    seed: int | None = None,
    trust: bool = False,
    **components: Any,
) -> dict[str, dict[str, Any]]:
    """Measure a run's latest checkpoint again beside the weights it started from: `before` and `after`.

    Components that were given to `train` as objects are given again (`task=my_task`), or come with a `TrainedRun`.
    """
    out, own = _place(run, trust, components)
    from baton.compose.training import measure_again

    before, after = measure_again(out, episodes=episodes, seed=seed, own=own, trust=True)
    return {"before": before, "after": after}


def _to_its_end(session: Session, own: Own, progress: Callable[[dict[str, Any]], None] | None) -> TrainedRun:
    try:
        for line in session.steps():
            if progress is not None:
                progress(line)
        session.finish()
    finally:
        session.close()
    policies = session.trainer.policies.values()
    engines = {role: policy.engine for policy in policies for role in policy.roles}
    return TrainedRun(out=session.folder.path, engines=engines, own=own)


def _place(run: str | Path | TrainedRun, trust: bool, components: Mapping[str, Any]) -> tuple[Path, Own]:
    """A run's folder, whose recipe is trusted, and the components to run it with."""
    if isinstance(run, TrainedRun):
        return run.out, run.own
    out = Path(run)
    Folder(out).told()  # says so if there is none
    recipe_in(out, trust=trust)
    given: dict[str, Any] = dict.fromkeys(("task", "topology", "policy", "reward", "credentials"))
    given |= components
    lists = {name: given.pop(name, ()) for name in _LISTS}
    _registered(given.pop("credit", None), given.pop("critic", None), given.pop("surface", None), **lists)
    return out, _components(**given)[0]


def _components(
    task: Task | str | None,
    topology: Topology | str | None,
    policy: Model | Mapping[str, Model] | None,
    reward: RewardLike | None,
    credentials: Credentials | str | None,
) -> tuple[Own, dict[str, Any]]:
    """Objects, and what the recipe says in their place."""
    from baton.compose.training import Own

    changes: dict[str, Any] = {}
    if task is not None:
        changes["task"] = {"name": name_of(task)}
    if topology is not None:
        changes["team.topology"] = name_of(topology)
    if reward is not None:
        changes["reward"] = {"recipe": reward if isinstance(reward, str) else given_name("rules")}
    models = policy if isinstance(policy, Mapping) else {} if policy is None else {"main": policy}
    own = Own(
        task=None if isinstance(task, str) else task,
        topology=None if isinstance(topology, str) else topology,
        reward=None if reward is None or isinstance(reward, str) else as_rules(reward),
        models={name: model for name, model in models.items() if not isinstance(model, str)},
        credentials=credentials if isinstance(credentials, Credentials) else credentials_of(credentials),
    )
    return own, changes


def as_rules(given: Rule | Sequence[Rule] | RewardRecipe) -> RewardRecipe:
    """Rules that are scored together, from one, several, or a recipe of them."""
    if isinstance(given, RewardRecipe):
        return given
    rules = (given,) if isinstance(given, Rule) else tuple(given)
    return RewardRecipe(about="given in Python", rules=rules)


def _registered(
    credit: Credit | Sequence[Credit] | None, critic: Any, surface: Any, **lists: Sequence[Any]
) -> dict[str, Any]:
    """The recipe's credit, critic, surface, tools, aggregators, monitors, metrics and loggers.

    Those that are objects get a name in this process, by which the recipe knows them; another process registers or
    gives them again.
    """
    changes: dict[str, Any] = {}
    if credit is not None:
        several = [credit] if isinstance(credit, str | Estimator | Mapping) else list(credit)
        changes["credit"] = [
            dict(one) if isinstance(one, Mapping) else {"estimator": _named("estimator", one)}
            for one in several
        ]
    if critic is not None:
        changes["critic"] = {"kind": _named("critic", critic)}
    if surface is not None:
        changes["team.surface"] = _named("surface", surface)
    for name, parts in lists.items():
        if parts:
            kind, setting = _LISTS[name]
            changes[setting] = [_named(kind, part) for part in parts]
    return changes


_LISTS = {
    "tools": ("tool", "team.tools"),
    "aggregators": ("aggregator", "team.aggregators"),
    "monitors": ("monitor", "train.monitors"),
    "metrics": ("metric", "eval.metrics"),
    "loggers": ("logger", "train.loggers"),
}
"""Argument of `train` -> the kind of its parts, and the recipe's setting that lists them."""


def _loss_table(loss: Loss | LossKind | str) -> dict[str, Any]:
    """What the recipe says of a loss; a kind that is an object gets a name in this process."""
    from baton.learn.loss import LossKind

    if isinstance(loss, str | LossKind):
        return {"kind": _named("loss", loss)}
    return plain(loss)


def _named(kind: str, thing: Any) -> str:
    """The name by which this process knows an object; a name stays as it is."""
    if isinstance(thing, str):
        return thing
    own = getattr(thing, "name", None)
    base = own if isinstance(own, str) else f"given-{getattr(thing, '__name__', type(thing).__name__)}"
    made, count = base, 1
    while registry.knows(kind, made):
        if _GIVEN.get((kind, made)) is thing or registry.resolve(kind, made) == thing:
            return made
        count += 1
        made = f"{base}-{count}"
    _GIVEN[kind, made] = thing
    is_critic = kind == "critic" and not callable(thing)
    registry.register(kind, made)((lambda *_: thing) if is_critic else thing)
    return made


_GIVEN: dict[tuple[str, str], Any] = {}
"""(kind, name) -> what a program gave under it."""


def _recipe(
    recipe: str | Path | Recipe,
    changes: Mapping[str, Any],
    settings: Mapping[str, Any],
    policy: Model | Mapping[str, Model] | None,
    *,
    trust: bool,
) -> Recipe:
    """The recipe with all that replaces parts of it written down."""
    if not isinstance(recipe, Recipe):
        name, recipe = str(recipe), load(str(recipe), trust=trust)
        if not trust:
            check_recipe(recipe, f"recipe {name}")
    text = resolved(recipe)
    known = parse(text, trust=True)
    parts = {name: plain(part) for name, part in known.policies.items()}
    named = policy if isinstance(policy, Mapping) else {} if policy is None else dict.fromkeys(parts, policy)
    for name, model in named.items():
        if not (policy is not named and parts[name]["train"] == "frozen"):
            parts.setdefault(name, {})["model"] = model if isinstance(model, str) else given_name(name)
    every = {**({"policies": parts} if named else {}), **changes, **settings}
    return parse(text, "recipe", [f"{key}={_json(value)}" for key, value in every.items()], trust=True)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
