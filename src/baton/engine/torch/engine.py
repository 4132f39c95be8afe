"""The torch engine: calls from any number of tasks, answered together by one worker thread.

`answer` only queues and waits, so the event loop stays free; calls that arrive while others are decoded
join them at the next step, and a cancelled call leaves at the next step. The same key and input give the
same tokens whatever else is in the batch (up to rounding; see `passes.Drawer`). Weights change only between calls:
`updating` waits until no call is in flight, and forgets every computed prefix afterwards.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from baton.engine.template import Decoder, Encoder, PlainTemplate
from baton.engine.torch.batch import CallBatch, CallRow, EngineLimits, PooledCompute
from baton.engine.torch.load import compute_of, context_length, end_ids, kv_shape, open_folder
from baton.team.budget import Charging
from baton.team.protocol import MODEL_FAILED, Answer, EngineError, Entry, Request
from baton.trace.records import Ints

_guard = threading.Lock()
_turns: dict[int, threading.RLock] = {}


def turn(device: torch.device) -> AbstractContextManager[Any]:
    """Hold this while computing on a device that engines use too. The same thread may hold it again.

    While one engine records a CUDA graph, nobody else in the process may wait for the device. So engines that share a
    GPU (one per adapter of a model, say) step by turns, and so does whoever trains there. They gain nothing from
    stepping at once. On a CPU there is nothing to keep apart.
    """
    if device.type != "cuda":
        return nullcontext()
    index = torch.cuda.current_device() if device.index is None else device.index
    with _guard:
        return _turns.setdefault(index, threading.RLock())


_LINGER_SECONDS = 5.0
_GLANCE_SECONDS = 0.1
_MOMENT_SECONDS = 0.0003
_MOST_MOMENTS = 200


def _on_gpu(model: Any) -> bool:
    return bool(model.device.type == "cuda")


class _Ticket(NamedTuple):
    """Where a row's result goes."""

    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Answer | EngineError]


class TorchEngine:
    """A causal LM and its tokenizer behind the engine protocol."""

    charging: Charging = "kept"

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        name: str | None = None,
        version: str = "0",
        template: PlainTemplate | None = None,
        limits: EngineLimits | None = None,
    ) -> None:
        self.name = name or type(model).__name__
        self.model = model.eval()
        self.tokenizer = tokenizer
        self._encoder = Encoder(tokenizer, template)
        shape = kv_shape(model)
        limits = limits or EngineLimits()
        decoder = Decoder(tokenizer)
        if shape.device.type == "cuda":
            decoder.learn(model.config.vocab_size)
        compute = compute_of(model, shape, limits)
        self.watches = isinstance(compute, PooledCompute)
        """Whether a request's watch is heeded: not where steps of a GPU run ahead of whoever could say anything."""
        self._batch = CallBatch(
            compute,
            decoder,
            shape,
            vocabulary=model.config.vocab_size,
            ends=end_ids(model, tokenizer),
            context=context_length(model),
            limits=limits,
        )
        self._batch.policy, self._batch.version = self.name, version
        self._changed = threading.Condition()
        """Guards everything below; notified when any of it changes."""
        self._queue: list[CallRow] = []
        self._holds = 0
        self._idle = True
        self._worker: threading.Thread | None = None

    @classmethod
    def open(
        cls,
        folder: str | Path,
        *,
        device: str | None = None,
        dtype: str | None = None,
        template: PlainTemplate | None = None,
        limits: EngineLimits | None = None,
    ) -> TorchEngine:
        """The model of a Hugging Face folder; on the GPU if there is one."""
        place = device or ("cuda" if torch.cuda.is_available() else "cpu")
        model, tokenizer = open_folder(folder, place, dtype)
        return cls(model, tokenizer, name=Path(folder).name, template=template, limits=limits)

    @property
    def version(self) -> str:
        """Which weights answer now."""
        return self._batch.version

    @property
    def prefilled_tokens(self) -> int:
        """Prompt tokens computed so far."""
        return self._batch.prefilled_tokens

    @property
    def reused_tokens(self) -> int:
        """Prompt tokens that were already computed when a call came."""
        return self._batch.reused_tokens

    def encode(self, entries: Sequence[Entry], after: Answer | None) -> Ints:
        return self._encoder.encode(entries, after)

    async def answer(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
        loop = asyncio.get_running_loop()
        rows: list[CallRow] = []
        results: list[asyncio.Future[Answer | EngineError]] = []
        for request in requests:
            future: asyncio.Future[Answer | EngineError] = loop.create_future()
            results.append(future)
            try:
                prompt = self._prompt(request)
            except EngineError as error:
                future.set_result(error)
            else:
                rows.append(CallRow(prompt, request.sampling, _Ticket(loop, future), request.watch))
        self._submit(rows)
        try:
            return [await future for future in results]
        except asyncio.CancelledError:
            for row in rows:
                row.cancelled = True
            raise

    def _prompt(self, request: Request) -> np.ndarray[Any, np.dtype[np.int32]]:
        ids = request.prompt_ids
        if ids is None:
            ids = self.encode(request.entries, None)
        # A copy: the runtime's own sequence grows while this call is in flight.
        given = ids.numpy() if isinstance(ids, Ints) else ids if isinstance(ids, list) else list(ids)
        return np.array(given, np.int32)

    def publish(self, version: str, weights: Mapping[str, Any] | None = None) -> None:
        """Name the weights anew, after loading them if given. Waits for calls in flight."""
        with self.updating(version):
            if weights is not None:
                self.model.load_state_dict(weights)

    def forget(self) -> None:
        """Compute every prompt anew from here, as a new process would. Waits for calls in flight."""
        with self.updating(self.version):
            pass

    @contextmanager
    def updating(self, version: str) -> Iterator[None]:
        """Hold back calls while the body changes the model's weights; those in flight finish first."""
        with self._changed:
            self._holds += 1
            self._changed.wait_for(lambda: self._idle)
        try:
            with turn(self.model.device):
                yield
            self._batch.version = version
        finally:
            try:
                with turn(self.model.device), self._changed:
                    self._batch.clear()
                    if self.model.training:
                        self.model.eval()
            finally:
                with self._changed:
                    self._holds -= 1
                    self._changed.notify_all()

    def _submit(self, rows: Sequence[CallRow]) -> None:
        with self._changed:
            self._queue += rows
            if self._worker is None and rows:
                if _on_gpu(self.model):
                    # A collection of all that was ever imported takes a quarter of a second, and a GPU would wait for
                    # it. What is there now is looked at again when the worker ends.
                    gc.freeze()
                self._worker = threading.Thread(target=self._work, name=f"baton-{self.name}")
                self._worker.start()
            self._changed.notify_all()

    def _work(self) -> None:
        """The worker: steps while there is work, then lingers a little, then ends.

        It ends with the main thread too: a thread cut off inside torch would crash the process.
        """
        main = threading.main_thread()
        bored = 0.0
        while main.is_alive():
            with self._changed:
                self._idle = self._batch.idle
                self._changed.notify_all()
                if not self._changed.wait_for(self._has_work, _GLANCE_SECONDS):
                    bored += _GLANCE_SECONDS
                    if bored < _LINGER_SECONDS or self._holds:
                        continue
                    self._worker = None
                    if _on_gpu(self.model):
                        gc.unfreeze()
                    return
                bored = 0.0
                if self._batch.idle and _on_gpu(self.model):
                    self._gather()
                arrived, self._queue = self._queue, []
                admit = not self._holds
                self._idle = self._batch.idle and not admit
            self._deliver([row for row in map(self._batch.add, arrived) if row is not None])
            if admit or not self._batch.idle:
                self._deliver(self._step(admit))

    def _gather(self) -> None:
        """Calls of one moment come one by one; a pass for the first alone would keep the others waiting."""
        for _ in range(_MOST_MOMENTS):
            before = len(self._queue)
            self._changed.wait(_MOMENT_SECONDS)
            if len(self._queue) == before:
                return

    def _has_work(self) -> bool:
        if not self._batch.idle or self._queue:
            return True
        return bool(self._batch.num_waiting) and not self._holds

    def _step(self, admit: bool) -> list[CallRow]:
        try:
            with turn(self.model.device), torch.inference_mode():
                return self._batch.step(admit=admit)
        except Exception as error:  # one broken pass must not end the worker
            made = EngineError(f"{MODEL_FAILED}: {type(error).__name__}: {error}")
            made.__cause__ = error
            return self._batch.fail(made)

    def _deliver(self, rows: Sequence[CallRow]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[CallRow]] = {}
        for row in rows:
            by_loop.setdefault(row.handle.loop, []).append(row)
        for loop, theirs in by_loop.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(_settle, theirs)


def _settle(rows: Sequence[CallRow]) -> None:
    for row in rows:
        future = row.handle.future
        if not future.done():
            future.set_result(row.result)
