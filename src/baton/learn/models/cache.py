"""What is made once and kept: folders under the user's cache, each whole or not there.

A folder is made under another name and renamed at the end, so whoever finds it finds all of it, also when one that
made it was killed. Of several processes that want it at the same time one makes it, and the others wait.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from baton.errors import UsageError

__all__ = ["cache_folder", "kept"]


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
