"""Updates at a service that speaks the Tinker protocol: rows out, gradients and optimiser there.

The loss is Baton's, over the same denominator: each token's weight and the denominator go into its advantage, which
every loss of the protocol is proportional to. ppo and cispo are computed there as they are. Any other loss of single
tokens or whole answers takes a second pass: log-probabilities are asked for, the loss and its derivative by each of
them are computed here, and the derivative goes back as the advantage of `importance_sampling` at ratio 1, whose
gradient is the loss's own.

How a service adds rows up is not in the protocol: Thinking Machines' sums over tokens, SkyRL's takes the mean over a
row's tokens and then over rows. `measured_sums` finds out, and advantages make up for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from msgspec import Struct
from numpy.typing import NDArray
from torch import Tensor

from baton.errors import TraceError, UsageError
from baton.forest.layout import once
from baton.forest.rows import Row
from baton.learn.loss import Loss, Tokens, total
from baton.learn.scale.tinker_client import TinkerClient, TinkerModel, datum
from baton.learn.update import Packed, UpdateReport, scaled
from baton.team.protocol import EngineError

_ROWS = 128
"""Rows of one request."""
_MOVED_ROWS = 16
_GAP = 0.3
"""Mean distance, in nats, between a service's sampler and trainer over tokens of the same weights that is none of
rounding: half precision and other kernels make a tenth of it at most."""
ADAM: Final = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.0}
"""As Baton's own optimiser has them."""


class Sums(Struct, frozen=True, kw_only=True):
    """How a service adds up the losses of tokens."""

    mean_of_rows: bool = False
    mean_of_tokens: bool = False

    def factor(self, num_rows: int, num_targets: int) -> float:
        """What a token of a row is multiplied by, so that tokens are added up in the end."""
        return (num_rows if self.mean_of_rows else 1) * (num_targets if self.mean_of_tokens else 1)


class NativeLoss(NamedTuple):
    """A loss that the protocol has."""

    name: str
    config: dict[str, float]


def native_loss(loss: Loss) -> NativeLoss | None:
    """The protocol's own form of a loss; None: it takes a second pass."""
    low, high = loss.limits
    bounds = {"clip_low_threshold": max(0.0, 1 - low), "clip_high_threshold": 1 + high}
    if loss.samples_needed and loss.rule.name in ("ppo", "grpo", "dr_grpo", "dapo"):
        return NativeLoss("ppo", bounds)
    if loss.samples_needed and loss.rule.name == "cispo":
        return NativeLoss("cispo", bounds)
    return None


def losses_needed(loss: Loss) -> tuple[str, ...]:
    """Losses of the protocol that a recipe's loss takes."""
    native = native_loss(loss)
    return ("cross_entropy", "importance_sampling") if native is None else (native.name, "cross_entropy")


def measured_sums(client: TinkerClient, base: str, rank: int) -> Sums:
    """How a service adds up, by the norms of gradients of one row, of the same row twice, and of the row with a tail
    that has no advantage. One that tells no norms is taken to do what the protocol's own pages say: it sums."""
    model = client.create_model(base, rank, 0)
    row, tail = [3 + n % 7 for n in range(10)], [4 + n % 5 for n in range(9)]
    norms: list[float] = []
    whole = row + tail
    [drawn] = model.forward([datum(whole, weights=[1.0] * (len(whole) - 1))])
    for ids, count in ((row, 1), (row, 2), (whole, 1)):
        size = len(ids) - 1
        one = datum(ids, logprobs=drawn[:size], advantages=[1.0, 0.0, -0.5] + [0.0] * (size - 3))
        model.forward_backward([one] * count, "importance_sampling")
        norm = grad_norm(model.optim_step({"learning_rate": 0.0, **ADAM}))
        if norm is None or not math.isfinite(norm) or norm <= 0:
            break
        norms.append(norm)
    model.unload()
    if len(norms) < 3:
        return Sums()
    plain, twice, longer = norms
    return Sums(mean_of_rows=twice < 1.5 * plain, mean_of_tokens=longer < 0.75 * plain)


def grad_norm(metrics: dict[str, float]) -> float | None:
    """The gradient's norm, where the service tells it."""
    return next((float(value) for name, value in metrics.items() if name.endswith("grad_norm")), None)


class TinkerLearner:
    """Moves the weights of an adapter at a service."""

    def __init__(self, model: TinkerModel, loss: Loss, packed: Packed, sums: Sums) -> None:
        self.loss = loss
        self.rate = 0.0
        self.probe: tuple[Row, NDArray[np.float64]] | None = None
        """A row of the last step, and its tokens' log-probabilities under the weights as they are."""
        self._model = model
        self._duplicates = packed.duplicates
        self._sums = sums
        self._waiting = False
        """Whether gradients are at the service that no step has used."""
        self._sound = True

    def backward(self, rows: Sequence[Row], *, version: str) -> UpdateReport:
        if not rows:
            raise UsageError("there are no rows to train on. Every call needs token ids and an advantage.")
        kept = once(rows) if self._duplicates == "once" else list(rows)
        kept = scaled(kept, self.loss.levels, self.loss.added) if self.loss.levels else kept
        if any(row.temperature != 1 for row in kept):
            raise TraceError("a service trains what was drawn at temperature 1. Set team.temperature to 1.")
        num_tokens = sum(len(row.places) for row in kept)
        denominator = self.loss.denominator(num_tokens, len(kept))
        native = native_loss(self.loss)
        self._waiting = True
        if native is None:
            new = self._logprobs(kept)
            tokens = _tokens(kept, new, version, self.loss)
            value, watch = total(tokens, self.loss, denominator)
            value.backward()  # type: ignore[no-untyped-call]  # torch's
            assert tokens.new.grad is not None
            parts = _by_row(kept, -tokens.new.grad.numpy())
            self._push(kept, parts, list(new), "importance_sampling", {})
        else:
            parts = [row.advantages * row.weights / denominator for row in kept]
            new = self._push(kept, parts, [row.sampler for row in kept], native.name, native.config)
            value, watch = total(_tokens(kept, new, version, self.loss), self.loss, denominator)
        self._check_gap(kept, new, version)
        num_ids = sum(len(row.ids) for row in kept)
        return UpdateReport(
            loss=float(value.detach()),
            num_tokens=num_tokens,
            num_row_tokens=sum(len(row.ids) for row in rows),
            num_computed=num_ids * (1 if native else 2),
            packing="rows",
            num_passes=-(-len(kept) // _ROWS) * (1 if native else 2),
            means={name: float(number) / num_tokens for name, number in watch.items()},
        )

    def advance(self, clip_norm: float) -> float | None:
        metrics = self._model.optim_step({"learning_rate": self.rate, **ADAM, "grad_clip_norm": clip_norm})
        self._waiting = False
        return grad_norm(metrics)

    def drop(self) -> None:
        """The protocol has no word for it, so nothing may be left there: a run that was cut off inside of a step goes
        on from its checkpoint, with another model."""
        if self._waiting:
            raise EngineError(
                "gradients of a step that failed are still at the service. Go on from the last checkpoint: "
                "baton train --resume"
            )

    def sound(self) -> bool:
        """As far as can be told from here: whether the last log-probabilities were numbers."""
        return self._sound

    def moved(self, rows: Sequence[Row]) -> float | None:
        known = [row for row in rows if len(row.places) and not np.isnan(row.sampler).any()]
        some = known[:: max(1, len(known) // _MOVED_ROWS)][:_MOVED_ROWS]
        if not some:
            return None
        new = self._logprobs(some)
        self.probe = some[0], new[0]
        gaps = [now - row.sampler for row, now in zip(some, new, strict=True)]
        self._sound = all(bool(np.isfinite(now).all()) for now in new)
        return float(sum((np.expm1(gap) - gap).sum() for gap in gaps)) / len(some)

    def _logprobs(self, rows: Sequence[Row]) -> list[NDArray[np.float64]]:
        """Of the rows' trained tokens, under the weights as they are."""
        data = [datum(row.ids.tolist(), weights=np.ones(len(row.ids) - 1).tolist()) for row in rows]
        told = [
            each for at in range(0, len(data), _ROWS) for each in self._model.forward(data[at : at + _ROWS])
        ]
        return [_at_places(row, each) for row, each in zip(rows, told, strict=True)]

    def _push(
        self,
        rows: Sequence[Row],
        advantages: Sequence[NDArray[np.float64]],
        against: Sequence[NDArray[np.float64]],
        name: str,
        config: dict[str, float],
    ) -> list[NDArray[np.float64]]:
        """Send gradients of the rows; returns the log-probabilities that they were computed with."""
        data = []
        for row, mine, old in zip(rows, advantages, against, strict=True):
            if np.isnan(old).any():
                raise TraceError(
                    "some calls have no recorded log-probabilities, so the ratio to what sampled them is not known."
                )
            size = len(row.ids) - 1
            values, logprobs = np.zeros(size), np.zeros(size)
            values[row.places - 1] = mine * self._sums.factor(len(rows), size)
            logprobs[row.places - 1] = old
            data.append(datum(row.ids.tolist(), logprobs=logprobs.tolist(), advantages=values.tolist()))
        told: list[Any] = []
        for at in range(0, len(data), _ROWS):
            told += self._model.forward_backward(data[at : at + _ROWS], name, config)
        return [_at_places(row, each) for row, each in zip(rows, told, strict=True)]

    def _check_gap(self, rows: Sequence[Row], new: Sequence[NDArray[np.float64]], version: str) -> None:
        """Whoever answered under this version had the weights that are trained."""
        gaps = [
            np.abs(now - row.sampler)
            for row, now in zip(rows, new, strict=True)
            if row.version == version and not np.isnan(row.sampler).any()
        ]
        gap = float(np.concatenate(gaps).mean()) if gaps else 0.0
        if not gap <= _GAP:
            raise EngineError(
                f"the service's sampler and trainer are {gap:.3g} nats apart on tokens of the same weights: it "
                "answered with other weights, or with another temperature. Nothing was trained in this step."
            )


def _tokens(rows: Sequence[Row], new: Sequence[NDArray[np.float64]], version: str, loss: Loss) -> Tokens:
    """The rows' tokens as a loss sees them; `new` carries a gradient."""
    sizes = [len(row.places) for row in rows]
    now = _joined(new).requires_grad_()
    sampler = _joined([row.sampler for row in rows])
    against_now = not loss.samples_needed
    if not against_now and bool(torch.isnan(sampler).any()):
        raise TraceError(
            "some calls have no recorded log-probabilities, so the ratio to what sampled them is not known."
        )
    stale = np.repeat([row.version != version for row in rows], sizes)
    return Tokens(
        new=now,
        old=now.detach() if against_now else sampler,
        sampler=sampler,
        advantage=_joined([row.advantages for row in rows]),
        weight=_joined([row.weights for row in rows]),
        sequence=torch.from_numpy(np.repeat(np.arange(len(rows)), sizes)),
        stale=torch.from_numpy(stale),
        whole=all(row.whole for row in rows),
    )


def _joined(parts: Sequence[NDArray[np.float64]]) -> Tensor:
    return torch.from_numpy(np.concatenate(parts).astype(np.float64))


def _by_row(rows: Sequence[Row], values: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    return np.split(values, np.cumsum([len(row.places) for row in rows])[:-1])


def _at_places(row: Row, told: Sequence[float]) -> NDArray[np.float64]:
    """The log-probabilities of a row's trained tokens, out of those of all its targets."""
    if len(told) < len(row.ids) - 1:
        raise EngineError(
            f"the service told {len(told)} log-probabilities of a row of {len(row.ids)} ids; expected one for each "
            "but the first."
        )
    return np.asarray(told, np.float64)[row.places - 1]
