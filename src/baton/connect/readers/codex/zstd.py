"""Unpacking `.zst`: by whatever the Python at hand has."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import IO

from baton.errors import CorruptError, UsageError


def unpacked(packed: IO[bytes], plain: IO[bytes], path: Path) -> None:
    """Copy the content, a piece at a time: Python 3.14 has a module for it, before that a package must be there."""
    for name in ("compression.zstd", "backports.zstd"):
        module = _module(name)
        if module is not None:
            _copy(lambda m=module: m.open(packed, "rb"), plain, path)  # type: ignore[misc]  # mypy knows neither
            return
    module = _module("zstandard")
    if module is not None:
        _copy(lambda: module.ZstdDecompressor().stream_reader(packed, read_across_frames=True), plain, path)
        return
    module = _module("pyarrow")
    if module is not None:
        _copy(lambda: module.CompressedInputStream(packed, "zstd"), plain, path)
        return
    raise UsageError(
        f"{path} is packed with zstd, which this Python cannot unpack. Type: pip install zstandard "
        f"(or: zstd -d {path.name}, and import the .jsonl)."
    )


def _module(name: str) -> object | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _copy(opened, plain: IO[bytes], path: Path) -> None:  # type: ignore[no-untyped-def]  # any of four readers
    try:
        stream = opened()
        while piece := stream.read(1 << 20):
            plain.write(piece)
    except Exception as error:  # each module has an error of its own
        raise CorruptError(f"{path} is not a whole zstd file: {error}.") from None
