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

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct, field, structs

from baton import registry
from baton.errors import UsageError, nearest
from baton.games.game import CHOICES
from baton.games.game_trace import PREFIX
from baton.learn.models.tiny import Tiny
from baton.learn.program.part import ProgramPart, placed
from baton.reward.reward_recipe import REWARD_RECIPES, rule_names
from baton.settings import (
    Count,
    NotNegative,
    Positive,
    Share,
    Shipped,
    Whole,
    decode,
    parse_table,
    plain,
    read_table,
    set_at,
    with_changes,
)

RECIPES: Final = Shipped("baton.learn", "recipes")
"""The files of the recipes that ship with Baton, by name."""

Rate = Annotated[float, Meta(gt=0, le=10)]
"""A rate of learning: whoever writes more than 10 means something else."""

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
    """A: sub-agents frozen. B: joint, shared baseline. C: policies apart, with a central critic or a baseline for each
    role."""


class TaskPart(_Part, frozen=True, kw_only=True):
    """What is worked on."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict)


class TeamPart(_Part, frozen=True, kw_only=True):
    """Who works on it, and through which harness."""

    topology: str = "centralized"
    settings: dict[str, Any] = field(default_factory=dict)
    surface: str = "lines"
    """How actions are written: lines, tools, or a surface of another package."""
    aggregators: tuple[str, ...] = ()
    """Ways to put answers together that the team may use beside Baton's own."""
    tools: tuple[str, ...] = ()
    """Tools that the team may use beside those of its task."""
    template: str | None = None
    """The system entry; None: the harness's own."""
    memory: Literal["all", "latest"] = "all"
    limits: dict[str, Any] = field(default_factory=dict)
    shared_memory: dict[str, Any] | None = None
    """What agents may write to and read together, such as {boards = ["board"]}; None: they have none."""
    max_tokens: Count = 64
    """Of one completion."""
    temperature: Positive = 1.0
    """At which completions are sampled."""


class PolicyPart(_Part, frozen=True, kw_only=True):
    """One set of weights."""

    model: str = "tiny"
    """tiny, smollm2, a Hugging Face directory, or an engine such as openai:MODEL@URL (frozen)."""
    roles: tuple[str, ...] = ()
    """Roles it answers for; empty: all that no other policy names."""
    train: Literal["full", "lora", "frozen"] = "full"
    rank: Count = 16
    """Of LoRA."""
    learning_rate: Rate | None = None
    """None: the run's."""
    tiny: Tiny = Tiny()
    device: str | None = None
    dtype: str | None = None
    engine: str | None = None
    """Who answers with these weights: vllm:URL, a server that is given them as they are trained; vllm:local, one that
    is started for it; tinker:URL, a service that holds and trains them. None: this process, or its rollout workers."""
    masters: bool = False
    """Step float32 copies of weights that are in half precision, so that small steps are not rounded away; of full."""


class WarmPart(_Part, frozen=True, kw_only=True):
    """A supervised start on scripted play, for the grammar."""

    play: str = "eager"
    """A reference policy of the game; eager is random play that spawns four times as readily, logged is what the
    game says wrote its log."""
    episodes: Count = 1500
    steps: Whole = 200
    rows: Count = 64
    learning_rate: float = 3e-3


class RewardPart(_Part, frozen=True, kw_only=True):
    """What is worth something: a reward recipe, or rules written here. Neither: what the task itself scores."""

    recipe: str | None = None
    """A recipe of `baton reward`: a name, or a path that ends in .toml."""
    rules: tuple[dict[str, Any], ...] = ()
    """`[[reward.rules]]`, as in a reward recipe: rule = "success", or module:Class of another package."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Changes to its rules, such as solvers = ["executor"] or "terms.1.weight.steps" = 40."""
    judges: dict[str, str] = field(default_factory=dict)
    """Models that judge in the place of the task: name -> engine, such as strict = "openai:MODEL@URL"."""


class ConstraintPart(_Part, frozen=True, kw_only=True):
    """A cost beside the reward, and how much of it a rollout may have on average (see `baton.learn.constraint`)."""

    cost: str
    """violations, tainted-calls, refusals, spending, game (what a game says its steps cost), or your own."""
    limit: NotNegative
    """The mean over rollouts that is allowed."""
    rate: NotNegative = 0.5
    """How fast the price moves, in units of reward by cost and step; 0: it stays at `start`, a fixed penalty."""
    proportional: NotNegative = 0.0
    """What the price has more for each unit that the mean cost is over the limit now, and less where it is under."""
    start: NotNegative = 0.0
    """The price before the first step."""
    most: Positive = 100.0
    """The price is never more."""
    smooth: Share = 0.0
    """How much of the mean cost of earlier steps stays in the average that moves the price."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Of the cost: untrusted and consequential tools, what spending is of, or its own."""


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
    """table counts; network reads; graph passes messages over the trace's graph (of telescope); agents gives each agent
    a value of its own, mixed into the team's (VDN, QMIX); or a critic of another package."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Of the graph, `normalise`; or of a critic of another package."""
    returns: Literal["team", "seat"] = "team"
    """Of the table: what a choice is judged by, what the team earned or what the chooser's role did (its agents' own
    rewards), for games in which one wins what another loses."""
    view: Literal["central", "local"] = "central"
    steps: Whole = 20
    learning_rate: Rate = 1e-3
    prior: NotNegative = 3.0
    """Of the table: how many visits the average over options counts."""
    backup: Literal["policy", "best", "best-first", "return"] = "policy"
    """Of the table: whether later choices are taken as the policy makes them, at their best, at their best first and
    as the policy makes them in the end, or as they turned out."""
    fade: Share = 0.0
    """Of the table: how much of what was counted fades at each step, where what follows a choice changes with how
    others play."""
    entropy_bonus: NotNegative = 0.0
    """Of the table: how much, in units of return, trying all options is worth; it falls to zero over the run."""
    optimism: NotNegative = 0.0
    """Of the table: what an option seen once is believed to be worth more, in units of return; falls likewise."""


class LossPart(_Part, frozen=True, kw_only=True):
    """See `baton.learn.loss`; the same words. None: as the named loss has it."""

    kind: str = "ppo"
    """ppo, gspo, action, cispo, reinforce, masked; ppo as published: grpo, dr_grpo, dapo; sft and dpo of labels; or
    another package's."""
    low: float | None = None
    high: float | None = None
    against_now: bool = False
    correction: Literal["auto", "off", "truncate", "mask"] = "auto"
    """Of losses without a ratio to the sampler: reinforce, and others with `against_now`."""
    correction_low: NotNegative | None = None
    correction_high: Positive | None = None
    entropy: NotNegative = 0.0
    kl: NotNegative = 0.0
    scale: tuple[Literal["group", "trace", "agent", "turn"], ...] | None = None
    added: tuple[Literal["group", "trace", "agent", "turn"], ...] | None = None
    """Of the levels of `scale`, those that are added up and not averaged."""
    length: Count | None = None
    beta: Positive | None = None
    """Of dpo."""


class PackPart(_Part, frozen=True, kw_only=True):
    """How rows are computed (see `baton.learn.update.Packed`)."""

    packing: Literal["auto", "forest", "merged", "rows"] = "auto"
    duplicates: Literal["once", "row_exact"] = "once"
    max_tokens: Count = 65536


class RolloutPart(_Part, frozen=True, kw_only=True):
    """How much is played for one step."""

    groups: Count = 16
    """Instances."""
    group_size: Count = 8
    """Rollouts of each."""
    fan_out: tuple[Count, ...] = ()
    """Branches of each rollout after its first turn, of each of those after the second, and so on (a tree)."""
    grow: Literal["all", "best"] = "all"
    """Which of them have branches of their own: all, or of those from one turn the one that earned most by the task."""
    branch_after: Literal["turn", "agent"] = "turn"
    """agent: branches are drawn after all that the first agent says before another speaks, and so on."""
    expand: Count | None = None
    """At each depth of the tree, how many of an instance's rollouts are branched, wrong ones first; None: all."""
    overlap: bool = False
    """The word for `scale.lag = 1` in one process: play the next step's rollouts with the weights of before while
    training on this one's. On one GPU the two compute by turns, so that little is gained."""
    staleness: Whole | None = None
    """Rollouts sampled by weights older than this many steps are not trained on. None: as old as the lag makes them,
    one step older where they are replayed, and two where stragglers are carried."""
    replay: Whole = 0
    """Groups of earlier steps, within `staleness`, that are trained on again at each step."""
    cut_weight: NotNegative = 1.0
    """How much rollouts that a budget cut off count, beside finished ones."""


class ScalePart(_Part, frozen=True, kw_only=True):
    """Past one process: who plays, who computes updates, and how far the two may be apart (see `baton.learn.scale`)."""

    rollout_workers: Whole = 0
    """Processes that play rollouts; 0: the one that trains plays too."""
    workers: Literal["process", "ray"] = "process"
    """Where those are: processes of this machine, or actors of a Ray cluster."""
    trainer_processes: Count = 1
    """Processes that compute updates together, weights and optimiser in shards (FSDP2)."""
    trainer_patience: Positive = 600.0
    """Seconds that those wait for one of them that hangs; then the run ends, to go on from its last checkpoint."""
    lag: Whole = 0
    """Step n is played by the weights after max(0, n - 1 - lag) steps, while earlier ones are trained; 0: strictly
    on-policy."""
    updates: Literal["pinned", "in-flight"] = "pinned"
    """What becomes of calls under way when a vLLM server gets new weights: they are ended first by those they began
    with, or go on with the new ones, which the trace tells token by token and which is not the same again."""
    batch: Whole = 0
    """Groups that are answered together; 0: all that one process plays of a step. Sums are rounded by what is in a
    batch, so with a number here the last digits do not hang on how many workers there are."""
    stragglers: Literal["wait", "cut", "carry"] = "wait"
    """What becomes of groups that are not finished when a step has what it waits for: it waits for all; they are cut
    off, and what was taken is weighed so that short ones are not favoured; or they go on under the next weights and are
    trained when they are done (see `baton.learn.scale.stragglers`)."""
    wait_for: Share = 0.75
    """Of cut and carry: the share of its groups that a step waits for."""
    clock: Literal["modelled", "tokens", "wall"] = "modelled"
    """Of cut and carry: what finishing first means. By the modelled clock of a team or by tokens said, the same groups
    are taken whenever the run is repeated; by the clock on the wall they are not."""
    restarts: Whole = 3
    """Times in a row that a rollout worker that died is started again before the run is given up."""
    patience: Positive = 1800.0
    """Seconds that a rollout worker may take without answering a single round of calls; then it is ended as one that
    hangs, and another is started."""
    address: str | None = None
    """Of the Ray cluster: auto, HOST:PORT or ray://HOST:PORT. None: one is started on this machine."""
    worker_cpus: Positive = 1.0
    """Of Ray: processors that each worker is given."""
    worker_gpus: NotNegative = 0.0
    """Of Ray: GPUs that each worker is given, perhaps a share of one."""
    placement: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] = "SPREAD"
    """Of Ray: how workers are laid out over the cluster's machines (placement groups)."""


class TrainPart(_Part, frozen=True, kw_only=True):
    """How long and how fast."""

    steps: Count = 40
    epochs: Count = 1
    """Times each step's rollouts are gone through."""
    batches: Count = 1
    """Optimiser steps of one epoch."""
    learning_rate: Rate = 1e-3
    clip_norm: Positive = 1.0
    seed: Annotated[int, Meta(ge=0, le=9_000_000)] = 0
    """Seeds of rollouts are multiples of it, and have to fit into 63 bits."""
    threads: Count | None = 1
    """Of torch; small models are faster on one. None: torch's own."""
    decisions: tuple[DecisionName, ...] = CHOICES
    """Which of the five are learned; tokens of the others are left alone."""
    freeze_by_turns: Whole = 0
    """Train one policy at a time, this many steps each; 0: all together."""
    checkpoint_every: Count = 10
    invalid: NotNegative = 1.0
    """What an answer that cannot be carried out costs its tokens, on top of what credit they have; in units of what
    credits are in that step (their root mean square). Of sampled options: otherwise no such answer is trained."""
    options: Literal["sampled", "all"] = "sampled"
    """all: where a task names the options and a critic knows them, move the policy towards the better ones, taken or
    not (see `baton.learn.options`); what credit says of them stays on the traces."""
    target_temperature: Positive = 0.05
    """Of `options = "all"`: differences of value, in units of return, that matter within one step."""
    forget: Share = 0.1
    """Of `options = "all"`: how much of the policy's own preference fades at each step."""
    conflict: Literal["add", "roles", "rewards"] = "add"
    """Where objectives of one policy pull apart: add their gradients, or leave out of each what it would undo of
    another (PCGrad), between the roles that the policy answers for or between the terms of the reward (see
    `baton.learn.conflict`)."""
    decision_only: bool = False
    """Train the tokens that say a decision, and not the reasoning around them. Of sampled options, likewise."""
    monitors: tuple[str, ...] = ()
    """What watches the run beside Baton's own monitors."""
    loggers: tuple[str, ...] = ("tensorboard",)
    """Where its figures go besides its folder: tensorboard, wandb, mlflow, csv, stdout, or one of another package."""
    logger_settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Logger -> its settings, such as wandb = {project = "teams"}."""


class PhasePart(_Part, frozen=True, kw_only=True):
    """Some steps of a run in which others learn, or from something else (see `baton.learn.phases`)."""

    name: str
    steps: Count | None = None
    """How many; None, and only of the last: all that are left."""
    learn: tuple[str, ...] = ()
    """Policies that learn; empty: all that are not frozen."""
    set: dict[str, Any] = field(default_factory=dict)
    """Settings that are otherwise in these steps, by path: "train.learning_rate" = 1e-4, "loss.kind" = "dpo"."""


class ActPart(_Part, frozen=True, kw_only=True):
    """What is done when a monitor begins to warn, besides warning (see `baton.learn.acting`)."""

    monitor: str
    do: Literal["stop", "lower", "off", "roll-back"]
    """End the run; lower a weight or the rate; switch a term off; weights of an earlier step."""
    what: str = ""
    """Of lower and off: a term of the reward, or train.learning_rate."""
    by: Annotated[float, Meta(gt=0, lt=1)] = 0.5
    """What is left of it; of roll-back: of the rate of learning."""
    steps: Count = 1
    """Of roll-back: at least so many steps back, to a checkpoint that is kept."""
    times: Count = 1
    """At most so often in a run."""


class EvalPart(_Part, frozen=True, kw_only=True):
    """What is measured before and after."""

    episodes: Count = 256
    best_of: Count = 4
    split: Literal["train", "test"] = "test"
    metrics: tuple[str, ...] = ()
    """What is measured of the rollouts beside their return and cost; names of `baton measure`."""


class Recipe(_Part, frozen=True, kw_only=True):
    """Everything `baton train` needs."""

    about: str
    source: str = ""
    evidence: str = ""
    """[P] paper, [C] code, [A] abstract, [M] textbook, [I] inferred here."""
    import_: tuple[str, ...] = field(default=(), name="import")
    """Python modules that register what the recipe names. Importing runs their code, so it takes a person's leave."""
    cells: Cells = Cells()
    task: TaskPart
    team: TeamPart = TeamPart()
    guard: dict[str, Any] | None = None
    """The policy of the team's guard, as `baton run --guard` takes it; None: nobody guards it."""
    program: ProgramPart | None = None
    """Somebody else's agent program that plays in the place of a team."""
    policies: dict[str, PolicyPart] = field(default_factory=lambda: {"main": PolicyPart()})
    warm: WarmPart | None = None
    reward: RewardPart = RewardPart()
    constraints: tuple[ConstraintPart, ...] = ()
    """Costs that are kept within limits by a price of their own, and are no part of the reward."""
    credit: tuple[CreditPart, ...]
    critic: CriticPart | None = None
    loss: LossPart = LossPart()
    pack: PackPart = PackPart()
    rollout: RolloutPart = RolloutPart()
    scale: ScalePart = ScalePart()
    train: TrainPart = TrainPart()
    eval: EvalPart = EvalPart()
    acts: tuple[ActPart, ...] = ()
    """What monitors do besides warning."""
    phases: tuple[PhasePart, ...] = ()
    """One after the other; empty: the whole run is one."""

    @property
    def lag(self) -> int:
        """How many steps the weights that play may be behind those that are trained."""
        return self.scale.lag or int(self.rollout.overlap)

    @property
    def staleness(self) -> int:
        """How many steps behind what is trained on may be at most."""
        given, carried = self.rollout.staleness, 2 if self.scale.stragglers == "carry" else 0
        return max(1, self.lag + bool(self.rollout.replay) + carried) if given is None else given

    def rate_setting(self, policy: str) -> str:
        """Which setting is a policy's rate of learning."""
        own = self.policies[policy].learning_rate is not None
        return f"policies.{policy}.learning_rate" if own else "train.learning_rate"


RENAMED: Final[Mapping[str, str]] = {
    "critic.temperature": "critic.entropy_bonus",
    "train.temperature": "train.target_temperature",
}
"""Settings of version 0.1 -> their names of now. Runs keep a recipe.toml with the names of their time."""


def built_in() -> dict[str, Recipe]:
    """The recipes that ship with Baton, by name."""
    return {name: load(name) for name in RECIPES}


def load(name: str, changes: Sequence[str] = (), *, trust: bool = False) -> Recipe:
    """A recipe with `--set` changes such as `train.steps=5`.

    `name` is that of a shipped recipe, a path that ends in .toml, or a recipe of another package. Code that the recipe
    names is imported only with `trust`; what stands in `changes` was typed and needs no leave.
    """
    return _recipe(read_table(name, RECIPES, trust=trust), name, changes, trust=trust)


def parse(text: str, where: str = "recipe", changes: Sequence[str] = (), *, trust: bool = False) -> Recipe:
    """A recipe from TOML text."""
    return _recipe(parse_table(text, where, RECIPES, trust=trust), where, changes, trust=trust)


def resolved(recipe: Recipe) -> str:
    """The recipe as TOML with every setting written out and no base; None is left out, which means the same."""
    import tomli_w

    return tomli_w.dumps(plain(recipe))


def extensions(recipe: Recipe) -> list[tuple[str, str]]:
    """Everything that a recipe names and another package could offer: (kind, name)."""
    found = [
        _task(recipe.task.name),
        ("topology", recipe.team.topology),
        ("surface", recipe.team.surface),
        *(("aggregator", name) for name in recipe.team.aggregators),
        *(("tool", name) for name in recipe.team.tools),
        *(("engine", part.model) for part in recipe.policies.values() if _is_code(part.model)),
        *(("reward", name) for name in _rules(recipe.reward)),
        *(("estimator", part.estimator) for part in recipe.credit),
        *([("critic", recipe.critic.kind)] if recipe.critic is not None else []),
        ("loss", recipe.loss.kind),
        *(("monitor", name) for name in recipe.train.monitors),
        *(("logger", name) for name in recipe.train.loggers),
        *(("metric", name) for name in recipe.eval.metrics),
        *(("cost", part.cost) for part in recipe.constraints),
    ]
    inner = [each for phase in recipe.phases for each in extensions(in_phase(recipe, phase))]
    return list(dict.fromkeys([*found, *inner]))


PHASE_SETTINGS: Final = (
    "reward", "credit", "loss",
    "rollout.group_size", "rollout.fan_out", "rollout.branch_after", "rollout.expand", "rollout.cut_weight",
    "train.learning_rate", "train.epochs", "train.batches", "train.clip_norm", "train.decisions",
    "train.freeze_by_turns", "train.invalid", "train.target_temperature", "train.forget", "train.decision_only",
    "train.conflict",
)  # fmt: skip
"""What a phase may set, with all below it, and `policies.NAME.learning_rate`: all that one step can have otherwise than
the step before it."""


def in_phase(recipe: Recipe, phase: PhasePart) -> Recipe:
    """The recipe as it is in a phase, which has no phases itself."""
    where = f"phase {phase.name!r}"
    rates = [f"policies.{name}.learning_rate" for name in recipe.policies]
    table = {key: value for key, value in plain(recipe).items() if key != "phases"}
    for path, value in phase.set.items():
        if path not in rates and not any(f"{path}.".startswith(f"{each}.") for each in PHASE_SETTINGS):
            raise UsageError(
                f"{where} sets {path!r}, and that is the same in the whole run. "
                f"{nearest(path, [*PHASE_SETTINGS, *rates])}"
            )
        set_at(table, path, value, where)
    return decode(Recipe, table, where)


def _recipe(table: dict[str, Any], where: str, changes: Sequence[str], *, trust: bool) -> Recipe:
    recipe = decode(Recipe, with_changes(table, changes, where, RENAMED), where)
    if recipe.program is not None:
        recipe = _placed(recipe, recipe.program, where)
    registry.import_modules(recipe.import_, where, trust=trust)
    if not trust:
        typed = [change.partition("=")[2] for change in changes]
        for kind, name in extensions(recipe):
            if registry.is_reference(name) and not any(name in text for text in typed):
                registry.check_trusted(kind, [name], where)
    return recipe


def _placed(recipe: Recipe, part: ProgramPart, where: str) -> Recipe:
    """With the program's folder and its file of instances as whole paths, so that a run goes on from anywhere."""
    part = placed(part, where)
    task, folder = recipe.task, Path(part.folder or ".")
    if (
        task.name == "jsonl"
        and isinstance(file := task.settings.get("file"), str)
        and (folder / file).is_file()
    ):
        task = structs.replace(task, settings={**task.settings, "file": str(folder / file)})
    return structs.replace(recipe, program=part, task=task)


def _task(name: str) -> tuple[str, str]:
    return ("game", name.removeprefix(PREFIX)) if name.startswith(PREFIX) else ("task", name)


def _rules(part: RewardPart) -> list[str]:
    """Reward rules that a recipe names, also in a file of its own."""
    named = [] if part.recipe is None or part.recipe in REWARD_RECIPES else [part.recipe]
    tables = [read_table(name, REWARD_RECIPES) for name in named if Path(name).is_file()]
    code = [name for name in named if registry.is_reference(name)]
    return [*rule_names(part.rules), *rule_names(tables), *code]


def _is_code(model: str) -> bool:
    """Whether a model is named module:attr. An engine's own kind, as in openai:MODEL, comes before its colon too."""
    return registry.is_reference(model) and not registry.knows("engine", model.partition(":")[0])
