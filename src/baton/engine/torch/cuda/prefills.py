"""Prefill passes by size: run as they are once, recorded as a CUDA graph the second time, then replayed.

The turns of a conversation are prefilled a few hundred tokens at a time, which a GPU computes in a fraction of the time
that launching the kernels takes. So a small pass is filled up to a size that comes again, with tokens of nobody's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baton.engine.torch.cuda.llama import FusedLlama
from baton.engine.torch.cuda.reads import Reads, Row, Stretch, put
from baton.engine.torch.cuda.steps import GraphMaker

_FEWEST_TOKENS = 64
_FEWEST_ROWS = 16
_LAUNCHES = 2.5e12
"""Operations from which on a pass takes a GPU longer than its launches take the host."""
_MOST_KEPT = 24
"""Recorded passes; the oldest go first."""


def _up(number: int, fewest: int) -> int:
    """The next of the sizes that passes have: four between a power of two and the next."""
    step = max(fewest, 1 << max(0, (number - 1).bit_length() - 3))
    return -(-number // step) * step


class FixedPrefill:
    """The inputs of a pass for up to so many tokens of so many rows."""

    def __init__(self, reads: Reads, tokens: int) -> None:
        self.reads = reads
        self.both = torch.zeros(2, tokens, dtype=torch.long, device=reads.places.device)
        """Ids and positions."""
        self.runs = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.found: Tensor | None = None


class Prefills:
    """Small passes by size."""

    def __init__(
        self, model: FusedLlama, nobody: Tensor, columns: int, queries: int, recorder: GraphMaker
    ) -> None:
        self._model = model
        self._idle: Row = (), Stretch(nobody, 0), 0
        self._columns = columns
        self._queries = queries
        self._recorder = recorder
        self._most_tokens = int(_LAUNCHES / (2 * model.num_weights))
        self._by_size: dict[tuple[int, int], FixedPrefill] = {}

    def forget(self) -> None:
        """Weights are somewhere else."""
        self._by_size = {}

    def fits(self, tokens: int, rows: Sequence[Row]) -> bool:
        """Whether a pass is small enough, and none of its rows reads more stretches than the tables have room for."""
        return tokens <= self._most_tokens and max(len(whole) for whole, _, _ in rows) < self._columns

    def run(self, both: NDArray[np.int64], rows: Sequence[Row]) -> Tensor:
        """What the model gives for these ids and positions."""
        tokens = both.shape[1]
        size = _up(tokens, _FEWEST_TOKENS), _up(len(rows) + 1, _FEWEST_ROWS)
        every = [*rows, *[self._idle] * (size[1] - len(rows))]
        fixed = self._by_size.pop(size, None)
        if fixed is None:
            reads = Reads(
                self._model.heads, every, self._idle[1].kv.device,
                columns=self._columns, queries=self._queries, room=size[0],
            )  # fmt: skip
            fixed = FixedPrefill(reads, size[0])
            while len(self._by_size) >= _MOST_KEPT:
                del self._by_size[next(iter(self._by_size))]
        else:
            fixed.reads.fill(every)
        self._by_size[size] = fixed
        given = np.zeros((2, size[0]), np.int64)
        given[:, :tokens] = both
        put(fixed.both, given)
        return self._found(fixed)[:tokens]

    def _found(self, fixed: FixedPrefill) -> Tensor:
        fixed.runs += 1
        if self._recorder.on and fixed.runs == 2:
            made = self._recorder.record(lambda: self._hidden(fixed))
            fixed.graph, fixed.found = made or (None, None)
            fixed.runs = 2 if made else 0
        if fixed.graph is not None and fixed.found is not None:
            fixed.graph.replay()
            return fixed.found
        return self._hidden(fixed)

    def _hidden(self, fixed: FixedPrefill) -> Tensor:
        return self._model.hidden(fixed.both[0], fixed.both[1], fixed.reads)
