"""The loop: play, score, credit, update; and keep everything on the way.

    play     groups of rollouts of the current policies, in lockstep (`stage`, `lockstep`)
    score    the recipe's rewards, on the traces (`scoring`)
    credit   the recipe's estimators, each on its own decisions (`crediting`), down to tokens (`credit.project`)
    update   rows of each policy as a prefix forest, through the loss (`update`)

Invariant: a step depends on the recipe, its number and the state before it, and on nothing else; so a run that is
cut off and resumed gives the numbers of one that was not.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from msgspec import Struct, structs

from baton.credit import project
from baton.credit.forking import Forks
from baton.credit.project import tokens_of
from baton.errors import BatonError
from baton.learn.branching import branched
from baton.learn.buffer import Buffer, Group, batches_of, cut_off
from baton.learn.crediting import Credited, Crediting
from baton.learn.critics import make_critic
from baton.learn.judging import Judging
from baton.learn.lockstep import Lockstep
from baton.learn.losses import Loss
from baton.learn.models.start import starting_adapters, starting_models
from baton.learn.monitors import Watch
from baton.learn.policies.policy import Policy, make_policies
from baton.learn.propensities import with_propensities
from baton.learn.recipe import Recipe
from baton.learn.refusals import check_credit
from baton.learn.rows import Row, rows_of
from baton.learn.scoring import Scoring
from baton.learn.stage import Episode, Stage
from baton.learn.update import Gradients, Packed, Report
from baton.team.policy import Engine
from baton.trace.numbers import Floats
from baton.trace.record import Credit
from baton.trace.trace import Trace

__all__ = ["Diverged", "Step", "Trainer"]

_SEEDS = 1_000_003
"""Apart: instances of a run from those of its evaluation, draws of one rollout from those of the next."""


class Diverged(BatonError):
    """The loss or the gradient is no number any more."""


class Step(Struct, frozen=True, kw_only=True):
    """What one step did: a line of metrics, and the traces behind it."""

    metrics: dict[str, Any]
    traces: list[Trace]


class Trainer:
    """A run's state, and one step of it at a time."""

    def __init__(self, recipe: Recipe, *, progress: Callable[[str], None] | None = None) -> None:
        if recipe.train.threads is not None:
            torch.set_num_threads(recipe.train.threads)
        self.recipe = recipe
        self.stage = Stage(recipe)
        check_credit(recipe, self.stage)
        self.policies = make_policies(
            recipe,
            self.stage.roles,
            starting_models(recipe, self.stage, progress),
            starting_adapters(recipe, progress),
        )
        self.scoring = Scoring(recipe.reward)
        self.judging = Judging(self.stage, self.scoring.rules)
        self.critic = make_critic(recipe, self.policies, self.scoring.team_return)
        given = {"reward": self.scoring.team_return, "in_scope": self.judging.in_scope, **self.critic.given()}
        self.crediting = Crediting(recipe, given)
        self.buffer = Buffer(recipe.rollout.staleness)
        self.watch = Watch(recipe)
        self.gradients = {
            name: Gradients(policy.model, _loss(recipe), _packed(recipe))
            for name, policy in self.policies.items()
            if policy.learns
        }
        self.step_number = 0
        self.total_tokens = 0
        self._ahead: tuple[int, list[Group]] | None = None
        self._tokens_again = 0
        """Of runs that the step's rewards compare with."""

    # -- one step -------------------------------------------------------------------------------

    def step(self) -> Step:
        """The next step."""
        number = self.step_number + 1
        began = time.monotonic()
        groups = self.rollouts(number)
        played = time.monotonic()
        credited = self._credited(groups)
        groups = _regrouped(groups, credited.traces)
        self.buffer.add(groups, self._version())
        again = self.buffer.again(self.recipe.rollout.replay, number)
        reports, norms = self._update([*groups, *again], number)
        self.step_number = number
        ended = time.monotonic()
        traces = [trace for group in groups for trace in group.traces]
        tokens = int(sum(trace.costs.get("tokens", 0.0) for trace in traces))
        again_tokens = credited.fork_tokens + self._tokens_again
        self.total_tokens += tokens + again_tokens
        metrics: dict[str, Any] = {
            "step": number,
            "episodes": len(traces),
            "rollout_tokens": tokens,
            "fork_tokens": again_tokens,
            "total_tokens": self.total_tokens,
            "return": _interval([self.scoring.team_return(trace) for trace in traces]),
            "rewards": _rewards(traces),
            "weights": self.scoring.weights(),
            "credit": {k: {"mean_abs": m, "num": n} for k, (m, n) in credited.by_decision.items()},
            "sizes": _sizes(traces),
            **_learned(reports, norms),
            "rollout_seconds": played - began,
            "update_seconds": ended - played,
            "tokens_per_second": (tokens + again_tokens) / max(1e-9, ended - began),
        }
        self.scoring.observe(traces)
        metrics["warnings"] = [structs.asdict(each) for each in self.watch.observe(metrics, traces)]
        return Step(metrics=metrics, traces=traces)

    def rollouts(self, number: int) -> list[Group]:
        """The groups of a step. With overlap they were begun while the step before was trained."""
        return asyncio.run(self._play(number))

    async def _play(self, number: int) -> list[Group]:
        rollout, seed = self.recipe.rollout, self.recipe.train.seed
        episodes = [
            Episode(
                name=f"step-{number:04d}/{group:02d}-{member:02d}",
                instance=_instance(seed, number, group, rollout.groups),
                seed=(number * rollout.groups + group) * _SEEDS + member + seed * _SEEDS**2,
                step=number,
            )
            for group in range(rollout.groups)
            for member in range(rollout.group_size)
        ]
        played = await self.stage.play(self.engines(), episodes)
        size, version = rollout.group_size, self._version()
        every = [played[at : at + size] for at in range(0, len(played), size)]
        if rollout.fan_out:
            forks = self._runner()
            every = [await branched(group, rollout.fan_out, forks) for group in every]
        gold, self._tokens_again = await self.judging.gold([t for group in every for t in group], self._runner)
        traces = iter(self.scoring.score([t for group in every for t in group], gold))
        return [
            Group(step=number, version=version, traces=tuple(next(traces) for _ in group)) for group in every
        ]

    def engines(self) -> dict[str, Engine]:
        """By role, in lockstep."""
        found: dict[str, Engine] = {}
        for policy in self.policies.values():
            found |= dict.fromkeys(policy.roles, Lockstep(policy.engine))
        return found

    def _credited(self, groups: Sequence[Group]) -> Credited:
        traces = [trace for group in groups for trace in group.traces]
        models = {
            name: (policy.model, policy.tokenizer) for name, policy in self.policies.items() if policy.model
        }
        traces = with_propensities(traces, models, max_tokens=self.recipe.pack.max_tokens)
        self.critic.observe(traces)
        at, split = 0, []
        for group in groups:
            split.append(traces[at : at + len(group.traces)])
            at += len(group.traces)
        return asyncio.run(self.crediting.credit(split, self._runner))

    def _runner(self) -> Forks:
        """Runs traces again under the policies as they are."""
        assignment = self.stage.assignment(0)
        team = self.stage.team(self.engines(), assignment, 0)
        return Forks(team, self._assigned)

    def _assigned(self, trace: Trace) -> Any:
        told = trace.header.meta["train"]
        return self.stage.assignment(told["instance"], told["split"])

    # -- the update -----------------------------------------------------------------------------

    def _update(self, groups: Sequence[Group], number: int) -> tuple[list[Report], list[float]]:
        rows = [row for group in groups for trace in group.traces for row in self._rows(trace, group)]
        learners = [name for name, policy in self.policies.items() if policy.learns]
        turns = self.recipe.train.freeze_by_turns
        if turns:
            learners = [learners[(number - 1) // turns % len(learners)]]
        reports: list[Report] = []
        norms: list[float] = []
        for name in learners:
            policy = self.policies[name]
            mine = [row for row in rows if row.policy == policy.engine.name]
            if not mine or not any(np.any(row.advantages) for row in mine):
                continue
            with policy.training():
                for _ in range(self.recipe.train.epochs):
                    for batch in batches_of(mine, self.recipe.train.batches):
                        report, norm = self._optimise(policy, batch)
                        reports.append(report)
                        norms.append(norm)
        return reports, norms

    def _optimise(self, policy: Policy, batch: list[Row]) -> tuple[Report, float]:
        assert policy.optimizer is not None
        policy.optimizer.zero_grad()
        report = self.gradients[policy.name].backward(batch, version=str(policy.version))
        norm = float(torch.nn.utils.clip_grad_norm_(policy.parameters(), self.recipe.train.clip_norm))
        if not math.isfinite(norm) or not math.isfinite(report.loss):
            policy.optimizer.zero_grad()
            raise Diverged(
                f"the loss is {report.loss} and the gradient's norm {norm} at step {self.step_number + 1} "
                f"(policy {policy.name}): the run has diverged. Lower train.learning_rate, or clip more with "
                "train.clip_norm."
            )
        policy.optimizer.step()
        return report, norm

    def _rows(self, trace: Trace, group: Group) -> list[Row]:
        learning = {role for policy in self.policies.values() if policy.learns for role in policy.roles}
        names = {call.id for call in trace.calls if call.role in learning}
        advantages = project(trace, trace.credits, decision_only=self.recipe.train.decision_only)
        advantages = {call: values for call, values in advantages.items() if call in names}
        weights = self._weights(trace, advantages)
        return rows_of(trace, advantages, weights=weights, group=f"{group.step}/{trace.header.task_id}")

    def _weights(self, trace: Trace, advantages: Mapping[str, Floats]) -> dict[str, Floats]:
        """0 on tokens of decisions that are not learned; less on rollouts that a budget cut off."""
        level = self.recipe.rollout.cut_weight if cut_off(trace) else 1.0
        found = {call: np.full(len(values), level) for call, values in advantages.items()}
        learned = self.recipe.train.decisions
        for event in trace.events:
            if event.decision in _LEARNED and event.decision not in learned and event.call in found:
                there = Credit(unit="orchestrator", target=event.id, value=0.0, estimator="")
                for call, places in tokens_of(trace, there).items():
                    if call in found:
                        found[call][places] = 0.0
        return {call: Floats.from_buffer(values) for call, values in found.items()}

    def _version(self) -> int:
        return max((policy.version for policy in self.policies.values()), default=0)

    # -- to go on from ----------------------------------------------------------------------------

    def remembered(self) -> dict[str, Any]:
        """Everything but weights and optimisers."""
        return {
            "total_tokens": self.total_tokens,
            "critic": self.critic.state(),
            "crediting": self.crediting.state(),
            "scoring": self.scoring.state(),
            "watch": self.watch.state(),
        }

    def recall(self, told: Mapping[str, Any]) -> None:
        """What `remembered` gave, at its step."""
        self.step_number = told["step"]
        self.total_tokens = told["total_tokens"]
        self.critic.load(told["critic"])
        self.crediting.load(told["crediting"])
        self.scoring.load(told["scoring"])
        self.watch.load(told["watch"])


_LEARNED = frozenset({"spawn", "delegate", "communicate", "aggregate", "stop"})


def _instance(seed: int, number: int, group: int, groups: int) -> int:
    return seed * _SEEDS + number * groups + group


def _loss(recipe: Recipe) -> Loss:
    return Loss(**structs.asdict(recipe.loss))


def _packed(recipe: Recipe) -> Packed:
    return Packed(**structs.asdict(recipe.pack))


def _regrouped(groups: Sequence[Group], traces: Sequence[Trace]) -> list[Group]:
    at, found = 0, []
    for group in groups:
        size = len(group.traces)
        found.append(structs.replace(group, traces=tuple(traces[at : at + size])))
        at += size
    return found
