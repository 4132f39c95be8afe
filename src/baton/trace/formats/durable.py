"""Files that survive: one writer at a time, a file that appears whole or not at all, and names that are on disk.

A lock is an exclusive SQLite lock on an empty side file, so the system drops it the moment its
holder dies: there is no stale lock. The side file stays, because removing it would race.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from baton.errors import BatonError, UsageError


class Lock:
    """Held from construction until `release` or the end of the process. Never waits."""

    def __init__(self, path: Path, busy: str) -> None:
        """`busy` is the error's text when someone else, here or in another process, holds it."""
        try:
            self._connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        except sqlite3.OperationalError:
            raise file_error(path, "make the lock file") from None
        try:
            self._connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.DatabaseError as error:
            self._connection.close()
            if error.sqlite_errorname == "SQLITE_BUSY":
                raise UsageError(busy) from None
            raise file_error(path, "take the lock") from None

    def release(self) -> None:
        self._connection.close()


def file_error(path: Path, what: str) -> BatonError:
    """The likeliest reason why a file could not be opened or made."""
    folder = path.parent
    if path.is_dir():
        return UsageError(f"cannot {what}: {path} is a directory; expected a file.")
    if not folder.is_dir():
        return UsageError(f"cannot {what}: there is no directory {folder}. Make it first.")
    return BatonError(
        f"cannot {what} at {path}: no permission, no room, or a read-only file system. Give another place."
    )


def sync_file(path: Path) -> None:
    """The file's content is on disk when this returns."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """The names in the directory are on disk when this returns."""
    sync_file(path)


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open for writing; `path` changes only if the block ends without an exception.

    What is written goes beside its place, is synced, then renamed into it.
    """
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
