"""The folder where a run's workers, or its server, find their weights: under $TMPDIR, locked while the trainer lives.

Workers remove it when their trainer was killed. Where nobody was left to do that, the next run does: it takes away
folders whose lock nobody holds.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
import time
from pathlib import Path
from typing import IO

_PREFIX = "baton-workers-"
_LOCK = "lock"
_YOUNG_SECONDS = 60.0
"""One that is younger may not be locked yet."""


def make_scratch(prefix: str = _PREFIX) -> tuple[Path, IO[bytes]]:
    """A new folder, and what holds its lock until it is closed."""
    sweep_scratch(Path(tempfile.gettempdir()), prefix)
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    held = (folder / _LOCK).open("wb")
    fcntl.flock(held, fcntl.LOCK_EX)
    return folder, held


def sweep_scratch(place: Path, prefix: str = _PREFIX) -> None:
    """Remove what trainers left that were killed with all their workers."""
    for folder in place.glob(f"{prefix}*"):
        try:
            if time.time() - folder.stat().st_mtime < _YOUNG_SECONDS:
                continue
            with (folder / _LOCK).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # held, another user's, or gone meanwhile
            continue
        shutil.rmtree(folder, ignore_errors=True)
