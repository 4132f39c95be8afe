"""The directory of sandboxed code where it is one on the disk: counted while the code runs, deleted afterwards."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path


def holds_too_much(directory: Path, pid: int, *, max_bytes: int, max_files: int) -> bool:
    """Whether the files are too many, too big, or put where they cannot be counted; deleted, open ones too."""
    num_files, num_bytes = 0, _deleted_bytes(pid)
    pending = [os.fspath(directory)]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    num_files += 1
                    if num_files > max_files:
                        return True
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    else:
                        num_bytes += entry.stat(follow_symlinks=False).st_blocks * 512
        except FileNotFoundError:
            continue  # deleted meanwhile
        except OSError:
            return True  # a path too long or a directory that cannot be listed hides what is in it
    return num_bytes > max_bytes


def _deleted_bytes(pid: int) -> int:
    """What files take up that a process deleted and holds open."""
    num_bytes = 0
    with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            with suppress(OSError):
                found = entry.stat()
                if stat.S_ISREG(found.st_mode) and found.st_nlink == 0:
                    num_bytes += found.st_blocks * 512
    return num_bytes


def count_files(directory: Path) -> tuple[int, int]:
    """(bytes, files and directories) in a directory; what cannot be listed counts as nothing here."""
    num_files = num_bytes = 0
    pending = [os.fspath(directory)]
    while pending:
        with suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                num_files += 1
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                else:
                    num_bytes += entry.stat(follow_symlinks=False).st_blocks * 512
    return num_bytes, num_files


def remove(directory: Path, *, keep: bool = False) -> None:
    """Delete the directory, however deep and however its permissions: subdirectories move up first.

    `keep`: what is in it alone.
    """
    count = 0
    with suppress(OSError):  # what cannot be deleted stays in the temporary directory
        while entries := list(directory.iterdir()):
            for entry in entries:
                if entry.is_symlink() or not entry.is_dir():
                    entry.unlink()
                    continue
                entry.chmod(0o700)
                for inner in list(entry.iterdir()):
                    count += 1
                    inner.rename(directory / f".{count}-{os.urandom(8).hex()}")
                entry.rmdir()
        if not keep:
            directory.rmdir()
