"""How a vLLM server is given weights: adapters by a folder and a name of their own, whole models through its weight
transfer (`weights_plugin`), by a file, by gloo or by NCCL.

Checksums are taken before anything is sent and compared with what each worker says it read; a push that broke off is
seen by that, leaves the weights of before, and can be made again. Whether the server then computes with what it read is
for `weights_probe` to say.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from baton.engine.posting import NoAnswer
from baton.engine.vllm.client import VllmClient
from baton.team.protocol import EngineError

if TYPE_CHECKING:
    from torch import Tensor

    from baton.engine.vllm.weights_group import Group

Way = Literal["file", "gloo", "nccl"]
WAYS: tuple[Way, ...] = ("file", "gloo", "nccl")
MEET_SECONDS = 120.0
PUSH_SECONDS = 900.0


class HalfPush(EngineError):
    """Weights were sent, and not all of them arrived as they were. The server has those of before."""


class SentWeights(Struct, frozen=True, kw_only=True):
    """What was pushed."""

    digest: str
    """Of all tensors with their names."""
    num_tensors: int
    num_bytes: int


def digests_of(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Name -> checksum of the tensor's bytes."""
    from baton.engine.vllm.weights_group import digest_of

    return {name: digest_of(tensor) for name, tensor in tensors.items()}


def sent_of(tensors: Mapping[str, Tensor], digests: Mapping[str, str]) -> SentWeights:
    """What a set of tensors is called by its content."""
    whole = blake2b(json.dumps(sorted(digests.items())).encode(), digest_size=8).hexdigest()
    size = sum(each.numel() * each.element_size() for each in tensors.values())
    return SentWeights(digest=whole, num_tensors=len(tensors), num_bytes=size)


class Transfer:
    """Whole sets of weights, to all workers of one server."""

    def __init__(self, client: VllmClient, way: Way, folder: Path, *, address: str = "127.0.0.1") -> None:
        """`folder` is one that the server can read, where weights go by file; `address` this machine's, elsewhere."""
        self.way = way
        self._client = client
        self._folder = folder
        self._address = address
        self._group: Group | None = None
        self._met = False

    async def push(
        self, label: str, tensors: Mapping[str, Tensor], *, mode: Literal["keep", "wait"]
    ) -> SentWeights:
        """Pause, send, compare checksums, name the weights `label`, resume.

        `mode`: calls in flight are ended first by the weights they began with (wait), or go on with the new (keep).
        """
        client = self._client
        digests = await asyncio.to_thread(digests_of, tensors)
        try:
            await self._meet()
            await client.post(f"/pause?mode={mode}", {}, seconds=PUSH_SECONDS)
            try:
                await self._start()
                await self._send(label, tensors, digests)
                await client.post("/finish_weight_update", {}, seconds=PUSH_SECONDS)
                check_receipts(await client.call_workers("baton_receipt"), label, digests)
                await client.name_weights(label)
            finally:
                await client.resume()
        except BaseException:
            self.close()  # who broadcasts may be in the middle of it: both sides meet anew
            raise
        return sent_of(tensors, digests)

    def close(self) -> None:
        """Let go of the group; the next push meets anew."""
        if self._group is not None:
            self._group.close()
        self._group, self._met = None, False

    async def _meet(self) -> None:
        if self._met:
            return
        if self.way == "file":
            await self._client.post("/init_weight_transfer_engine", {"init_info": {"way": "file"}})
        else:
            from baton.engine.vllm.weights_group import group_of

            size = 1 + int((await self._client.get("/get_world_size")).get("world_size", 1))
            port = _free_port(self._address)
            info = {
                "way": self.way, "address": self._address, "port": port, "world_size": size, "timeout_s": MEET_SECONDS,
            }  # fmt: skip
            # Each side waits for the other in this.
            _, self._group = await asyncio.gather(
                self._client.post(
                    "/init_weight_transfer_engine", {"init_info": info}, seconds=2 * MEET_SECONDS
                ),
                asyncio.to_thread(group_of, self.way, self._address, port, 0, size, MEET_SECONDS),
            )
        self._met = True

    async def _start(self) -> None:
        """Begin an update; one that was never ended is ended first, which loads nothing."""
        try:
            await self._client.post("/start_weight_update", {})
        except NoAnswer:
            await self._client.post("/finish_weight_update", {})
            await self._client.post("/start_weight_update", {})

    async def _send(self, label: str, tensors: Mapping[str, Tensor], digests: Mapping[str, str]) -> None:
        parcel = {
            "version": label,
            "names": list(tensors),
            "dtypes": [str(each.dtype).removeprefix("torch.") for each in tensors.values()],
            "shapes": [list(each.shape) for each in tensors.values()],
            "digests": [digests[name] for name in tensors],
            "total": len(tensors),
        }
        if self.way != "file":
            await self._broadcast(parcel, tensors)
            return
        path = self._folder / "weights.safetensors"
        await asyncio.to_thread(write_tensors, path, tensors)
        await self._update({**parcel, "file": str(path)})  # read again when it is loaded, so it stays

    async def _update(self, parcel: Mapping[str, Any]) -> None:
        await self._client.post("/update_weights", {"update_info": parcel}, seconds=PUSH_SECONDS)

    async def _broadcast(self, parcel: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        group = self._group
        assert group is not None

        def send() -> None:
            for tensor in tensors.values():
                group.broadcast(tensor.detach().to(group.device).contiguous())

        update = asyncio.ensure_future(self._update(parcel))
        sending = asyncio.ensure_future(asyncio.to_thread(send))
        done, _ = await asyncio.wait({update, sending}, return_when=asyncio.FIRST_EXCEPTION)
        if any(each.exception() for each in done):
            self.close()  # ends the other side's wait
        await asyncio.gather(update, sending)


def check_receipts(receipts: Sequence[Any], label: str, digests: Mapping[str, str]) -> None:
    """Whether every worker read what was sent, and all of its weights are of it."""
    if not receipts:
        raise HalfPush("no worker of the server says what it read")
    for number, receipt in enumerate(receipts):
        told = receipt if isinstance(receipt, dict) else {}
        if why := told.get("refused"):
            raise HalfPush(f"worker {number} refused the weights: {why}")
        if told.get("version") != label:
            raise HalfPush(f"worker {number} has weights {told.get('version')!r}, and {label!r} were sent")
        read = told.get("digests") or {}
        wrong = sorted(name for name in {*read, *digests} if read.get(name) != digests.get(name))
        if wrong:
            raise HalfPush(f"worker {number} read {wrong[0]} with another checksum than it was sent with")
        if missing := told.get("missing"):
            raise HalfPush(
                f"the server's model has weights that none were sent for: {', '.join(missing[:3])}"
            )


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """A safetensors file that is whole or not there."""
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_name(f".{path.name}.{os.getpid()}")
    plain = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    try:
        save_file(plain, made, metadata={"format": "pt"})
        made.replace(path)
    except OSError as error:
        made.unlink(missing_ok=True)
        raise EngineError(f"weights cannot be written to {path.parent}: {error.strerror or error}") from error


def write_adapter(folder: Path, tensors: Mapping[str, Tensor], *, alpha: int) -> str:
    """An adapter as peft writes it; returns the checksum of the file with its weights."""
    rank = min(min(each.shape) for each in tensors.values())
    targets = sorted({name.rpartition(".")[0].rpartition(".")[2] for name in tensors})
    named = {f"base_model.model.{name}.weight": tensor for name, tensor in tensors.items()}
    write_tensors(folder / "adapter_model.safetensors", named)
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": alpha, "target_modules": targets,
        "lora_dropout": 0.0, "bias": "none", "base_model_name_or_path": "", "inference_mode": True,
    }  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return blake2b((folder / "adapter_model.safetensors").read_bytes(), digest_size=16).hexdigest()


async def check_file(client: VllmClient, path: Path, digest: str) -> bool:
    """Whether workers read a file as it was written. False: the server has no plug-in of Baton's that could tell."""
    try:
        told = await client.call_workers("baton_file_digest", str(path))
    except NoAnswer:
        return False
    for number, each in enumerate(told):
        if not isinstance(each, dict) or each.get("digest") != digest:
            raise HalfPush(f"worker {number} reads {path.name} otherwise than it was written")
    return bool(told)


def _free_port(address: str) -> int:
    with socket.socket() as found:
        found.bind((address, 0))
        return int(found.getsockname()[1])
