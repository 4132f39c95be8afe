"""A table learner for result 19: a recipe's phases, rewards and credit, on traces of the team's own runtime.

What is played, scored and credited is what `baton train` plays, scores and credits with the same recipe; what is moved
is a softmax table for each policy in place of a model's weights. One update is

    logits += rate x mean over rollouts of the mean over the policy's calls of credit x (chosen - chances)

where a call's credit is the sum of its team's, its agent's and its own events'.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import structs
from wide_job import METHODS, RIGHT, Figures, Job, WideJob, figures

from baton.compose.stage_from_recipe import make_stage
from baton.compose.training import reward_of
from baton.credit.estimator import Prefix
from baton.engine.table import TableEngine
from baton.learn.crediting import Crediting
from baton.learn.critics.critic import Critic, NoCritic
from baton.learn.critics.table import ChoicePoint, TableCritic
from baton.learn.phases import spans
from baton.learn.recipe import Recipe, RewardPart, parse
from baton.learn.scoring import Scoring
from baton.learn.stage import Episode, collecting_seldom
from baton.trace.gold import Gold
from baton.trace.trace import Trace

HABIT = 0.45
"""How much less likely, in logits, each width is at first than the one below: the lead is used to working alone."""
KNACK = 1.4
"""Logit of the right method at first: 0.575 of a worker's steps."""
LEAD, WORKER = "orchestrator", "worker"
_LEFTS = (0.1, 0.4, 1.0)
"""A share of the items for each thing that the lead may read of how much is left."""

_RECIPE = """
base = "parl-staged"
without = ["warm", "task.settings", "team.settings"{without}]
about = "A job for a wide team."
{whole}

[task]
name = "wide_job:WideJob"

[team]
surface = "wide_job:Plain"
template = ""
memory = "latest"
max_tokens = 1

[rollout]
groups = 1
group_size = 16

[train]
steps = {steps}

[[phases]]
name = "orchestrator"
steps = {frozen}
learn = ["orchestrator"]
[[phases]]
name = "joint"
[phases.set]
{joint}

{more}
"""
_BY_STEPS = 'credit = [{ estimator = "critical-steps", settings = { price = 0.0 } }]'
"""The price of critical steps is in the task's own return, for every arm."""
_BY_AGENT = '"credit" = [{ estimator = "agent-group", settings = { counts = "team" } }]'
ARMS: dict[str, dict[str, str]] = {
    "GRPO": {"without": ', "reward"', "whole": 'credit = [{ estimator = "group" }]'},
    "PARL": {
        "whole": _BY_STEPS,
        "joint": f'"reward" = {{}}\n{_BY_AGENT}',
        "more": """[reward.settings]
"terms.1.of.n_ref" = WORKERS
"terms.1.weight.start" = HIGH
"terms.2.weight.start" = LOW
"terms.1.weight.steps" = FADE
"terms.2.weight.steps" = FADE""",
    },
    "PARL, not annealed": {
        "whole": _BY_STEPS,
        "joint": _BY_AGENT,
        "more": """[reward.settings]
"terms.1.of.n_ref" = WORKERS
"terms.1.weight.start" = HIGH
"terms.2.weight.start" = LOW
"terms.1.weight.end" = HIGH
"terms.2.weight.end" = LOW""",
    },
    "decision credit": {
        "without": ', "reward"',
        "whole": 'credit = [{ estimator = "coma", unit = "orchestrator", normalise = true }]',
        "joint": '"credit" = [{ estimator = "coma", unit = "orchestrator", normalise = true }, '
        '{ estimator = "coma", unit = "tool_call", normalise = true }]',
        "more": """[critic]
kind = "kimi_team:DecisionCritic"
backup = "best-first\"""",
    },
}
"""Arm -> what its recipe has of its own. GRPO pays every choice of a rollout alike; PARL adds r_parallel and r_finish
in the first phase, down to 0 half way through it, and in the second pays agents by the result alone, as `parl-staged`
does; decision credit asks a counting critic about every choice of the lead and every step of a worker."""


def recipe_of(arm: str, workers: int, frozen: int, joint: int, weight: float = 1.0) -> Recipe:
    """An arm's recipe: so many steps with the workers frozen, then so many in which all learn.

    `weight`: how many times as heavy PARL's two terms are as in the shipped recipe (0.3 and 0.2).
    """
    parts = {"without": "", "joint": "", "more": ""} | ARMS[arm]
    filled = {"WORKERS": workers, "FADE": max(1, frozen // 2), "HIGH": 0.3 * weight, "LOW": 0.2 * weight}
    more = parts["more"]
    for word, value in filled.items():
        more = more.replace(word, f"{value:g}")
    text = _RECIPE.format(
        without=parts["without"], whole=parts["whole"], joint=parts["joint"], more=more,
        frozen=frozen, steps=frozen + joint,
    )  # fmt: skip
    return parse(text, "result 19", trust=True)


class DecisionCritic(TableCritic):
    """Counts, for the lead's choices; of a worker's step, how often its method has done an item so far.

    Steps of workers are no places in the lead's play, and what one of them was worth nature says at once.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._tried = dict.fromkeys(METHODS, (0, 0))
        """Method -> how often it was tried on an item, and did it."""

    def observe(self, traces: Iterable[Trace]) -> None:
        traces = list(traces)
        for trace in traces:
            chosen = ""
            for event in trace.events:
                if event.type == "tool_call" and event.options is not None and event.choice is not None:
                    chosen = event.options[event.choice]
                elif "done" in event.extra and chosen:
                    tried, done = self._tried[chosen]
                    self._tried[chosen] = tried + 1, done + event.extra["done"]
        super().observe(traces)

    def _choice_points(self, trace: Trace) -> list[ChoicePoint]:
        lead = tuple(event for event in trace.events if event.role == LEAD and event.call is not None)
        return super()._choice_points(structs.replace(trace, events=lead))

    def q(self, prefix: Prefix, option: str) -> float:
        if option not in self._tried:
            return super().q(prefix, option)
        tried, done = self._tried[option]
        return done / tried if tried else 0.0


class Step(NamedTuple):
    """What a step's traces say."""

    found: list[Figures]
    tokens: float
    events: int


class Learner:
    """One arm's run: two tables, and the recipe's phases."""

    def __init__(self, recipe: Recipe, job: Job, seed: int, rates: Mapping[str, float]) -> None:
        self.job = job
        self.seed = seed
        self.rates = rates
        self.recipe = recipe
        self.step_number = 0
        self.tables = {LEAD: TableEngine(LEAD), WORKER: TableEngine("workers")}
        self.tables[WORKER].update({(WORKER, "item"): {RIGHT: KNACK}}, 1.0)
        self._habit()
        self._spans = spans(recipe)
        self._scorings: list[tuple[RewardPart, Scoring]] = []
        for span in self._spans:
            if not any(part == span.recipe.reward for part, _ in self._scorings):
                self._scorings.append((span.recipe.reward, Scoring(reward_of(span.recipe.reward))))
        self._critic: Critic = NoCritic()
        if recipe.critic is not None:
            self._critic = DecisionCritic(
                prior=recipe.critic.prior, backup=recipe.critic.backup, num_steps=recipe.train.steps,
                reward=self._team_return, ask=None,
            )  # fmt: skip
        self._now = -1
        self._enter(0)

    def _habit(self) -> None:
        for number in range(1, self.job.waves + 1):
            options = self.job.options(number)
            row = {option: -HABIT * place for place, option in enumerate(options)}
            for left in _LEFTS[number == 1 and 2 :]:
                self.tables[LEAD].update({(LEAD, self.job.wave(number, left * self.job.items)): row}, 1.0)

    def _enter(self, number: int) -> None:
        """From now on by this phase."""
        if number == self._now:
            return
        self._now = number
        span = self._spans[number]
        self.scoring = next(scoring for part, scoring in self._scorings if part == span.recipe.reward)
        self._crediting = Crediting(span.recipe, {**self._critic.given(), "reward": self._team_return})

    def _team_return(self, trace: Trace) -> float:
        return self.scoring.team_return(trace)

    def go_on(self, job: Job, recipe: Recipe, phase: int = -1) -> Learner:
        """The same tables on a larger job, in a phase of the recipe, the last if no other is named.

        A width that is new begins as likely as the likeliest before; shares of a new width as those of the widest.
        """
        other = Learner(recipe, job, self.seed + 1000, self.rates)
        other.step_number = other._spans[phase].first - 1
        widest = max(self.job.widths)
        for number in range(1, job.waves + 1):
            for left in _LEFTS:
                reads, before = (
                    job.wave(number, left * job.items),
                    self.job.wave(number, left * self.job.items),
                )
                row = self.tables[LEAD].logits(LEAD, before)
                known = {option: row.get(option, 0.0) for option in self.job.options(number)}
                new = dict.fromkeys(set(job.options(number)) - known.keys(), max(known.values()))
                other.begin(reads, known | new)
                for width in job.widths:
                    like = min(width, widest)
                    shares = self.tables[LEAD].logits(LEAD, f"{before}, {like} workers")
                    other.begin(f"{reads}, {width} workers", shares)
        other.tables[WORKER] = self.tables[WORKER]
        return other

    def begin(self, reads: str, row: Mapping[str, float]) -> None:
        """This row, whatever it was."""
        now = self.tables[LEAD].logits(LEAD, reads)
        every = {option: row.get(option, 0.0) - now.get(option, 0.0) for option in {**now, **row}}
        self.tables[LEAD].update({(LEAD, reads): every}, 1.0)

    def lead_table(self) -> list[tuple[str, dict[str, float]]]:
        """What the lead reads, and its row."""
        job = self.job
        reads = [job.wave(number, left * job.items) for number in range(1, job.waves + 1) for left in _LEFTS]
        every = [
            each for now in reads for each in (now, *(f"{now}, {width} workers" for width in job.widths))
        ]
        return [(each, self.tables[LEAD].logits(LEAD, each)) for each in every]

    @property
    def phase(self) -> str:
        return self._spans[self._now].name

    @collecting_seldom()
    def step(self) -> Step:
        """Play, score, credit, move."""
        self.step_number += 1
        self._enter(max(n for n, span in enumerate(self._spans) if span.first <= self.step_number))
        traces = self._play()
        found = [figures(self.job, trace) for trace in traces]
        scored = self.scoring.score(traces, [Gold()] * len(traces))
        self._critic.observe(scored)
        credited = asyncio.run(self._crediting.credit([scored], _no_forks)).traces
        for name in self._spans[self._now].learners:
            role = LEAD if name == "orchestrator" else WORKER
            self.tables[role].update(gradient(credited, role), self.rates[role])
        self.scoring.observe(credited)
        return Step(
            found, sum(trace.costs["tokens"] for trace in traces), sum(len(trace.events) for trace in traces)
        )

    def _play(self) -> list[Trace]:
        task = WideJob(self.job)
        stage = make_stage(self.recipe, task=task, topology=task.topology())
        instance = self.seed * 10_000 + self.step_number
        episodes = [
            Episode(name=f"{instance}/{k}", instance=instance, seed=instance * 100 + k, step=self.step_number)
            for k in range(self.recipe.rollout.group_size)
        ]
        return asyncio.run(stage.play(self.tables, episodes))

    def chances(self) -> _Chances:
        """What the lead reads -> its chances, for the exact values."""
        return _Chances(self)

    def knack(self) -> dict[str, float]:
        """The worker's chances of its methods."""
        found = self.tables[WORKER].probabilities(WORKER, "item", METHODS)
        return dict(zip(METHODS, found.tolist(), strict=True))


class _Chances(dict[str, Mapping[str, float]]):
    """Asked of the table when they are first wanted."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner

    def __missing__(self, reads: str) -> Mapping[str, float]:
        job = self._learner.job
        options = job.hands if reads.endswith("workers") else job.options(int(reads[5]))
        found = self._learner.tables[LEAD].probabilities(LEAD, reads, options)
        self[reads] = dict(zip(options, found.tolist(), strict=True))
        return self[reads]


def gradient(traces: Sequence[Trace], role: str) -> dict[tuple[str, str], dict[str, float]]:
    """Of what a role said: state -> option -> direction (see the head of this file)."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for trace in traces:
        team = sum(credit.value for credit in trace.credits if credit.unit == "team")
        agents = {credit.target: credit.value for credit in trace.credits if credit.unit == "agent"}
        events: dict[str, float] = {}
        for credit in trace.credits:
            if credit.unit in ("orchestrator", "tool_call"):
                events[credit.target] = events.get(credit.target, 0.0) + credit.value
        made = [e for e in trace.events if e.options is not None and e.choice is not None and e.role == role]
        sums: dict[tuple[str, str], tuple[tuple[str, ...], tuple[float, ...], list[float]]] = {}
        for event in made:
            worth = team + agents.get(event.agent, 0.0) + events.get(event.id, 0.0)
            assert event.options is not None
            assert event.choice is not None
            assert event.option_propensities is not None
            state = (role, event.extra.get("reads", "item"))
            row = sums.setdefault(
                state, (event.options, event.option_propensities, [0.0] * len(event.options))
            )
            row[2][event.choice] += worth
        for state, (options, chances, paid) in sums.items():
            whole = sum(paid)
            row_ = found.setdefault(state, {})
            for option, p, mine in zip(options, chances, paid, strict=True):
                row_[option] = row_.get(option, 0.0) + (mine - p * whole) / len(made) / len(traces)
    return found


def _no_forks() -> Any:
    raise AssertionError("no arm runs traces again")
