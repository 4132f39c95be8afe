"""The contract of an exact game: the orchestrator's decision problem on its information states.

Worker policies are fixed and part of the game, so a state is everything the orchestrator knows and
`step` is exact. Every choice belongs to exactly one of the five decisions: a step that involves
several is split into successive states. Options are one-line commands of the team's "lines" surface.

Invariant: from any state, play ends; branch probabilities are positive and sum to one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from msgspec import Struct

from baton.errors import UsageError

State = tuple[Any, ...]
"""Nested tuples of ints: hashable, and the same in every process."""

OVER: State = ()
"""The end of most games."""

Choice = Literal["spawn", "delegate", "communicate", "aggregate", "stop"]
CHOICES: tuple[Choice, ...] = get_args(Choice)
"""O1..O5, in this order."""

Policy = Callable[[State], Mapping[str, float]]
"""A state's options and their probabilities; options left out have probability zero."""


class Branch(NamedTuple):
    """One thing that may happen next."""

    probability: float
    state: State
    reward: float = 0.0


def possible(*branches: Branch) -> tuple[Branch, ...]:
    """The branches that can happen: those with a chance above zero."""
    return tuple(b for b in branches if b.probability > 0)


def lottery(branches: Sequence[Branch]) -> tuple[list[float], Sequence[Branch]]:
    """Where each branch ends on the line from 0 to 1, and the branches: ready to be drawn from by `bisect`."""
    return cumulative(b.probability for b in branches), branches


def cumulative(probabilities: Iterable[float]) -> list[float]:
    """Sums up to each place. The last is left out: whatever rounding left over falls to the last branch."""
    return list(accumulate(probabilities))[:-1]


def chances(game: Game, state: State, policy: Policy) -> dict[str, float]:
    """What a policy may choose at a state: its options with a chance, checked."""
    given = policy(state)
    options = game.options(state)
    for option in given:
        if option not in options:
            raise UsageError(
                f"{game.name}: the policy chose {option!r}, which is no option there. "
                f"Expected one of: {', '.join(options)}."
            )
    if abs(sum(given.values()) - 1) > 1e-9 or min(given.values()) < 0:
        raise UsageError(f"{game.name}: the policy's chances are {dict(given)}; they must sum to 1.")
    return {option: p for option, p in given.items() if p > 0}


class Game(Struct, frozen=True, kw_only=True, dict=True, forbid_unknown_fields=True):
    """A game is its parameters (the fields) and these methods."""

    name: ClassVar[str]
    decisions: ClassVar[tuple[Choice, ...]]
    """Which of O1..O5 its states ask for."""
    roles: ClassVar[tuple[str, ...]] = ()
    """The roles of the agents its commands spawn or speak to: `worker` is the latest one, `worker-2` the second."""

    def require(self, holds: bool, field: str, limit: str) -> None:
        """Refuse a parameter out of bounds: what was given, the limit, what to type."""
        if not holds:
            given = getattr(self, field)
            raise UsageError(f"{self.name}: {field} = {given!r} is not possible; {limit}.")

    def start(self) -> Sequence[Branch]:
        """Where play begins; rewards are zero."""
        raise NotImplementedError

    def options(self, state: State) -> tuple[str, ...]:
        """What can be chosen; empty: play is over."""
        raise NotImplementedError

    def decision(self, state: State) -> Choice:  # noqa: ARG002 (many games ask for one decision alone)
        """Which decision the choice at this state is; by default the only one there is."""
        return self.decisions[0]

    def step(self, state: State, option: str) -> Sequence[Branch]:
        """What may follow, with the shared reward net of costs."""
        raise NotImplementedError

    def text(self, state: State) -> str:
        """What the orchestrator reads."""
        raise NotImplementedError

    def quit(self, state: State) -> str:
        """The option of one who commits nothing further: answers now with what is known. By default the first."""
        return self.options(state)[0]

    def quit_value(self, state: State, known: dict[State, float] | None = None) -> float:
        """The value of quitting from here on. `known` keeps what is worked out on the way, for the next time."""
        found = {} if known is None else known
        path = [state]
        while path:
            here = path[-1]
            if here in found:
                path.pop()
                continue
            if not self.options(here):
                found[here] = 0.0
                continue
            branches = self.step(here, self.quit(here))
            missing = [b.state for b in branches if b.state not in found]
            if missing:
                path += missing
            else:
                found[here] = sum(p * (r + found[s]) for p, s, r in branches)
        return found[state]

    def spawns(self, state: State, option: str) -> int:  # noqa: ARG002 (most games count by the verb alone)
        """How many agents the option adds."""
        return int(option.startswith("spawn "))

    def spawned(self, state: State) -> int:  # noqa: ARG002 (games without spawns have none)
        """How many agents were added so far, where the state says."""
        return 0

    def reports(self, state: State) -> tuple[str, ...]:  # noqa: ARG002 (most games begin with nobody)
        """What agents that are there before play begins have to say; one agent of the first role each."""
        return ()

    def word(self, state: State, after: State) -> str | None:  # noqa: ARG002 (in most games nobody interrupts)
        """What a person says as one state becomes another; None: nobody does. It stands on traces as a person's."""
        return None

    def check_exact(self) -> None:
        """Refuse sizes the exact solver does not take, before it tries. Default: let it try."""

    def facts(self) -> dict[str, float]:
        """Closed-form figures of this game, by name; the generic solver must agree with them."""
        return {}
