"""Decoding steps by number of rows: run as they are once, recorded as a CUDA graph the second time, then replayed."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baton.engine.torch.cache import KVShape
from baton.engine.torch.cuda.llama import FusedLlama
from baton.engine.torch.cuda.reads import Reads, Stretch, put
from baton.engine.torch.passes import Drawer

_FEWEST_ROWS = 8
_STEADY_ROWS = 64
_MOST_FAILED = 3
"""Recordings that may fail before it is an error."""


class Underway:
    """Steps under way. What they drew comes to the host while later ones run."""

    def __init__(self, both: Tensor) -> None:
        self._event = None
        self._both = both
        if both.is_cuda:
            self._both = torch.empty(both.shape, dtype=both.dtype, pin_memory=True)
            self._both.copy_(both, non_blocking=True)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch's
            self._event.record()

    def landed(self) -> tuple[list[list[int]], list[list[float]]]:
        """Each row's tokens and log-probabilities, once the steps are done."""
        if self._event is not None:
            self._event.synchronize()
        tokens, logprobs = self._both.transpose(1, 2)
        return tokens.long().tolist(), logprobs.tolist()


class GraphMaker:
    """Records passes as CUDA graphs that share one memory: they are replayed one at a time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.on = device.type == "cuda"
        self._memory: Any = None
        self._stream: Any = None
        self._failed = 0

    def forget(self) -> None:
        """What was recorded is dropped."""
        self._memory = None

    def record(self, run: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor] | None:
        """The graph, and where it puts what `run` gives; None where it could not be recorded now."""
        if self._stream is None:
            self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]  # torch's
        if self._memory is None:
            self._memory = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        # What is collected in a recording may ask the device for something, which would end it.
        collects = gc.isenabled()
        gc.disable()
        try:
            with torch.cuda.stream(self._stream):
                # A thread's first product makes it a handle, which cannot be made in a recording.
                torch.cuda.current_blas_handle()  # type: ignore[no-untyped-call]  # torch's
                found = captured(graph, self._memory, run)
        except torch.OutOfMemoryError:
            # Memory that nobody uses is given back only outside a recording; it is tried again later.
            torch.cuda.empty_cache()
            return None
        except RuntimeError:
            # Something else in the process got in the way; a pass runs as it is then, and later ones try again.
            self._failed += 1
            if self._failed > _MOST_FAILED:
                raise
            self._memory = None
            torch.cuda.synchronize()
            return None
        finally:
            if collects:
                gc.enable()
        return graph, found


def captured(graph: torch.cuda.CUDAGraph, memory: Any, run: Callable[[], Tensor]) -> Tensor:
    """What `run` gives, recorded on the current stream. Its own error comes first, if it has one."""
    # Other threads may use the GPU meanwhile.
    graph.capture_begin(pool=memory, capture_error_mode="thread_local")
    try:
        found = run()
    except BaseException:
        with suppress(RuntimeError):
            graph.capture_end()
        raise
    graph.capture_end()
    return found


Rows = Sequence[tuple[Sequence[Stretch], Stretch]]


class FixedStep:
    """The inputs of a step for up to so many rows; rows that only fill it up write to a slot of nobody's."""

    def __init__(self, model: FusedLlama, nobody: Tensor, rows: int, columns: int) -> None:
        device = nobody.device
        idle = ((), Stretch(nobody, 0), 1)
        self.reads = Reads(model.heads, [idle] * rows, device, columns=columns, steady=model.steady)
        self._longs = torch.zeros(3, rows, dtype=torch.long, device=device)
        self.ids, self.positions, self.moves = self._longs
        """`moves`: by how much a row goes on after a step, 1 or, where it is nobody's, 0."""
        self.temperatures = torch.ones(rows, dtype=torch.float32, device=device)
        self.runs = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.logits: Tensor | None = None

    def fill(self, nobody: Tensor, rows: Rows, columns: Sequence[Sequence[float]]) -> None:
        """Set everything in place: a recorded step reads these very tensors."""
        size, taken = len(self.ids), len(rows)
        idle = ((), Stretch(nobody, 0), 1)
        self.reads.fill([*((whole, own, 1) for whole, own in rows), *[idle] * (size - taken)])
        longs, warmth = np.zeros((3, size), np.int64), np.zeros(size, np.float32)
        longs[0, :taken], longs[1, :taken], warmth[:taken] = columns
        longs[2, :taken] = 1
        put(self._longs, longs)
        put(self.temperatures, warmth)


class Steps:
    """Steps by number of rows."""

    def __init__(self, model: FusedLlama, shape: KVShape, columns: int, recorder: GraphMaker) -> None:
        self._model = model
        self._device = shape.device
        self._columns = columns
        self._recorder = recorder
        self._by_rows: dict[int, FixedStep] = {}
        self.nobody = torch.zeros(
            shape.layers, 2, shape.heads, 1, shape.size, dtype=shape.dtype, device=shape.device
        )
        """A slot that rows which only fill something up write to."""
        self._now: FixedStep
        self._taken = 0

    def forget(self) -> None:
        """Weights are somewhere else."""
        self._by_rows = {}

    def plan(
        self, rows: Rows, ids: Sequence[int], positions: Sequence[int], temperatures: Sequence[float]
    ) -> None:
        """The coming steps are of these rows."""
        fewest = _STEADY_ROWS if self._model.steady else _FEWEST_ROWS
        size = max(fewest, 1 << (len(rows) - 1).bit_length())
        if size not in self._by_rows:
            self._by_rows[size] = FixedStep(self._model, self.nobody, size, self._columns)
        self._now, self._taken = self._by_rows[size], len(rows)
        self._now.fill(self.nobody, rows, (ids, positions, temperatures))

    def run(self, uniforms: NDArray[np.float64], drawer: Drawer | None) -> Underway:
        """Begin as many steps as there are lines of numbers."""
        step, count = self._now, len(uniforms)
        rows = len(step.ids)
        given = np.zeros((count, rows))
        given[:, : self._taken] = uniforms
        numbers = torch.from_numpy(given).to(self._device, non_blocking=True)
        tokens = torch.zeros(count, rows, dtype=torch.long, device=self._device)
        logprobs = torch.zeros(count, rows, dtype=torch.float32, device=self._device)
        for at in range(count):
            logits = self._logits(step)
            if drawer is None:
                self._model.ops.draw(logits, step.temperatures, numbers[at], tokens[at], logprobs[at], step)
            else:
                self._draw_cut(step, logits, numbers[at], drawer, tokens[at], logprobs[at])
        return Underway(torch.stack((tokens.double(), logprobs.double()))[:, :, : self._taken])

    def _draw_cut(
        self,
        step: FixedStep,
        logits: Tensor,
        numbers: Tensor,
        drawer: Drawer,
        tokens: Tensor,
        logprobs: Tensor,
    ) -> None:
        """Some rows draw from their best tokens alone."""
        found = drawer.draw(logits[: self._taken], numbers[: self._taken])
        tokens[: self._taken], logprobs[: self._taken] = found
        step.ids.copy_(tokens)
        step.positions += step.moves
        step.reads.index += step.moves

    def _logits(self, step: FixedStep) -> Tensor:
        step.runs += 1
        if self._recorder.on and step.runs == 2:
            made = self._recorder.record(lambda: self._model(step.ids, step.positions, step.reads))
            step.graph, step.logits = made or (None, None)
            step.runs = 2 if made else 0
        if step.graph is not None and step.logits is not None:
            step.graph.replay()
            return step.logits
        return self._model(step.ids, step.positions, step.reads)
