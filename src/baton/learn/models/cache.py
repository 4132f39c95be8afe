"""What is made once and kept: folders under the user's cache, each whole or not there.

A folder is made under another name and renamed at the end, so whoever finds it finds all of it, also when
several processes make it at the same time or one is killed.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
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
        made = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder.parent))
    except OSError as error:
        raise UsageError(
            f"cannot write to {folder.parent}: {error.strerror}. Set XDG_CACHE_HOME to a folder that can be written."
        ) from error
    try:
        make(made)
        made.chmod(0o755)  # a temporary folder is the owner's alone
        try:
            made.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was first; theirs is as good
                raise
    except OSError as error:
        raise UsageError(
            f"cannot keep {name} in {folder.parent}: {error.strerror}. "
            "Make room there, or set XDG_CACHE_HOME to another folder."
        ) from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return folder
