"""O2 and O3 under a supervisor who may interrupt: how much to have in flight, and whether to heed the word.

A piece of work has `num_parts` parts. Each round the team hands out one part, two, or all that are left; a round costs
`round_cost`, whatever its size. While a round is under way the supervisor may say, once and with chance `hazard`, that
something else is wanted. What was in flight is then void, `void_cost` a part, if the team heeds the word; what was done
counts. If it does not, nothing is void, and at the end the work is worth `unheeded` and not 1.

So a team that is easy to steer keeps little in flight and heeds; how little is what the solver knows. The word is a
person's event on the trace (`human_intervention`), drawn with the instance's luck: seeded, the same for every policy.
Source: the survey's steerability (P13), arXiv 2605.02801; the game [I].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from baton.games.game import Branch, Choice, Game, State, possible

_HEED, _GO_ON = "send worker: drop it", "send worker: go on"
_QUIET, _SAID, _HEEDED, _UNHEEDED = 0, 1, 2, 3


class Supervised(Game, frozen=True, kw_only=True):
    """State: (parts left, parts in flight, what became of the supervisor's word)."""

    name: ClassVar[str] = "supervised"
    decisions: ClassVar[tuple[Choice, ...]] = ("delegate", "communicate")
    roles: ClassVar[tuple[str, ...]] = ("worker",)

    num_parts: int = 4
    hazard: float = 0.25
    """How likely the word is in each round, as long as it was not said."""
    round_cost: float = 0.01
    void_cost: float = 0.2
    unheeded: float = 0.0
    """What work is worth that is not what was asked for."""

    def __post_init__(self) -> None:
        self.require(1 <= self.num_parts <= 100, "num_parts", "it must be from 1 to 100")
        self.require(
            0 <= self.hazard < 1, "hazard", "it is a chance below 1: a word that is sure is no interruption"
        )
        for field in ("round_cost", "void_cost", "unheeded"):
            self.require(getattr(self, field) >= 0, field, "it must not be negative")

    def start(self) -> Sequence[Branch]:
        return (Branch(1.0, (self.num_parts, 0, _QUIET)),)

    def options(self, state: State) -> tuple[str, ...]:
        left, _, word = state
        if word == _SAID:
            return (_HEED, _GO_ON)
        if not left:
            return ()
        sizes = dict.fromkeys(size for size in (1, 2, left) if size <= left)
        return tuple(f"delegate worker: {size}" for size in sizes)

    def decision(self, state: State) -> Choice:
        return "communicate" if state[2] == _SAID else "delegate"

    def step(self, state: State, option: str) -> Sequence[Branch]:
        left, flying, word = state
        if option == _HEED:
            return (Branch(1.0, (left, 0, _HEEDED), -self.void_cost * flying),)
        if option == _GO_ON:
            return self._done(left - flying, _UNHEEDED, 1.0, 0.0)
        size = int(option.rpartition(" ")[2])
        said = self.hazard if word == _QUIET else 0.0
        return possible(
            *self._done(left - size, word, 1 - said, -self.round_cost),
            Branch(said, (left, size, _SAID), -self.round_cost),
        )

    def _done(self, left: int, word: int, chance: float, reward: float) -> Sequence[Branch]:
        """A round that was finished, and what the work is worth if it was the last."""
        worth = 0.0 if left else self.unheeded if word == _UNHEEDED else 1.0
        return (Branch(chance, (left, 0, word), reward + worth),)

    def word(self, state: State, after: State) -> str | None:
        return "something else is wanted" if after[2] == _SAID and state[2] == _QUIET else None

    def text(self, state: State) -> str:
        left, flying, word = state
        if word == _SAID:
            return f"parts left: {left}\nin flight: {flying}\nthe supervisor says: something else is wanted"
        told = ("the supervisor is quiet", "", "the word was heeded", "the word was not heeded")[word]
        return f"parts left: {left}\n{told}"
