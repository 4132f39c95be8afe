"""O5: two hypotheses, one noisy test at a time; when to stop testing and decide.

V(pi) = min{pi L0, (1-pi) L1, c + E V(pi')}: stop at two thresholds. Tests are right with
1/(1+e^-u), so log-odds move by ±u and the posterior is a walk on a lattice. For equal losses, an
even prior and no cap, the best thresholds ±B minimise c B tanh(uB/2)/tanh(u/2) + L/(1+e^(uB)).
Source: Wald 1945 (SPRT); Arrow, Blackwell and Girshick 1949 (with costs).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, tanh
from typing import ClassVar

from baton.games.game import OVER, Branch, Choice, Game, State, possible
from baton.games.library.inspectors import chance_good, report


class SequentialTest(Game, frozen=True, kw_only=True):
    """Test again, or decide."""

    name: ClassVar[str] = "sequential-test"
    decisions: ClassVar[tuple[Choice, ...]] = ("stop",)
    roles: ClassVar[tuple[str, ...]] = ("tester",)

    unit: float = 0.8
    """Log-odds one test moves."""
    prior: int = 0
    """Log-odds of "yes" at the start, in units."""
    loss_yes: float = 1.0
    """What saying yes costs when it is no."""
    loss_no: float = 1.0
    """What saying no costs when it is yes."""
    cost: float = 0.02
    """What one test costs."""
    max_tests: int = 60

    def __post_init__(self) -> None:
        self.require(0 < self.unit <= 20, "unit", "it must be above 0 and at most 20")
        for field in ("loss_yes", "loss_no", "cost"):
            self.require(getattr(self, field) >= 0, field, "it must not be negative")
        self.require(0 <= self.max_tests <= 500, "max_tests", "the exact solver takes 0 to 500")

    def start(self) -> Sequence[Branch]:
        return (Branch(1.0, (0, self.prior)),)

    def options(self, state: State) -> tuple[str, ...]:
        if not state:
            return ()
        return ("stop yes", "stop no", *(("spawn tester: look",) if state[0] < self.max_tests else ()))

    def step(self, state: State, option: str) -> Sequence[Branch]:
        tests, k = state
        if option.startswith("spawn"):
            return tuple(
                Branch(p, (tests + 1, k + shift), -self.cost) for p, shift in report(k, 1, False, self.unit)
            )
        yes = chance_good(k, self.unit)
        wrong, loss = (1 - yes, self.loss_yes) if option == "stop yes" else (yes, self.loss_no)
        return possible(Branch(wrong, OVER, -loss), Branch(1 - wrong, OVER))

    def quit(self, state: State) -> str:
        yes = chance_good(state[1], self.unit)
        return "stop yes" if (1 - yes) * self.loss_yes <= yes * self.loss_no else "stop no"

    def spawned(self, state: State) -> int:
        return int(state[0])

    def text(self, state: State) -> str:
        if not state:
            return "over"
        tests, k = state
        evidence = f"{abs(k)} for {'yes' if k > 0 else 'no'}" if k else "even"
        return f"tests left: {self.max_tests - tests}\nevidence: {evidence}\ndecide, or test again?"

    def threshold_risk(self, bound: int) -> float:
        """Expected loss of testing until the log-odds are ±bound, from an even prior with equal losses."""
        tests = bound * tanh(self.unit * bound / 2) / tanh(self.unit / 2)
        return self.cost * tests + self.loss_yes / (1 + exp(self.unit * bound))

    def facts(self) -> dict[str, float]:
        if self.prior or self.loss_yes != self.loss_no:
            return {}
        bound = min(range(self.max_tests + 1), key=self.threshold_risk)
        return {"threshold": bound, "value_without_cap": -self.threshold_risk(bound)}
