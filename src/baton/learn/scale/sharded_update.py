"""One update's gradients in several processes: the same rows, losses and denominator, the passes dealt out.

Every process is given all rows and makes the same plan of them, so nothing has to be agreed on. It goes through its own
passes; each gathers and scatters weights together with the passes of the others, so all of them go through the same
number: whoever has none left repeats one that counts for nothing. A process's gradients are averaged over all of them,
so its losses are multiplied by their number.

Invariant: the gradient is that of one process, up to rounding, for every number of processes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from baton.forest.layout import Layout, PackedBatch, Packing, split
from baton.forest.logprobs import check_forest, edge_logprobs
from baton.forest.rows import Row
from baton.learn.loss import Loss
from baton.learn.scale.sharded_model import Reference, ShardedModel
from baton.learn.update import Gradients, Packed


class ShardedGradients(Gradients):
    """Accumulates this process's share of the gradients of rows."""

    def __init__(
        self, held: ShardedModel, loss: Loss, packed: Packed, *, reference: Reference | None
    ) -> None:
        super().__init__(held.model, loss, packed, reference=reference)
        self._held = held
        self._early = False  # layers and vocabulary go through the root together
        self._rank, self._world = dist.get_rank(), dist.get_world_size()

    def _split(self, rows: Sequence[Row], packing: Packing, *, even: bool) -> list[list[Row]]:
        """Passes of at most so many tokens, of which everybody gets as many, where rows allow it."""
        most = self.packed.max_tokens
        parts = split(rows, most, packing, even=even)
        wanted = math.ceil(len(parts) / self._world) * self._world
        low, high = 1, most  # at `high` there are too few, at `low` as many as can be
        while len(parts) != wanted and high - low > 1:
            size = (low + high) // 2
            parts = split(rows, size, packing)
            low, high = (size, high) if len(parts) >= wanted else (low, size)
        return parts if len(parts) == wanted else split(rows, low, packing)

    def _dealt(self, parts: Sequence[list[Row]], denominator: float) -> list[tuple[list[Row], float]]:
        found: list[tuple[list[Row], float]] = []
        for first in range(0, len(parts), self._world):
            mine = first + self._rank
            idle = mine >= len(parts)
            found.append((parts[first], math.inf) if idle else (parts[mine], denominator / self._world))
        return found

    def _added(self, found: NDArray[np.float64]) -> NDArray[np.float64]:
        whole = torch.from_numpy(found).to(self._held.device)
        dist.all_reduce(whole)
        return whole.cpu().numpy()

    def _forward(
        self, model: Any, batch: PackedBatch, layout: Layout, *, entropy: bool = False, hidden: Any = None
    ) -> tuple[Tensor, Tensor | None]:
        assert hidden is None
        if not isinstance(model, Reference):
            return self._held.through(lambda: edge_logprobs(model, batch, layout, entropy=entropy))
        with model.in_place():
            return self._held.through(lambda: edge_logprobs(model.model, batch, layout))

    @torch.no_grad()
    def _check(self, rows: Sequence[Row], packing: Packing) -> None:
        self._held.through(lambda: check_forest(self.model, rows, packing, self.packed.attention))
