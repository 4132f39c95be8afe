from __future__ import annotations

import numpy as np
import pytest
from exact_model import make_row
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.errors import TraceError, UsageError
from baton.forest.layout import Layout, Shape, choose, cost, once, plant, speed_up, split
from baton.forest.rows import Row
from baton.learn.update import scaled

RNG = np.random.default_rng(0)
SEQUENCES = st.lists(st.lists(st.integers(0, 2), min_size=2, max_size=9), min_size=1, max_size=8)


def rows_from(sequences: list[list[int]], samples: list[str] | None = None) -> list[Row]:
    rng = np.random.default_rng(len(sequences))
    names = samples or [str(i) for i in range(len(sequences))]
    return [
        make_row(
            ids, 1 + int(rng.integers(0, len(ids) - 1)), rng=rng, sample=name, call=str(i), agent=str(i % 3)
        )
        for i, (ids, name) in enumerate(zip(sequences, names, strict=True))
    ]


def path(layout: Layout, i: int) -> list[int]:
    found = []
    while i >= 0:
        found.append(int(layout.ids[i]))
        i = int(layout.parent[i])
    return found[::-1]


@given(SEQUENCES)
def test_every_distinct_prefix_once_in_preorder(sequences: list[list[int]]) -> None:
    rows = rows_from(sequences)
    layout, at = plant(rows)
    prefixes = {tuple(ids[: n + 1]) for ids in sequences for n in range(len(ids))}
    paths = [tuple(path(layout, i)) for i in range(layout.num_tokens)]
    assert len(paths) == len(prefixes)
    assert set(paths) == prefixes
    for i, p in enumerate(paths):
        assert layout.depth[i] == len(p) - 1
        below = {j for j, other in enumerate(paths) if other[: len(p)] == p}
        assert below == set(range(i, layout.end[i])), "the subtree is one slice"
    for row, places in zip(rows, at, strict=True):
        for place, i in zip(row.places, places, strict=True):
            assert list(paths[i]) == row.ids[: place + 1].tolist()


@given(SEQUENCES)
def test_nodes_are_runs_without_a_branch(sequences: list[list[int]]) -> None:
    layout, _ = plant(rows_from(sequences))
    children: dict[int, int] = {}
    for p in layout.parent.tolist():
        children[p] = children.get(p, 0) + 1
    for start, stop in zip(layout.node_start, layout.node_stop, strict=True):
        inside = range(start + 1, stop)
        assert all(layout.parent[i] == i - 1 and children[i - 1] == 1 for i in inside)
        assert layout.parent[start] < 0 or children[int(layout.parent[start])] > 1
    levels = layout.node_level
    node_of = np.searchsorted(layout.node_start, np.arange(layout.num_tokens), side="right") - 1
    for node, start in enumerate(layout.node_start):
        up = layout.parent[start]
        assert levels[node] == (0 if up < 0 else levels[node_of[up]] + 1)


@given(SEQUENCES)
def test_merged_rows_hold_every_row_and_nothing_twice_in_a_chain(sequences: list[list[int]]) -> None:
    rows = rows_from(sequences)
    layout, at = plant(rows, "merged")
    leaves = {tuple(s) for s in sequences if not any(t[: len(s)] == s and t != s for t in sequences)}
    assert layout.num_tokens == sum(map(len, leaves))
    for row, places in zip(rows, at, strict=True):
        assert all(
            path(layout, int(i)) == row.ids[: p + 1].tolist() for p, i in zip(row.places, places, strict=True)
        )


@given(SEQUENCES, st.integers(4, 30), st.sampled_from(["forest", "merged", "rows"]))
def test_split_keeps_every_row_within_the_limit(sequences: list[list[int]], limit: int, packing: str) -> None:
    rows = rows_from(sequences)
    parts = split(rows, limit, packing)  # type: ignore[arg-type]
    assert sorted(row.call for part in parts for row in part) == sorted(row.call for row in rows)
    for part in parts:
        layout, _ = plant(part, packing)  # type: ignore[arg-type]
        assert layout.num_tokens <= limit or len(part) == 1


@given(SEQUENCES, st.data())
def test_once_trains_each_draw_once_at_its_mean(sequences: list[list[int]], data: st.DataObject) -> None:
    names = [data.draw(st.sampled_from("ab")) for _ in sequences]
    rows = rows_from(sequences, names)
    draws: dict[tuple[str, tuple[int, ...]], list[tuple[float, float]]] = {}
    for row in rows:
        for place, a, w in zip(row.places, row.advantages, row.weights, strict=True):
            draws.setdefault((row.sample, tuple(row.ids[: place + 1].tolist())), []).append((a, w))
    kept = once(rows)
    seen = set()
    for row in kept:
        assert len(row.places)
        for place, a, w in zip(row.places, row.advantages, row.weights, strict=True):
            key = (row.sample, tuple(row.ids[: place + 1].tolist()))
            assert key not in seen
            seen.add(key)
            members = draws[key]
            assert w == pytest.approx(np.mean([m[1] for m in members]))
            assert a == pytest.approx(sum(x * y for x, y in members) / sum(y for _, y in members))
    assert seen == set(draws)


def test_rollouts_that_say_the_same_are_different_draws() -> None:
    rows = rows_from([[1, 2, 0], [1, 2, 0]])
    assert sum(len(row.places) for row in once(rows)) == sum(len(row.places) for row in rows)


def test_scales_make_every_agent_count_alike() -> None:
    sizes = {"talker": (40, 30, 20), "quiet": (3,), "other": (5, 5)}
    rows = [
        make_row(list(range(n + 1)), 1, rng=RNG, agent=agent, trace="t", group="g", call=f"{agent}{i}")
        for agent, lengths in sizes.items()
        for i, n in enumerate(lengths)
    ]
    plain = [np.ones(len(row.places)) for row in rows]
    got = [
        r.weights / row.weights for r, row in zip(scaled(rows, ("trace", "agent", "turn")), rows, strict=True)
    ]
    total = sum(map(len, plain))
    for agent in sizes:
        mine = [w.sum() for w, row in zip(got, rows, strict=True) if row.agent == agent]
        assert sum(mine) == pytest.approx(total / 3)
        assert mine == pytest.approx([mine[0]] * len(mine)), "and every turn of it"
    by_tokens = [r.weights / row.weights for r, row in zip(scaled(rows, ()), rows, strict=True)]
    assert np.concatenate(by_tokens) == pytest.approx(1.0)
    with pytest.raises(UsageError, match="agent"):
        scaled(rows, ("agnet",))  # type: ignore[arg-type]


def test_packing_is_off_when_sharing_is_low() -> None:
    shape = Shape(weights=1_000_000, head=100_000, layers=4, width=192)
    conversation = [make_row(list(range(n)), n - 3, rng=RNG) for n in (10, 20, 30)]
    assert choose(conversation, shape) == "merged"
    strangers = [make_row([i, *range(20)], 18, rng=RNG) for i in range(5)]
    assert choose(strangers, shape) == "merged"
    workers = [make_row([*range(40), i, 1, 2], 41, rng=RNG) for i in range(5)]
    assert choose(workers, shape) == "forest"
    forest, merged = plant(workers)[0], plant(workers, "merged")[0]
    edges = sum(len(row.places) for row in workers)
    pairs = sum(range(1, 44)) + 4 * (41 + 42 + 43)
    assert cost(shape, forest.num_tokens, pairs, edges) * speed_up(
        shape, merged, forest, edges, edges
    ) == pytest.approx(cost(shape, merged.num_tokens, 5 * sum(range(1, 44)), edges))


def test_building_touches_each_token_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python work is per row: doubling the rows' length adds none of it."""
    import sys

    def steps(length: int) -> int:
        rows = [make_row([*range(length), i, *range(length)], length + 1, rng=RNG) for i in range(20)]
        count = 0

        def trace(*_: object) -> object:
            nonlocal count
            count += 1
            return trace

        sys.settrace(trace)  # type: ignore[arg-type]
        try:
            plant(rows)
        finally:
            sys.settrace(None)
        return count

    assert steps(4000) == steps(40)


def test_a_row_whose_first_token_is_trained_is_refused() -> None:
    with pytest.raises(TraceError, match="nothing predicts it"):
        make_row([1, 2], 0, rng=RNG)


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.integers(1, 6))
def test_short_stretches_between_branchings_are_not_shared(seed: int, least: int) -> None:
    """Every row is still there, every inner stretch below a branching is long enough, and no token is lost."""
    rng = np.random.default_rng(seed)
    rows = [make_row(rng.integers(0, 2, int(rng.integers(2, 14))).tolist(), 1, rng=rng) for _ in range(9)]
    layout, at = plant(rows, least=least)
    for row, places in zip(rows, at, strict=True):
        path = [int(places[-1])]
        while layout.parent[path[-1]] >= 0:
            path.append(int(layout.parent[path[-1]]))
        assert layout.ids[path[::-1]].tolist() == row.ids.tolist()
    whole = plant(rows)[0].num_tokens
    assert whole <= layout.num_tokens <= sum(len(row.ids) for row in rows)
    start, stop = layout.node_start, layout.node_stop
    # A node in between: something above it, something below. A row that ends inside of another ends no stretch.
    between = (layout.end[start] > stop) & (layout.node_level > 0)
    assert (stop - start)[between].min(initial=least) >= least
    # What is below a token is what follows it.
    for token, after in enumerate(layout.end.tolist()):
        below = {token}
        for other in range(token + 1, layout.num_tokens):
            if int(layout.parent[other]) in below:
                below.add(other)
        assert below == set(range(token, after))


def leavings(layout: Layout) -> int:
    """How many chains the worst token is away from its root's, written out."""
    chain = [0] * layout.num_tokens
    for token, above in enumerate(layout.parent.tolist()):
        chain[token] = 0 if above < 0 else chain[above] + (above != token - 1)
    return max(chain)


def test_the_branch_that_branches_most_goes_first() -> None:
    """A trace of six turns with forks at every one: all forks leave one chain, whatever their ids."""
    rng = np.random.default_rng(3)
    trunk = rng.integers(0, 50, 60).tolist()
    rows = [make_row(trunk, 1, rng=rng)]
    rows += [make_row([*trunk[: 10 * n], *rng.integers(0, 50, 12).tolist()], 1, rng=rng) for n in range(1, 6)]
    assert leavings(plant(rows)[0]) > 1
    assert leavings(plant(rows, least=1)[0]) == 1


@pytest.mark.parametrize("limit", [20, 35, 50])
def test_even_passes_are_as_few_and_hold_the_same_rows(limit: int) -> None:
    rng = np.random.default_rng(limit)
    stem = rng.integers(0, 9, 8).tolist()
    rows = [
        make_row([*stem, *rng.integers(0, 9, int(rng.integers(2, 9))).tolist()], 1, rng=rng)
        for _ in range(20)
    ]
    plain, even = split(rows, limit), split(rows, limit, even=True)
    assert len(plain) == len(even) > 1
    sizes = [plant(part)[0].num_tokens for part in even]
    assert max(sizes) <= limit
    assert min(sizes) >= min(plant(part)[0].num_tokens for part in plain)
    assert sorted(id(row) for part in even for row in part) == sorted(map(id, rows))
