"""R8, hybrid: a weighted sum of other rewards, unit by unit.

r(unit, target) = sum_k w_k r_k(unit, target). Weights are constant, scheduled by step, annealed by measured
progress, or balanced automatically so that every term moves the sum as much as its base weight says.
Risk: weight drift, and one term that drowns the others; PARL's spawns rise while F1 falls when its
weights are never annealed (independent reproduction).

Invariant: weights are a function of the rule and its `state`, which is data and travels in every
record's `by`. `observe` gives a new rule with a new state; nothing is changed in place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from msgspec import Struct, field, structs

from baton.errors import UsageError, nearest
from baton.reward.rule import Rule
from baton.trace.gold import Gold
from baton.trace.records import ROUNDING, Reward
from baton.trace.trace import Trace
from baton.trace.vocabulary import CreditUnit, RewardFamily


class _Setting(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Linear(_Setting, tag_field="schedule", tag="linear", frozen=True, kw_only=True):
    """From `start` at step `begin` to `end`, `steps` later, in a straight line."""

    start: float
    end: float
    steps: int
    begin: int = 0

    def at(self, state: MixState) -> float:
        return self.start + (self.end - self.start) * _share(state.step - self.begin, self.steps)


class Cosine(Linear, tag="cosine", frozen=True, kw_only=True):
    """The same along half a cosine: slow, fast, slow."""

    def at(self, state: MixState) -> float:
        x = _share(state.step - self.begin, self.steps)
        return self.end + (self.start - self.end) * (1 + math.cos(math.pi * x)) / 2


class Progress(_Setting, tag_field="schedule", tag="progress", frozen=True, kw_only=True):
    """Annealed by measured progress: from `start` while success is at `low` to `end` once it is at `high`.

    Progress is an exponential moving average of success; before any is measured the weight is `start`.
    Nobody publishes such a tie for the orchestration terms; this one is ours [I].
    """

    start: float
    end: float
    low: float = 0.0
    high: float = 1.0

    def at(self, state: MixState) -> float:
        if state.progress is None:
            return self.start
        return self.start + (self.end - self.start) * _share(state.progress - self.low, self.high - self.low)


Weight = float | Linear | Cosine | Progress


class Moments(_Setting, frozen=True, kw_only=True):
    """Count, mean and sum of squared deviations of a term, one trace a sample (Welford 1962)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> Moments:
        count = self.count + 1
        mean = self.mean + (value - self.mean) / count
        return Moments(count=count, mean=mean, squares=self.squares + (value - self.mean) * (value - mean))

    @property
    def std(self) -> float | None:
        if self.count < 2:
            return None
        found = math.sqrt(self.squares / (self.count - 1))
        return found if found > ROUNDING * abs(self.mean) else 0.0


class MixState(_Setting, frozen=True, kw_only=True):
    """What the weights depend on besides the recipe. Saves and loads with any msgspec format."""

    step: int = 0
    progress: float | None = None
    """Moving average of success; None: not measured yet."""
    moments: dict[str, Moments] = field(default_factory=dict)
    """Term -> of its totals."""
    gradient_norms: dict[str, float] = field(default_factory=dict)
    """Term -> moving average of the norm of the gradient it causes, where a trainer measures it."""


class Term(_Setting, frozen=True, kw_only=True):
    """One reward in the sum."""

    of: Rule
    weight: Weight = 1.0
    gate: bool = False
    """Where this term is 0 the whole sum is 0 there, whatever the rest: "invalid format 0"."""


class Hybrid(Rule, tag="hybrid", frozen=True, kw_only=True):
    """The weighted sum. PARL [A]: success + l1 parallel + l2 finish_rate with l1, l2 -> 0 (recipe `parl`).

    balance = "variance": w_k = base_k c / std_k; "gradient": w_k = base_k c / |g_k| (as GradNorm's fixed point,
    Chen et al. 2018 [M]); c keeps the sum of the balanced base weights. So each term's spread, or gradient,
    enters in proportion to its base weight. A term that has no spread yet keeps its base weight.
    Source: PARL, arXiv 2602.02276 [A]; GradNorm, Chen et al. 2018 [M]; balance by variance [I].
    """

    family: ClassVar[RewardFamily] = "hybrid"
    name: str = "hybrid"
    terms: tuple[Term, ...]
    balance: Literal["none", "variance", "gradient"] = "none"
    progress_decay: float = 0.9
    """How much of the old value stays in a moving average."""
    max_ratio: float = 100.0
    """Balancing never moves a weight by more than this factor."""
    state: MixState = MixState()

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:
        sums: dict[tuple[CreditUnit, str], list[float]] = {}
        closed: set[tuple[CreditUnit, str]] = set()
        weights = self.weights()
        for term in self.terms:
            for reward in term.of.score(trace, gold):
                at = (reward.unit, reward.target)
                sums.setdefault(at, []).append(weights[term.of.name] * reward.value)
                if term.gate and reward.value == 0:
                    closed.add(at)
        return [
            self.reward(unit, target, 0.0 if (unit, target) in closed else math.fsum(values))
            for (unit, target), values in sums.items()
        ]

    def totals(self, trace: Trace, gold: Gold | None = None) -> dict[str, float]:
        """Each term's own sum over a trace, unweighted: what `observe` takes."""
        self._check()
        return {
            term.of.name: math.fsum(reward.value for reward in term.of.score(trace, gold))
            for term in self.terms
        }

    def weights(self) -> dict[str, float]:
        """Each term's weight as the state is now."""
        self._check()
        base = {
            term.of.name: float(term.weight)
            if isinstance(term.weight, int | float)
            else term.weight.at(self.state)
            for term in self.terms
        }
        sizes = self._sizes()
        if not sizes:
            return base
        whole = math.fsum(abs(base[name]) for name in sizes)
        scale = math.fsum(abs(base[name]) / size for name, size in sizes.items())
        if not whole or not scale:
            return base
        balanced = {}
        for name, size in sizes.items():
            ratio = whole / scale / size
            balanced[name] = base[name] * min(self.max_ratio, max(1 / self.max_ratio, ratio))
        return base | balanced

    def observe(
        self,
        totals: Sequence[Mapping[str, float]] = (),
        *,
        success: float | None = None,
        gradient_norms: Mapping[str, float] | None = None,
    ) -> Hybrid:
        """The rule after one training step: totals of its traces, their success, the terms' gradient norms."""
        known = {term.of.name for term in self.terms}
        moments = dict(self.state.moments)
        norms = dict(self.state.gradient_norms)
        for found in totals:
            for name, value in found.items():
                moments[self._known(name, known)] = moments.get(name, Moments()).add(value)
        for name, norm in (gradient_norms or {}).items():
            norms[self._known(name, known)] = self._averaged(norms.get(name), norm)
        progress = self.state.progress if success is None else self._averaged(self.state.progress, success)
        state = MixState(step=self.state.step + 1, progress=progress, moments=moments, gradient_norms=norms)
        return structs.replace(self, state=state)

    def _sizes(self) -> dict[str, float]:
        """How far each term moves the sum, of those where that is known and not zero."""
        if self.balance == "none":
            return {}
        if self.balance == "variance":
            known = {name: moments.std for name, moments in self.state.moments.items()}
        else:
            known = dict(self.state.gradient_norms)
        return {term.of.name: size for term in self.terms if (size := known.get(term.of.name))}

    def _averaged(self, old: float | None, new: float) -> float:
        return new if old is None else self.progress_decay * old + (1 - self.progress_decay) * new

    def _known(self, name: str, known: set[str]) -> str:
        if name not in known:
            raise UsageError(f"hybrid {self.name!r} has no term {name!r}. {nearest(name, known)}")
        return name

    def _check(self) -> None:
        self.require(bool(self.terms), "terms", "give at least one")
        self.require(0 <= self.progress_decay < 1, "progress_decay", "it must be at least 0 and below 1")
        self.require(self.max_ratio >= 1, "max_ratio", "it must be at least 1")
        for term in self.terms:
            if isinstance(term.weight, Linear) and term.weight.steps < 0:
                raise UsageError(
                    f"hybrid {self.name!r}: the weight of {term.of.name!r} cannot change over {term.weight.steps} "
                    "steps; expected 0 or more."
                )
        names = [term.of.name for term in self.terms]
        if twice := {name for name in names if names.count(name) > 1}:
            raise UsageError(
                f"hybrid {self.name!r}: two terms are named {sorted(twice)[0]!r}. Give one of them another name."
            )


def _share(done: float, whole: float) -> float:
    """How far along, from 0 to 1."""
    if whole <= 0:
        return float(done >= 0)
    return min(1.0, max(0.0, done / whole))
