"""What every query of a pass reads: stretches of keys and values where they are, and its row's own.

Keys and values of a stretch are layers x 2 x heads x capacity x size, contiguous, so that its place and the capacity
say where each of them is. Places are in elements from an anchor, a tensor of the same type: kernels add them to its
pointer, about which the compiler knows enough to read sixteen bytes at a time. A row has up to `columns - 1` stretches
that it sees whole, in any order (positions are in the keys), and, last, its own, which its queries extend and see up
to themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Stretch(NamedTuple):
    """Keys and values of some tokens: `kv` from `offset` on, `length` of them in use."""

    kv: Tensor
    length: int
    offset: int = 0

    def cell(self, anchor: int) -> tuple[int, int, int]:
        """Where it begins, in elements from this address; its capacity; its length."""
        _, _, _, capacity, size = self.kv.shape
        start = (self.kv.data_ptr() - anchor) // self.kv.element_size() + self.offset * size
        return start, capacity, self.length


class Reads:
    """The tables of one pass, on its device.

    A row's queries are consecutive. `which`, `starts`, `ends` name blocks of up to `queries` queries of one row;
    `who` is each query's row and `index` its place in that row's own stretch.
    """

    def __init__(
        self,
        heads: tuple[int, int, int],
        rows: Sequence[tuple[Sequence[Stretch], Stretch, int]],
        device: torch.device,
        *,
        columns: int | None = None,
        queries: int = 1,
        steady: bool = False,
    ) -> None:
        """Each row: what it sees whole, its own stretch (its length: where the first query goes), how many queries."""
        self.heads = heads
        """Of queries, of keys and values; and the size of each."""
        self.queries = queries
        self.steady = steady
        self.stretches: list[tuple[tuple[Stretch, ...], Stretch]] = []
        """Holds the tensors that the places are in."""
        wide = max(len(whole) for whole, _, _ in rows) + 1 if columns is None else columns
        counts = np.array([count for _, _, count in rows])
        first = np.concatenate(([0], np.cumsum(counts)))
        who = np.repeat(np.arange(len(rows)), counts)
        own = np.array([own.length for _, own, _ in rows])
        index = own[who] + np.arange(first[-1]) - first[who]
        blocks = -(-counts // queries)
        which = np.repeat(np.arange(len(rows)), blocks)
        nth = np.arange(len(which)) - np.repeat(np.cumsum(blocks) - blocks, blocks)
        starts = first[which] + nth * queries
        ends = np.minimum(starts + queries, first[which + 1])
        self.who, self.index, self.which, self.starts, self.ends = (
            torch.from_numpy(each.astype(np.int32)).to(device) for each in (who, index, which, starts, ends)
        )
        self.anchor = torch.empty(64, dtype=rows[0][1].kv.dtype, device=device)
        self.places = torch.zeros(len(rows), wide, dtype=torch.int64, device=device)
        self.caps, self.lens = torch.zeros(2, len(rows), wide, dtype=torch.int32, device=device)
        self.counts = torch.zeros(len(rows), dtype=torch.int32, device=device)
        self.fill([(whole, own) for whole, own, _ in rows])

    def fill(self, rows: Sequence[tuple[Sequence[Stretch], Stretch]]) -> None:
        """Set the tables in place: recorded steps read these very tensors."""
        anchor = self.anchor.data_ptr()
        most = max(len(whole) for whole, _ in rows)
        none = (0, 0, 0)
        cells = [
            [each.cell(anchor) for each in whole] + [none] * (most - len(whole)) + [own.cell(anchor)]
            for whole, own in rows
        ]
        sent = torch.tensor(cells, dtype=torch.int64).to(self.places.device)
        for into, values in zip((self.places, self.caps, self.lens), sent.unbind(2), strict=True):
            # What is between is not looked at.
            into[:, :most] = values[:, :most]
            into[:, -1] = values[:, -1]
        self.counts.copy_(torch.tensor([len(whole) for whole, _ in rows], dtype=torch.int32))
        self.stretches = [(tuple(whole), own) for whole, own in rows]
