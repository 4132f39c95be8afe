"""One update's gradients: rows in, `.grad` out, whatever the packing.

Rows are thinned to one per draw, scaled, cut into micro-batches and packed; each goes forward and backward
under its own attention, over a denominator that all share. So the gradient is the same for every packing
and every `max_tokens`, up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from msgspec import Struct, field
from torch import Tensor, nn

from baton.errors import UsageError, nearest
from baton.forest.attention.attach import tree_attention
from baton.forest.attention.parts import Kind, make_pass
from baton.forest.batch import Batch, Shape, choose, pack, split
from baton.forest.layout import Packing, once
from baton.forest.logprobs import check_forest, edge_logprobs
from baton.forest.rows import Row
from baton.learn.crediting import scaled
from baton.learn.loss import Loss, tokens_of, total

_MOVED_ROWS = 16
"""Of an update, to see how far it moved the policy; all of them would cost a third of it."""


class Packed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How rows are computed; none of it but `duplicates` changes what is learned."""

    packing: Packing | Literal["auto"] = "auto"
    """auto: the forest where its predicted speed-up is worth it, else merged rows."""
    duplicates: Literal["once", "row_exact"] = "once"
    """Whether a draw that several rows hold trains once, at their mean, or in each of them."""
    attention: Kind = "auto"
    max_tokens: int = 65536
    """Computed tokens of one pass."""
    check: bool = True
    """Compare the first pass with the model's own forward."""

    def __post_init__(self) -> None:
        if self.packing not in ("auto", "forest", "merged", "rows"):
            known = ("auto", "forest", "merged", "rows")
            raise UsageError(f"packing {self.packing!r} is not known. {nearest(self.packing, known)}")
        if self.duplicates not in ("once", "row_exact"):
            raise UsageError(
                f"duplicates {self.duplicates!r} is not known. {nearest(self.duplicates, ('once', 'row_exact'))}"
            )


class Report(Struct, frozen=True, kw_only=True):
    """What one update computed."""

    loss: float
    num_tokens: int
    """Trained."""
    num_row_tokens: int
    """What rows would have computed."""
    num_computed: int
    packing: Packing
    num_passes: int
    means: dict[str, float] = field(default_factory=dict)
    """Over trained tokens: log_ratio, clipped, correction, entropy, kl, where they apply."""


class Gradients:
    """Accumulates gradients of rows of one policy in its model's parameters."""

    def __init__(
        self, model: Any, loss: Loss, packed: Packed | None = None, *, reference: Any = None
    ) -> None:
        self.model = model
        self.loss = loss
        self.packed = packed or Packed()
        self.reference = reference
        self._shape = Shape.of(model)
        self._checked: set[str] = set()
        if loss.kl and reference is None:
            raise UsageError("kl is set, and there is no reference. Give a reference model, or set kl to 0.")

    def backward(self, rows: Sequence[Row], *, version: str | None = None) -> Report:
        """Add the gradients of the rows' loss. `version` is that of the weights being trained."""
        if not rows:
            raise UsageError("there are no rows to train on. Every call needs token ids and an advantage.")
        self._refuse_dropout()
        num_row_tokens = sum(len(row.ids) for row in rows)
        kept = once(rows) if self.packed.duplicates == "once" else list(rows)
        kept = scaled(kept, self.loss.scale) if self.loss.scale else kept
        packing = self.packed.packing
        chosen: Packing = choose(kept, self._shape) if packing == "auto" else packing
        num_tokens = sum(len(row.places) for row in kept)
        denominator = self.loss.denominator(num_tokens, len(kept))
        parts = split(kept, self.packed.max_tokens, chosen)
        if self.packed.check and chosen not in self._checked:
            check_forest(self.model, parts[0], chosen, self.packed.attention)
            self._checked.add(chosen)
        value, computed = 0.0, 0
        sums: dict[str, Tensor] = {}
        for part in parts:
            batch = pack(part, chosen, version=version)
            loss, watch = self._pass(batch, denominator)
            value += loss
            computed += batch.layout.num_tokens
            for name, number in watch.items():
                sums[name] = sums[name] + number if name in sums else number
        return Report(
            loss=value,
            num_tokens=num_tokens,
            num_row_tokens=num_row_tokens,
            num_computed=computed,
            packing=chosen,
            num_passes=len(parts),
            means={name: float(number) / num_tokens for name, number in sums.items()},
        )

    def _pass(self, batch: Batch, denominator: float) -> tuple[float, dict[str, Tensor]]:
        current = make_pass(batch.layout, self.model.dtype, self.model.device, self.packed.attention)
        reference = None
        if self.loss.kl:
            with torch.no_grad(), tree_attention(self.reference, current):
                reference, _ = edge_logprobs(self.reference, batch, current.layout)
        with tree_attention(self.model, current):
            new, entropy = edge_logprobs(self.model, batch, current.layout, entropy=bool(self.loss.entropy))
            # Without a ratio nothing is taken against the sampler, so its log-probabilities may be missing.
            against_now = self.loss.against_now or self.loss.kind == "reinforce"
            tokens = tokens_of(batch, new, against_now=against_now, reference=reference, entropy=entropy)
            loss, watch = total(tokens, self.loss, denominator)
            loss.backward()  # type: ignore[no-untyped-call]  # torch's
        return float(loss.detach()), watch

    @torch.no_grad()
    def moved(self, rows: Sequence[Row]) -> float | None:
        """KL of an answer, from the weights that sampled it to those of now: the mean over some of the rows of the sum
        over tokens of exp(r) - r - 1, r = log pi_now - log pi_sampler. None: no row's sampler is known."""
        known = [row for row in rows if len(row.places) and not np.isnan(row.sampler).any()]
        some = known[:: max(1, len(known) // _MOVED_ROWS)][:_MOVED_ROWS]
        if not some:
            return None
        found = 0.0
        for part in split(some, self.packed.max_tokens, "forest"):
            batch = pack(part)
            current = make_pass(batch.layout, self.model.dtype, self.model.device, self.packed.attention)
            with tree_attention(self.model, current):
                new, _ = edge_logprobs(self.model, batch, current.layout)
            gap = new.double().cpu()[torch.from_numpy(batch.of)] - torch.from_numpy(batch.sampler)
            found += float((torch.expm1(gap) - gap).sum())
        return found / len(some)

    def _refuse_dropout(self) -> None:
        if self.model.training:
            for name, module in self.model.named_modules():
                if isinstance(module, nn.Dropout) and module.p > 0:
                    raise UsageError(
                        f"{name} drops out with probability {module.p}: a shared prefix would be dropped alike for "
                        "all its rows. Set dropout to 0 in the model's configuration."
                    )
