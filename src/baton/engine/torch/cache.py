"""Computed prefixes as a radix forest: each distinct prefix of token ids has its keys and values once.

Invariant: a node's keys and values depend only on the ids from its root down to it, so any call whose
prompt begins with that path may use them. Nodes in use by a call in flight (users > 0) and nodes with
children stay; the rest go least recently used first once the forest holds more than its limit of tokens.
A node is cold until its keys and values are computed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch import cat as concatenate

Ids = NDArray[np.int32]
_MOST_COPIED = 4
"""How many times as long as what is added a turn may be that it is put beside."""


class Node:
    """A stretch of ids below its parent."""

    __slots__ = ("children", "ids", "kv", "number", "parent", "start", "used", "users")

    def __init__(self, number: int, ids: Ids, start: int, parent: Node | None, kv: Tensor | None) -> None:
        self.number = number
        self.ids = ids
        self.start = start
        """Position of the first id."""
        self.parent = parent
        self.kv = kv
        """layers x 2 x heads x ids x size; None while cold."""
        self.children: dict[int, Node] = {}
        self.users = 0
        self.used = 0

    def chain(self) -> list[Node]:
        """The nodes from the root's child down to this one."""
        found: list[Node] = []
        node: Node | None = self
        while node is not None and node.parent is not None:
            found.append(node)
            node = node.parent
        return found[::-1]

    def warm(self) -> bool:
        """Whether it and all above it are computed."""
        node: Node | None = self
        while node is not None and node.parent is not None:
            if node.kv is None:
                return False
            node = node.parent
        return True


class PrefixCache:
    """All computed prefixes, bounded in tokens."""

    def __init__(self, max_tokens: int, max_node_ids: int, *, joins_turns: bool = False) -> None:
        """`joins_turns`: turns of a conversation become one stretch, where each stretch that is read costs its own."""
        self.max_tokens = max_tokens
        self.max_node_ids = max_node_ids
        self.joins_turns = joins_turns
        self.num_tokens = 0
        self._count = 0
        self._clock = 0
        self.root = self._node(np.empty(0, np.int32), 0, None, None)

    def plant(self, ids: Ids) -> tuple[Node, int]:
        """The node that ends exactly at `ids`, made (cold) where missing, and how many ids were warm.

        The caller holds it: users of its whole chain go up by one until `release`.
        """
        node, matched = self._descend(self.root, ids)
        warm = matched
        self._clock += 1
        above = node
        while above.parent is not None:
            if above.kv is None:
                warm = min(warm, above.start)
            above.users += 1
            above.used = self._clock
            above = above.parent
        for at in range(matched, len(ids), self.max_node_ids):
            node = self._add(node, ids[at : at + self.max_node_ids], None)
            node.users, node.used = 1, self._clock
        return node, warm

    def release(self, node: Node) -> None:
        """The holder of `plant`'s node is done. Cold nodes nobody waits for are dropped."""
        each = node
        while each.parent is not None:
            above = each.parent
            each.users -= 1
            if each.kv is None and not each.users:
                self._drop(each)
            each = above

    def grow(self, node: Node, ids: Ids, kv: Tensor) -> None:
        """Keep what a call computed below `node` (one column of kv per id)."""
        deepest, matched = self._descend(node, ids)
        if matched == len(ids):
            return
        self._clock += 1
        ids, kv = ids[matched:], kv[..., matched:, :]
        if self._ends_open(deepest):
            # Where nothing else branches off, a conversation stays one stretch.
            self._lengthen(deepest, ids, kv)
        else:
            deepest = self._add(deepest, ids, kv.clone())
        deepest.used = self._clock

    def _lengthen(self, node: Node, ids: Ids, kv: Tensor) -> None:
        """Add to a node that ends open; where asked, a turn that nothing else has followed becomes one with it.

        Only a turn that is not much longer: what is copied stays in proportion to what was computed.
        """
        assert node.kv is not None
        self.num_tokens += len(ids)
        parts, every = [node.kv, kv], [node.ids, ids]
        while (
            self.joins_turns
            and (above := node.parent) is not None
            and above.parent is not None
            and above.kv is not None
            and not above.users
            and len(above.children) == 1
            and len(above.ids) <= _MOST_COPIED * sum(map(len, every))
        ):
            parts.insert(0, above.kv)
            every.insert(0, above.ids)
            node.parent, node.start = above.parent, above.start
            above.parent.children[int(above.ids[0])] = node
        node.kv, node.ids = concatenate(parts, -2), np.concatenate(every)

    def trim(self) -> None:
        """Drop what was used longest ago until the forest is within its limit."""
        while self.num_tokens > self.max_tokens:
            leaves = [n for n in self._all() if not n.children and not n.users]
            if not leaves:
                return
            for leaf in sorted(leaves, key=lambda n: n.used):
                if self.num_tokens <= self.max_tokens:
                    return
                self._drop(leaf)

    def _descend(self, node: Node, ids: Ids) -> tuple[Node, int]:
        at, size, raw = 0, len(ids), ids.tobytes()
        while at < size and (child := node.children.get(int(ids[at]))) is not None:
            length = len(child.ids)
            if raw.startswith(child.ids.tobytes(), 4 * at):  # the whole stretch: no numbers need be compared
                node = child
                at += length
                continue
            same = _common(child.ids, ids[at:])
            node = self._split(child, same)
            at += same
            break
        return node, at

    def _split(self, node: Node, at: int) -> Node:
        """A new node above `node` takes its first `at` ids; who holds `node` still holds the whole path."""
        assert node.parent is not None
        kv = node.kv
        head = self._node(
            node.ids[:at], node.start, node.parent, None if kv is None else kv[..., :at, :].clone()
        )
        head.users, head.used = node.users, node.used
        node.parent.children[int(node.ids[0])] = head
        node.ids, node.start, node.parent = node.ids[at:], node.start + at, head
        node.kv = None if kv is None else kv[..., at:, :].clone()
        head.children[int(node.ids[0])] = node
        return head

    def _ends_open(self, node: Node) -> bool:
        """Nobody reads the node, and nothing goes on from it."""
        return node.parent is not None and not node.users and not node.children

    def _node(self, ids: Ids, start: int, parent: Node | None, kv: Tensor | None) -> Node:
        self._count += 1
        return Node(self._count, ids, start, parent, kv)

    def _add(self, parent: Node, ids: Ids, kv: Tensor | None) -> Node:
        node = self._node(ids, parent.start + len(parent.ids), parent, kv)
        parent.children[int(ids[0])] = node
        self.num_tokens += len(ids)
        return node

    def _drop(self, node: Node) -> None:
        assert node.parent is not None
        assert not node.children
        del node.parent.children[int(node.ids[0])]
        self.num_tokens -= len(node.ids)

    def _all(self) -> Iterator[Node]:
        stack = list(self.root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())


def _common(a: Ids, b: Ids) -> int:
    length = min(len(a), len(b))
    differ = a[:length] != b[:length]
    first = int(differ.argmax()) if length else 0
    return first if length and differ[first] else length


_KEPT_TOKENS = 131_072
_SMALLEST = 32
_SMALLEST_GPU = 256
_SHORT_GPU = 1024
"""Up to this capacity there is one pool on a GPU: that of the longest row so far."""
_SMALL_TOKENS = 4096
_LARGE_TOKENS = 65_536
_AT_ONCE_BYTES = 1 << 30
_LARGE_SHARE_GPU = 1 / 8
"""A pool with this share of a GPU's memory is not kept empty."""


class KVShape(NamedTuple):
    """What one token's keys and values are."""

    layers: int
    heads: int
    size: int
    dtype: torch.dtype
    device: torch.device

    @property
    def token_bytes(self) -> int:
        return self.layers * 2 * self.heads * self.size * self.dtype.itemsize

    @property
    def kept_tokens(self) -> int:
        """How many are kept for later calls, unless told otherwise."""
        if self.device.type != "cuda":
            return _KEPT_TOKENS
        memory = torch.cuda.get_device_properties(self.device).total_memory
        return min(_KEPT_TOKENS, memory // 16 // self.token_bytes)


class Seat:
    """A row's place in a pool. Subclasses are the rows."""

    pool: Pool
    slot: int
    length: int
    """Tokens in the slot."""


class Pool:
    """Slots of one capacity, in which rows in flight keep their own keys and values; the taken ones always first.

    Rows of like length share a pool, so one attention call serves them all on a plain slice, without gathering. A row
    that outgrows its slot moves to the pool of twice the capacity. On a GPU all short rows share one: there a step
    costs less by being one that was recorded than by reading less.
    """

    def __init__(self, shape: KVShape, capacity: int) -> None:
        self.shape = shape
        self.capacity = capacity
        self.seats: list[Seat] = []
        self.kv = self._empty(0)

    def add(self, seat: Seat, more: int = 0) -> None:
        """Take the first free slot; `more` are about to."""
        slots = self.kv.shape[2]
        if len(self.seats) == slots:
            grown = self._empty(self._slots_for(slots, more))
            grown[:, :, :slots] = self.kv
            self.kv = grown
        seat.pool, seat.slot = self, len(self.seats)
        self.seats.append(seat)

    def fill(self, seat: Seat, stretches: Sequence[Tensor]) -> None:
        """Put a row's first keys and values into its slot."""
        start = 0
        for kv in stretches:
            end = start + kv.shape[-2]
            self.kv[:, :, seat.slot, :, start:end] = kv
            start = end

    def fill_at_once(self, seats: Sequence[tuple[Seat, Sequence[Tensor]]]) -> None:
        """The same for many, in few calls, some of them at a time."""
        some: list[tuple[Seat, Sequence[Tensor]]] = []
        tokens = 0
        for number, (seat, stretches) in enumerate(seats, 1):
            some.append((seat, stretches))
            tokens += seat.length
            enough = tokens * self.shape.token_bytes > _AT_ONCE_BYTES
            if tokens and (enough or number == len(seats)):
                self._fill_some(some, tokens)
                some, tokens = [], 0

    def _fill_some(self, seats: Sequence[tuple[Seat, Sequence[Tensor]]], tokens: int) -> None:
        every = torch.cat([kv for _, stretches in seats for kv in stretches], 3)
        slots = np.repeat([seat.slot for seat, _ in seats], [seat.length for seat, _ in seats])
        columns = np.concatenate([np.arange(seat.length) for seat, _ in seats])
        at = torch.from_numpy(np.stack((slots, columns))).to(self.kv.device)
        assert every.shape[3] == tokens
        # layers x 2 x slots x heads x columns x size: by slot and column
        self.kv.permute(2, 4, 0, 1, 3, 5)[at[0], at[1]] = every.permute(3, 0, 1, 2, 4)

    def remove(self, seat: Seat) -> None:
        """Free a slot; the last row moves into it."""
        last = self.seats.pop()
        if last is not seat:
            self.kv[:, :, seat.slot, :, : last.length] = self.kv[:, :, last.slot, :, : last.length]
            last.slot = seat.slot
            self.seats[seat.slot] = last
        if not self.seats and self._large():
            self.kv = self._empty(0)

    def _slots_for(self, slots: int, more: int) -> int:
        wanted = max(1, min(8, _SMALL_TOKENS // self.capacity), slots * 2)
        if self.shape.device.type == "cuda":
            # All at once: every size on the way would be recorded, and its memory kept.
            wanted = max(wanted, 1 << (slots + more).bit_length())
        return wanted

    def _large(self) -> bool:
        """Too large to be kept with nothing in it."""
        if self.kv.is_cuda:
            return (
                self.kv.nbytes
                > _LARGE_SHARE_GPU * torch.cuda.get_device_properties(self.kv.device).total_memory
            )
        return self.kv.shape[2] * self.capacity > _LARGE_TOKENS

    def _empty(self, slots: int) -> Tensor:
        layers, heads, size, dtype, device = self.shape
        # Zeros, not garbage: a masked key still meets the arithmetic, and garbage may be NaN.
        return torch.zeros(layers, 2, slots, heads, self.capacity, size, dtype=dtype, device=device)


class Pools:
    """The pools by capacity, smallest first."""

    def __init__(self, shape: KVShape) -> None:
        self.shape = shape
        self._pools: dict[int, Pool] = {}

    def seat(self, seats: Sequence[tuple[Seat, Sequence[Tensor], int]]) -> None:
        """Give rows slots that start with some stretches of keys and values and have room for as many tokens more."""
        for seat, stretches, _ in seats:
            seat.length = sum(kv.shape[-2] for kv in stretches)
        cuda = self.shape.device.type == "cuda"
        # Longest first on a GPU, where that tells which pool all short ones go to.
        ordered = sorted(seats, key=lambda each: each[0].length + each[2], reverse=True) if cuda else seats
        pools = [self._fitting(seat.length + room) for seat, _, room in ordered]
        left = Counter(map(id, pools))
        for (seat, *_), pool in zip(ordered, pools, strict=True):
            left[id(pool)] -= 1
            pool.add(seat, more=left[id(pool)])
        if cuda:
            for pool in {id(seat.pool): seat.pool for seat, *_ in seats}.values():
                pool.fill_at_once([(seat, kept) for seat, kept, _ in seats if seat.pool is pool])
        else:
            for seat, stretches, _ in seats:
                seat.pool.fill(seat, stretches)

    def make_room(self, seat: Seat) -> None:
        """Move a row whose slot is full."""
        full, slot = seat.pool, seat.slot
        self._fitting(full.capacity + 1).add(seat)
        seat.pool.kv[:, :, seat.slot, :, : seat.length] = full.kv[:, :, slot, :, : seat.length]
        moved_to = seat.pool, seat.slot
        seat.pool, seat.slot = full, slot
        full.remove(seat)
        seat.pool, seat.slot = moved_to

    def taken(self) -> list[Pool]:
        """Pools with rows in them."""
        return [pool for _, pool in sorted(self._pools.items()) if pool.seats]

    @property
    def slots(self) -> list[Tensor]:
        """The keys and values of every pool."""
        return [pool.kv for pool in self._pools.values()]

    def tidy(self) -> bool:
        """Drop the pools that no row would take any more; whether there were any. Only when all are empty."""
        before, self._pools = self._pools, {c: p for c, p in self._pools.items() if self._capacity(c) == c}
        return len(self._pools) < len(before)

    def _fitting(self, length: int) -> Pool:
        capacity = self._capacity(length)
        if capacity not in self._pools:
            self._pools[capacity] = Pool(self.shape, capacity)
        return self._pools[capacity]

    def _capacity(self, length: int) -> int:
        """The size of the slot that a row of this length gets."""
        capacity = 1 << (length - 1).bit_length()
        if self.shape.device.type != "cuda":
            return max(_SMALLEST, capacity)
        return max(_SMALLEST_GPU, capacity, *(c for c in self._pools if c <= _SHORT_GPU))
