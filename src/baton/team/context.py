"""An agent's context: entries and, for engines with a tokenizer, the ids they became.

Only ever appended to, so a step costs what it adds, at any length of history; or, for roles that remember only
the latest (`Role.memory`), begun anew at each turn.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import msgspec

from baton.team.policy import Answer, Engine, Entry
from baton.trace.numbers import Ints

__all__ = ["Context"]

_encode = msgspec.json.Encoder().encode


class Context:
    """Grows by what the agent reads and by what it says."""

    __slots__ = ("after", "entries", "ids", "keep", "latest", "parent_call", "system")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.ids: array[int] | None = array("i")
        self.after: Answer | None = None
        self.parent_call: str | None = None
        self.keep = 0
        """Length in ids of the parent call's prompt + completion."""
        self.system: list[Entry] = []
        self.latest: list[Entry] = []

    def renewed(self, entries: Sequence[Entry], *, again: bool) -> list[Entry]:
        """Begin anew: what is left to read is the system entry and the last of the new ones, or the same `again`."""
        if not self.latest:
            self.system = [entry for entry in entries if entry.speaker == "system"]
        if not again:
            self.latest = list(entries[-1:])
        self.entries = []
        self.ids, self.after, self.parent_call, self.keep = array("i"), None, None, 0
        return [*self.system, *self.latest]

    def branch(self, *, same_engine: bool) -> Context:
        """A copy that grows apart (a child that inherits). Another engine has ids of its own for it."""
        copy = Context()
        copy.entries = list(self.entries)
        if same_engine:
            copy.ids = None if self.ids is None else self.ids[:]
            copy.after, copy.parent_call, copy.keep = self.after, self.parent_call, self.keep
        return copy

    def read(self, entries: Sequence[Entry], engine: Engine) -> tuple[Ints | None, bytes]:
        """Append what the agent reads before its next call: (new ids, the same as text)."""
        self.entries.extend(entries)
        if self.parent_call is None:  # no call of this engine has seen any of it: all of it is new
            entries = self.entries
        ids = engine.encode(entries, self.after)
        if ids is None or self.ids is None:
            self.ids = ids = None
        else:
            self.ids.extend(ids)
        return ids, _encode([{"speaker": e.speaker, "text": e.text} for e in entries])

    def forget(self, num_entries: int) -> list[Entry]:
        """Take back what was read for a call that failed: it will be read again."""
        entries = self.entries[-num_entries:] if num_entries else []
        del self.entries[len(self.entries) - num_entries :]
        if self.ids is not None:
            del self.ids[self.keep :]
        return entries

    def say(self, answer: Answer, call_id: str) -> None:
        """Append what the agent said."""
        self.entries.append(Entry("assistant", answer.text))
        if self.ids is not None:
            if answer.completion_ids is None:
                self.ids = None
            else:
                self.ids.extend(answer.completion_ids)
        self.after, self.parent_call = answer, call_id
        self.keep = 0 if self.ids is None else len(self.ids)
