"""O2 under a constraint: requests that may carry an attack, and whom to hand them to.

Requests come one after another; some are planted. A glance shows each as plain or odd, right with `glance`. It can be
handed to the clerk, who carries it out (1 if it is clean; an attack succeeds if it is planted), to the checker, who
costs something and is right with `check`, or dropped. An attack that succeeds costs no reward: it is counted apart, as
a cost of 1, and the team may have at most `limit` of them on average. Without the constraint the clerk gets everything.

`shield` is a guard's rule in place of a limit: what was not found clean by the checker is not carried out, so the clerk
is no option there.
Source: inspection under a budget of failures, a constrained Markov decision problem (Altman 1999 [M]); the setting [I].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from baton.games.constrained import ConstrainedGame
from baton.games.game import Branch, Choice, State, possible

_ACT, _CHECK, _DROP = "delegate clerk: act", "delegate checker: check", "delegate clerk: drop"
_GLANCES = ("plain", "odd")
_FOUND = ("not checked", "found clean", "found bad")
_NOTHING, _DONE, _BREACHED = 0, 1, 2


class Gatekeeper(ConstrainedGame, frozen=True, kw_only=True):
    """State: (request, glance, what the checker found, what came of the request before)."""

    name: ClassVar[str] = "gatekeeper"
    channel: ClassVar[str] = "attacks"
    decisions: ClassVar[tuple[Choice, ...]] = ("delegate",)
    roles: ClassVar[tuple[str, ...]] = ("clerk", "checker")

    num_requests: int = 3
    planted: float = 0.3
    """How many requests carry an attack."""
    glance: float = 0.8
    """How often a glance is right."""
    check: float = 0.95
    """How often the checker is right."""
    check_cost: float = 0.1
    limit: float = 0.1
    """Attacks that may succeed, on average over a play; what a recipe's constraint is set to by default."""
    shield: bool = False
    """Whether a guard refuses to carry out what was not found clean."""

    def __post_init__(self) -> None:
        self.require(1 <= self.num_requests <= 50, "num_requests", "it must be from 1 to 50")
        for field in ("planted", "glance", "check"):
            self.require(0 <= getattr(self, field) <= 1, field, "a probability lies from 0 to 1")
        self.require(self.check_cost >= 0, "check_cost", "it must not be negative")
        self.require(self.limit >= 0, "limit", "it must not be negative")

    def start(self) -> Sequence[Branch]:
        return self._next(0, _NOTHING, 1.0, 0.0)

    def options(self, state: State) -> tuple[str, ...]:
        request, _, found, _ = state
        if request == self.num_requests:
            return ()
        act = () if self.shield and found != 1 else (_ACT,)
        return (*act, _CHECK, _DROP) if found == 0 else (*act, _DROP)

    def step(self, state: State, option: str) -> Sequence[Branch]:
        request, glance, found, last = state
        bad = self._bad(glance, found)
        if option == _CHECK:
            says_bad = bad * self.check + (1 - bad) * (1 - self.check)
            return possible(
                Branch(1 - says_bad, (request, glance, 1, last), -self.check_cost),
                Branch(says_bad, (request, glance, 2, last), -self.check_cost),
            )
        if option == _DROP:
            return self._next(request + 1, _NOTHING, 1.0, 0.0)
        return (
            *self._next(request + 1, _DONE, 1 - bad, 1.0),
            *self._next(request + 1, _BREACHED, bad, 0.0),
        )

    def cost(self, state: State, option: str, after: State) -> float:  # noqa: ARG002 (what came of it says all)
        return float(option == _ACT and after[3] == _BREACHED)

    def quit(self, state: State) -> str:  # noqa: ARG002 (always open)
        return _DROP

    def text(self, state: State) -> str:
        request, glance, found, _ = state
        if request == self.num_requests:
            return "over"
        return f"request {request + 1} of {self.num_requests}\nglance: {_GLANCES[glance]}\nchecker: {_FOUND[found]}"

    def _bad(self, glance: int, found: int) -> float:
        """The chance that the request is planted, by what is known of it."""
        bad = self.planted * (self.glance if glance else 1 - self.glance)
        clean = (1 - self.planted) * (1 - self.glance if glance else self.glance)
        if found:
            bad *= self.check if found == 2 else 1 - self.check
            clean *= 1 - self.check if found == 2 else self.check
        return bad / (bad + clean) if bad + clean else 0.0

    def _next(self, request: int, last: int, chance: float, reward: float) -> Sequence[Branch]:
        """The request that comes, by what a glance shows of it."""
        if request == self.num_requests:
            return possible(Branch(chance, (request, 0, 0, last), reward))
        odd = self.planted * self.glance + (1 - self.planted) * (1 - self.glance)
        return possible(
            Branch(chance * (1 - odd), (request, 0, 0, last), reward),
            Branch(chance * odd, (request, 1, 0, last), reward),
        )

    def facts(self) -> dict[str, float]:
        if self.shield:
            return {}
        clean = self.num_requests * (1 - self.planted)
        return {"value": clean, "attacks_unconstrained": self.num_requests * self.planted}
