"""Files that survive: one writer at a time, a file that appears whole or not at all, and names that are on disk.

A lock is an exclusive SQLite lock on an empty side file, so the system drops it the moment its
holder dies: there is no stale lock. The side file stays, because removing it would race.
"""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import sqlite3
import sys
import tempfile
import threading
import time
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


class NotWritten(BatonError):
    """Something could not be written, for a reason that lies outside Baton: no room, no permission."""


def file_error(path: Path, what: str) -> BatonError:
    """The likeliest reason why a file could not be opened or made."""
    folder = path.parent
    if path.is_dir():
        return UsageError(f"cannot {what}: {path} is a directory; expected a file.")
    if not folder.is_dir():
        return UsageError(f"cannot {what}: there is no directory {folder}. Make it first.")
    why = why_not_written(path) or "no permission, no room, or a read-only file system"
    return NotWritten(f"cannot {what} at {path}: {why}. Give another place.")


REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the quota of disk space is used up",
    errno.EFBIG: "files may not grow so large here (see: ulimit -f)",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "there is no permission to write in that folder",
    errno.EPERM: "there is no permission to write in that folder",
}
"""What the system says when something cannot be written, in words."""
_ROOM = 1 << 16


def why_not_written(path: Path) -> str | None:
    """Why a file cannot be written, found by writing another one beside it; None where that goes well."""
    try:
        with tempfile.TemporaryFile(dir=path.parent, buffering=0) as file:
            file.write(bytes(_ROOM))
            file.write(b"0")  # a disk that takes a part at first refuses the rest
    except OSError as error:
        return REASONS.get(error.errno or 0, error.strerror or str(error))
    with suppress(OSError):
        if path.exists() and not os.access(path, os.W_OK):
            return "there is no permission to write that file"
    return REASONS[errno.EFBIG] if _at_limit(path) else None


def _at_limit(path: Path) -> bool:
    """Whether a file, or what SQLite keeps beside it, has come to the limit on the size of files."""
    if sys.platform == "win32":
        return False
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    sizes = [p.stat().st_size for p in (path, Path(f"{path}-wal"), Path(f"{path}-shm")) if p.exists()]
    return limit != resource.RLIM_INFINITY and max(sizes, default=0) + _ROOM > limit


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """An error of the system that comes in here names the file: a full disk does not say which one it was."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from None


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


_READING_UMASK = threading.Lock()
_STALE_SECONDS = 3600.0  # where files cannot be locked, younger ones may be another's, still at work


def lock_part(descriptor: int, *, shared: bool = False) -> bool:
    """Hold what is made beside its place, a file or a folder, as long as this process lives. False: another does.

    `shared`: with others who hold it so.
    """
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # a file system without locks
    return True


def refuse_written(target: Path, place: str) -> None:
    """An error where a recorder holds the file: what it writes next would go to a file that has no name any more.

    `place` is what to give another of.
    """
    if sys.platform == "win32" or not target.is_file():
        return
    with suppress(OSError):  # one that may not be read
        descriptor = os.open(target, os.O_RDONLY)
        try:
            if lock_part(descriptor, shared=True):
                return
        finally:
            os.close(descriptor)
        raise UsageError(f"{target} is being written by a recorder. Give another {place}.")


def clear_left(target: Path) -> list[Path]:
    """Remove what processes left beside a place when they were killed while they made it; what that was."""
    return _cleared(_left_in(target.parent, f".{target.name}."))


def clear_folder(folder: Path, suffix: str) -> list[Path]:
    """The same for all files of a folder whose names end so."""
    return _cleared([left for left in _left_in(folder, ".") if f"{suffix}." in left.name])


def _cleared(found: list[Path]) -> list[Path]:
    gone: list[Path] = []
    for left in found:
        with suppress(OSError):
            descriptor = os.open(left, os.O_RDONLY)
            try:
                stale = sys.platform != "win32" or time.time() - left.stat().st_mtime > _STALE_SECONDS
                if stale and lock_part(descriptor):
                    shutil.rmtree(left) if left.is_dir() else left.unlink()
                    gone.append(left)
            finally:
                os.close(descriptor)
    return gone


def _left_in(folder: Path, begin: str) -> list[Path]:
    """By their names; `glob` would take ten times as long, and this is done for every file that is written."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - a Path for every file of the folder costs as much again
    except OSError:
        return []
    return [folder / name for name in names if name.startswith(begin) and name.endswith(".part")]


@contextmanager
def atomic_file(path: str | os.PathLike[str], *, alone: bool = True) -> Iterator[BinaryIO]:
    """Open for writing; `path` changes only if the block ends without an exception.

    What is written goes beside its place, is synced, then renamed into it. `alone=False`: it is one of many in its
    folder, and whoever writes them does once for all what is done for each else: `clear_folder` before, and
    `sync_directory` after.
    """
    target = Path(path)
    if target.exists() and not target.is_file() and not target.is_dir():
        # A rename would put a file where /dev/null was.
        raise UsageError(f"{target} is neither a file nor a folder, and is not replaced. Give another place.")
    try:
        if alone:
            clear_left(target)
        handle, beside = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
        lock_part(handle)
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
        refuse_written(target, "place")
        try:
            Path(beside).replace(target)
        except IsADirectoryError:
            raise UsageError(f"{target} is a folder; give the name of a file in it.") from None
    except BaseException as error:
        with suppress(OSError):
            Path(beside).unlink()
        if (
            isinstance(error, OSError) and error.filename is None
        ):  # a full disk does not say which file it was
            raise OSError(error.errno, error.strerror, str(target)) from None
        raise
    if alone:
        with suppress(OSError):  # not every file system can
            sync_directory(target.parent)


def _umask() -> int:
    # The only way to read it is to set it; two at once would set it to what the other had set.
    with _READING_UMASK:
        mask = os.umask(0o077)
        os.umask(mask)
    return mask
