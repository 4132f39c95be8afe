"""What every query of a pass reads: stretches of keys and values where they are, and its row's own.

Keys and values of a stretch are layers x 2 x heads x capacity x size, contiguous, so that its place and the capacity
say where each of them is. Places are in elements from an anchor, a tensor of the same type: kernels add them to its
pointer, about which the compiler knows enough to read sixteen bytes at a time. A row has up to `columns - 1` stretches
that it sees whole, in any order (positions are in the keys), and, last, its own, which its queries extend and see up
to themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Stretch(NamedTuple):
    """Keys and values of some tokens: `kv` from `offset` on, `length` of them in use."""

    kv: Tensor
    length: int
    offset: int = 0


def put(into: Tensor, values: NDArray[Any]) -> None:
    """Set a tensor from the host's numbers, without waiting for what its device is at."""
    given = torch.from_numpy(values)
    into.copy_(given.pin_memory() if into.is_cuda else given, non_blocking=True)


Row = tuple[Sequence[Stretch], Stretch, int]
"""What a row sees whole, its own stretch (its length: where the first query goes), and how many queries it has."""


class Reads:
    """The tables of one pass, on its device.

    A row's queries are consecutive. `which`, `starts`, `ends` name blocks of up to `queries` queries of one row;
    `who` is each query's row and `index` its place in that row's own stretch. Where there is room for more queries and
    blocks than there are, those left over are the last row's: a block of no query, queries at its first place.
    """

    def __init__(
        self,
        heads: tuple[int, int, int],
        rows: Sequence[Row],
        device: torch.device,
        *,
        columns: int | None = None,
        queries: int = 1,
        steady: bool = False,
        room: int | None = None,
    ) -> None:
        """`room`: for so many queries, of whichever of these rows."""
        self.heads = heads
        """Of queries, of keys and values; and the size of each."""
        self.queries = queries
        self.single = all(count == 1 for _, _, count in rows)
        """A step's: each row has one query."""
        self.steady = steady
        self.stretches: list[tuple[tuple[Stretch, ...], Stretch]] = []
        """Holds the tensors that the places are in."""
        wide = max(len(whole) for whole, _, _ in rows) + 1 if columns is None else columns
        num = len(rows)
        if room is None:
            tokens = sum(count for _, _, count in rows)
            blocks = sum(-(-count // queries) for _, _, count in rows)
        else:
            tokens, blocks = room, room // queries + num
        self._sizes = np.cumsum((tokens, tokens, blocks, blocks, blocks, num * wide, num * wide, num))
        # Two tables are two copies to the device, however many there are in them.
        self._ints = torch.empty(int(self._sizes[-1]), dtype=torch.int32, device=device)
        self.who, self.index, self.which, self.starts, self.ends, caps, lens, self.counts = (
            torch.tensor_split(self._ints, self._sizes[:-1].tolist())
        )
        self.caps, self.lens = caps.view(num, wide), lens.view(num, wide)
        self.places = torch.empty(num, wide, dtype=torch.int64, device=device)
        self.anchor = torch.empty(64, dtype=rows[0][1].kv.dtype, device=device)
        self.ended = torch.zeros(num * heads[1], dtype=torch.int32, device=device)
        """How many parts of a row's attention are done; zero between steps."""
        self.fill(rows)

    def fill(self, rows: Sequence[Row]) -> None:
        """Set the tables in place: recorded steps read these very tensors."""
        num, wide = self.places.shape
        ints = np.zeros(int(self._sizes[-1]), np.int32)
        who, index, which, starts, ends, caps, lens, seen = np.split(ints, self._sizes[:-1])
        counts = np.array([count for _, _, count in rows])
        first = np.concatenate(([0], np.cumsum(counts)))
        tokens = int(first[-1])
        who[:], which[:] = num - 1, num - 1
        who[:tokens] = np.repeat(np.arange(num), counts)
        own = np.array([own.length for _, own, _ in rows])
        index[:tokens] = own[who[:tokens]] + np.arange(tokens) - first[who[:tokens]]
        every = -(-counts // self.queries)
        blocks = int(every.sum())
        which[:blocks] = np.repeat(np.arange(num), every)
        nth = np.arange(blocks) - np.repeat(np.cumsum(every) - every, every)
        starts[:blocks] = first[which[:blocks]] + nth * self.queries
        ends[:blocks] = np.minimum(starts[:blocks] + self.queries, first[which[:blocks] + 1])
        seen[:] = [len(whole) for whole, _, _ in rows]
        places = np.zeros(num * wide, np.int64)
        at, where = self._where(rows, wide)
        size, each = self.heads[2], self.anchor.element_size()
        places[at] = (where[0] - self.anchor.data_ptr()) // each + where[1] * size
        caps[at], lens[at] = where[2], where[3]
        put(self._ints, ints)
        put(self.places, places.reshape(num, wide))
        self.stretches = [(tuple(whole), own) for whole, own, _ in rows]

    def _where(self, rows: Sequence[Row], wide: int) -> tuple[list[int], NDArray[np.int64]]:
        """Which places of the tables have stretches; and their addresses, offsets, capacities and lengths."""
        at: list[int] = []
        found: list[tuple[int, int, int, int]] = []
        known: dict[int, tuple[int, int]] = {}
        line = 0
        for whole, own, _ in rows:
            for column, (kv, length, offset) in enumerate(whole, line):
                key = id(kv)
                if key not in known:  # what many rows share is looked at once
                    known[key] = kv.data_ptr(), kv.size(3)
                address, capacity = known[key]
                at.append(column)
                found.append((address, offset, capacity, length))
            line += wide
            kv, length, offset = own
            at.append(line - 1)
            found.append((kv.data_ptr(), offset, kv.size(3), length))
        return at, np.array(found, np.int64).T
