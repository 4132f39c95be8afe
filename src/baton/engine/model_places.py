"""What can be told of a local model before torch is loaded, which takes seconds: its folder, its device's name."""

from __future__ import annotations

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
