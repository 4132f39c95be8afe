"""The fewest vertices that separate sources from sinks in a directed graph: Menger's theorem by maximum flow.

Each vertex that may be cut is an arc of capacity 1 between its two halves; all other arcs have no limit.
Source: Dinic 1970; with unit capacities O(E sqrt V).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

__all__ = ["min_vertex_cut"]


def min_vertex_cut(
    n: int, edges: Iterable[tuple[int, int]], sources: Collection[int], sinks: Collection[int],
    uncuttable: Collection[int] = (),
) -> set[int] | None:  # fmt: skip
    """The cut nearest the sources; sources and sinks are not in it. None: nothing separates them."""
    network = _Network(2 * n + 2)
    start, end = 2 * n, 2 * n + 1
    fixed = {*sources, *sinks, *uncuttable}
    unlimited = n + 1
    for v in range(n):
        network.arc(2 * v, 2 * v + 1, unlimited if v in fixed else 1)
    for u, v in edges:
        network.arc(2 * u + 1, 2 * v, unlimited)
    for v in sources:
        network.arc(start, 2 * v, unlimited)
    for v in sinks:
        network.arc(2 * v + 1, end, unlimited)
    if network.push(start, end) > n:
        return None
    level = network.levels(start)
    return {v for v in range(n) if level[2 * v] >= 0 and level[2 * v + 1] < 0}


class _Network:
    """Arcs in pairs: arc k and its way back, k ^ 1."""

    def __init__(self, n: int) -> None:
        self.out: list[list[int]] = [[] for _ in range(n)]
        self.to: list[int] = []
        self.room: list[int] = []

    def arc(self, u: int, v: int, capacity: int) -> None:
        self.out[u].append(len(self.to))
        self.out[v].append(len(self.to) + 1)
        self.to += (v, u)
        self.room += (capacity, 0)

    def levels(self, start: int) -> list[int]:
        """Arcs from `start` along those with room; -1: out of reach."""
        level = [-1] * len(self.out)
        level[start] = 0
        queue = [start]
        for u in queue:
            for k in self.out[u]:
                if self.room[k] and level[self.to[k]] < 0:
                    level[self.to[k]] = level[u] + 1
                    queue.append(self.to[k])
        return level

    def push(self, start: int, end: int) -> int:
        """The maximum flow; stops early once it is plain that nothing limits it."""
        total = 0
        limit = len(self.out) // 2
        while total < limit:
            level = self.levels(start)
            if level[end] < 0:
                return total
            upto = [0] * len(self.out)  # arcs of each vertex that are known to lead nowhere
            while (more := self._augment(start, end, level, upto)) > 0:
                total += more
        return total

    def _augment(self, start: int, end: int, level: list[int], upto: list[int]) -> int:
        """One path, found without recursion: traces are deeper than Python's stack."""
        path: list[int] = []
        u = start
        while u != end:
            while upto[u] < len(self.out[u]):
                k = self.out[u][upto[u]]
                if self.room[k] and level[self.to[k]] == level[u] + 1:
                    break
                upto[u] += 1
            else:
                if not path:
                    return 0
                u = self.to[path.pop() ^ 1]
                upto[u] += 1
                continue
            path.append(k)
            u = self.to[k]
        amount = min(self.room[k] for k in path)
        for k in path:
            self.room[k] -= amount
            self.room[k ^ 1] += amount
        return amount
