"""A Llama's training pass in few launches: layers and vocabulary with a backward of their own."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

import torch


def ops_for(device: torch.device) -> ModuleType:
    """`kernels` on a GPU where Triton is installed, else `plain`."""
    return _ops(device.type)


@cache
def _ops(kind: str) -> ModuleType:
    name = "kernels" if kind == "cuda" and find_spec("triton") is not None else "plain"
    return import_module(f"baton.forest.fused.{name}")
