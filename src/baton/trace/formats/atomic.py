"""A file appears whole or not at all: written beside its place, synced, then renamed into it."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from baton.errors import UsageError
from baton.trace.formats.durable import sync_directory

__all__ = ["atomic_file"]


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open for writing; `path` changes only if the block ends without an exception."""
    target = Path(path)
    try:
        handle, beside = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(
            f"{target}: there is no folder {target.parent}. Type: mkdir -p {shlex.quote(str(target.parent))}"
        ) from None
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}. Give another place.") from None
    try:
        with os.fdopen(handle, "wb", buffering=1 << 20) as file:
            yield file
            file.flush()
            os.fchmod(file.fileno(), 0o666 & ~_umask())
            os.fsync(file.fileno())
        try:
            Path(beside).replace(target)
        except IsADirectoryError:
            raise UsageError(f"{target} is a folder; give the name of a file in it.") from None
    except BaseException:
        with suppress(OSError):
            Path(beside).unlink()
        raise
    with suppress(OSError):  # not every file system can
        sync_directory(target.parent)


def _umask() -> int:
    # The only way to read it is to set it.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
