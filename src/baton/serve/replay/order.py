"""The order of a recording, kept in its replay.

A recording takes no time to answer, so that agents which run side by side would overtake each other in other ways than
they did. An answer is held back until everything has been asked that had been asked before it came. The first thing of
the recording that has not happened yet is then always one that can: a replay in order never waits for itself. What
the program no longer does would hold it up, so it is waited for only so long.

A note is told to an agent when its harness comes to it, some time after the answer that it tells of. So that answer
also waits until the agent has asked what it had asked without the note.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Mapping, Sequence

from baton.serve.exchange import Exchange

_LONGEST_S = 60.0
"""That is waited for what took as long in the recording."""


class RecordedOrder:
    """Holds answers back until it is their turn."""

    def __init__(
        self,
        exchanges: Iterable[Exchange],
        *,
        patience_s: float,
        settle_s: float,
        first: Mapping[str, set[str]] | None = None,
    ) -> None:
        """`first`: by exchange, what must have been asked before it is answered, beside what came before it.
        `settle_s`: the longest pause, of those that were recorded between one answer and the next, that is kept."""
        exchanges = list(exchanges)
        self._begun = {one.id: one.begun for one in exchanges}
        self._ended = {one.id: one.begun + (one.duration_s or 0.0) for one in exchanges}
        times = sorted((*self._begun.values(), *self._ended.values()))
        longest = max((after - before for before, after in itertools.pairwise(times)), default=0.0)
        self._patience_s = patience_s + min(2 * longest, _LONGEST_S)
        self._settle_s = settle_s
        self._first = first or {}
        self._asked: set[str] = set()
        self._given: set[str] = set()
        self._last: tuple[float, float] | None = None
        """When the last answer was given, and when it had been recorded."""
        self._moved = asyncio.Event()

    def asked(self, *ids: str) -> None:
        """These have been asked, or will not be."""
        self._asked.update(ids)
        self._moved.set()
        self._moved = asyncio.Event()

    def given(self, *ids: str) -> None:
        """These have been answered, or will not be."""
        self._given.update(ids)
        self._moved.set()
        self._moved = asyncio.Event()

    async def turn(self, id: str) -> bool:
        """Wait for the turn of an answer; whether it came."""
        if id not in self._ended:
            return True
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience_s
        while not self._is_next(id):
            left = until - loop.time()
            if left <= 0:
                self._forget(id)
                self._give(id, loop.time())
                return False
            try:
                await asyncio.wait_for(self._moved.wait(), left)
            except TimeoutError:
                continue
        if self._last is not None:
            pause = min(self._ended[id] - self._last[1], self._settle_s) - (loop.time() - self._last[0])
            if pause > 0:
                await asyncio.sleep(pause)
        self._give(id, loop.time())
        return True

    def _give(self, id: str, at: float) -> None:
        self._last = (at, self._ended[id])
        self.given(id)

    def _forget(self, id: str) -> None:
        """What has not come by now is not waited for again."""
        mine = self._ended[id]
        late = {one for one, begun in self._begun.items() if begun < mine} | self._first.get(id, set())
        late -= self._asked
        self.asked(*late)
        self.given(*late)

    def _is_next(self, id: str) -> bool:
        mine = self._ended[id]
        asked = all(one in self._asked for one, begun in self._begun.items() if begun < mine)
        asked = asked and self._first.get(id, set()) <= self._asked
        return asked and all(one in self._given for one, ended in self._ended.items() if ended < mine)


def before_notes(exchanges: Sequence[Exchange], notes: Mapping[str, Sequence[str]]) -> dict[str, set[str]]:
    """By exchange whose answer a note tells of: what the told agent had asked before it heard the note.

    `notes` has those that each exchange's question holds.
    """
    known = {one.id: one for one in exchanges}
    found: dict[str, set[str]] = {}
    for one in exchanges:
        before = known.get(one.grows_from or "")
        if before is None:
            continue
        new = [note for note in notes.get(one.id, ()) if note not in notes.get(before.id, ())]
        for note in new:
            told = [
                other
                for other in exchanges
                if other.id not in (one.id, before.id)
                and _ended(other) <= one.begun
                and _is_told(other, note)
            ]
            if told:
                found.setdefault(max(told, key=_ended).id, set()).add(before.id)
    return found


def _ended(exchange: Exchange) -> float:
    return exchange.begun + (exchange.duration_s or 0.0)


def _is_told(exchange: Exchange, note: str) -> bool:
    """Whether a note tells an exchange's answer, which then asked for no tool."""
    if exchange.reply is None:
        return False
    said = exchange.reply.choices[0].message
    return bool(said.text) and not said.uses and said.text in note
