"""The prefix forest as arrays: every distinct token once, depth-first pre-order, several trees in one buffer.

Token i has parent p(i) (-1 at a root), depth d(i) and subtree end e(i): the tokens below i are i+1..e(i)-1.
Query q sees key k iff k <= q < e(k), so two integer arrays are the whole mask. `position_ids` are d.
The log-probability of token i is read from the hidden state of p(i), never from i-1: the last token of a
shared stretch predicts the first token of each of its children.

On a layout lie the rows' trained tokens. `once` lets a draw that several rows hold train once, `choose` decides whether
sharing pays, `split` bounds the tokens of a pass, and `pack` gives what the model and the loss are called with.

Rows sorted by their bytes are in pre-order already, and a row shares with the forest exactly what it shares
with the row before it. So building is a sort, one comparison of neighbours and a stack: O(N) numpy work and
O(rows) Python steps, with no object per token. Chains of whole rows (`merged`, `rows`) are the same arrays
without sharing, so that everything after this module is one code path.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from baton.errors import UsageError, nearest
from baton.forest.branching import first_longest, raised
from baton.forest.rows import Ids, Reals, Row

Packing = Literal["forest", "merged", "rows"]
"""Share every prefix; one chain per row that no other row extends; one chain per row."""


class Layout(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """N tokens in pre-order."""

    ids: Ids
    parent: Ids
    depth: Ids
    end: Ids

    @property
    def num_tokens(self) -> int:
        return len(self.ids)

    @cached_property
    def node_start(self) -> Ids:
        """First token of each node. A node is a stretch without a branch, and its tokens are consecutive."""
        children = np.bincount(self.parent[self.parent >= 0], minlength=len(self.ids))
        index = np.arange(len(self.ids), dtype=np.int32)
        follows = (self.parent == index - 1) & (self.parent >= 0)
        only = children[np.maximum(self.parent, 0)] == 1
        return np.flatnonzero(~(follows & only)).astype(np.int32)

    @cached_property
    def node_stop(self) -> Ids:
        """One past the last token of each node."""
        return np.append(self.node_start[1:], np.int32(len(self.ids)))

    @cached_property
    def node_level(self) -> Ids:
        """How many nodes are above each node."""
        starts = self.node_start.tolist()
        stops = self.end[self.node_start].tolist()
        levels: list[int] = []
        path: list[int] = []  # where the nodes above end
        for start, stop in zip(starts, stops, strict=True):
            while path and path[-1] <= start:
                path.pop()
            levels.append(len(path))
            path.append(stop)
        return np.array(levels, np.int32)

    def padded(self, size: int) -> Layout:
        """The layout with tokens that see and are seen by nobody, up to `size`."""
        extra = size - len(self.ids)
        index = np.arange(len(self.ids), size, dtype=np.int32)
        zeros = np.zeros(extra, np.int32)
        return Layout(
            ids=np.concatenate((self.ids, zeros)),
            parent=np.concatenate((self.parent, zeros - 1)),
            depth=np.concatenate((self.depth, zeros)),
            end=np.concatenate((self.end, index + 1)),
        )


def plant(rows: Sequence[Row], packing: Packing = "forest", *, least: int = 0) -> tuple[Layout, list[Ids]]:
    """The layout of rows of one policy, and for each row where its trained tokens are.

    `least`: for kernels that want few long stretches, one of fewer tokens between two branchings is not shared, and
    the branch that branches most goes first (see `baton.forest.branching`); 0: all is shared, rows by their ids.
    """
    if packing == "rows":
        return _chains(rows, range(len(rows)), {r: r for r in range(len(rows))})
    order, shared = overlaps(rows)
    if packing == "forest":
        if least:
            order, shared = first_longest(order, shared, [len(row.ids) for row in rows])
            shared = raised(shared, least)
        return _forest(rows, order, shared)
    if packing == "merged":
        return _chains(rows, *_leaves(rows, order, shared))
    raise UsageError(f"packing {packing!r} is not known. {nearest(packing, ('forest', 'merged', 'rows'))}")


def overlaps(rows: Sequence[Row]) -> tuple[list[int], list[int]]:
    """Rows in pre-order, and how many leading ids each has in common with the one before it."""
    keys = [row.ids.tobytes() for row in rows]
    order = sorted(range(len(rows)), key=keys.__getitem__)
    shared = [0] * len(order)
    for at in range(1, len(order)):
        a, b = rows[order[at - 1]].ids, rows[order[at]].ids
        shortest = min(len(a), len(b))
        differ = a[:shortest] != b[:shortest]
        first = int(differ.argmax()) if shortest else 0
        shared[at] = first if shortest and differ[first] else shortest
    return order, shared


def _forest(rows: Sequence[Row], order: list[int], shared: list[int]) -> tuple[Layout, list[Ids]]:
    total = sum(len(rows[r].ids) - s for r, s in zip(order, shared, strict=True))
    ids, parent, depth, end = (np.empty(total, np.int32) for _ in range(4))
    found: list[Ids] = [np.empty(0, np.int32)] * len(rows)
    path: list[tuple[int, int]] = []  # stretches of the current path: depth and index of their first token
    reach = 0  # depth at which the current path ends
    here = 0
    for r, same in zip(order, shared, strict=True):
        row = rows[r]
        while path and reach > same:
            top_depth, top_index = path[-1]
            cut = max(same, top_depth)
            end[top_index + cut - top_depth : top_index + reach - top_depth] = here
            reach = cut
            if cut == top_depth:
                path.pop()
        own = len(row.ids) - same
        if own:
            ids[here : here + own] = row.ids[same:]
            depth[here : here + own] = np.arange(same, len(row.ids))
            parent[here : here + own] = np.arange(here - 1, here + own - 1)
            parent[here] = path[-1][1] + same - 1 - path[-1][0] if path else -1
            path.append((same, here))
            here += own
            reach = len(row.ids)
        found[r] = _locate(path, row.places)
    for top_depth, top_index in reversed(path):
        end[top_index : top_index + reach - top_depth] = here
        reach = top_depth
    return Layout(ids=ids, parent=parent, depth=depth, end=end), found


def _locate(path: list[tuple[int, int]], places: NDArray[np.int32]) -> Ids:
    last_depth, last_index = path[-1]
    if not len(places) or places[0] >= last_depth:
        return places + np.int32(last_index - last_depth)
    table = np.array(path, np.int32)
    piece = np.searchsorted(table[:, 0], places, side="right") - 1
    found: Ids = places - table[piece, 0] + table[piece, 1]
    return found


def _leaves(rows: Sequence[Row], order: list[int], shared: list[int]) -> tuple[Sequence[int], dict[int, int]]:
    """Rows that no other row extends, and for each row the one that holds it."""
    leaves: list[int] = []
    holder: dict[int, int] = {}
    for at in reversed(range(len(order))):
        r = order[at]
        extended = at + 1 < len(order) and shared[at + 1] == len(rows[r].ids)
        if not extended:
            leaves.append(r)
        holder[r] = leaves[-1]
    return leaves[::-1], holder


def _chains(rows: Sequence[Row], kept: Sequence[int], holder: dict[int, int]) -> tuple[Layout, list[Ids]]:
    sizes = np.array([len(rows[r].ids) for r in kept], np.int32)
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.int32)
    first = np.repeat(starts, sizes)
    index = np.arange(int(sizes.sum()), dtype=np.int32)
    parent = index - 1
    parent[starts] = -1
    layout = Layout(
        ids=np.concatenate([rows[r].ids for r in kept]),
        parent=parent,
        depth=index - first,
        end=np.repeat(starts + sizes, sizes).astype(np.int32),
    )
    begin = {r: int(start) for r, start in zip(kept, starts, strict=True)}
    return layout, [row.places + np.int32(begin[holder[r]]) for r, row in enumerate(rows)]


def once(rows: Sequence[Row]) -> list[Row]:
    """The rows with every draw in one of them, at the mean of its advantages; rows left empty go.

    A prefix shared by k forks was sampled once. Two tokens are one draw when they are the same edge of the forest (the
    same ids all the way from the root) and their rows name the same `sample`. Rollouts that happen to say the same are
    different draws and stay apart, though the forest computes them once. What is left of a row after its tokens went to
    another is marked (`whole`), because a sequence-level ratio no longer has the whole sequence.
    """
    names = {name: number for number, name in enumerate(dict.fromkeys(row.sample for row in rows))}
    if len(names) == len(rows):
        return list(rows)
    _, at = plant(rows)
    sizes = [len(places) for places in at]
    row_number = np.repeat(np.arange(len(rows)), sizes)
    sample = np.repeat([names[row.sample] for row in rows], sizes)
    edge = np.concatenate(at).astype(np.int64)
    _, first, group, count = np.unique(
        edge * len(names) + sample, return_index=True, return_inverse=True, return_counts=True
    )
    if len(first) == len(edge):
        return list(rows)
    weight = np.concatenate([row.weights for row in rows])
    advantage = np.concatenate([row.advantages for row in rows])
    total = np.bincount(group, weight)
    mean = np.bincount(group, weight * advantage) / np.where(total == 0, 1, total)
    kept = np.zeros(len(edge), bool)
    kept[first] = True
    starts = np.concatenate(([0], np.cumsum(sizes)))
    found: list[Row] = []
    for r in np.unique(row_number[kept]).tolist():
        row, a, b = rows[r], starts[r], starts[r + 1]
        mine = kept[a:b]
        groups = group[a:b][mine]
        found.append(
            structs.replace(
                row,
                places=row.places[mine],
                sampler=row.sampler[mine],
                advantages=mean[groups],
                weights=(total / count)[groups],
                whole=row.whole and bool(mine.all()),
            )
        )
    return found


def split(
    rows: Sequence[Row], max_tokens: int, packing: Packing = "forest", *, even: bool = False
) -> list[list[Row]]:
    """Rows in micro-batches of at most `max_tokens` computed tokens each; a longer row is alone.

    `even`: as many as there must be, and about as large as each other.

    The gradient is the sum over them, so any cut is exact. Rows are cut in the forest's own order, where a row costs
    only what it does not share with its neighbour; a prefix that two micro-batches need is computed in both.
    """
    order, shared = overlaps(rows)
    costs: list[tuple[int, int]] = []
    for at, (r, same) in enumerate(zip(order, shared, strict=True)):
        # A merged chain grows by what its last row adds; a chain that is not extended costs its whole length.
        extends = at > 0 and same == len(rows[order[at - 1]].ids)
        free = same if packing == "forest" or (packing == "merged" and extends) else 0
        costs.append((len(rows[r].ids), len(rows[r].ids) - free))
    cuts = _cuts(costs, max_tokens)
    if even and len(cuts) > 1:
        size = sum(cost for _, cost in costs) // len(cuts) + max(whole for whole, _ in costs)
        closer = _cuts(costs, min(max_tokens, size))
        cuts = closer if len(closer) == len(cuts) else cuts
    ends = [*cuts[1:], len(order)]
    return [[rows[r] for r in order[a:b]] for a, b in zip(cuts, ends, strict=True)]


def _cuts(costs: Sequence[tuple[int, int]], max_tokens: int) -> list[int]:
    """Where micro-batches begin. Each row costs its whole length in the first place, or only what it adds."""
    cuts: list[int] = []
    used = max_tokens + 1
    for at, (whole, cost) in enumerate(costs):
        if used + cost > max_tokens:
            cuts.append(at)
            used, cost = 0, whole
        used += cost
    return cuts


class PackedBatch(Struct, frozen=True, kw_only=True, eq=False):
    """Rows of one policy, ready for a forward pass. Arrays are over E edges or T tokens.

    An edge is computed once; a token is what the loss counts. Rows that pass through the same edge with their own
    advantage, weight and sampler log-probability are several tokens of one edge, so a loss over tokens equals the sum
    over rows exactly, under any clipping, while the model and the vocabulary see each edge once. (Adding advantages
    into one would be wrong under clipping.)
    """

    layout: Layout
    edge: Ids
    """E: the token each edge leads to."""
    temperature: Reals
    """E: what the logits are divided by."""
    of: NDArray[np.intp]
    """T: the edge of each token."""
    advantage: Reals
    weight: Reals
    sampler: Reals
    sequence: NDArray[np.intp]
    """T: which row."""
    stale: NDArray[np.bool_]
    """T: sampled by other weights than those being trained, or by unknown ones."""
    whole: bool
    """Every row still has all of its tokens."""


def pack(
    rows: Sequence[Row],
    packing: Packing = "forest",
    *,
    version: str | None = None,
    planted: tuple[Layout, list[Ids]] | None = None,
) -> PackedBatch:
    """Rows as one batch. `version` is that of the weights being trained; None counts every row as fresh.

    `planted`: what `plant` gave, where it was asked already.
    """
    layout, at = plant(rows, packing) if planted is None else planted
    sizes = [len(places) for places in at]
    place = np.concatenate(at).astype(np.int64)
    levels = np.array(sorted({row.temperature for row in rows}))
    level = np.searchsorted(levels, [row.temperature for row in rows])
    each = place * len(levels) + np.repeat(level, sizes)
    there = np.zeros(layout.num_tokens * len(levels), bool)  # as np.unique would, without sorting
    there[each] = True
    keys, of = np.flatnonzero(there), (np.cumsum(there) - 1)[each]
    return PackedBatch(
        layout=layout,
        edge=(keys // len(levels)).astype(np.int32),
        temperature=levels[keys % len(levels)],
        of=of,
        advantage=np.concatenate([row.advantages for row in rows]),
        weight=np.concatenate([row.weights for row in rows]),
        sampler=np.concatenate([row.sampler for row in rows]),
        sequence=np.repeat(np.arange(len(rows)), sizes),
        stale=np.concatenate([row.stale(version) for row in rows]),
        whole=all(row.whole for row in rows),
    )


WORTH = 1.1
"""Below this predicted speed-up, merged rows: joining the parts of attention costs a few per cent."""


class Shape(Struct, frozen=True, kw_only=True):
    """What a model's cost depends on."""

    weights: int
    """Parameters every token goes through: all but the embeddings and the vocabulary projection."""
    head: int
    """Parameters of the vocabulary projection."""
    layers: int
    width: int
    """Query heads times their size."""

    @classmethod
    def of(cls, model: Any) -> Self:
        """The size of a transformers model."""
        config = model.get_decoder().config
        tables = {id(p): p.numel() for p in model.get_input_embeddings().parameters()}
        projection = {id(p): p.numel() for p in model.get_output_embeddings().parameters()}
        every = {id(p): p.numel() for p in model.parameters()}
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return cls(
            weights=sum(every.values()) - sum((tables | projection).values()),
            head=sum(projection.values()),
            layers=config.num_hidden_layers,
            width=config.num_attention_heads * size,
        )


def cost(shape: Shape, num_tokens: int, num_pairs: int, num_edges: int) -> float:
    """Floating-point operations of one update, forward and backward (recomputation scales all alike).

    6 P N for the N tokens computed through P weights, 6 V d E for the E trained edges through the vocabulary
    projection, and 12 L d sum_i (d(i) + 1) for attention: one query-key pair costs 4 d forward and 8 d backward.
    """
    return float(
        6 * shape.weights * num_tokens
        + 6 * shape.head * num_edges
        + 12 * shape.layers * shape.width * num_pairs
    )


def speed_up(shape: Shape, slow: Layout, fast: Layout, slow_edges: int, fast_edges: int) -> float:
    """The predicted speed-up of one layout over another; of a linear trace over merged rows it is 1."""
    return operations(shape, slow, slow_edges) / operations(shape, fast, fast_edges)


def choose(rows: Sequence[Row], shape: Shape) -> Packing:
    """`forest` where it is predicted to be worth it over `merged`."""
    order, shared = overlaps(rows)
    sizes = np.array([len(rows[r].ids) for r in order], np.int64)
    common = np.array(shared, np.int64)
    leaf = np.append(common[1:] < sizes[:-1], True)
    edges = sum(len(row.places) for row in rows)
    merged = cost(shape, int(sizes[leaf].sum()), int(_pairs(sizes)[leaf].sum()), edges)
    own = _pairs(sizes) - _pairs(common)
    forest = cost(shape, int((sizes - common).sum()), int(own.sum()), edges)
    return "forest" if merged >= WORTH * forest else "merged"


def operations(shape: Shape, layout: Layout, edges: int) -> float:
    """Of one update over a layout with so many trained edges."""
    return cost(shape, layout.num_tokens, int((layout.depth.astype(np.int64) + 1).sum()), edges)


def _pairs(sizes: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Query-key pairs of causal chains."""
    return sizes * (sizes + 1) // 2
