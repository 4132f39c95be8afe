"""TRL's asynchronous trainer over teams that Baton plays and credits (`AsyncGRPOTrainer`, TRL 1.16, experimental).

    steps = StepRows(recipe)
    trainer = AsyncGRPOTrainer(..., rollout_worker=TeamRollouts(steps), weight_transfer=EngineWeights(steps.engine))

TRL has one advantage for a sample, so a call becomes one sample for each distinct advantage among its tokens, which its
mask picks; TRL's prefix tree computes the shared tokens once. Tokens of advantage 0 make a sample too: they count in
the mean. Where all samples of a step are in one micro-batch the gradient is that of Baton's `ppo`.

Invariant: TRL asks for a batch before it has trained on the last one, so whoever waits for new weights before each
batch waits for ever: at least one is played ahead.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from baton.compose.step_rows import StepRows
from baton.compose.training_rows import TrainingRow
from baton.errors import BatonError, MissingExtraError, UsageError

_LOOK_SECONDS = 0.05


def trl_samples(row: TrainingRow, *, version: int, group: int) -> list[Any]:
    """A call as TRL's samples, one for each distinct advantage."""
    try:
        from trl.experimental.async_grpo.async_rollout_worker import RolloutSample
    except ImportError:
        raise MissingExtraError("TRL's asynchronous trainer (pip install trl)", "train") from None
    if row.logprobs is None:
        raise UsageError(
            f"call {row.call} of {row.trace} has no log-probabilities, and TRL's loss needs them."
        )
    start = len(row.prompt)
    ids = np.array([*row.prompt, *row.completion], np.int64)
    old = np.concatenate((np.zeros(start), row.logprobs)).astype(np.float32)
    values, mask = np.array(row.advantages), np.array(row.mask, bool)
    found = []
    for advantage in np.unique(values[mask]):
        chosen = np.zeros(len(ids), np.int64)
        chosen[start:] = mask & (values == advantage)
        found.append(
            RolloutSample(
                prompt=[], completion=[], input_ids=ids, completion_mask=chosen, old_log_probs=old,
                advantage=float(advantage), model_version=version, group_id=group,
                metrics={} if row.reward is None else {"reward": row.reward}, enqueued_at=time.time(),
            )
        )  # fmt: skip
    return found


class TeamRollouts:
    """TRL's rollout worker: a thread that plays step after step and hands over samples."""

    def __init__(
        self, steps: StepRows | Callable[[int], Iterable[TrainingRow]], *, ahead: int = 1, first: int = 1
    ) -> None:
        """`ahead`: how many steps may be played before the weights that their number asks for are there."""
        if ahead < 1:
            raise UsageError(
                "TRL takes a batch ahead of the one it trains on, so ahead = 0 would wait for ever."
            )
        self.rollout_buffer: queue.Queue[Any] = queue.Queue()
        self.metrics_queue: queue.Queue[Any] = queue.Queue()
        self.num_samples: list[int] = []
        """Of each step that was played."""
        self._rows = steps.rows if isinstance(steps, StepRows) else steps
        self._ahead, self._next = ahead, first
        self._first = first
        self._version = 0
        self._groups: dict[str, int] = {}
        self._stopped = threading.Event()
        self._failed: Exception | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to play."""
        self._thread = threading.Thread(target=self._play, name="baton-rollouts", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the step that is being played."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def update_model_version(self, model_version: int) -> None:
        """These weights answer now."""
        self._version = model_version

    def check_health(self, stale_after_s: float) -> None:  # noqa: ARG002  # TRL's signature; a team may take long
        """Raise what ended the thread."""
        if self._failed is not None:
            raise RuntimeError(f"Baton's rollouts ended: {self._failed}") from self._failed

    def _play(self) -> None:
        try:
            while not self._stopped.is_set():
                if self._next - self._first > self._version + self._ahead:
                    self._stopped.wait(_LOOK_SECONDS)
                    continue
                version = self._version
                samples = [
                    sample
                    for row in self._rows(self._next)
                    for sample in trl_samples(row, version=version, group=self._group(row.group))
                ]
                self.num_samples.append(len(samples))
                for sample in samples:
                    self.rollout_buffer.put(sample)
                self._next += 1
        except (BatonError, ImportError, RuntimeError, ValueError) as error:
            self._failed = error

    def _group(self, name: str) -> int:
        return self._groups.setdefault(name, len(self._groups))


class EngineWeights:
    """TRL's way of sending weights, to an engine of this process."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._version = 0

    def init_weight_transfer(self) -> None:
        """There is nothing to set up."""

    def pause(self) -> None:
        """Calls in flight are waited for when the weights come."""

    def send_weights(self, iterator: Iterator[tuple[str, Any]]) -> None:
        """Answer with these weights from now on."""
        own = self._engine.model.state_dict()
        sent = {name: tensor.detach().to("cpu", copy=True) for name, tensor in iterator}
        unknown = sorted(sent.keys() - own.keys())
        tied = {id_of(own[name]) for name in sent if name in own}
        missing = sorted(name for name in own.keys() - sent.keys() if id_of(own[name]) not in tied)
        if unknown or missing:
            raise UsageError(
                f"the trainer's model is not the engine's: {(unknown or missing)[0]} is in one of them only. "
                "Give both the same folder."
            )
        shared = {id_of(own[name]): tensor for name, tensor in sent.items()}
        whole = {name: sent.get(name, shared[id_of(tensor)]) for name, tensor in own.items()}
        self._engine.publish(str(self._version), whole)
        self._version += 1

    def resume(self) -> None:
        """The engine goes on by itself."""

    def destroy(self) -> None:
        """Nothing is held."""


def id_of(tensor: Any) -> int:
    """The same for weights that share their memory."""
    return int(tensor.data_ptr())
