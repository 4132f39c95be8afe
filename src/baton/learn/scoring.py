"""Rewards of a step's traces by the recipe's rules, with weights that move as the run goes on.

A hybrid's schedules (linear, cosine, or tied to measured progress) and balances advance by one `observe` per step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import structs

from baton.credit.contract import team_return, whole
from baton.reward.contract import settings_in
from baton.reward.hybrid import Hybrid, MixState
from baton.reward.recipe import Recipe as RewardRecipe
from baton.reward.recipe import load, with_rewards
from baton.trace.trace import Trace

__all__ = ["Scoring"]


class Scoring:
    """None: the task's own score is the reward."""

    def __init__(self, name: str | None) -> None:
        self.recipe: RewardRecipe | None = load(name) if name else None

    def score(self, traces: Sequence[Trace]) -> list[Trace]:
        """The traces with their rewards."""
        if self.recipe is None:
            return list(traces)
        recipe = self.recipe
        return [with_rewards(trace, recipe.score(trace)) for trace in traces]

    def team_return(self, trace: Trace) -> float:
        """What the team earned: by the recipe's rules where they say something of the team, else by the task."""
        mine = [r for r in trace.rewards if r.unit == "team" and settings_in(r.by or "") is not None]
        if mine:
            return math.fsum(reward.value for reward in whole(mine))
        return team_return(trace)

    @staticmethod
    def own_return(trace: Trace) -> float:
        """What the task itself says it was worth, whatever is trained on."""
        own = [r.value for r in trace.rewards if r.unit == "team" and settings_in(r.by or "") is None]
        return math.fsum(own)

    def observe(self, traces: Sequence[Trace]) -> None:
        """One step is over: schedules and balances move."""
        if self.recipe is None:
            return
        success = sum(_success(trace) for trace in traces) / len(traces)
        rules = tuple(
            rule.observe([rule.totals(trace) for trace in traces], success=success)
            if isinstance(rule, Hybrid)
            else rule
            for rule in self.recipe.rules
        )
        self.recipe = structs.replace(self.recipe, rules=rules)

    def weights(self) -> dict[str, float]:
        """Each hybrid term's weight now."""
        if self.recipe is None:
            return {}
        hybrids = [rule for rule in self.recipe.rules if isinstance(rule, Hybrid)]
        return {name: weight for rule in hybrids for name, weight in rule.weights().items()}

    def state(self) -> list[Any]:
        rules = () if self.recipe is None else self.recipe.rules
        return [msgspec.to_builtins(rule.state) if isinstance(rule, Hybrid) else None for rule in rules]

    def load(self, state: Sequence[Mapping[str, Any] | None]) -> None:
        if self.recipe is None:
            return
        rules = tuple(
            structs.replace(rule, state=msgspec.convert(kept, MixState))
            if isinstance(rule, Hybrid) and kept
            else rule
            for rule, kept in zip(self.recipe.rules, state, strict=True)
        )
        self.recipe = structs.replace(self.recipe, rules=rules)


def _success(trace: Trace) -> float:
    """The task's own score."""
    shared = [reward.value for reward in trace.rewards if reward.family == "shared" and reward.unit == "team"]
    return shared[0] if shared else team_return(trace)
