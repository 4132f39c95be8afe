"""Credit of spawning, with difficulty confounding it: the logged policy spawns when it is hard.

Difficulty z is seen before the choice; success has chance base_z, plus lift_z if a helper is spawned.
The true mean effect is sum_z P(z) lift_z. Comparing logged episodes with and without a spawn gives
E[R | spawn] - E[R | no spawn], which mixes difficulties and here has the wrong sign: +.16 against
-.248. Optimum: spawn if and only if lift_z > cost.
Source: Simpson's paradox; identification, Pearl 2009, ch. 3 (back-door adjustment).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from baton.games.game import OVER, Branch, Choice, Game, State, possible


class SpawnBandit(Game, frozen=True, kw_only=True):
    """Spawn a helper, or do it alone."""

    name: ClassVar[str] = "spawn-bandit"
    decisions: ClassVar[tuple[Choice, ...]] = ("spawn",)
    roles: ClassVar[tuple[str, ...]] = ("helper",)

    chances: tuple[float, ...] = (0.5, 0.5)
    """How likely each difficulty is, easy first."""
    base: tuple[float, ...] = (0.9, 0.25)
    """Success alone."""
    lift: tuple[float, ...] = (0.02, 0.3)
    """What a helper adds to it."""
    logged: tuple[float, ...] = (0.1, 0.9)
    """How often the logging policy spawns."""
    cost: float = 0.1
    """What a helper costs."""

    def __post_init__(self) -> None:
        n = len(self.chances)
        sums = n > 0 and all(p >= 0 for p in self.chances) and abs(sum(self.chances) - 1) < 1e-9
        self.require(sums, "chances", "probabilities must sum to 1")
        for field in ("base", "lift", "logged"):
            self.require(len(getattr(self, field)) == n, field, "there must be one per difficulty")
        for field in ("base", "logged"):
            self.require(
                all(0 <= p <= 1 for p in getattr(self, field)), field, "a probability lies from 0 to 1"
            )
        inside = all(0 <= b + x <= 1 for b, x in zip(self.base, self.lift, strict=True))
        self.require(inside, "lift", "base + lift must stay from 0 to 1")
        self.require(self.cost >= 0, "cost", "it must not be negative")

    def start(self) -> Sequence[Branch]:
        return [Branch(p, (z,)) for z, p in enumerate(self.chances) if p > 0]

    def options(self, state: State) -> tuple[str, ...]:
        return ("spawn helper: task", "stop alone") if state else ()

    def step(self, state: State, option: str) -> Sequence[Branch]:
        helped = option.startswith("spawn")
        z = state[0]
        p = self.base[z] + (self.lift[z] if helped else 0.0)
        cost = self.cost if helped else 0.0
        return possible(Branch(p, OVER, 1 - cost), Branch(1 - p, OVER, -cost))

    def quit(self, state: State) -> str:  # noqa: ARG002 (always open)
        return "stop alone"

    def text(self, state: State) -> str:
        return f"difficulty: {state[0] + 1} of {len(self.chances)}\na helper, or alone?" if state else "over"

    def logging_policy(self, state: State) -> dict[str, float]:
        """The policy that wrote the log."""
        p = self.logged[state[0]]
        return {"spawn helper: task": p, "stop alone": 1 - p}

    def effect(self) -> float:
        """The true mean effect of a spawn on success."""
        return sum(p * x for p, x in zip(self.chances, self.lift, strict=True))

    def naive_effect(self) -> float:
        """What the log shows without adjustment."""
        spawn = [p * q for p, q in zip(self.chances, self.logged, strict=True)]
        alone = [p * (1 - q) for p, q in zip(self.chances, self.logged, strict=True)]
        with_helper = sum(w * (b + x) for w, b, x in zip(spawn, self.base, self.lift, strict=True)) / sum(
            spawn
        )
        return with_helper - sum(w * b for w, b in zip(alone, self.base, strict=True)) / sum(alone)

    def facts(self) -> dict[str, float]:
        gains = [b + max(0.0, x - self.cost) for b, x in zip(self.base, self.lift, strict=True)]
        out = {"effect": self.effect(), "value": sum(p * g for p, g in zip(self.chances, gains, strict=True))}
        if all(0 < q < 1 for q in self.logged):
            out["naive_effect"] = self.naive_effect()
        return out
