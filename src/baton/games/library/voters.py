"""O4: independent voters of known skill; which answer do their votes say?

The answer is one of K, equally likely; voter i is right with p_i and otherwise wrong evenly. The
optimum weighs votes by ln(p(K-1)/(1-p)): for K = 2, ln(p/(1-p)). Plain majority can be worse than
the best voter alone: p = (.9,.6,.6,.55,.55) gives .755 against .900.
Source: Nitzan and Paroush 1982; Shapley and Grofman 1984.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import product
from math import inf, log, prod
from typing import ClassVar

from baton.games.game import OVER, Branch, Choice, Game, State, possible


class Voters(Game, frozen=True, kw_only=True):
    """Read the votes, give the answer."""

    name: ClassVar[str] = "voters"
    decisions: ClassVar[tuple[Choice, ...]] = ("aggregate",)
    roles: ClassVar[tuple[str, ...]] = ("voter",)

    skills: tuple[float, ...] = (0.9, 0.6, 0.6, 0.55, 0.55)
    num_classes: int = 2

    def __post_init__(self) -> None:
        self.require(len(self.skills) >= 1, "skills", "there must be at least one voter")
        self.require(all(0 <= p <= 1 for p in self.skills), "skills", "a probability lies from 0 to 1")
        self.require(self.num_classes >= 2, "num_classes", "it must be at least 2")
        few = self.num_classes ** len(self.skills) <= 200_000
        self.require(few, "skills", "num_classes ** voters must be at most 200,000; use fewer voters")

    def likelihood(self, votes: State, answer: int) -> float:
        """P(votes | answer)."""
        return prod(
            p if vote == answer else (1 - p) / (self.num_classes - 1)
            for p, vote in zip(self.skills, votes, strict=True)
        )

    def posterior(self, votes: State) -> list[float]:
        """P(answer | votes)."""
        likely = [self.likelihood(votes, answer) for answer in range(self.num_classes)]
        return [x / sum(likely) for x in likely]

    @cached_property
    def _profiles(self) -> list[tuple[float, State]]:
        every = product(range(self.num_classes), repeat=len(self.skills))
        classes = range(self.num_classes)
        chances = (
            (sum(self.likelihood(votes, a) for a in classes) / self.num_classes, votes) for votes in every
        )
        return [(p, votes) for p, votes in chances if p > 0]

    def start(self) -> Sequence[Branch]:
        return [Branch(p, votes) for p, votes in self._profiles]

    def options(self, state: State) -> tuple[str, ...]:
        return tuple(f"aggregate answer-{a + 1}" for a in range(self.num_classes)) if state else ()

    def step(self, state: State, option: str) -> Sequence[Branch]:
        right = self.posterior(state)[int(option.rsplit("-", 1)[1]) - 1]
        return possible(Branch(right, OVER, 1.0), Branch(1 - right, OVER))

    def quit(self, state: State) -> str:
        """The majority."""
        return self.options(state)[max(range(self.num_classes), key=state.count)]

    def text(self, state: State) -> str:
        if not state:
            return "over"
        lines = [f"voter {p:g} says {vote + 1}" for p, vote in zip(self.skills, state, strict=True)]
        return "\n".join([*lines, "which answer?"])

    def reports(self, state: State) -> tuple[str, ...]:
        return tuple(str(vote + 1) for vote in state)

    def weights(self) -> list[float]:
        """The optimal weight of each voter."""
        others = self.num_classes - 1
        return [inf if p == 1 else -inf if p == 0 else log(p * others / (1 - p)) for p in self.skills]

    def accuracy(self, weights: Sequence[float]) -> float:
        """How often the answer with the greatest weight of votes is right; ties are broken evenly."""
        total = 0.0
        for votes in product(range(self.num_classes), repeat=len(self.skills)):
            scores = [0.0] * self.num_classes
            for weight, vote in zip(weights, votes, strict=True):
                scores[vote] += weight
            top = [a for a, score in enumerate(scores) if score >= max(scores) - 1e-12]
            total += sum(self.likelihood(votes, a) for a in top) / len(top) / self.num_classes
        return total

    def majority_accuracy(self) -> float:
        """Every vote alike."""
        return self.accuracy([1.0] * len(self.skills))

    def facts(self) -> dict[str, float]:
        out = {"majority": self.majority_accuracy(), "best_single": max(self.skills)}
        if all(0 < p < 1 for p in self.skills):
            out["value"] = self.accuracy(self.weights())
        return out
