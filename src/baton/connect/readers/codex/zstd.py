"""Unpacking `.zst`: by whatever the Python at hand has."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

from baton.errors import CorruptError, UsageError


def unpacked(packed: IO[bytes], plain: IO[bytes], path: Path) -> None:
    """Copy the content, a piece at a time: Python 3.14 has a module for it, before that a package must be there."""
    opened: Callable[[], Any] | None = None
    for name, way in _WAYS.items():
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        opened = partial(way, module, packed)
        break
    if opened is None:
        raise UsageError(
            f"{path} is packed with zstd, which this Python cannot unpack. Type: pip install "
            f"'baton-rl[zstd]' (or: zstd -d {path.name}, and import the .jsonl)."
        )
    try:
        stream = opened()
        while piece := stream.read(1 << 20):
            plain.write(piece)
    except Exception as error:  # each module has an error of its own
        raise CorruptError(f"{path} is not a whole zstd file: {error}.") from None


_WAYS: dict[str, Callable[[Any, IO[bytes]], Any]] = {
    "compression.zstd": lambda module, packed: module.open(packed, "rb"),
    "backports.zstd": lambda module, packed: module.open(packed, "rb"),
    "zstandard": lambda module, packed: module.ZstdDecompressor().stream_reader(
        packed, read_across_frames=True
    ),
    "pyarrow": lambda module, packed: module.CompressedInputStream(packed, "zstd"),
}
