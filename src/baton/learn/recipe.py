"""Recipes: a task, a team, policies, rewards, credit and a loss, as one TOML file decoded strictly.

    about = "GRPO with one advantage for the whole team"
    [task]
    name = "game:parallel-pandora"
    [policies.main]
    model = "tiny"
    [[credit]]
    estimator = "group"

Invariant: an unknown key is an error that names the nearest right one; a combination that cannot work is
refused before anything is computed. Every run keeps its resolved recipe, which gives the same run again.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
from msgspec import Struct, field, structs

from baton.errors import FormatError, UsageError, nearest
from baton.games.game import CHOICES
from baton.learn.models.tiny import Tiny

DecisionName = Literal["spawn", "delegate", "communicate", "aggregate", "stop"]


class _Part(Struct, frozen=True, forbid_unknown_fields=True):
    """A table of a recipe."""


class Cells(_Part, frozen=True, kw_only=True):
    """Where the method stands in the survey's taxonomy."""

    topology: str = ""
    reward: tuple[str, ...] = ()
    credit: tuple[str, ...] = ()
    decisions: tuple[DecisionName, ...] = ()
    regime: Literal["A", "B", "C", ""] = ""
    """A: sub-agents frozen. B: joint, shared baseline. C: decoupled policies with a central critic."""


class TaskPart(_Part, frozen=True, kw_only=True):
    """What is worked on."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict)


class TeamPart(_Part, frozen=True, kw_only=True):
    """Who works on it, and through which harness."""

    topology: str = "centralized"
    settings: dict[str, Any] = field(default_factory=dict)
    surface: Literal["lines", "tools"] = "lines"
    template: str | None = None
    """The system entry; None: the harness's own."""
    memory: Literal["all", "latest"] = "all"
    limits: dict[str, Any] = field(default_factory=dict)
    max_tokens: int = 64
    """Of one completion."""
    temperature: float = 1.0


class PolicyPart(_Part, frozen=True, kw_only=True):
    """One set of weights."""

    model: str = "tiny"
    """tiny, smollm2, a Hugging Face directory, or an engine such as openai:MODEL@URL (frozen)."""
    roles: tuple[str, ...] = ()
    """Roles it answers for; empty: all that no other policy names."""
    train: Literal["full", "lora", "frozen"] = "full"
    rank: int = 16
    """Of LoRA."""
    learning_rate: float | None = None
    """None: the run's."""
    tiny: Tiny = Tiny()
    device: str | None = None
    dtype: str | None = None


class WarmPart(_Part, frozen=True, kw_only=True):
    """A supervised start on scripted play, for the grammar."""

    play: str = "eager"
    """A reference policy of the game; eager is random play that spawns four times as readily, logged is what the
    game says wrote its log."""
    episodes: int = 1500
    steps: int = 200
    rows: int = 64
    learning_rate: float = 3e-3


class RewardPart(_Part, frozen=True, kw_only=True):
    """What is worth something; a recipe of `baton reward` by name. None: what the task itself scores."""

    recipe: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    """Changes to its rules, such as solvers = ["executor"] or "terms.1.weight.steps" = 40."""


class CreditPart(_Part, frozen=True, kw_only=True):
    """One estimator, and which decisions it trains."""

    estimator: str
    unit: str | None = None
    decisions: tuple[DecisionName, ...] = ()
    """Only events of these decisions keep its credit; empty: everything it covers."""
    roles: tuple[str, ...] = ()
    """Only agents of these roles; empty: all."""
    settings: dict[str, Any] = field(default_factory=dict)
    group_by: Literal["instance", "task"] = "instance"
    weight: float = 1.0
    centre: bool = False
    """Subtract the mean of this estimator's credits over the step, for those that have no baseline."""
    normalise: bool = False
    """Divide by the root mean square of this estimator's credits over the step."""


class CriticPart(_Part, frozen=True, kw_only=True):
    """What estimates values for estimators that need them."""

    kind: str = "table"
    """table counts; network reads; agents gives each agent a value of its own, mixed into the team's (VDN, QMIX). Or
    one of your own, by module:attr."""
    view: Literal["central", "local"] = "central"
    steps: int = 20
    learning_rate: float = 1e-3
    prior: float = 3.0
    """Of the table: how many visits the average over options counts."""
    backup: Literal["policy", "best", "best-first", "return"] = "policy"
    """Of the table: whether later choices are taken as the policy makes them, at their best, at their best first and
    as the policy makes them in the end, or as they turned out."""
    temperature: float = 0.0
    """Of the table: how much, in units of return, trying all options is worth; it falls to zero over the run."""
    optimism: float = 0.0
    """Of the table: what an option seen once is believed to be worth more, in units of return; falls likewise."""


class LossPart(_Part, frozen=True, kw_only=True):
    """See `baton.learn.loss`; the same words. None: as the named loss has it."""

    kind: str = "ppo"
    """ppo, gspo, cispo, reinforce, masked; or ppo as published: grpo, dr_grpo, dapo."""
    low: float | None = None
    high: float | None = None
    against_now: bool = False
    correction: Literal["auto", "off", "truncate", "mask"] = "auto"
    """Of losses without a ratio to the sampler: reinforce, and others with `against_now`."""
    correction_low: float | None = None
    correction_high: float | None = None
    entropy: float = 0.0
    kl: float = 0.0
    scale: tuple[Literal["group", "trace", "agent", "turn"], ...] | None = None
    length: int | None = None


class PackPart(_Part, frozen=True, kw_only=True):
    """How rows are computed (see `baton.learn.update.Packed`)."""

    packing: Literal["auto", "forest", "merged", "rows"] = "auto"
    duplicates: Literal["once", "row_exact"] = "once"
    max_tokens: int = 65536


class RolloutPart(_Part, frozen=True, kw_only=True):
    """How much is played for one step."""

    groups: int = 16
    """Instances."""
    group_size: int = 8
    """Rollouts of each."""
    fan_out: tuple[int, ...] = ()
    """Branches of each rollout after its first turn, of each of those after the second, and so on (a tree)."""
    overlap: bool = False
    """Play the next step's rollouts with the weights of before while training on this one's. False: strictly
    on-policy. On one GPU the two compute by turns, so that little is gained."""
    staleness: int = 1
    """Rollouts sampled by weights older than this many steps are not trained on."""
    replay: int = 0
    """Groups of earlier steps, within `staleness`, that are trained on again at each step."""
    cut_weight: float = 1.0
    """How much rollouts that a budget cut off count, beside finished ones."""


class TrainPart(_Part, frozen=True, kw_only=True):
    """How long and how fast."""

    steps: int = 40
    epochs: int = 1
    """Times each step's rollouts are gone through."""
    batches: int = 1
    """Optimiser steps of one epoch."""
    learning_rate: float = 1e-3
    clip_norm: float = 1.0
    seed: int = 0
    threads: int | None = 1
    """Of torch; small models are faster on one. None: torch's own."""
    decisions: tuple[DecisionName, ...] = CHOICES
    """Which of the five are learned; tokens of the others are left alone."""
    freeze_by_turns: int = 0
    """Train one policy at a time, this many steps each; 0: all together."""
    checkpoint_every: int = 10
    invalid: float = 1.0
    """What an answer that cannot be carried out costs its tokens, on top of what credit they have; in units of what
    credits are in that step (their root mean square). Of sampled options: otherwise no such answer is trained."""
    options: Literal["sampled", "all"] = "sampled"
    """all: where a task names the options and a critic knows them, move the policy towards the better ones, taken or
    not (see `baton.learn.options`); what credit says of them stays on the traces."""
    temperature: float = 0.05
    """Of `options = "all"`: differences of value, in units of return, that matter within one step."""
    forget: float = 0.1
    """Of `options = "all"`: how much of the policy's own preference fades at each step."""
    decision_only: bool = False
    """Train the tokens that say a decision, and not the reasoning around them. Of sampled options, likewise."""


class EvalPart(_Part, frozen=True, kw_only=True):
    """What is measured before and after."""

    episodes: int = 256
    best_of: int = 4
    split: Literal["train", "test"] = "test"


class Recipe(_Part, frozen=True, kw_only=True):
    """Everything `baton train` needs."""

    about: str
    source: str = ""
    evidence: str = ""
    """[P] paper, [C] code, [A] abstract, [M] textbook, [I] inferred here."""
    cells: Cells = Cells()
    task: TaskPart
    team: TeamPart = TeamPart()
    policies: dict[str, PolicyPart] = field(default_factory=lambda: {"main": PolicyPart()})
    warm: WarmPart | None = None
    reward: RewardPart = RewardPart()
    credit: tuple[CreditPart, ...]
    critic: CriticPart | None = None
    loss: LossPart = LossPart()
    pack: PackPart = PackPart()
    rollout: RolloutPart = RolloutPart()
    train: TrainPart = TrainPart()
    eval: EvalPart = EvalPart()

    def rate_setting(self, policy: str) -> str:
        """Which setting is a policy's rate of learning."""
        own = self.policies[policy].learning_rate is not None
        return f"policies.{policy}.learning_rate" if own else "train.learning_rate"


def built_in() -> dict[str, Recipe]:
    """The recipes that ship with Baton, by name."""
    place = files("baton.learn").joinpath("recipes")
    names = sorted(p.name.removesuffix(".toml") for p in place.iterdir() if p.name.endswith(".toml"))
    return {name: load(name) for name in names}


def load(name: str, changes: Sequence[str] = ()) -> Recipe:
    """A built-in recipe by name or one from a file, with `--set` changes such as `train.steps=5`."""
    if name.endswith(".toml"):
        path = Path(name)
        if not path.is_file():
            raise UsageError(
                f"there is no file {name!r}. Give a recipe's name (baton recipes) or a TOML file."
            )
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            raise FormatError(f"{name} is not UTF-8 text; expected a recipe in TOML.") from None
    else:
        place = files("baton.learn").joinpath("recipes", f"{name}.toml")
        if not place.is_file():
            folder = files("baton.learn").joinpath("recipes")
            known = [p.name.removesuffix(".toml") for p in folder.iterdir() if p.name.endswith(".toml")]
            raise UsageError(
                f"there is no recipe {name!r}. {nearest(name, known)} For your own, give a path that ends in .toml."
            )
        text = place.read_text("utf-8")
    return parse(text, name, changes)


def parse(text: str, where: str = "recipe", changes: Sequence[str] = ()) -> Recipe:
    """A recipe from TOML text."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FormatError(f"{where}: not valid TOML: {error}.") from None
    for change in changes:
        _change(table, change)
    _check_keys(table, Recipe, where)
    try:
        return msgspec.convert(table, Recipe)
    except msgspec.ValidationError as error:
        reason = str(error).replace("$.", "").replace("$", "the recipe")
        raise UsageError(f"{where}: {reason[0].lower()}{reason[1:]}.") from None


def resolved(recipe: Recipe) -> str:
    """The recipe as TOML with every setting written out; None is left out, which means the same."""
    import tomli_w

    return tomli_w.dumps(_without_none(msgspec.to_builtins(recipe)))


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(each) for key, each in value.items() if each is not None}
    return [_without_none(each) for each in value] if isinstance(value, list | tuple) else value


def _change(table: dict[str, Any], change: str) -> None:
    key, equals, value = change.partition("=")
    if not equals:
        raise UsageError(f"--set {change!r} has no value. Type: --set {key}=VALUE")
    *path, last = key.split(".")
    here: Any = table
    for part in path:
        if isinstance(here, list) and part.isdigit() and int(part) < len(here):
            here = here[int(part)]
        elif isinstance(here, dict):
            here = here.setdefault(part, {})
        else:
            raise UsageError(
                f"--set {change!r}: there is no {part!r} there. Tables in a list have numbers, from 0."
            )
    if not isinstance(here, dict):
        raise UsageError(f"--set {change!r}: {'.'.join(path)} is not a table.")
    try:
        here[last] = msgspec.json.decode(value)
    except msgspec.DecodeError:
        here[last] = value


def _check_keys(table: Mapping[str, Any], kind: type[Struct], where: str) -> None:
    """msgspec refuses an unknown key or word as well, but cannot say which one was meant."""
    known = {each.name: each.type for each in structs.fields(kind)}
    for key, value in table.items():
        if key not in known:
            raise UsageError(f"{where} has no setting {key!r}. {nearest(key, known)}")
        _check_word(known[key], value, f"{where}: {key}")
        part = _part_of(known[key])
        if part is None:
            continue
        kind_, many = part
        inner = f"{where}, [{key}]"
        if many == "one" and isinstance(value, dict):
            _check_keys(value, kind_, inner)
        elif many == "named" and isinstance(value, dict):
            for name, each in value.items():
                if isinstance(each, dict):
                    _check_keys(each, kind_, f"{where}, [{key}.{name}]")
        elif many == "list" and isinstance(value, list):
            for each in value:
                if isinstance(each, dict):
                    _check_keys(each, kind_, inner)


def _check_word(type_: Any, value: object, where: str) -> None:
    """Text where only some words are known, or only a number."""
    kinds = (type_, *get_args(type_))
    if isinstance(value, list):
        for listed in (kind for kind in kinds if get_origin(kind) is tuple):
            for each in value:
                _check_word(listed, each, where)
        return
    words = [word for each in kinds if get_origin(each) is Literal for word in get_args(each)]
    if not isinstance(value, str) or str in kinds or value in words:
        return
    if words:
        raise UsageError(f"{where} is {value!r}. {nearest(value, words)}")
    if float in kinds or int in kinds:
        raise UsageError(f"{where} is {value!r}; expected a number.")


def _part_of(type_: Any) -> tuple[type[Struct], Literal["one", "named", "list"]] | None:
    if isinstance(type_, type) and issubclass(type_, Struct):
        return type_, "one"
    for inner in get_args(type_):
        if isinstance(inner, type) and issubclass(inner, Struct):
            origin = getattr(type_, "__origin__", None)
            return inner, "named" if origin is dict else "list" if origin is tuple else "one"
    return None
