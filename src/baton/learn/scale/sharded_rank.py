"""What each of the processes does that compute updates together, the first one too.

The first process sends a command to all others and carries it out itself, so that all go through the same collectives
in the same order. `python -m baton.learn.scale.sharded_rank` is one of the others: it has a channel to the first one,
and ends with it, whatever it is doing: when the channel closes, nobody needs it any more.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from msgspec import Struct
from numpy.typing import NDArray
from torch import Tensor
from torch._C._distributed_c10d import TCPStore
from torch.distributed.device_mesh import init_device_mesh

from baton.errors import BatonError
from baton.forest.rows import Row
from baton.learn.loss import Loss
from baton.learn.optimiser import AdamW, MasterAdamW, make_optimiser
from baton.learn.scale import sharded_checkpoint as shards
from baton.learn.scale.sharded_model import Reference, ShardedModel, gather, local, scatter
from baton.learn.scale.sharded_update import ShardedGradients
from baton.learn.update import Packed, UpdateReport


class RankPlace(Struct, frozen=True, kw_only=True):
    """Where a process stands among the others."""

    rank: int
    world: int
    device: str
    """cpu, cuda:0, ..."""
    threads: int | None
    """Of torch; None: torch's own."""
    patience_seconds: float
    """How long one waits for the others inside of a command."""


class Held(Struct, kw_only=True, eq=False):
    """A policy's share here."""

    model: ShardedModel
    adapter: str | None
    optimizer: AdamW
    gradients: ShardedGradients | None = None

    def tensors(self) -> dict[str, Tensor]:
        return self.model.tensors(self.adapter)


class Rank:
    """One process's part in every command. `own` is what the first process alone has."""

    def __init__(self, place: RankPlace, store: Any) -> None:
        self.place = place
        if place.threads is not None:
            torch.set_num_threads(place.threads)
        self.device = torch.device(place.device)
        backend = "nccl" if self.device.type == "cuda" else "gloo"
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        dist.init_process_group(
            backend,
            store=store,
            rank=place.rank,
            world_size=place.world,
            timeout=timedelta(seconds=place.patience_seconds),
        )
        self.mesh = init_device_mesh(self.device.type, (place.world,))
        self.models: dict[str, ShardedModel] = {}
        self.held: dict[str, Held] = {}
        self.references: dict[tuple[str, int], Reference] = {}

    # -- weights ----------------------------------------------------------------------------------

    def take_model(self, key: str, sketch: bytes, own: Mapping[str, Tensor] | None = None) -> None:
        """Hold a share of a model, whose weights the first process has whole."""
        held = self.models[key] = ShardedModel(sketch, self.mesh, self.device)
        scatter(held.tensors(None), own, self.mesh)

    def take_policy(self, name: str, key: str, adapter: str | None, rate: float, masters: bool) -> None:
        """Train that model, or an adapter of it, as this policy."""
        model = self.models[key]
        optimizer = make_optimiser(name, model.parameters(adapter), rate, masters=masters)
        self.held[name] = Held(model=model, adapter=adapter, optimizer=optimizer)

    def state(self, name: str) -> dict[str, Tensor]:
        """What was trained, whole, at the first process."""
        return gather(self.held[name].tensors(), keep=self.place.rank == 0)

    def set_state(self, name: str, own: Mapping[str, Tensor] | None = None) -> None:
        """Weights as `state` gave them."""
        held = self.held[name]
        scatter(held.tensors(), own, self.mesh)
        if isinstance(held.optimizer, MasterAdamW):
            held.optimizer.refresh()

    def num_bytes(self) -> list[int]:
        """Of weights, by process."""
        mine = torch.tensor([sum(each.num_bytes() for each in self.models.values())], device=self.device)
        found = [torch.zeros_like(mine) for _ in range(self.place.world)]
        dist.all_gather(found, mine)
        return [int(each) for each in found]

    # -- references -------------------------------------------------------------------------------

    def take_reference(self, name: str, number: int, base: bool) -> None:
        """Keep the weights of now, or the base of an adapter, to compare with."""
        held = self.held[name]
        for old in [key for key in self.references if key[0] == name]:
            del self.references[old]
        self.references[name, number] = Reference(held.model, held.adapter, base=base)

    def reference_state(self, name: str, number: int) -> dict[str, Tensor]:
        return gather(self.references[name, number].tensors(), keep=self.place.rank == 0)

    def set_reference(self, name: str, number: int, own: Mapping[str, Tensor] | None = None) -> None:
        scatter(self.references[name, number].tensors(), own, self.mesh)

    # -- updates ----------------------------------------------------------------------------------

    def learn(self, name: str, loss: Loss, packed: Packed, reference: int | None) -> None:
        """Train a policy by this loss from now on."""
        held = self.held[name]
        against = None if reference is None else self.references[name, reference]
        held.gradients = ShardedGradients(held.model, loss, packed, reference=against)

    def backward(self, name: str, rows: Sequence[Row], version: str | None) -> UpdateReport:
        held = self.held[name]
        assert held.gradients is not None
        with held.model.using(held.adapter):
            return held.gradients.backward(rows, version=version)

    def row_logprobs(self, name: str, of_reference: bool, rows: Sequence[Row]) -> NDArray[np.float64]:
        held = self.held[name]
        assert held.gradients is not None
        with held.model.using(held.adapter):
            model = held.gradients.reference if of_reference else held.gradients.model
            return held.gradients.row_logprobs(model, rows)

    def moved(self, name: str, rows: Sequence[Row]) -> float | None:
        held = self.held[name]
        assert held.gradients is not None
        with held.model.using(held.adapter):
            return held.gradients.moved(rows)

    def drop(self, name: str) -> None:
        self.held[name].optimizer.zero_grad()

    def gradients(self, name: str) -> dict[str, Tensor]:
        """The gradients as they are, whole, at the first process."""
        held = self.held[name]
        found = {
            str(number): each.grad
            for number, each in enumerate(held.model.parameters(held.adapter))
            if each.grad is not None
        }
        return gather(found, keep=self.place.rank == 0)

    def advance(self, name: str, clip_norm: float, rates: Sequence[float]) -> float:
        """One step of the optimiser by gradients of at most this norm; what it was."""
        held = self.held[name]
        grads = [each.grad for each in held.model.parameters(held.adapter) if each.grad is not None]
        here = [local(each) for each in grads if local(each).numel()]
        sizes = torch._foreach_norm(here) if here else []
        squares = torch.zeros(1, dtype=torch.float64, device=self.device)
        for each in sizes:
            squares += each.double().square()
        dist.all_reduce(squares)
        norm = float(squares.sqrt())
        if not np.isfinite(norm):
            return norm
        if here:
            torch._foreach_mul_(here, min(1.0, clip_norm / (norm + 1e-6)))
        for group, rate in zip(held.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        held.optimizer.step()
        return norm

    def sound(self, name: str) -> bool:
        held = self.held[name]
        wrong = torch.zeros(1, device=self.device)
        for each in held.model.parameters(held.adapter):
            wrong += (~torch.isfinite(local(each.detach()))).any()
        dist.all_reduce(wrong)
        return not bool(wrong)

    # -- checkpoints ------------------------------------------------------------------------------

    def save(self, name: str, folder: Path) -> None:
        """Write all shares of a policy: weights, optimiser, float32 copies."""
        held = self.held[name]
        weights = {f"weights/{key}": tensor for key, tensor in held.tensors().items()}
        shards.save(weights | shards.named_tensors(held.optimizer.state_dict()), folder)

    def restore_optimiser(self, name: str, folder: Path) -> None:
        """The optimiser's state of a folder of shards, whatever number of processes wrote it."""
        held = self.held[name]
        found = shards.empty_optimiser(held.optimizer, folder)
        shards.load(found, folder)
        shards.set_optimiser(held.optimizer, found)

    def set_optimiser(
        self,
        name: str,
        shapes: Mapping[str, tuple[tuple[int, ...], torch.dtype]],
        own: Mapping[str, Tensor] | None = None,
    ) -> None:
        """The optimiser's state as one process kept it."""
        held = self.held[name]
        parameters = [each for group in held.optimizer.param_groups for each in group["params"]]
        found: dict[str, Tensor] = {}
        for path, (size, dtype) in shapes.items():
            like = parameters[int(path.split("/")[1])].detach()
            found[path] = torch.zeros_like(like, dtype=dtype) if size else torch.zeros(size, dtype=dtype)
        scatter(found, own, self.mesh)
        shards.set_optimiser(held.optimizer, found)

    def close(self) -> None:
        """Let go of the others."""
        self.models, self.held, self.references = {}, {}, {}
        dist.destroy_process_group()


def serve(channel: Connection, place: RankPlace, store: Any) -> None:
    """Carry out what the first process sends, until it closes the channel. Does not return."""
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def listen() -> None:
        while True:
            try:
                inbox.put(channel.recv())
            except (EOFError, OSError):
                os._exit(0)  # also out of a collective that nobody else is in any more

    threading.Thread(target=listen, daemon=True).start()
    try:
        rank = Rank(place, store)
        while True:
            command, args = inbox.get()
            getattr(rank, command)(*args)
            channel.send(("done", None))
    except BaseException as error:  # the first process says what ended it
        kind = "refused" if isinstance(error, BatonError) else "failed"
        told = str(error) if kind == "refused" else f"{type(error).__name__}: {error}"
        channel.send((kind, told))
    finally:
        sys.stderr.flush()
        os._exit(1)


def main() -> None:
    """A process that the first one started: its channel is an open file of this number."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the first one's, who ends this
    channel = Connection(int(sys.argv[1]))
    place, port = channel.recv()
    channel.send(("done", None))
    store = TCPStore("127.0.0.1", port, place.world, is_master=False)
    serve(channel, place, store)


if __name__ == "__main__":
    main()
