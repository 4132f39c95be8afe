"""Opening a Hugging Face folder, with what can go wrong said before it does: no such folder, no chat template,
no GPU, too little memory.

What is made once is kept in folders under the user's cache, each whole or not there: a folder is made under another
name and renamed at the end, so whoever finds it finds all of it, also when one that made it was killed. Of several
processes that want it at the same time one makes it, and the others wait.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from baton.engine.model_places import unknown_device
from baton.engine.torch.load import check_dtype, open_folder
from baton.errors import UsageError


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/baton, or ~/.cache/baton."""
    given = os.environ.get("XDG_CACHE_HOME")
    return (Path(given) if given else Path.home() / ".cache") / "baton"


def kept(name: str, make: Callable[[Path], None]) -> Path:
    """The folder of this name in the cache; `make` fills it the first time. Another content, another name."""
    folder = cache_folder() / "models" / name
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _alone(cache_folder() / "locks" / name):
            return folder if folder.is_dir() else _made(folder, make)
    except OSError as error:
        raise UsageError(
            f"cannot keep {name} in {folder.parent}: {error.strerror}. "
            "Make room there, or set XDG_CACHE_HOME to another folder that can be written."
        ) from error


def _made(folder: Path, make: Callable[[Path], None]) -> Path:
    place = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        make(place)
        place.chmod(0o755)  # a temporary folder is the owner's alone
        try:
            place.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was first; theirs is as good
                raise
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return folder


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """One process at a time; the system lets go of a lock when its process ends, however that is."""
    lock.parent.mkdir(exist_ok=True)
    with lock.open("w") as file:
        with suppress(OSError):  # some network disks have no locks: then both make it, and one is kept
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def open_model(folder: str | Path, *, device: str | None = None, dtype: str | None = None) -> tuple[Any, Any]:
    """Model and tokenizer, ready to sample from and to train."""
    place = _device(device)
    _check_memory(Path(folder), place, dtype)
    with quiet(), _enough_memory(folder, place):
        model, tokenizer = open_folder(folder, place, dtype)
    if not getattr(tokenizer, "chat_template", None):
        raise UsageError(
            f"the tokenizer in {str(folder)!r} has no chat template, so a team cannot talk to the model. "
            "Put its chat_template.jinja into the folder, or take the instruct version of the model."
        )
    return model, tokenizer


@contextmanager
def quiet() -> Iterator[None]:
    """Without transformers' progress bars, which are for minutes of work."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # transformers'
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]  # transformers'


@contextmanager
def _enough_memory(folder: str | Path, place: str) -> Iterator[None]:
    """A limit that is not the machine's own shows only when it is met."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "memory" not in str(error):
            raise
        raise UsageError(
            f"{str(folder)!r} does not fit into the memory that there is on {place}. Take a smaller model, or free "
            "memory."
        ) from error


def check_place(device: str | None, dtype: str | None) -> None:
    """That there is such a device, and that a model can have such a precision."""
    _device(device)
    check_dtype(dtype)


def placed(model: Any, device: str | None, dtype: str | None) -> Any:
    """A model made in memory, where and as precise as asked for."""
    return model.to(_device(device), None if dtype is None else getattr(torch, dtype))


def _device(asked: str | None) -> str:
    device = asked or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
    except RuntimeError:
        place = None
    if place is None or place.type not in ("cpu", "cuda"):
        raise unknown_device(device)
    if place.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            f"device is {device}, and torch sees no GPU. Leave it out or give cpu; for a GPU, install a CUDA build "
            "of torch and check nvidia-smi."
        )
    if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
        raise UsageError(
            f"device is {device}, and there are {torch.cuda.device_count()} GPUs, from cuda:0 on."
        )
    return device


def free_bytes(device: str) -> int | None:
    """Memory that can be taken now; None: not known on this system."""
    if torch.device(device).type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return None
    found = [line.split()[1] for line in text.splitlines() if line.startswith("MemAvailable:")]
    return int(found[0]) * 1024 if found else None


def _check_memory(folder: Path, device: str, dtype: str | None) -> None:
    weights = [*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")] if folder.is_dir() else []
    if not weights:
        return
    kept = sum(file.stat().st_size for file in weights)
    needed = kept if dtype not in _BYTES else kept * _BYTES[dtype] // _saved_bytes(folder)
    free = free_bytes(device)
    if free is not None and free < 1.2 * needed:
        smaller = "" if dtype in ("bfloat16", "float16") else ", or dtype bfloat16 for half of that"
        raise UsageError(
            f"{str(folder)!r} needs about {1.2 * needed / 1e9:.1f} GB on {device}, which has {free / 1e9:.1f} GB free. "
            f"Take a smaller model{smaller}, or free memory."
        )


def _saved_bytes(folder: Path) -> int:
    import json

    try:
        config = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError):
        return 4  # what is wrong with it is said when it is opened
    return _BYTES.get(str(config.get("dtype") or config.get("torch_dtype")), 4)
