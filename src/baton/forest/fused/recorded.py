"""A small model's layers and their backward as CUDA graphs, for forests whose sizes come again.

An update of some thousand tokens through a small model is hundreds of kernels that take a GPU a third of the time that
the host needs to launch them. Forests of one task are alike, though never the same: rounded up to sizes that come again
(`fixed`), the first pass of a size runs as it is, the second one is recorded, and those after it are replayed. Weights
are read where they are; where they have moved, or others learn, it is recorded anew. What the graphs keep for backward
stays taken between updates, so they are for small passes (`worth`).
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary, finalize, ref

import numpy as np
import torch
from torch import Tensor

from baton.forest.attention.cuda import CudaPass
from baton.forest.attention.fixed import FixedPass, Room, filled, room_for
from baton.forest.fused import llama
from baton.forest.fused.memory import Sizes, hold
from baton.forest.layout import Layout

_LAUNCHES = 8e12
"""Operations of an update from which on a GPU takes about as long as the host does to launch its kernels."""
_SHARE = 16
"""A recorded pass may keep one part in so many of a GPU's memory."""
_TOKENS = 256
"""What tokens are rounded up to, at least."""
_MOST = 3
"""Sizes that are recorded of a model at a time."""


class _Underway:
    """A forward that waits for its backward."""


class Recorded:
    """The layers of a model over forests of one size. On a CPU nothing is recorded: each pass runs as it is."""

    def __init__(self, model: Any, room: Room, weights: list[Tensor]) -> None:
        device = model.device
        self.weights = weights
        self.run = FixedPass(room, device)
        self.both = torch.zeros(2, room.tokens, dtype=torch.long, device=device)
        """Ids and positions."""
        self.grad: Tensor | None = None
        """Of what `forward` gave."""
        self._underway: ref[_Underway] | None = None
        self._model = ref(model)  # which is what it is remembered by
        self._hidden: Tensor | None = None
        self._found: list[Tensor | None] = []
        self._graphs: tuple[torch.cuda.CUDAGraph, torch.cuda.CUDAGraph] | None = None

    @property
    def busy(self) -> bool:
        """Between a forward and its backward, unless nobody can ask for that any more."""
        return self._underway is not None and self._underway() is not None

    def record(self, memory: Any) -> None:
        """Record forward and backward, of whatever is filled in."""
        stream = torch.cuda.Stream(self.both.device)  # type: ignore[no-untyped-call]  # torch's
        graphs = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        before = torch.cuda.memory_reserved(self.both.device)
        # What is collected in a recording may ask the device for something, which would end it.
        collects = gc.isenabled()
        gc.disable()
        try:
            with torch.cuda.stream(stream):
                # A thread's first product makes it a handle, which cannot be made in a recording.
                torch.cuda.current_blas_handle()  # type: ignore[no-untyped-call]  # torch's
                for graph, run in zip(graphs, (self._forward, self._backward), strict=True):
                    _capture(graph, memory, run)
        finally:
            if collects:
                gc.enable()
        torch.cuda.synchronize()
        nbytes = torch.cuda.memory_reserved(self.both.device) - before
        hold(nbytes)
        finalize(self, hold, -nbytes)
        assert self._hidden is not None
        self._hidden = self._hidden.detach()
        self._graphs = graphs

    def _forward(self) -> None:
        with torch.enable_grad():
            self._hidden = llama.hidden_states(self._model(), self.run, self.both[0], self.both[1])
        if self.grad is None:
            self.grad = torch.zeros_like(self._hidden)

    def _backward(self) -> None:
        assert self._hidden is not None
        found = torch.autograd.grad(self._hidden, self.weights, self.grad, allow_unused=True)
        self._found = list(found)

    def forward(self, underway: _Underway) -> Tensor:
        """What the layers give for what is filled in; it is busy as long as somebody holds `underway`."""
        self._underway = ref(underway)
        if self._graphs is None:
            self._forward()
        else:
            self._graphs[0].replay()
        assert self._hidden is not None
        return self._hidden.detach()

    def backward(self, grad: Tensor) -> list[Tensor | None]:
        """The gradients of the weights; they are overwritten by the next."""
        assert self.grad is not None
        self.grad[len(grad) :] = 0
        self.grad[: len(grad)] = grad
        if self._graphs is None:
            self._backward()
        else:
            self._graphs[1].replay()
        self._underway = None
        return self._found


def _capture(graph: torch.cuda.CUDAGraph, memory: Any, run: Callable[[], None]) -> None:
    graph.capture_begin(pool=memory, capture_error_mode="thread_local")
    try:
        run()
    except BaseException:
        with suppress(RuntimeError):  # its own error comes first
            graph.capture_end()
        raise
    graph.capture_end()


class _Replayed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, made: Recorded, count: int, *_: Tensor) -> Tensor:
        ctx.made, ctx.underway = made, _Underway()
        return made.forward(ctx.underway)[:count]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None, None, *ctx.made.backward(grad)


class _Kept:
    """What was recorded of a model."""

    def __init__(self) -> None:
        self.runs: dict[Room, int] = {}
        self.made: dict[Room, Recorded] = {}
        self.where: list[int] = []
        """Where its weights were."""
        self.memory: Any = None
        """That all of it shares: a backward follows its forward before another one begins."""
        self.off = False

    def forget(self) -> None:
        """Its weights are others."""
        self.runs, self.made, self.memory = {}, {}, None


_kept: WeakKeyDictionary[Any, _Kept] = WeakKeyDictionary()


def worth(sizes: Sizes, num_tokens: int, device: torch.device) -> bool:
    """Whether a pass is so small that launching its kernels takes longer than computing them, and fits."""
    matrices = sizes.width * (2 * sizes.heads + 2 * sizes.kv_heads) * sizes.head_size
    weights = sizes.layers * (matrices + 3 * sizes.width * sizes.inner)
    if device.type != "cuda" or 6.0 * weights * num_tokens > _LAUNCHES:
        return False
    total = torch.cuda.get_device_properties(device).total_memory
    return num_tokens * sizes.layers * sizes.kept * _SHARE <= total


def hidden_states(model: Any, layout: Layout) -> Tensor | None:
    """What `llama.hidden_states` gives, from what was recorded; None: this one is to run as it is."""
    if hasattr(model, "base"):
        return None  # which adapter is active changes from pass to pass
    kept = _kept.setdefault(model, _Kept())
    if kept.off or any(made.busy for made in kept.made.values()):
        return None
    weights = [each for each in model.parameters() if each.requires_grad]
    where = [each.data_ptr() for each in weights]
    if kept.where != where:
        kept.forget()
        kept.where = where
    heads = model.config.num_attention_heads
    whole = filled(layout, _size(layout.num_tokens))
    run = CudaPass(whole, torch.device("cpu"))
    room = room_for(run, heads)
    kept.runs[room] = kept.runs.get(room, 0) + 1
    if kept.runs[room] == 1:
        return None
    made = kept.made.pop(room, None)
    fresh = made is None
    if made is None:
        made = Recorded(model, room, weights)
    made.run.fill(run, heads)
    made.both.copy_(torch.from_numpy(np.stack((whole.ids, whole.depth)).astype(np.int64)))
    if fresh and not _record(made, kept):
        return None
    kept.made[room] = made
    while len(kept.made) > _MOST:
        del kept.made[next(iter(kept.made))]
    found: Tensor = _Replayed.apply(made, layout.num_tokens, *weights)  # type: ignore[no-untyped-call]  # torch's
    return found


def _record(made: Recorded, kept: _Kept) -> bool:
    if made.both.device.type != "cuda":
        return True
    if kept.memory is None or not kept.made:
        kept.memory = torch.cuda.graph_pool_handle()
    try:
        made.record(kept.memory)
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        kept.runs.clear()
        return False
    except RuntimeError:  # something that cannot be recorded; it runs as it is
        kept.off = True
        torch.cuda.synchronize()
        return False
    return True


def _size(count: int) -> int:
    """Eight sizes between a power of two and the next, and no more than one for every 256 tokens."""
    step = max(_TOKENS, 1 << max(0, (count - 1).bit_length() - 4))
    return -(-count // step) * step
