"""Unpacking zstd, by whatever the Python at hand has: 3.14 has a module for it, before that a package must be there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import IO, Any, Final

from baton.errors import CorruptError, UsageError
from baton.installed import install_hint

_PIECE: Final = 1 << 20


def unpacked_pieces(packed: IO[bytes], what: str) -> Iterator[bytes]:
    """The content, a piece at a time. `what` is packed so, for errors: `UsageError` where nothing here can unpack it,
    `CorruptError` where it is damaged."""
    try:
        stream = _opened(packed)
    except Exception as error:
        raise _damaged(what, error) from None
    if stream is None:
        raise UsageError(
            f"{what} is packed with zstd, and no module that reads it is installed. Type: {install_hint('zstd')}"
        )
    while True:
        try:
            piece = stream.read(_PIECE)
        except Exception as error:
            raise _damaged(what, error) from None
        if not piece:
            return
        yield piece


def _damaged(what: str, error: Exception) -> CorruptError:
    """Each module has errors of its own, and all mean damage."""
    return CorruptError(f"{what} is not a whole zstd file: {error}.")


def _opened(packed: IO[bytes]) -> Any:
    for name, way in _WAYS.items():
        try:
            module = import_module(name)
        except ImportError:
            continue
        return way(module, packed)
    return None


_WAYS: Final[dict[str, Callable[[Any, IO[bytes]], Any]]] = {
    "compression.zstd": lambda module, packed: module.open(packed, "rb"),
    "backports.zstd": lambda module, packed: module.open(packed, "rb"),
    "zstandard": lambda module, packed: module.ZstdDecompressor().stream_reader(
        packed, read_across_frames=True
    ),
    "pyarrow": lambda module, packed: module.CompressedInputStream(packed, "zstd"),
}
