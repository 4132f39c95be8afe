"""Rewards of a step's traces by the recipe's rules, with weights that move as the run goes on.

A hybrid's schedules (linear, cosine, or tied to measured progress) and balances advance by one `observe` per step.
A rollout that a rule cannot read (nobody answered, a verdict on nothing) earns 0 there: it is data, and not an error,
unless it is so of all of them. Forks that an estimator compares with earn by the same rules.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import structs

from baton.credit.contract import team_return, whole
from baton.errors import TraceError, UsageError
from baton.learn.recipe import RewardPart
from baton.learn.terms import each_hybrid, hybrids, of_forks, state_of, with_state
from baton.reward.contract import Gold, Rule, settings_in
from baton.reward.hybrid import Hybrid
from baton.reward.recipe import Recipe as RewardRecipe
from baton.reward.recipe import load, rule_of, with_rewards
from baton.trace.forest import Forest
from baton.trace.record import Reward
from baton.trace.trace import Trace
from baton.trace.vocabulary import CreditUnit

__all__ = ["Scoring"]


class Scoring:
    """Without a recipe the task's own score is the reward."""

    def __init__(self, part: RewardPart) -> None:
        self.recipe: RewardRecipe | None = load(part.recipe) if part.recipe else None
        if part.settings and self.recipe is None:
            raise UsageError('[reward] has settings and no recipe to change. Add recipe = "NAME".')
        if self.recipe is not None:
            self.recipe = structs.replace(self.recipe, rules=_changed(self.recipe.rules, part.settings))
        self.weights()  # one that cannot be is an error now, and not after the first rollouts
        self._gold: dict[str, Gold] = {}
        """Of the step's traces."""
        self._of_task: dict[str, Gold] = {}
        """Of the step's instances, for forks of whatever generation."""
        self._units: list[set[CreditUnit]] = []
        """Whom each rule rewards."""

    @property
    def rules(self) -> tuple[Rule, ...]:
        return () if self.recipe is None else self.recipe.rules

    def score(self, traces: Sequence[Trace], gold: Sequence[Gold]) -> list[Trace]:
        """The traces with their rewards."""
        self._gold = {trace.trace_id: known for trace, known in zip(traces, gold, strict=True)}
        self._of_task = {trace.header.task_id: known for trace, known in zip(traces, gold, strict=True)}
        self._units = []
        found: list[list[Reward]] = [[] for _ in traces]
        for rule in self.rules:
            every = _scored(rule, traces, gold)
            self._units.append({reward.unit for new in every for reward in new})
            for mine, new in zip(found, every, strict=True):
                mine += new
        return [
            with_rewards(trace, mine) if mine else trace for trace, mine in zip(traces, found, strict=True)
        ]

    def team_return(self, trace: Trace) -> float:
        """What the team earned: by the recipe's rules where they say something of the team, else by the task."""
        mine = [r for r in trace.rewards if r.unit == "team" and settings_in(r.by or "") is not None]
        if not mine and "forked_from" in trace.header.meta:
            mine = self._of_fork(trace)
        if mine:
            return math.fsum(reward.value for reward in whole(mine))
        return team_return(trace)

    def _of_fork(self, trace: Trace) -> list[Reward]:
        """What the rules give the team of a run that an estimator compares with."""
        known = self._of_task.get(trace.header.task_id)
        if known is None:
            return []
        found: list[Reward] = []
        for rule, units in zip(self.rules, self._units, strict=True):
            if "team" in units:
                read = _read(of_forks(rule), trace, known)
                found += _nothing(rule, trace, units) if read is None else read
        return [reward for reward in found if reward.unit == "team"]

    @staticmethod
    def own_return(trace: Trace) -> float:
        """What the task itself says it was worth, whatever is trained on."""
        own = [r.value for r in trace.rewards if r.unit == "team" and settings_in(r.by or "") is None]
        return math.fsum(own)

    def observe(
        self, traces: Sequence[Trace], norms: Mapping[str, Mapping[str, float]] | None = None
    ) -> None:
        """One step is over: schedules and balances move. `norms`: hybrid -> term -> norm of its gradient."""
        if self.recipe is None:
            return
        success = sum(_success(trace) for trace in traces) / len(traces)

        def moved(rule: Hybrid) -> Hybrid:
            mine = (norms or {}).get(rule.name)
            return rule.observe(self._totals(rule, traces), success=success, gradient_norms=mine)

        rules = tuple(each_hybrid(rule, moved) for rule in self.recipe.rules)
        self.recipe = structs.replace(self.recipe, rules=rules)

    def _totals(self, rule: Hybrid, traces: Sequence[Trace]) -> list[dict[str, float]]:
        found = []
        for trace in traces:
            with contextlib.suppress(TraceError):  # it earned 0 there, and tells nothing about the terms
                found.append(rule.totals(trace, self._gold.get(trace.trace_id)))
        return found

    def weights(self) -> dict[str, float]:
        """Each hybrid term's weight now."""
        if self.recipe is None:
            return {}
        return {name: weight for rule in hybrids(self.rules) for name, weight in rule.weights().items()}

    def state(self) -> list[Any]:
        return [state_of(rule) for rule in self.rules]

    def load(self, state: Sequence[Mapping[str, Any] | None]) -> None:
        if self.recipe is None:
            return
        rules = tuple(with_state(rule, kept) for rule, kept in zip(self.recipe.rules, state, strict=True))
        self.recipe = structs.replace(self.recipe, rules=rules)


def _changed(rules: tuple[Rule, ...], settings: Mapping[str, Any]) -> tuple[Rule, ...]:
    """Each setting goes to the rules that have it; the rest of the checking is the rules' own."""
    tables: list[Any] = [msgspec.json.decode(msgspec.json.encode(rule)) for rule in rules]
    for key, value in settings.items():
        *path, last = key.split(".")
        first = path[0] if path else last
        mine = [table for table in tables if first in table]
        for table in mine or tables:
            here = table
            for word in path:
                try:
                    here = here[int(word)] if isinstance(here, list) else here[word]
                except (KeyError, IndexError, ValueError, TypeError):
                    raise UsageError(
                        f"[reward.settings] {key!r}: there is no {word!r} in that rule."
                    ) from None
            here[last] = value
    return tuple(rule_of(msgspec.json.encode(table).decode()) for table in tables)


def _scored(rule: Rule, traces: Sequence[Trace], gold: Sequence[Gold]) -> list[list[Reward]]:
    found = [_read(rule, trace, known) for trace, known in zip(traces, gold, strict=True)]
    units = {reward.unit for mine in found if mine is not None for reward in mine}
    if found and all(mine is None for mine in found):
        rule.score(traces[-1], gold[-1])  # raises, with what is wrong
    return [
        _nothing(rule, trace, units) if mine is None else mine
        for trace, mine in zip(traces, found, strict=True)
    ]


def _read(rule: Rule, trace: Trace, known: Gold) -> list[Reward] | None:
    """None: it cannot be read."""
    try:
        return rule.score(trace, known)
    except TraceError:
        return None


def _nothing(rule: Rule, trace: Trace, units: set[Any]) -> list[Reward]:
    """0 to everyone the rule rewards elsewhere."""
    if "team" in units:
        return [rule.reward("team", trace.trace_id, 0.0, "not to be read")]
    if "agent" in units:
        return [rule.reward("agent", agent, 0.0, "not to be read") for agent in Forest.of(trace).agents]
    return []


def _success(trace: Trace) -> float:
    """The task's own score."""
    shared = [reward.value for reward in trace.rewards if reward.family == "shared" and reward.unit == "team"]
    return shared[0] if shared else team_return(trace)
