"""What a vLLM server runs to be given whole sets of weights; it goes there as a file of its own (`plugin_folder`).

vLLM loads it through the entry point `vllm.general_plugins` in each of its processes, and takes it for the weight
transfer back end `baton`. Weights come by a file that both sides can read, or by a broadcast (gloo; nccl, which was
never tried for want of two GPUs). It imports nothing of Baton's, so that nothing has to be installed there.

Invariant: nothing of the model is touched before all of an update has arrived and every tensor has the checksum that
was sent ahead of it. So an update that breaks off leaves the weights of before, whole. What was read is told by
`Receipts`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from baton_vllm_group import Group, digest_of, group_of  # beside this file, where it runs
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

BACKEND = "baton"
ENGINE = "baton_vllm_weights:BatonWeights"


def register() -> None:
    """Called by vLLM, once in each of its processes, and perhaps again."""
    if BACKEND not in WeightTransferEngineFactory._registry:
        module, _, name = ENGINE.partition(":")
        WeightTransferEngineFactory.register_engine(BACKEND, module, name)
    try:
        from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU
    except ImportError:  # a build that has it elsewhere, or not at all
        return
    spare_prompts(PunicaWrapperCPU)


def spare_prompts(wrapper: Any) -> None:
    """Log-probabilities of a prompt may be asked for beside other calls, on a server that takes adapters.

    To what the output layer gives, vLLM's CPU build adds that layer's adapters by the rows of the tokens to draw, also
    where the rows are a prompt's; then their numbers differ, and the server ends. Where no adapter is on the output
    layer, as none of Baton's is, there is nothing to add.
    """
    plain = wrapper.add_lora_logits
    if getattr(plain, "spares_prompts", False):
        return

    def add_lora_logits(self: Any, y: Any, x: Any, down: Any, up: Any, *args: Any, **more: Any) -> Any:
        if x.numel() // x.shape[-1] != self.sampler_indices.shape[0] and not up.any():
            return y
        return plain(self, y, x, down, up, *args, **more)

    add_lora_logits.spares_prompts = True  # type: ignore[attr-defined]
    wrapper.add_lora_logits = add_lora_logits


@dataclass
class Meeting(WeightTransferInitInfo):  # type: ignore[misc]  # vLLM is not installed where types are checked
    """Where trainer and workers meet. A file needs no meeting."""

    way: str = "file"
    address: str = "127.0.0.1"
    port: int = 0
    world_size: int = 2
    timeout_s: float = 120.0


@dataclass
class Parcel(WeightTransferUpdateInfo):  # type: ignore[misc]  # likewise
    """Some tensors of an update: what they are called and their checksums."""

    version: str
    names: list[str]
    dtypes: list[str]
    shapes: list[list[int]]
    digests: list[str]
    total: int
    """Tensors of the whole update."""
    file: str | None = None
    """Where they are, as safetensors; None: they are broadcast."""


@dataclass
class _Staged:
    """An update that is arriving."""

    version: str | None = None
    total: int = 0
    digests: dict[str, str] = field(default_factory=dict)
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)


class BatonWeights(WeightTransferEngine):  # type: ignore[misc]  # likewise
    """Receives weights, checks them, and loads them as a whole."""

    init_info_cls = Meeting
    update_info_cls = Parcel

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._group: Group | None = None
        self._staged: _Staged | None = None
        self.receipt: dict[str, Any] = {}
        """What became of the last update."""

    def init_transfer_engine(self, init_info: Meeting) -> None:
        self.shutdown()
        if init_info.way != "file":
            rank = 1 + self.parallel_config.data_parallel_index * self.parallel_config.world_size
            self._group = group_of(
                init_info.way,
                init_info.address,
                init_info.port,
                rank + self.parallel_config.rank,
                init_info.world_size,
                init_info.timeout_s,
            )

    def start_weight_update(self) -> None:
        """An update begins; what arrived of another one, which broke off, is forgotten."""
        self._staged = _Staged()
        self.receipt = {}

    def receive_weights(self, update_info: Parcel) -> None:
        """Take some tensors in, and refuse those that are not what was sent."""
        staged = self._staged
        if staged is None:
            raise RuntimeError("no update has begun")
        staged.version, staged.total = update_info.version, update_info.total
        try:
            self._receive(update_info, staged)
        except BaseException:
            self._staged = None
            raise

    def _receive(self, parcel: Parcel, staged: _Staged) -> None:
        # All of a broadcast is taken in before any of it is refused: the trainer would wait for the rest for ever.
        read = list(self._broadcast(parcel)) if parcel.file is None else _read(parcel.file, parcel.names)
        for (name, tensor), digest, shape in zip(read, parcel.digests, parcel.shapes, strict=True):
            if list(tensor.shape) != shape:
                raise ValueError(f"{name} has shape {list(tensor.shape)}, and {shape} was sent")
            found = digest_of(tensor)
            if found != digest:
                raise ValueError(f"{name} arrived with checksum {found}, and was sent with {digest}")
            staged.digests[name] = found
            if parcel.file is None:
                staged.tensors[name] = tensor
            else:
                staged.files[name] = parcel.file

    def _broadcast(self, parcel: Parcel) -> Iterator[tuple[str, torch.Tensor]]:
        if self._group is None:
            raise RuntimeError("weights are broadcast, and trainer and workers have not met")
        for name, dtype, shape in zip(parcel.names, parcel.dtypes, parcel.shapes, strict=True):
            tensor = torch.empty(shape, dtype=getattr(torch, dtype), device=self._group.device)
            self._group.broadcast(tensor)
            yield name, tensor

    def finish_weight_update(self) -> None:
        """Load what has arrived, if all of it has; else the weights stay, and the receipt says so.

        Nothing is raised for a half update: vLLM would take it for one that goes on for ever.
        """
        staged, self._staged = self._staged, None
        if staged is None or not staged.total or len(staged.digests) != staged.total:
            have = 0 if staged is None else len(staged.digests)
            total = 0 if staged is None else staged.total
            self.receipt = {"refused": f"{have} of {total} tensors arrived; the weights are those of before"}
            return
        missing = self._load(staged)
        self.receipt = {"version": staged.version, "digests": staged.digests, "missing": missing}

    def _load(self, staged: _Staged) -> list[str]:
        """Put them into the model; returns its weights that got none."""
        from vllm.model_executor.model_loader.reload import (
            finalize_layerwise_reload,
            initialize_layerwise_reload,
        )

        # A server that takes adapters has wrapped its layers.
        known = {name.replace(".base_layer.", ".") for name, _ in self.model.named_parameters()}
        initialize_layerwise_reload(self.model)
        loaded = self.model.load_weights(self._arrived(staged))
        finalize_layerwise_reload(self.model, self.model_config)
        repack(self.model)
        return (
            [] if loaded is None else sorted(known - {name.replace(".base_layer.", ".") for name in loaded})
        )

    def _arrived(self, staged: _Staged) -> Iterator[tuple[str, torch.Tensor]]:
        yield from staged.tensors.items()
        for file in dict.fromkeys(staged.files.values()):
            yield from _read(file, [name for name, at in staged.files.items() if at == file])

    def shutdown(self) -> None:
        if self._group is not None:
            self._group.close()
            self._group = None


def repack(model: torch.nn.Module) -> None:
    """Layers that keep their weight beside a packed copy of it make that copy anew.

    vLLM's CPU build packs the output layer's weight when the model is loaded. Where it is tied to the embedding a
    reload changes the weight and not the copy, which goes on answering (a gap of .57 where there should be none).
    """
    for layer in model.modules():
        weight = getattr(layer, "weight", None)
        if hasattr(layer, "cpu_linear") and isinstance(weight, torch.Tensor) and weight.numel():
            from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

            dispatch_cpu_unquantized_gemm(layer, remove_weight=False)


def _read(file: str, names: list[str]) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors of a safetensors file, one at a time."""
    from safetensors import safe_open

    with safe_open(file, framework="pt", device="cpu") as opened:
        for name in names:
            yield name, opened.get_tensor(name)


class Receipts:
    """What vLLM's workers can be asked besides: what became of the last update (`--worker-extension-cls`)."""

    weight_transfer_engine: Any

    def baton_receipt(self) -> dict[str, Any]:
        """Version and checksums of what was loaded, or why nothing was."""
        return dict(getattr(self.weight_transfer_engine, "receipt", {}) or {})

    def baton_file_digest(self, path: str) -> dict[str, str]:
        """The checksum of a file as this worker reads it."""
        return {"digest": blake2b(Path(path).read_bytes(), digest_size=16).hexdigest()}
