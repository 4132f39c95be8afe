"""Scheduling rules with guarantees: list schedules, levels, longest first, Smith's order, assignment.

Sources: Graham 1966 and 1969 (list schedules, longest first), Hu 1961 (levels), Smith 1956 (w/p),
Kuhn 1955 (assignment; the shortest-augmenting-path form of Jonker and Volgenant 1987).
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from math import inf

Edges = Sequence[tuple[int, int]]


def levels(durations: Sequence[float], edges: Edges) -> list[float] | None:
    """Length of the longest path from each task to the end, itself included; None: there is a cycle."""
    after: list[list[int]] = [[] for _ in durations]
    waiting = [0] * len(durations)
    for a, b in edges:
        after[b].append(a)  # walked from the ends back
        waiting[a] += 1
    level = [0.0] * len(durations)
    free = [i for i, n in enumerate(waiting) if n == 0]
    for task in free:
        level[task] += durations[task]
        for before in after[task]:
            level[before] = max(level[before], level[task])
            waiting[before] -= 1
            if waiting[before] == 0:
                free.append(before)
    return level if len(free) == len(durations) else None


def list_schedule(durations: Sequence[float], edges: Edges, slots: int, order: Sequence[int]) -> float:
    """Makespan when a free slot always takes the first ready task in `order`."""
    rank = {task: i for i, task in enumerate(order)}
    waiting = [0] * len(durations)
    after: list[list[int]] = [[] for _ in durations]
    for a, b in edges:
        after[a].append(b)
        waiting[b] += 1
    ready: list[tuple[int, int]] = []
    for task, n in enumerate(waiting):
        if n == 0:
            heappush(ready, (rank[task], task))
    running: list[tuple[float, int]] = []
    now = 0.0
    while ready or running:
        while ready and len(running) < slots:
            task = heappop(ready)[1]
            heappush(running, (now + durations[task], task))
        now = running[0][0]
        while running and running[0][0] == now:
            for follower in after[heappop(running)[1]]:
                waiting[follower] -= 1
                if waiting[follower] == 0:
                    heappush(ready, (rank[follower], follower))
    return now


def longest_first(durations: Sequence[float], slots: int) -> float:
    """Makespan of independent tasks, longest first."""
    return list_schedule(durations, (), slots, sorted(range(len(durations)), key=lambda i: -durations[i]))


def smith_order(durations: Sequence[float], weights: Sequence[float]) -> list[int]:
    """The order that minimises the weighted sum of completion times: by w/p, highest first."""
    return sorted(range(len(durations)), key=lambda i: -weights[i] / durations[i])


def assign(gain: Sequence[Sequence[float]]) -> tuple[float, list[int]]:
    """The greatest total gain with each row given its own column, and each row's column."""
    rows, columns = len(gain), len(gain[0])
    u, v = [0.0] * (rows + 1), [0.0] * (columns + 1)
    row_of = [0] * (columns + 1)  # column -> row, from 1; 0: free
    for row in range(1, rows + 1):
        row_of[0], column = row, 0
        slack, came, used = [inf] * (columns + 1), [0] * (columns + 1), [False] * (columns + 1)
        while row_of[column] != 0:
            used[column] = True
            here, delta, following = row_of[column], inf, 0
            for j in range(1, columns + 1):
                if used[j]:
                    continue
                reduced = -gain[here - 1][j - 1] - u[here] - v[j]
                if reduced < slack[j]:
                    slack[j], came[j] = reduced, column
                if slack[j] < delta:
                    delta, following = slack[j], j
            for j in range(columns + 1):
                if used[j]:
                    u[row_of[j]] += delta
                    v[j] -= delta
                else:
                    slack[j] -= delta
            column = following
        while column:
            row_of[column] = row_of[came[column]]
            column = came[column]
    chosen = [0] * rows
    for j in range(1, columns + 1):
        if row_of[j]:
            chosen[row_of[j] - 1] = j - 1
    return sum(gain[i][j] for i, j in enumerate(chosen)), chosen
