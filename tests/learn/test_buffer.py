"""The replay buffer's bounds, and batches of rows of any shape."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from baton.forest.rows import Row
from baton.learn.rollouts import ReplayBuffer, RolloutGroup, batches_of


def group(step: int, version: int) -> RolloutGroup:
    return RolloutGroup(step=step, version=version, traces=())


def test_too_old_rollouts_go() -> None:
    buffer = ReplayBuffer(staleness=1)
    for step in range(1, 5):
        gone = buffer.add([group(step, step - 1)] * 2, step - 1)
        assert [each.step for each in gone] == ([step - 2] * 2 if step > 2 else [])
    assert [each.step for each in buffer.groups] == [3, 3, 4, 4]
    assert [each.step for each in buffer.again(1, 4)] == [3]
    assert buffer.again(0, 4) == []


def row(name: str, size: int) -> Row:
    zeros = np.zeros(size)
    return Row(
        ids=np.zeros(size + 1, np.int32),
        places=np.arange(1, size + 1, dtype=np.int32),
        advantages=zeros,
        sampler=zeros,
        weights=zeros + 1,
        group=name,
    )


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 400)), min_size=1), st.integers(1, 6))
def test_batches_hold_every_row_once_whole_groups_and_nearly_equal_tokens(
    shapes: list[tuple[int, int]], count: int
) -> None:
    rows = [row(str(name), size) for name, size in shapes]
    batches = batches_of(rows, count)
    assert sorted(id(r) for batch in batches for r in batch) == sorted(map(id, rows))
    names = [{r.group for r in batch} for batch in batches]
    assert sum(map(len, names)) == len({r.group for r in rows}), "a group is in one batch"
    assert len(batches) == min(count, len({r.group for r in rows}))
    sizes = [sum(len(r.places) for r in batch) for batch in batches]
    largest = max(sum(len(r.places) for r in rows if r.group == name) for name in {r.group for r in rows})
    assert max(sizes) - min(sizes) <= largest


@given(st.permutations([("a", 30), ("b", 7), ("c", 19), ("d", 19), ("e", 2)]))
def test_batches_do_not_depend_on_the_order_of_groups(shapes: list[tuple[str, int]]) -> None:
    found = batches_of([row(name, size) for name, size in shapes], 2)
    assert sorted(sorted(r.group for r in batch) for batch in found) == [["a", "b", "e"], ["c", "d"]]
