"""The chain of entries: each names its parent, and stands where that puts it."""

from __future__ import annotations


class EntryChain:
    """Every entry's parent and time, and where that puts it: the latest time among its ancestors, and how many."""

    def __init__(self) -> None:
        self.parents: dict[str, str | None] = {}
        self.settled: dict[str, tuple[float, float]] = {}
        self.late: dict[str, float | None] = {}
        """Entries whose parent had not come when they did."""

    def add(self, uuid: str, parent: str | None, t: float | None) -> None:
        if uuid in self.parents:
            return
        self.parents[uuid] = parent
        if parent is None:
            self.settled[uuid] = (t or 0.0, 0.0)
            return
        before = self.settled.get(parent)
        if before is None:
            self.late[uuid] = t  # its parent comes later, or not at all
        else:
            self.settled[uuid] = (before[0] if t is None or t < before[0] else t, before[1] + 1.0)

    def settle(self) -> None:
        """Put the entries that came before their parents."""
        for uuid in self.late:
            waiting: list[str] = []
            at: str | None = uuid
            while at is not None and at in self.late and at not in self.settled:
                waiting.append(at)
                self.settled[at] = (0.0, 0.0)  # a circle ends here
                at = self.parents[at]
            before, depth = self.settled.get(at or "", (0.0, -1.0))
            for name in reversed(waiting):
                t = self.late[name]
                before, depth = (before if t is None or t < before else t), depth + 1.0
                self.settled[name] = (before, depth)
