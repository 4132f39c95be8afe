"""A model of which every process holds its share (FSDP2), and the ways in and out of it.

Decoder layers are sharded one by one, and what is left (embeddings, the last norm, the vocabulary) with the root. A
layer's weights are whole only while it computes. Whatever bypasses the root's own forward, as a pass over the forest
does, goes `through` it, so that its weights are whole meanwhile.

Invariant: between two passes nothing is whole here. A pass without gradients leaves the root's weights gathered, and
they would be stale once somebody sets a share; `through` lets go of them.
Source: torch.distributed.fsdp.fully_shard (SimpleFSDP/FSDP2, arXiv 2304.11277 for the idea [P]).
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor

from baton.errors import UsageError
from baton.learn import lora

T = TypeVar("T")


def sketch_of(model: Any) -> bytes:
    """A model without its weights, to send: everything that it is but for the numbers."""
    bare: dict[int, Any] = {
        id(each): nn.Parameter(torch.empty_like(each, device="meta"), each.requires_grad)
        for each in model.parameters()
    }
    try:
        return pickle.dumps((copy.deepcopy(model, bare), lora.names_of(model)))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UsageError(
            f"{type(model).__name__} cannot be sent to other processes ({error}). Define its class in a module that "
            "can be imported, or set scale.trainer_processes to 1."
        ) from error


class ShardedModel:
    """This process's share of a model."""

    def __init__(self, sketch: bytes, mesh: DeviceMesh, device: torch.device) -> None:
        model, adapters = pickle.loads(sketch)
        self.model: Any = lora.known_again(model, adapters) if adapters else model
        self.mesh = mesh
        self.device = device
        buffers = [
            (module, name, each)
            for module in model.modules()
            for name, each in module._buffers.items()
            if each is not None
        ]
        for layer in getattr(model.get_decoder(), "layers", ()):
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        model.through = _call
        register_fsdp_forward_method(model, "through")
        model.to_empty(device=device)
        for module, name, each in buffers:  # they were sent, and are not sharded
            module._buffers[name] = each.to(device)
        model.eval()

    def through(self, run: Callable[[], T]) -> T:
        """What a function of the whole model gives; tensors that it returns may be gone back from."""
        found: T = self.model.through(run)
        if not torch.is_grad_enabled():
            self.model.reshard()
        return found

    def tensors(self, adapter: str | None) -> dict[str, Tensor]:
        """What a policy trains, by the names of its state: shares, and buffers, which every process has."""
        if adapter is not None:
            return {key: each.detach() for key, each in lora.named_parameters_of(self.model, adapter).items()}
        return dict(self.model.state_dict())

    def parameters(self, adapter: str | None) -> list[nn.Parameter]:
        """What an optimiser steps."""
        if adapter is not None:
            return lora.parameters_of(self.model, adapter)
        return list(self.model.parameters())

    def using(self, adapter: str | None) -> Any:
        """The body computes with this adapter."""
        return nullcontext() if adapter is None else lora.use(self.model, adapter)

    def num_bytes(self) -> int:
        """Of the weights that are here."""
        return sum(each.numel() * each.element_size() for each in map(local, self.model.parameters()))


def _call(run: Callable[[], T]) -> T:
    return run()


def local(tensor: Tensor) -> Tensor:
    """The share of it that is here."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def scatter(tensors: Mapping[str, Tensor], whole: Mapping[str, Tensor] | None, mesh: DeviceMesh) -> None:
    """Give every process its shares of what the first one has whole. `whole` is None in the others."""
    if whole is not None and (wrong := sorted(tensors.keys() ^ whole.keys())):
        raise UsageError(
            f"these weights are of another model: {len(whole)} tensors where it has {len(tensors)}; {wrong[0]} is in "
            "one of them only."
        )
    done: set[int] = set()
    for name, tensor in tensors.items():
        here = local(tensor)
        if here.data_ptr() in done and here.numel():  # tied to one that has its own
            continue
        done.add(here.data_ptr())
        if whole is None:
            given = torch.empty(tensor.shape, dtype=tensor.dtype, device=here.device)
        else:
            given = whole[name].to(device=here.device, dtype=tensor.dtype).contiguous()
        if isinstance(tensor, DTensor):
            here.copy_(local(distribute_tensor(given, mesh, tensor.placements)))
        else:
            dist.broadcast(given, 0)
            here.copy_(given)


@torch.no_grad()
def gather(tensors: Mapping[str, Tensor], *, keep: bool) -> dict[str, Tensor]:
    """Whole copies on the CPU, one at a time, where they are to be kept; every process takes part."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if keep:
            found[name] = whole.detach().to("cpu", copy=True).contiguous()
    return found


class Reference:
    """What KL and preferences are taken to: the model, with other weights while it is asked.

    It costs a second share of what is trained, or nothing where it is the base of adapters.
    """

    def __init__(self, held: ShardedModel, adapter: str | None, *, base: bool) -> None:
        self._held = held
        self._adapter = adapter
        self.model: Any = held.model
        if base and adapter is not None:
            self.model = lora.Adapted(held.model, None)
        self._kept = None if base and adapter is not None else self._copy()

    def _copy(self) -> dict[str, Tensor]:
        tensors = self._held.tensors(self._adapter)
        return {name: tensor.detach().clone() for name, tensor in tensors.items()}

    @property
    def dtype(self) -> torch.dtype:
        return self._held.model.dtype  # type: ignore[no-any-return]  # transformers'

    @property
    def device(self) -> torch.device:
        return self._held.device

    def get_decoder(self) -> Any:
        return self._held.model.get_decoder()

    def tensors(self) -> dict[str, Tensor]:
        """Its weights; those of a base are none of its own."""
        return self._kept or {}

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The body computes with these weights."""
        if self._kept is None:
            yield
            return
        now = self._held.tensors(self._adapter)
        before = [local(each).clone() for each in now.values()]
        _set(list(now.values()), [local(each) for each in self._kept.values()])
        try:
            yield
        finally:
            _set(list(now.values()), before)


@torch.no_grad()
def _set(tensors: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    for tensor, value in zip(tensors, values, strict=True):
        local(tensor).copy_(value)
