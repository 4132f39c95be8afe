"""A forest's attention in tables of fixed sizes, so that what was recorded for one forest serves others like it.

Sizes are rounded up: tokens of nobody's follow the forest's as a chain of their own, stretches of no query and no key
follow its stretches, and keys that are copied for nobody follow those that are. N tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from baton.forest.attention.cuda import CudaPass, Longs, Places, Segments, Under, attend
from baton.forest.layout import Layout

_STRETCHES, _LENGTH, _COPIED = 64, 128, 1024
"""What numbers of stretches, their lengths and copies of tokens are rounded up to."""


class Room(NamedTuple):
    """What there is room for."""

    tokens: int
    stretches: int
    longest: tuple[int, int]
    """Of queries; of keys."""
    below: Room | None
    """Of what leaves chains: `tokens` are the queries that are gathered, 0 where they stay where they are."""
    keys: int = 0
    columns: tuple[int, int] = (0, 0)
    """Of the tables of queries and of keys."""


def filled(layout: Layout, size: int) -> Layout:
    """The layout with a chain of tokens after it that nobody else sees."""
    count = layout.num_tokens
    extra = np.arange(count, size, dtype=np.int32)
    parent = extra - 1
    parent[:1] = -1
    return Layout(
        ids=np.concatenate((layout.ids, np.zeros_like(extra))),
        parent=np.concatenate((layout.parent, parent)),
        depth=np.concatenate((layout.depth, np.zeros_like(extra))),
        end=np.concatenate((layout.end, np.full_like(extra, size))),
    )


def room_for(run: CudaPass, heads: int) -> Room:
    """What a layout needs, rounded up. The layout has its tokens already (`filled`)."""
    below = None
    if (under := run.under(heads)) is not None:
        gathered = 0 if isinstance(under.queries, slice) else _up(len(under.queries), _COPIED)
        # Two stretches more hold the queries and the keys that are nobody's.
        below = Room(
            gathered,
            _up(len(under.segments.sizes[0]) + 2, _STRETCHES),
            _longest(under.segments),
            None,
            _up(_count(under.keys), _COPIED),
            (under.query_table.shape[1], 1 << (under.key_table.shape[1] - 1).bit_length()),
        )
    stretches = _up(len(run.own.sizes[0]), _STRETCHES)
    return Room(run.layout.num_tokens, stretches, _longest(run.own), below)


class FixedPass:
    """The attention of whatever layout was filled in last."""

    def __init__(self, room: Room, device: torch.device) -> None:
        nothing = np.zeros(room.stretches, np.int64)
        self.own = Segments(nothing, nothing, True, device, room.longest)
        self.below: FixedBelow | None = None
        if room.below is not None:
            self.below = FixedBelow(room.tokens, room.below, device)
        self._stretches = room.stretches

    def fill(self, run: CudaPass, heads: int) -> None:
        """Take up a layout that has this room; `run` is its pass on the host."""
        self.own.fill(*(_to(sizes, self._stretches) for sizes in run.own.sizes))
        under = run.under(heads)
        if self.below is not None and under is not None:
            self.below.fill(under)

    def under(self, heads: int) -> Under | None:  # noqa: ARG002  # it was cut for them
        """What leaves chains."""
        return self.below

    def attend(self, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor, scale: float) -> Tensor:
        return attend(self, q_NHD, k_NKD, v_NKD, scale)


class FixedBelow:
    """What leaves chains, of whatever layout was filled in last."""

    def __init__(self, tokens: int, room: Room, device: torch.device) -> None:
        self._room = room
        nothing = np.zeros(room.stretches, np.int64)
        self.segments = Segments(nothing, nothing, False, device, room.longest)
        self._gathered = torch.zeros(room.tokens, dtype=torch.long, device=device)
        self.queries: Places = self._gathered if room.tokens else slice(0, tokens)
        self._keys = torch.zeros(room.keys, dtype=torch.long, device=device)
        self.keys: Places = self._keys
        self.query_table, self.key_table = (
            torch.zeros(tokens, columns, dtype=torch.int32, device=device) for columns in room.columns
        )

    def fill(self, under: Under) -> None:
        """Set the tables in place."""
        queries, keys = under.segments.sizes
        spare = self._room.tokens - int(queries.sum()) if self._room.tokens else 0
        queries = np.concatenate((queries, (spare, 0)))
        keys = np.concatenate((keys, (0, self._room.keys - int(keys.sum()))))
        self.segments.fill(*(_to(sizes, self._room.stretches) for sizes in (queries, keys)))
        self._put(self._keys, under.keys)
        if self._room.tokens:
            self._put(self._gathered, under.queries)
        for table, given in ((self.query_table, under.query_table), (self.key_table, under.key_table)):
            wide = torch.full(table.shape, -1, dtype=torch.int32)
            wide[:, : given.shape[1]] = given
            _send(table, wide)

    def _put(self, into: Tensor, places: Places) -> None:
        numbers = torch.zeros(len(into), dtype=torch.long)
        numbers[: _count(places)] = (
            torch.arange(places.start, places.stop) if isinstance(places, slice) else places
        )
        _send(into, numbers)


def _send(into: Tensor, values: Tensor) -> None:
    into.copy_(values.pin_memory() if into.is_cuda else values, non_blocking=True)


def _count(places: Places) -> int:
    return places.stop - places.start if isinstance(places, slice) else len(places)


def _longest(segments: Segments) -> tuple[int, int]:
    queries, keys = segments.longest
    return _up(queries, _LENGTH), _up(keys, _LENGTH)


def _to(sizes: Longs, count: int) -> Longs:
    """With stretches of nothing after them."""
    found = np.zeros(count, np.int64)
    found[: len(sizes)] = sizes
    return found


def _up(number: int, step: int) -> int:
    return -(-number // step) * step
