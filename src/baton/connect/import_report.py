"""What an import did: entries read, skipped and why, joined, inferred, mended, redacted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

UNREADABLE = "a file that cannot be read"
"""Of several, where the rest can be; its place says why."""
_PLACES = 3


class ImportReport:
    """Counts, and the first few places of each kind of thing that was left out."""

    def __init__(self) -> None:
        self.entries = 0
        """Entries of the source (lines, spans, steps), whatever became of them."""
        self.skipped: Counter[str] = Counter()
        """Reason -> entries that gave no sighting."""
        self.joined: Counter[str] = Counter()
        """What was put together -> how often: the parts of one answer, a sighting under a key that was there."""
        self.inferred: Counter[str] = Counter()
        """Reason -> events and edges that were concluded."""
        self.mended: Counter[str] = Counter()
        """What did not fit together, and what was made of it -> how often."""
        self.redacted: Counter[str] = Counter()
        """Kind of secret -> how often one was taken out."""
        self.places: dict[str, list[str]] = {}
        """Reason -> where it first came up."""

    def read(self, entries: int = 1) -> None:
        self.entries += entries

    def skip(self, reason: str, at: str = "") -> None:
        """An entry that gives nothing. The reason is a sentence without the entry's own values, so that it counts."""
        self.skipped[reason] += 1
        self._place(reason, at)

    def mend(self, what: str, at: str = "") -> None:
        """Something contradicts itself or names what is not there; `what` also says what became of it."""
        self.mended[what] += 1
        self._place(what, at)

    def _place(self, reason: str, at: str) -> None:
        where = self.places.setdefault(reason, [])
        if at and len(where) < _PLACES and at not in where:
            where.append(at)

    def join(self, what: str, times: int = 1) -> None:
        self.joined[what] += times

    def infer(self, reason: str, times: int = 1) -> None:
        self.inferred[reason] += times

    def clean(self, rewrite: Callable[[str], str]) -> None:
        """Rewrite whatever words of the source stand in it: places and reasons."""
        for counts in (self.skipped, self.joined, self.inferred, self.mended):
            told = list(counts.items())
            counts.clear()
            for reason, times in told:
                counts[rewrite(reason)] += times
        self.places = {rewrite(why): [rewrite(at) for at in where] for why, where in self.places.items()}

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "entries": self.entries,
            "skipped": dict(self.skipped),
            "joined": dict(self.joined),
            "inferred": dict(self.inferred),
            "mended": dict(self.mended),
            "redacted": dict(self.redacted),
            "places": self.places,
        }
