"""What the page can show only with the help of packages that `view` does not import, handed in as functions.

None means that nobody attached it: the page then says so and shows nothing in its place.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from msgspec import Struct

from baton.compose.started_runs import StartedRuns
from baton.errors import BatonError
from baton.measure.prices import PriceTable
from baton.trace.provenance import Labels
from baton.trace.records import Floats
from baton.trace.trace import Trace


class LostChoice(Struct, frozen=True, kw_only=True):
    """One choice of a game against the best one."""

    event: str
    decision: str
    option: str
    best: str
    regret: float


class RegretLedger(Struct, frozen=True, kw_only=True):
    """Where a trace lost against the optimum: value = optimum - regret + luck, but for what is charged for invalid
    answers, which no return shows."""

    game: str
    optimum: float
    value: float
    luck: float
    parts: dict[str, float]
    """The regret of each decision, and `invalid`; they sum to that of the trace."""
    visits: dict[str, float]
    """How many of each were made."""
    charge: float
    """The part of `invalid` that no return shows: so many answers at the game's price of one."""
    losses: tuple[LostChoice, ...]


class Change(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person changes on the page."""

    at: str
    do: Literal["replace", "drop", "stop"]
    text: str = ""
    """The new content; for `stop`, the answer."""


class ForkCancelled(BatonError):
    """A person called a fork off."""


class ForkWatch:
    """A fork that is being made, as the page watches it."""

    def __init__(self) -> None:
        self.began: float | None = None
        """None: others are before it."""
        self.events = 0
        self.cancelled = threading.Event()

    def check(self) -> None:
        """Raise where it was called off."""
        if self.cancelled.is_set():
            raise ForkCancelled("the fork was called off; nothing was kept of it.")


class ForkMade(Struct, frozen=True, kw_only=True):
    """A fork that was run, and what it took."""

    trace: Trace
    calls_run: int
    calls_reused: int
    tokens_run: int
    estimated_run: int
    """Of the tokens that ran, those that nobody counted."""
    tokens_reused: int
    invalidated: tuple[str, ...]
    note: str = ""
    """What a person should know of it: that the team played on where it was to stop, for one."""


class Attached(Struct, frozen=True, kw_only=True):
    """Everything the page can be given; what is None it does without."""

    ledger: Callable[[Trace], RegretLedger] | None = None
    """Raises `BatonError` for a trace that is of no game."""
    advantages: Callable[[Trace, str, str], dict[str, Floats]] | None = None
    """(trace, unit, estimator) -> call -> advantage of each completion token."""
    fork: Callable[[Path, Trace, Change, ForkWatch], ForkMade] | None = None
    """(where the trace is, trace, change, who watches)"""
    command: StartedRuns | None = None
    """Where runs are started and steered from the page."""
    labels: Labels = Labels()
    """What tools are labelled as, for following taint."""
    prices: PriceTable = PriceTable()
    """What models cost, as a person says; empty: nobody said, and no price is known."""
