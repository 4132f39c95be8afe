"""One update's gradients: rows in, `.grad` out, whatever the packing.

Rows are thinned to one per draw, scaled, cut into micro-batches and packed; each goes forward and backward
under its own attention, over a denominator that all share. So the gradient is the same for every packing
and every `max_tokens`, up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np
import torch
from msgspec import Struct, field, structs
from numpy.typing import NDArray
from torch import Tensor, nn

from baton.errors import UsageError, nearest
from baton.forest import products
from baton.forest.attention.parts import Attention, make_pass
from baton.forest.layout import Layout, PackedBatch, Packing, Shape, choose, once, pack, plant, split
from baton.forest.logprobs import check_forest, edge_logprobs, hidden_states, tree_attention
from baton.forest.rows import Row
from baton.learn.loss import Level, Loss, tokens_of, total

LEVELS: tuple[Level, ...] = ("group", "trace", "agent", "turn")
LEAST = {"cuda": 16}
"""Tokens between two branchings from which on they are shared, where each branching costs launches."""
_MOVED_ROWS = 16
"""Rows by which it is told how far an update moved the policy; all of them would cost a third of it."""


class Packed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How rows are computed; none of it but `duplicates` changes what is learned."""

    packing: Packing | Literal["auto"] = "auto"
    """auto: the forest where its predicted speed-up is worth it, else merged rows."""
    duplicates: Literal["once", "row_exact"] = "once"
    """Whether a draw that several rows hold trains once, at their mean, or in each of them."""
    attention: Attention = "auto"
    max_tokens: int = 65536
    """Computed tokens of one pass."""
    check: bool = True
    """Compare the first pass with the model's own forward."""

    def __post_init__(self) -> None:
        known = {"packing": ("auto", "forest", "merged", "rows"), "duplicates": ("once", "row_exact")}
        for name, words in known.items():
            if (given := getattr(self, name)) not in words:
                raise UsageError(f"{name} {given!r} is not known. {nearest(given, words)}")


class UpdateReport(Struct, frozen=True, kw_only=True):
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
    """Means over trained tokens of log_ratio, clipped, correction, entropy and kl, where they apply."""


class Gradients:
    """Accumulates gradients of rows of one policy in its model's parameters."""

    def __init__(
        self,
        model: Any,
        loss: Loss,
        packed: Packed | None = None,
        *,
        reference: Any = None,
        large_products: bool = True,
    ) -> None:
        """`large_products`: whether large passes on a CPU multiply by `forest.products`; else sums keep their order."""
        self.model = model
        self.loss = loss
        self.packed = packed or Packed()
        self.reference = reference
        self._shape = Shape.of(model)
        self._checked: set[str] = set()
        self._large_products = large_products
        self._early = model.device.type != "cpu"
        """Whether layers begin before it is known where they are read, which keeps a GPU busy."""
        self._dropouts = [(n, each) for n, each in model.named_modules() if isinstance(each, nn.Dropout)]
        if loss.kl and reference is None:
            raise UsageError("kl is set, and there is no reference. Give a reference model, or set kl to 0.")
        if loss.rule.labels == "pairs" and reference is None:
            raise UsageError(
                f"loss {loss.kind} compares with a reference, and there is none. Give a reference model."
            )

    def backward(
        self, rows: Sequence[Row], *, version: str | None = None, only: Callable[[Row], bool] | None = None
    ) -> UpdateReport:
        """Add the gradients of the rows' loss. `version` is that of the weights being trained.

        `only`: of some of the rows, which count as they do among all of them, so that parts add up to the whole.
        """
        if not rows:
            raise UsageError("there are no rows to train on. Every call needs token ids and an advantage.")
        self._refuse_dropout()
        num_row_tokens = sum(len(row.ids) for row in rows)
        kept = once(rows) if self.packed.duplicates == "once" else list(rows)
        kept = scaled(kept, self.loss.levels, self.loss.added) if self.loss.levels else kept
        packing = self.packed.packing
        chosen: Packing = choose(kept, self._shape) if packing == "auto" else packing
        num_tokens = sum(len(row.places) for row in kept)
        denominator = self.loss.denominator(num_tokens, len(kept))
        kept = kept if only is None else [row for row in kept if only(row)]
        least = LEAST.get(self.model.device.type, 0)
        # A small pass after a large one would not keep a GPU busy.
        parts = self._split(kept, chosen, even=bool(least))
        if self.packed.check and chosen not in self._checked:
            self._check(parts[0], chosen)
            self._checked.add(chosen)
        # Asked for at the end: the host packs a pass while a GPU computes the one before.
        losses: list[tuple[Tensor, float]] = []
        computed = 0
        sums: dict[str, Tensor] = {}
        for part, over in self._dealt(parts, denominator):
            layout, places = plant(part, chosen, least=least)
            ready = partial(pack, part, chosen, version=version, planted=(layout, places))
            loss, watch = self._pass(layout, sum(map(len, places)), ready, over)
            if over == math.inf:  # counts for nothing
                sums = {name: torch.zeros_like(number) for name, number in watch.items()} | sums
                continue
            losses.append((loss, over / denominator))
            computed += layout.num_tokens
            for name, number in watch.items():
                sums[name] = sums[name] + number if name in sums else number
        names = sorted(sums)
        whole = sum(float(loss) * share for loss, share in losses)
        found = self._added(np.array([whole, computed, *(float(sums[name]) for name in names)]))
        return UpdateReport(
            loss=float(found[0]),
            num_tokens=num_tokens,
            num_row_tokens=num_row_tokens,
            num_computed=int(found[1]),
            packing=chosen,
            num_passes=len(parts),
            means={name: number / num_tokens for name, number in zip(names, found[2:].tolist(), strict=True)},
        )

    # -- what differs where several processes compute an update together ---------------------------

    def _split(self, rows: Sequence[Row], packing: Packing, *, even: bool) -> list[list[Row]]:
        """The rows of each pass, of all processes."""
        return split(rows, self.packed.max_tokens, packing, even=even)

    def _dealt(self, parts: Sequence[list[Row]], denominator: float) -> list[tuple[list[Row], float]]:
        """The passes of this process and what each divides by; infinity: it counts for nothing."""
        return [(part, denominator) for part in parts]

    def _added(self, found: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sums over this process's passes, added over all processes."""
        return found

    def _forward(
        self, model: Any, batch: PackedBatch, layout: Layout, *, entropy: bool = False, hidden: Any = None
    ) -> tuple[Tensor, Tensor | None]:
        """Log-probabilities of edges under the policy's model or its reference."""
        return edge_logprobs(model, batch, layout, entropy=entropy, hidden=hidden)

    def _check(self, rows: Sequence[Row], packing: Packing) -> None:
        """That a pass gives what the model's own forward does."""
        check_forest(self.model, rows, packing, self.packed.attention)

    def _pass(
        self, layout: Layout, num_edges: int, ready: Callable[[], PackedBatch], denominator: float
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The gradients of a layout's rows, of whose edges there are `num_edges` at most.

        What the loss needs is made `ready` while a GPU is at the layers, which need the layout alone.
        """
        current = make_pass(layout, self.model.dtype, self.model.device, self.packed.attention)
        reference, batch = None, ready() if self.loss.kl else None
        if batch is not None:
            with torch.no_grad(), tree_attention(self.reference, current):
                reference, _ = self._forward(self.reference, batch, current.layout)
        large = self._large_products and current.layout.num_tokens >= products.LEAST
        with (
            tree_attention(self.model, current),
            products.large_products(self.model.device) if large else nullcontext(),
        ):
            hidden = None
            if self._early:
                hidden = hidden_states(self.model, current.layout, num_edges=num_edges)
            batch = batch or ready()
            new, entropy = self._forward(
                self.model, batch, current.layout, entropy=bool(self.loss.entropy), hidden=hidden
            )
            against_now = not self.loss.samples_needed
            tokens = tokens_of(batch, new, against_now=against_now, reference=reference, entropy=entropy)
            loss, watch = total(tokens, self.loss, denominator)
            loss.backward()  # type: ignore[no-untyped-call]  # torch's
        return loss.detach(), watch

    @torch.no_grad()
    def row_logprobs(self, model: Any, rows: Sequence[Row]) -> NDArray[np.float64]:
        """The log-probability of each row's trained tokens together, under the policy's model or its reference."""
        found = np.zeros(len(rows))
        number = {id(row): n for n, row in enumerate(rows)}
        for part, over in self._dealt(self._split(rows, "forest", even=False), 1.0):
            batch = pack(part)
            current = make_pass(batch.layout, model.dtype, model.device, self.packed.attention)
            with tree_attention(model, current):
                each, _ = self._forward(model, batch, current.layout)
            sums = np.bincount(batch.sequence, each.double().cpu().numpy()[batch.of], len(part))
            if over < math.inf:
                found[[number[id(row)] for row in part]] = sums
        return self._added(found)

    @torch.no_grad()
    def moved(self, rows: Sequence[Row]) -> float | None:
        """KL of an answer, from the weights that sampled it to those of now: the mean over some of the rows of the sum
        over tokens of exp(r) - r - 1, r = log pi_now - log pi_sampler. None: no row's sampler is known."""
        known = [row for row in rows if len(row.places) and not np.isnan(row.sampler).any()]
        some = known[:: max(1, len(known) // _MOVED_ROWS)][:_MOVED_ROWS]
        if not some:
            return None
        found = 0.0
        for part, over in self._dealt(self._split(some, "forest", even=False), 1.0):
            batch = pack(part)
            current = make_pass(batch.layout, self.model.dtype, self.model.device, self.packed.attention)
            with tree_attention(self.model, current):
                new, _ = self._forward(self.model, batch, current.layout)
            gap = new.double().cpu()[torch.from_numpy(batch.of)] - torch.from_numpy(batch.sampler)
            found += float((torch.expm1(gap) - gap).sum()) if over < math.inf else 0.0
        return float(self._added(np.array([found]))[0]) / len(some)

    def _refuse_dropout(self) -> None:
        if self.model.training:
            for name, module in self._dropouts:
                if module.p > 0:
                    raise UsageError(
                        f"{name} drops out with probability {module.p}: a shared prefix would be dropped alike for "
                        "all its rows. Set dropout to 0 in the model's configuration."
                    )


class Learner(Protocol):
    """Who moves a policy's weights, wherever these are: here, in several processes, at a service.

    A step of the optimiser is `backward`, which adds gradients of rows, and `advance`, which moves the weights by them.
    """

    loss: Loss

    def backward(self, rows: Sequence[Row], *, version: str) -> UpdateReport:
        """Add the gradients of the rows' loss; `version` is that of the weights being trained."""
        ...

    def advance(self, clip_norm: float) -> float | None:
        """Move the weights by the gradients, scaled to this norm at most. Returns the norm they had; where it is no
        number the weights stay as they are. None: it is not known."""
        ...

    def drop(self) -> None:
        """Forget the gradients."""
        ...

    def sound(self) -> bool:
        """Whether every weight is a number."""
        ...

    def moved(self, rows: Sequence[Row]) -> float | None:
        """How far the policy is from the weights that sampled these rows; None: that is not known."""
        ...


class LocalLearner:
    """Moves weights of this process."""

    def __init__(self, gradients: Gradients, parameters: Sequence[nn.Parameter], optimizer: Any) -> None:
        self.gradients = gradients
        self.loss = gradients.loss
        self._parameters = parameters
        self._optimizer = optimizer

    def backward(self, rows: Sequence[Row], *, version: str) -> UpdateReport:
        return self.gradients.backward(rows, version=version)

    def advance(self, clip_norm: float) -> float:
        norm = float(nn.utils.clip_grad_norm_(self._parameters, clip_norm))
        if math.isfinite(norm):
            self._optimizer.step()
        return norm

    def drop(self) -> None:
        self._optimizer.zero_grad()

    def sound(self) -> bool:
        # Norms are no numbers where a weight is none, and take a quarter of the time of looking at each.
        sizes = torch._foreach_norm([each.detach() for each in self._parameters])
        return all(math.isfinite(float(each)) for each in sizes)

    def moved(self, rows: Sequence[Row]) -> float | None:
        return self.gradients.moved(rows)


def scaled(rows: Sequence[Row], levels: Sequence[Level], added: Sequence[Level] = ()) -> list[Row]:
    """The rows with weights by which chatty agents and long turns do not dominate.

    For levels (l1, l2, ...) every group has the same total weight, within it every trace, within that every agent,
    within that every turn, within that every token: the mean of means. Levels left out are pooled. Weights average 1
    over all trained tokens, so the global token count stays the denominator. () is the mean over tokens (DAPO, arXiv
    2503.14476), ("trace",) the mean over rollouts of their token means (GRPO, arXiv 2402.03300: an output is a rollout
    here), ("turn",) the mean over calls of theirs, ("trace", "agent") WideSeek-R1's (1/G) sum (1/N) sum (1/tokens) sum
    [C]. Parts of levels in `added` are added up instead: ("trace", "agent") with "agent" added is MATPO's (1/planners)
    sum over all agents of (1/tokens) sum, where no worker makes its planner count less [C].
    """
    for level in levels:
        if level not in LEVELS:
            raise UsageError(f"there is no loss scale {level!r}. {nearest(level, LEVELS)}")
    chosen = [level for level in LEVELS if level in levels]
    sizes = np.array([len(row.places) for row in rows])
    share = np.ones(len(rows))
    above = np.zeros(len(rows), np.intp)
    for level in chosen:
        names = [_name(row, level) for row in rows]
        numbers = {name: n for n, name in enumerate(dict.fromkeys(zip(above.tolist(), names, strict=True)))}
        inner = np.array([numbers[key] for key in zip(above.tolist(), names, strict=True)])
        parents = {number: key[0] for key, number in numbers.items()}
        siblings = np.bincount(list(parents.values()))
        if level not in added:
            share /= siblings[above]
        above = inner
    share /= np.bincount(above, sizes)[above]
    total = sizes.sum()
    return [
        structs.replace(row, weights=row.weights * (total * part))
        for row, part in zip(rows, share.tolist(), strict=True)
    ]


def _name(row: Row, level: Level) -> tuple[str, ...]:
    """Agents of one name are the same in all rollouts; calls are not, whatever they are called."""
    names = {
        "group": (row.group,),
        "trace": (row.trace,),
        "agent": (row.agent,),
        "turn": (row.trace, row.call),
    }
    return names[level]
