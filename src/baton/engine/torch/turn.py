"""Turns on a GPU: while one engine records a CUDA graph, nobody else in the process may wait for the device.

So engines that share a GPU (one per adapter of a model, say) step by turns, and so does whoever trains there.
They gain nothing from stepping at once. On a CPU there is nothing to keep apart.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

__all__ = ["turn"]

_guard = threading.Lock()
_turns: dict[int, threading.RLock] = {}


def turn(device: torch.device) -> AbstractContextManager[Any]:
    """Hold this while computing on a device that engines use too. The same thread may hold it again."""
    if device.type != "cuda":
        return nullcontext()
    index = torch.cuda.current_device() if device.index is None else device.index
    with _guard:
        return _turns.setdefault(index, threading.RLock())
