"""The loop: play, score, credit, update; and keep everything on the way.

    play     groups of rollouts of the current policies, in lockstep (`rollouts`, `stage`, `lockstep`)
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
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from msgspec import Struct, structs

from baton.credit.estimator import RewardOf
from baton.errors import BatonError
from baton.forest.rows import Row, rows_of
from baton.learn.conflict import PRICE, Conflict, Objectives, backward_apart, told, weighed_terms
from baton.learn.crediting import Credited, Crediting, advantages, learned_weights, stop_settings
from baton.learn.critics.critic import Critic, learns
from baton.learn.judging import judge_traces, recipe_judges
from baton.learn.lora import Adapted
from baton.learn.options import option_rows, trained_decisions, with_propensities
from baton.learn.phases import Phase, reference_of, reference_state
from baton.learn.policy import Adapt, Load, Policy, make_policies, samplers
from baton.learn.preference import backward_of_pairs, labelled
from baton.learn.recipe import Recipe, RolloutPart
from baton.learn.rollouts import Players, ReplayBuffer, RolloutGroup, Rollouts, batches_of
from baton.learn.run.checkpoint import Saved
from baton.learn.scoring import EVERY, Judging, alone, balanced, norm_of
from baton.learn.stage import Stage, collecting_seldom
from baton.learn.update import Gradients, Learner, LocalLearner, Packed, UpdateReport
from baton.learn.watch import Watch, interval, learned, rewards, sizes
from baton.team.protocol import Engine
from baton.trace.gold import Gold
from baton.trace.outcome import cut_off
from baton.trace.trace import Trace

if TYPE_CHECKING:
    from baton.learn.constraint.constraints import Constraints


class Diverged(BatonError):
    """The loss or the gradient is no number any more."""

    def __init__(self, message: str, lower: str | None = None) -> None:
        """`lower` is the setting to lower; None: it is not known which."""
        super().__init__(message)
        self.lower = lower


class Step(Struct, frozen=True, kw_only=True):
    """What one step did: a line of metrics, and the traces behind it."""

    metrics: dict[str, Any]
    traces: list[Trace]


class Closing(Protocol):
    """What a run ends with it."""

    def close(self) -> None: ...


class Components(Struct, frozen=True, kw_only=True):
    """What a run is made of, ready to use: `baton.compose.training` makes these from a recipe, and takes your own."""

    stage: Stage
    load: Load
    """Gives a policy's model and tokenizer."""
    adapt: Adapt | None = None
    """Gives a new adapter its first weights."""
    phases: tuple[Phase, ...]
    """The run's, in order: how each scores, and what it minimises."""
    critic: Critic | Callable[[Mapping[str, Policy], RewardOf], Critic]
    """A critic, or what makes one of the policies and the team's return."""
    watch: Watch
    players: Callable[[Mapping[str, Policy]], Players] | None = None
    """Makes those who play past this process; None: it plays itself."""
    ranks: Callable[[Mapping[str, Policy]], Closing] | None = None
    """Hands policies' weights to several processes, which compute updates together; None: this one does."""
    constraints: Constraints | None = None
    """What traces are charged with beside their rewards; None: nothing is."""


class Trainer:
    """A run's state, and one step of it at a time."""

    def __init__(self, recipe: Recipe, parts: Components) -> None:
        if recipe.train.threads is not None:
            torch.set_num_threads(recipe.train.threads)
        self.recipe = recipe
        """As it is in the phase that the run is in."""
        self.stage = parts.stage
        self.phases = parts.phases
        self.constraints = parts.constraints
        self.policies = make_policies(recipe, self.stage.roles, parts.load, parts.adapt)
        self._ranks = parts.ranks(self.policies) if parts.ranks is not None else None
        self.critic: Critic = (
            parts.critic(self.policies, self.team_return) if callable(parts.critic) else parts.critic
        )
        players = parts.players(self.policies) if parts.players is not None else None
        self.rollouts = Rollouts(recipe, self.stage, self.policies, self._rollout_part, players)
        self.buffer = ReplayBuffer(recipe.staleness)
        self.watch = parts.watch
        self._given = self.critic.given()
        self._given |= stop_settings(self.stage.game, self.policies, recipe.pack.max_tokens)
        self._packed = Packed(**structs.asdict(recipe.pack))
        self.rate_factor = 1.0
        """What is left of the recipe's rates of learning, where a monitor lowered them."""
        self._references: dict[str, Any] = {}
        """Policy -> what the phase takes KL and preferences to, where it does."""
        self._enter(0)
        self.step_number = 0
        self.total_tokens = 0
        self._unjudged = 0
        """Verdicts of this step that a model was asked for and did not give."""
        self._norms: dict[str, dict[str, float]] = {}
        """Of this step: hybrid reward -> term -> norm of its gradient, where measured."""
        self._alone: dict[str, list[Trace]] = {}
        """Of this step: term of the reward -> the traces as it alone credits them, where terms are told apart."""
        self._conflicts: list[Conflict] = []
        """Of this step: what objectives had against each other, where they are told apart."""

    # -- phases ---------------------------------------------------------------------------------

    def _enter(self, number: int, references: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """Train by a phase from now on; `references` are those that it began with, where that was before."""
        before, phase = getattr(self, "crediting", None), self.phases[number]
        self.phase_number = number
        self.recipe = phase.span.recipe
        self.scoring = phase.scoring
        self.judging = Judging(self.stage, self.scoring.rules)
        self.judges = recipe_judges(self.recipe)
        given = {**self._given, "reward": self.team_return, "in_scope": self.judging.in_scope}
        self.crediting = Crediting(self.recipe, given)
        if before is not None and before.recipe.credit == self.recipe.credit:
            self.crediting.load_state_dict(before.state_dict())
        learners = {name: policy for name, policy in self.policies.items() if policy.learns}
        needed = phase.loss.kl or phase.loss.rule.labels == "pairs"
        self._references = (
            {
                name: _of_base(policy) if number == 0 else reference_of(policy)
                for name, policy in learners.items()
            }
            if needed
            else {}
        )
        for name, state in (references or {}).items():
            self._references[name].load_state_dict(dict(state))
        self.learners: dict[str, Learner] = {}
        self.gradients: dict[str, Gradients] = {}
        """Of policies whose weights this process moves itself."""
        for name, policy in learners.items():
            reference = self._references.get(name)
            if policy.learning is not None:
                self.learners[name] = made = policy.learning(phase.loss, self._packed, reference)
                if (pairs := getattr(made, "gradients", None)) is not None:
                    self.gradients[name] = pairs
                continue
            self.gradients[name] = Gradients(policy.model, phase.loss, self._packed, reference=reference)
            self.learners[name] = LocalLearner(self.gradients[name], policy.parameters(), policy.optimizer)
        self.set_rates()

    def _phase_at(self, step: int) -> int:
        """The number of the phase that a step is in."""
        return max(n for n, phase in enumerate(self.phases) if phase.span.first <= max(1, step))

    def _rollout_part(self, step: int) -> RolloutPart:
        """How much is played for a step."""
        return self.phases[self._phase_at(step)].span.recipe.rollout

    def team_return(self, trace: Trace) -> float:
        """What a team earned, by the rules of the phase, less the price of what it is charged with."""
        earned = self.scoring.team_return(trace)
        return earned if self.constraints is None else earned - self.constraints.priced(trace)

    def _learners(self) -> list[str]:
        """Policies that the phase trains."""
        return list(self.phases[self.phase_number].span.learners)

    # -- one step -------------------------------------------------------------------------------

    @collecting_seldom()
    def step(self) -> Step:
        """Play, score, credit and update once."""
        number = self.step_number + 1
        if (now := self._phase_at(number)) != self.phase_number:
            self._enter(now)
        began = time.monotonic()
        groups = self.rollouts.take(number)
        played = time.monotonic()
        credited, again_tokens = asyncio.run(self._credited(groups))
        self._check_finite(credited.traces)
        groups = _regrouped(groups, credited.traces)
        self.buffer.add(groups, self.step_number)
        again = self.buffer.again(self.recipe.rollout.replay, number)
        trained = self._as_now([*groups, *again])
        self.rollouts.go_ahead(number)
        figures = self.rollouts.figures(number, trained)
        reports, norms, moved = self._update(trained, number)
        self.step_number = number
        ended = time.monotonic()
        traces = [trace for group in groups for trace in group.traces]
        tokens = int(sum(trace.costs.get("tokens", 0.0) for trace in traces))
        self.total_tokens += tokens + again_tokens
        metrics: dict[str, Any] = {
            "step": number,
            "episodes": len(traces),
            "rollout_tokens": tokens,
            "fork_tokens": again_tokens,
            "total_tokens": self.total_tokens,
            "return": interval([list(map(self.scoring.team_return, group.traces)) for group in groups]),
            "rewards": rewards(traces),
            "weights": self.scoring.weights(),
            "credit": {k: {"mean_abs": m, "num": n} for k, (m, n) in credited.by_decision.items()},
            "credit_grounds": structs.asdict(credited.grounds),
            "sizes": sizes(traces),
            **self.stage.figures(traces),
            **figures,
            **learned(reports, norms, moved),
            "rollout_seconds": played - began,
            "update_seconds": ended - played,
            "tokens_per_second": (tokens + again_tokens) / max(1e-9, ended - began),
        }
        if len({group.weight for group in groups}) > 1:
            counted = [(group.weight, self.scoring.team_return(t)) for group in groups for t in group.traces]
            metrics["return_weighed"] = sum(w * r for w, r in counted) / sum(w for w, _ in counted)
        if self.judges:
            metrics["unjudged"] = self._unjudged
        if self.constraints is not None:
            metrics["constraints"] = self.constraints.figures(traces)
            self.constraints.observe(traces)
        if self.recipe.train.conflict != "add":
            metrics["conflict"] = told(self._conflicts)
        if name := self.phases[self.phase_number].span.name:
            metrics["phase"] = name
        self.scoring.observe(traces, self._norms)
        metrics["warnings"] = [structs.asdict(each) for each in self.watch.observe(metrics, traces)]
        return Step(metrics=metrics, traces=traces)

    def rows(self, number: int) -> list[tuple[Trace, Row]]:
        """A step's rows with their traces, played, scored and credited; somebody else trains on them."""
        groups = self.rollouts.take(number)
        credited, _ = asyncio.run(self._credited(groups))
        self._check_finite(credited.traces)
        groups = _regrouped(groups, credited.traces)
        self.step_number = number
        return [(t, row) for group in groups for t in group.traces for row in self._rows(t, group)]

    def engines(self) -> dict[str, Engine]:
        """Who answers for each role, in lockstep, with the weights as they are."""
        self.rollouts.publish()
        return self.rollouts.engines()

    def close(self) -> None:
        """Wait for rollouts that are being played, and let go of servers."""
        self.rollouts.close()
        for policy in self.policies.values():
            policy.close()
        if self._ranks is not None:
            self._ranks.close()

    async def _credited(self, groups: Sequence[RolloutGroup]) -> tuple[Credited, int]:
        """Scored and credited, and the tokens of all that was run again for it."""
        traces = [trace for group in groups for trace in group.traces]
        gold, tokens = await self.judging.gold(traces, self.rollouts.forks)
        if self.judges:
            judged = await judge_traces(self.scoring.rules, traces, gold, self.judges)
            self._unjudged = len(judged.unjudged)
            traces, gold = list(judged.traces), [structs.replace(known, judges=None) for known in gold]
        traces = self.scoring.score(traces, gold)
        if self.constraints is not None:
            traces = self.constraints.charge(traces)
        self._norms = await self._term_norms(groups, traces, gold)
        self.critic.observe(traces)
        split = [list(group.traces) for group in _regrouped(groups, traces)]
        credited = await self.crediting.credit(split, self.rollouts.forks)
        if self.recipe.train.conflict == "rewards":
            await self._credit_terms(groups, traces, gold, credited)
        return credited, tokens + credited.fork_tokens

    async def _credit_terms(
        self,
        groups: Sequence[RolloutGroup],
        traces: Sequence[Trace],
        gold: Sequence[Gold],
        credited: Credited,
    ) -> None:
        """The step's traces as each term of the reward credits them alone; prices are of the whole."""
        unpriced = structs.replace(self.recipe, train=structs.replace(self.recipe.train, invalid=0.0))
        self._alone = {}
        for name, (rule, _) in weighed_terms(self.scoring.rules).items():
            split = [list(group.traces) for group in _regrouped(groups, alone(rule, traces, gold))]
            found = await Crediting(unpriced, self.crediting.given).credit(split, self.rollouts.forks)
            self._alone[name] = found.traces
        if self.recipe.train.invalid:
            self._alone[PRICE] = [
                structs.replace(trace, credits=tuple(c for c in trace.credits if c.estimator == PRICE))
                for trace in credited.traces
            ]

    async def _term_norms(
        self, groups: Sequence[RolloutGroup], traces: Sequence[Trace], gold: Sequence[Gold]
    ) -> dict[str, dict[str, float]]:
        """What `balance = "gradient"` asks for, every few steps."""
        found: dict[str, dict[str, float]] = {}
        for rule in balanced(self.scoring.rules) if self.step_number % EVERY == 0 else ():
            for term in rule.terms:
                split = [list(group.traces) for group in _regrouped(groups, alone(term.of, traces, gold))]
                crediting = Crediting(self.recipe, self.crediting.given)
                credited = (await crediting.credit(split, self.rollouts.forks)).traces
                found.setdefault(rule.name, {})[term.of.name] = self._norm(_regrouped(groups, credited))
        return found

    def _norm(self, groups: Sequence[RolloutGroup]) -> float:
        """Of the gradient that these credits would cause, over all policies."""
        rows = self._sampled_rows(groups)
        squares = 0.0
        for policy in map(self.policies.__getitem__, self._learners()):
            mine = [row for row in rows if row.policy == policy.engine.name and np.any(row.advantages)]
            if mine and policy.optimizer is not None:
                policy.optimizer.zero_grad()
                with policy.computing():
                    self.gradients[policy.name].backward(mine, version=str(policy.version))
                    squares += norm_of(policy.parameters()) ** 2
                policy.optimizer.zero_grad()
        return math.sqrt(squares)

    # -- the update -----------------------------------------------------------------------------

    def _update(
        self, groups: Sequence[RolloutGroup], number: int
    ) -> tuple[list[UpdateReport], list[float], list[float]]:
        """Reports and gradient norms of all optimiser steps, and how far each policy was moved by its own."""
        rows = self._option_rows(groups) if self.recipe.train.options == "all" else self._sampled_rows(groups)
        objectives = self._objectives(groups)
        self._conflicts = []
        learners = self._learners()
        turns = self.recipe.train.freeze_by_turns
        if turns:
            learners = [learners[(number - 1) // turns % len(learners)]]
        reports: list[UpdateReport] = []
        norms: list[float] = []
        moved: list[float] = []
        for name in learners:
            policy = self.policies[name]
            mine = [row for row in rows if row.policy == policy.engine.name]
            if (rule := self.learners[name].loss.rule).labels != "none":
                mine = labelled(mine, rule)
            if not mine or not any(np.any(row.advantages) for row in mine):
                continue
            batches = batches_of(mine, self.recipe.train.batches) * self.recipe.train.epochs
            with policy.training():
                for done, batch in enumerate(batches):
                    report, norm = self._optimise(policy, batch, done, objectives)
                    reports.append(report)
                    norms += [] if norm is None else [norm]
                far = self.learners[name].moved(mine)
                moved += [] if far is None else [far]
        return reports, norms, moved

    def _objectives(self, groups: Sequence[RolloutGroup]) -> Objectives | None:
        """What the update tells apart; None: nothing."""
        kind = self.recipe.train.conflict
        if kind == "add":
            return None
        if kind == "roles":
            return Objectives.of_roles(trace for group in groups for trace in group.traces)
        weights = {name: weight for name, (_, weight) in weighed_terms(self.scoring.rules).items()}
        rows = {term: self._sampled_rows(_regrouped(groups, mine)) for term, mine in self._alone.items()}
        return Objectives.of_terms(rows, {**weights, PRICE: 1.0})

    def _as_now(self, groups: Sequence[RolloutGroup]) -> Sequence[RolloutGroup]:
        """Where all options are trained, with the chances that the weights to be trained give them."""
        if self.recipe.train.options != "all":
            return groups  # there the loss corrects for other weights, by the chances they gave
        versions = {p.engine.name: str(p.version) for p in self.policies.values() if p.learns}
        every = [trace for group in groups for trace in group.traces]
        limit = self.recipe.pack.max_tokens
        models = samplers(self.policies, now=True)
        told = with_propensities(every, models, max_tokens=limit, versions=versions)
        return _regrouped(groups, told)

    def _sampled_rows(self, groups: Sequence[RolloutGroup]) -> list[Row]:
        return [row for group in groups for trace in group.traces for row in self._rows(trace, group)]

    def _option_rows(self, groups: Sequence[RolloutGroup]) -> list[Row]:
        return option_rows(
            [trace for group in groups for trace in group.traces],
            {policy.engine.name: policy.tokenizer for policy in self.policies.values() if policy.learns},
            self.critic.given()["q"],
            trained_decisions(self.recipe),
            temperature=self.recipe.train.target_temperature,
            forget=self.recipe.train.forget,
            cut_weight=self.recipe.rollout.cut_weight,
            weights=[group.weight for group in groups for _ in group.traces],
        )

    def _check_finite(self, traces: Sequence[Trace]) -> None:
        """Before weights are touched: a return or a value that is no number would make them none either."""
        wrong = next((c for trace in traces for c in trace.credits if not math.isfinite(c.value)), None)
        if wrong is not None:
            lower = "critic.learning_rate" if learns(self.recipe.critic) else None
            raise Diverged(
                f"the credit of {wrong.estimator} on {wrong.unit} {wrong.target} is {wrong.value} at step "
                f"{self.step_number + 1}: the run has diverged. "
                + (f"Lower {lower}." if lower else "See what the reward gives."),
                lower,
            )

    def _optimise(
        self, policy: Policy, batch: list[Row], done: int, objectives: Objectives | None
    ) -> tuple[UpdateReport, float | None]:
        """One step of the optimiser, after `done` others on the same rollouts."""
        learner = self.learners[policy.name]
        learner.drop()
        # After the first step these are no longer the weights that sampled, and losses correct for that.
        version = f"{policy.version}+{done}" if done else str(policy.version)
        if learner.loss.rule.labels == "pairs":
            report = backward_of_pairs(self.gradients[policy.name], batch)
        elif objectives is not None:
            names = sorted(self.policies)
            random = np.random.default_rng(
                [self.recipe.train.seed, self.step_number, names.index(policy.name), done]
            )
            report, conflict = backward_apart(
                self.gradients[policy.name], batch, objectives, policy.parameters(), random, version=version
            )
            self._conflicts.append(conflict)
        else:
            report = learner.backward(batch, version=version)
        # A loss that is no number has such gradients too.
        norm = learner.advance(self.recipe.train.clip_norm) if math.isfinite(report.loss) else math.nan
        if norm is not None and not math.isfinite(norm):
            learner.drop()
            rate = self.recipe.rate_setting(policy.name)
            raise Diverged(
                f"the loss is {report.loss} and the gradient's norm {norm} at step {self.step_number + 1} "
                f"(policy {policy.name}): the run has diverged. Lower {rate}, or clip more with "
                "train.clip_norm.",
                rate,
            )
        if not learner.sound():
            rate = self.recipe.rate_setting(policy.name)
            raise Diverged(
                f"weights of policy {policy.name} are no numbers any more after step {self.step_number + 1}: the run "
                f"has diverged. Lower {rate}.",
                rate,
            )
        return report, norm

    def _rows(self, trace: Trace, group: RolloutGroup) -> list[Row]:
        if not trace.calls:  # a program may have asked for nothing
            return []
        learning = {role for name in self._learners() for role in self.policies[name].roles}
        names = {call.id for call in trace.calls if call.role in learning}
        found = advantages(trace, decision_only=self.recipe.train.decision_only)
        found = {call: values for call, values in found.items() if call in names}
        # Nothing on tokens of decisions that are not learned; less on rollouts that a budget cut off.
        level = group.weight * (self.recipe.rollout.cut_weight if cut_off(trace) else 1.0)
        sizes = {call: len(each) for call, each in found.items()}
        weights = learned_weights(trace, sizes, self.recipe.train.decisions, level=level)
        return rows_of(trace, found, weights=weights, group=f"{group.step}/{trace.header.task_id}")

    # -- to go on from ----------------------------------------------------------------------------

    def remembered(self) -> dict[str, Any]:
        """Everything but weights and optimisers."""
        kept = (
            self._references if self.phase_number else {}
        )  # those of the first phase are where the run began
        references = {name: reference_state(self.policies[name], each) for name, each in kept.items()}
        window = self.rollouts.state_dict()
        return {
            **({"references": references} if references else {}),
            **({} if window is None else {"window": window}),
            "total_tokens": self.total_tokens,
            "critic": self.critic.state_dict(),
            "crediting": self.crediting.state_dict(),
            "scoring": self.scoring.state_dict(),
            "watch": self.watch.state_dict(),
            **({} if self.constraints is None else {"constraints": self.constraints.state_dict()}),
        }

    def kept_groups(self) -> list[RolloutGroup]:
        """Rollouts that are still to be trained on: those played ahead, and those that may be replayed."""
        again = self.buffer.groups if self.recipe.rollout.replay else []
        return [*again, *self.rollouts.ahead()]

    def set_rates(self) -> None:
        """Give optimisers the recipe's rates of learning: those that were restored have the ones of before."""
        for name, policy in self.policies.items():
            rate = self.recipe.policies[name].learning_rate
            policy.set_rate((self.recipe.train.learning_rate if rate is None else rate) * self.rate_factor)

    def recall(self, saved: Saved) -> None:
        """What `remembered` and `kept_groups` gave, at their step."""
        told = saved.remembered
        self.step_number = told["step"]
        now = self._phase_at(self.step_number)
        if now:  # the first was entered with the weights of the beginning
            self._enter(now, told.get("references"))
        self.buffer.groups = [group for group in saved.groups if group.step <= self.step_number]
        if ahead := [group for group in saved.groups if group.step > self.step_number]:
            self.rollouts.recall(ahead)
        self.rollouts.load_state_dict(told.get("window"))
        self.total_tokens = told["total_tokens"]
        self.critic.load_state_dict(told["critic"])
        self.crediting.load_state_dict(told["crediting"])
        self.scoring.load_state_dict(told["scoring"])
        self.watch.load_state_dict(told["watch"])
        if self.constraints is not None:
            self.constraints.load_state_dict(told["constraints"])


def _of_base(policy: Policy) -> Any:
    """The weights that a run starts from; of adapters, their base."""
    if policy.shards is not None:
        return policy.shards.reference(base=policy.part.train == "lora")
    return Adapted(policy.model, None) if policy.part.train == "lora" else reference_of(policy)


def _regrouped(groups: Sequence[RolloutGroup], traces: Sequence[Trace]) -> list[RolloutGroup]:
    at, found = 0, []
    for group in groups:
        size = len(group.traces)
        found.append(structs.replace(group, traces=tuple(traces[at : at + size])))
        at += size
    return found
