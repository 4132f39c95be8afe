"""A group of processes that broadcasts weights, and the checksum of a tensor: the same for trainer and server.

The server runs a copy of this file (`plugin_folder`), so it imports torch and nothing of Baton's.
"""

from __future__ import annotations

from datetime import timedelta
from hashlib import blake2b
from typing import Any

import torch


def digest_of(tensor: torch.Tensor) -> str:
    """The checksum of a tensor's bytes."""
    plain: Any = tensor.detach().to("cpu").contiguous().flatten().view(torch.uint8).numpy()
    return blake2b(plain, digest_size=16).hexdigest()


class Group:
    """Processes that broadcast from the first; beside whatever groups theirs may already be in."""

    def __init__(self, group: Any, device: torch.device) -> None:
        self._group = group
        self.device = device

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Give a tensor to all, or take it from the first."""
        options = torch.distributed.BroadcastOptions()
        options.rootRank = options.rootTensor = 0
        self._group.broadcast([tensor], options).wait()

    def close(self) -> None:
        """Let go of the group, which ends the others' wait."""
        for name in ("abort", "shutdown"):
            if callable(end := getattr(self._group, name, None)):
                end()


def group_of(way: str, address: str, port: int, rank: int, size: int, timeout_s: float) -> Group:
    """Meet the others at an address; rank 0 waits there. NCCL was never tried for want of two GPUs."""
    wait = timedelta(seconds=timeout_s)
    distributed: Any = torch.distributed  # its own list of names leaves these out
    store = distributed.TCPStore(address, port, size, rank == 0, wait, wait_for_workers=False)
    named = distributed.PrefixStore("baton-weights", store)
    if way == "gloo":
        made = distributed.ProcessGroupGloo
        options = made._Options()
        options._timeout = wait
        local = address.startswith("127.")
        options._devices = [made.create_device(hostname=address) if local else made.create_default_device()]
        return Group(made(named, rank, size, options), torch.device("cpu"))
    if way == "nccl":
        made = distributed.ProcessGroupNCCL
        options = made.Options()
        options._timeout = wait
        return Group(made(named, rank, size, options), torch.device("cuda", torch.cuda.current_device()))
    raise ValueError(f"weights are broadcast by gloo or nccl, not by {way!r}")
