"""Order and circles in arrows between numbered things, for the cases that are not plainly in order.

Linear in things and arrows, without recursion. The good path never comes here: numbers that are
unique and rise along every arrow prove that there is no circle.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

_Indexes = NDArray[np.int64]


def _successors(count: int, src: _Indexes, dst: _Indexes) -> list[list[int]]:
    after: list[list[int]] = [[] for _ in range(count)]
    for a, b in zip(src.tolist(), dst.tolist(), strict=True):
        after[a].append(b)
    return after


def causal_order(times: Sequence[float], src: _Indexes, dst: _Indexes) -> list[int] | None:
    """The things in an order along every arrow, by time and then number where arrows leave a choice.

    None where the arrows make a circle.
    """
    count = len(times)
    when = np.array(times, dtype=np.float64)
    if bool((np.diff(when) >= 0).all()) and bool((src < dst).all()):
        return list(range(count))
    after = _successors(count, src, dst)
    waits = np.bincount(dst, minlength=count).tolist()
    ready = [(times[i], i) for i in range(count) if waits[i] == 0]
    heapify(ready)
    order: list[int] = []
    while ready:
        _, i = heappop(ready)
        order.append(i)
        for j in after[i]:
            waits[j] -= 1
            if waits[j] == 0:
                heappush(ready, (times[j], j))
    return order if len(order) == count else None


def cycles(count: int, src: _Indexes, dst: _Indexes) -> list[list[int]]:
    """Circles that share no member, until none is left; each along its arrows."""
    after = _successors(count, src, dst)
    before = _successors(count, dst, src)
    num_in = np.bincount(dst, minlength=count).tolist()
    num_out = np.bincount(src, minlength=count).tolist()
    gone = [False] * count

    def drop(todo: list[int]) -> None:
        """Remove these, and whatever then has no way in or no way out."""
        while todo:
            i = todo.pop()
            if gone[i]:
                continue
            gone[i] = True
            for j in after[i]:
                num_in[j] -= 1
                if num_in[j] == 0:
                    todo.append(j)
            for j in before[i]:
                num_out[j] -= 1
                if num_out[j] == 0:
                    todo.append(j)

    drop([i for i in range(count) if num_in[i] == 0 or num_out[i] == 0])
    found: list[list[int]] = []
    ways = [iter(ways_out) for ways_out in after]
    next_way: list[int | None] = [None] * count
    path: list[int] = []
    at: dict[int, int] = {}
    start = 0
    while True:
        # A drop takes the path's end (no way out) or its beginning (no way in), never its middle.
        while path and gone[path[-1]]:
            del at[path.pop()]
        if not path:
            while start < count and gone[start]:
                start += 1
            if start == count:
                return found
            at[start] = 0
            path.append(start)
        last = path[-1]
        # Whatever is left has a way out to something that is left.
        step = next_way[last]
        while step is None or gone[step]:
            step = next(ways[last])
        next_way[last] = step
        if step in at:
            circle = path[at[step] :]
            found.append(circle)
            drop(list(circle))
        else:
            at[step] = len(path)
            path.append(step)
