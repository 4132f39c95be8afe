"""Where the index is kept from one viewing to the next: in the user's cache, for the user's eyes, never beside traces.

What is in it can be read again, so whatever is wrong with a file of it (another version's, damaged, no room) makes a
new one, or one in memory. Files that were not used for two months are taken away.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from baton import __version__
from baton.view.index.table import SCHEMA, TraceIndex

_UNUSED_SECONDS = 60 * 86400.0


def cache_folder() -> Path | None:
    """The folder of the user's cache that is Baton's; None: there is no home."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    try:
        return (Path(given) if Path(given).is_absolute() else Path.home() / ".cache") / "baton" / "view"
    except RuntimeError:
        return None


def open_index(folder: Path | None, paths: Sequence[Path], measures: str) -> TraceIndex:
    """The index of these paths; `measures` names what lines were measured with."""
    file = None if folder is None else _file(folder, paths, measures)
    for _ in range(2):
        if file is None:
            break
        try:
            made = TraceIndex(file)
            os.utime(file)
            return made
        except (sqlite3.Error, OSError):
            for each in (file, *(file.with_name(file.name + end) for end in ("-wal", "-shm"))):
                with suppress(OSError):
                    each.unlink()
    return TraceIndex()


def _file(folder: Path, paths: Sequence[Path], measures: str) -> Path | None:
    told = [__version__, str(SCHEMA), measures, *(str(path.resolve()) for path in paths)]
    path = (
        folder
        / f"{blake2b(chr(0).join(told).encode('utf-8', 'surrogateescape'), digest_size=10).hexdigest()}.db"
    )
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _sweep(folder)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError:
        return None
    return path


def _sweep(folder: Path) -> None:
    for old in folder.glob("*.db"):
        with suppress(OSError):
            if time.time() - old.stat().st_mtime > _UNUSED_SECONDS:
                for each in (old, *(old.with_name(old.name + end) for end in ("-wal", "-shm"))):
                    each.unlink(missing_ok=True)
