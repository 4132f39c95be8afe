"""What can be told of a local model before torch is loaded, which takes seconds: its folder, its device's name."""

from __future__ import annotations

import json
import re
from pathlib import Path

from baton.errors import UsageError


def check_there(folder: str | Path) -> None:
    """That there is such a folder at all."""
    if not Path(folder).is_dir():
        raise UsageError(f"there is no folder {str(folder)!r}. Give the folder of a Hugging Face causal LM.")


def check_device_name(device: str | None) -> None:
    """That a device can be called this; whether it is there, torch knows."""
    if device and not re.fullmatch(r"(cpu|cuda)(:\d+)?", device):
        raise unknown_device(device)


def unknown_device(device: str) -> UsageError:
    return UsageError(f"device {device!r} is not known. Expected cpu, cuda or cuda:N.")


_DTYPES = ("float32", "bfloat16", "float16", "float64", "float", "half", "double")


def check_dtype_name(dtype: str | None) -> None:
    """That numbers with a point can be called this."""
    if dtype is not None and dtype not in _DTYPES:
        raise unknown_dtype(dtype)


def unknown_dtype(dtype: str) -> UsageError:
    return UsageError(f"dtype {dtype!r} is not known. Expected float32, bfloat16 or float16.")


MODEL_FILES = (
    "Give a folder written by save_pretrained, with config.json, model.safetensors and tokenizer.json."
)


def check_folder(folder: str | Path) -> None:
    """That it looks like a model's, before anything is loaded."""
    path = Path(folder)
    check_there(path)
    try:
        config = json.loads((path / "config.json").read_text("utf-8"))
        wrong = (
            ""
            if isinstance(config, dict) and "model_type" in config
            else "its config.json names no model_type"
        )
    except OSError:
        wrong = "it has no config.json"
    except ValueError:
        wrong = "its config.json is not JSON"
    if wrong:
        raise UsageError(f"{str(folder)!r} is not a model: {wrong}. {MODEL_FILES}")
