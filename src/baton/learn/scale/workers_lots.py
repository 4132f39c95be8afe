"""What a rollout worker is told and what it gives back, in one encoding whatever carries it.

A lot is some groups of a step that are played together, with the weights that play them. It is named for good by its
step and its number, so that one that was lost with its worker is played again under the same keys. Traces travel in
their own encoding (JSON Lines), which checks itself. Nothing here needs torch.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeAlias

import msgspec
from msgspec import Struct

from baton.errors import BatonError
from baton.trace.formats.jsonl import encode_trace
from baton.trace.trace import Trace


class WorkersFailed(BatonError):
    """Rollout workers cannot play, and starting them again would not help."""


class PolicyWeights(Struct, frozen=True, kw_only=True):
    """A policy's weights at a version, as a file of safetensors."""

    policy: str
    version: int
    """The policy's own: how often it was trained."""
    digest: str
    path: str


class ServedWeights(Struct, frozen=True, kw_only=True):
    """A policy's weights at a version, as a server has them that the trainer pushed them to."""

    policy: str
    version: int
    """The policy's own: how often it was trained."""
    url: str
    base: str
    """The server's name for its model."""
    model: str
    """Its name for who answers: an adapter's, or its model's."""
    label: str
    """Its name for the weights, where they are all of its model's; empty: of an adapter, whose name is for good."""
    seconds: float
    """How long it may take until one that died is there again; 0: nobody starts it again."""


class Lot(Struct, frozen=True, kw_only=True):
    """Groups of a step that are played together."""

    step: int
    number: int
    """Which of the step's."""
    groups: tuple[int, ...]
    version: int
    """By the weights after so many steps."""
    weights: tuple[PolicyWeights, ...] = ()
    served: tuple[ServedWeights, ...] = ()

    @property
    def key(self) -> tuple[int, int]:
        """What names it among a run's."""
        return self.step, self.number


class WorkerSetup(Struct, frozen=True, kw_only=True):
    """All that a worker is made of."""

    number: int
    baton: str
    """The version of Baton that trains."""
    recipe: str
    """The run's, resolved."""
    given: dict[str, str]
    """Policy -> digest of what its training does not change: the tokenizer, and the base under an adapter."""


class PlayLot(Struct, frozen=True, tag=True):
    """To a worker: play this."""

    lot: Lot


class EndWorker(Struct, frozen=True, tag=True):
    """To a worker: that was all."""


class StartWorker(Struct, frozen=True, tag=True):
    """To a worker: what it is."""

    setup: WorkerSetup


class WorkerReady(Struct, frozen=True, tag=True):
    """From a worker: it is made, and waits for lots."""

    host: str
    pid: int


class WorkerBeat(Struct, frozen=True, tag=True):
    """From a worker: how much it has done so far, in answered rounds."""

    done: int


class PlayedLot(Struct, frozen=True, tag=True):
    """From a worker: a lot's traces."""

    step: int
    number: int
    sizes: tuple[int, ...]
    """How many traces each of its groups has."""
    traces: bytes
    seconds: float
    """That the worker was busy with it."""

    @property
    def key(self) -> tuple[int, int]:
        """The lot's."""
        return self.step, self.number


class WorkerRefused(Struct, frozen=True, tag=True):
    """From a worker: why it cannot be, or cannot play. To start it again would not help."""

    why: str


class WorkerAgain(Struct, frozen=True, tag=True):
    """Of a worker: whoever keeps it has started it again, and repeated what it was asked for."""

    why: str


Told: TypeAlias = WorkerReady | WorkerBeat | PlayedLot | WorkerRefused | WorkerAgain
Asked: TypeAlias = StartWorker | PlayLot | EndWorker

_ENCODER = msgspec.msgpack.Encoder()
_TOLD: msgspec.msgpack.Decoder[Told] = msgspec.msgpack.Decoder(Told)
_ASKED: msgspec.msgpack.Decoder[Asked] = msgspec.msgpack.Decoder(Asked)


def encode(message: Told | Asked) -> bytes:
    """A message, to be carried anywhere."""
    return _ENCODER.encode(message)


def decode_told(content: bytes) -> Told:
    """What a worker said."""
    return _TOLD.decode(content)


def decode_asked(content: bytes) -> Asked:
    """What a worker is asked."""
    return _ASKED.decode(content)


def digest_of(content: bytes) -> str:
    """The checksum that weights and messages carry."""
    return blake2b(content, digest_size=16).hexdigest()


def deal(num_groups: int, batch: int, workers: int) -> list[tuple[int, ...]]:
    """A step's groups as lots, by number alone.

    With a batch they are as the trainer itself would play them (`rollouts.lots_of`). Without one there is a lot for
    each worker, every so-and-so-many-th group; so with one worker all are one.
    """
    if batch:
        return [tuple(range(at, min(at + batch, num_groups))) for at in range(0, num_groups, batch)]
    return [tuple(range(first, num_groups, workers)) for first in range(min(workers, num_groups))]


def played(lot: Lot, groups: Sequence[Sequence[Trace]], seconds: float) -> PlayedLot:
    """A lot's traces, encoded."""
    return PlayedLot(
        step=lot.step,
        number=lot.number,
        sizes=tuple(len(group) for group in groups),
        traces=b"".join(line for group in groups for trace in group for line in encode_trace(trace)),
        seconds=seconds,
    )


def told_of(error: Exception) -> str:
    """An error that nobody expected, as one line that says where it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    own = next((f for f in reversed(frames) if "/site-packages/" not in f.filename), frames[-1])
    said = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {said} ({own.filename}, line {own.lineno})"
