"""The command line that starts a program inside bubblewrap.

Everything is unshared: users, mounts, processes, network, IPC, host name, cgroup. The root is a bare, read-only file
system with what the program has to read; the one place to write is in memory and of a fixed size. The child itself
mounts another over it, because only so can it be kept to a number of files as well; where it may not, the parent
counts them. https://github.com/containers/bubblewrap
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

FOLDER = "/sandbox"
CHILD = "/sandbox_child.py"
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


def find_bubblewrap() -> str | None:
    """Where the bwrap command is; None: not on this machine."""
    return shutil.which("bwrap") if sys.platform == "linux" else None


@cache
def readable() -> tuple[str, ...]:
    """What Python has to read to run: its library and the system's."""
    prefixes = {sys.base_prefix, sys.base_exec_prefix}
    own = [
        Path(os.__file__).parent,
        *(Path(prefix, name) for prefix in prefixes for name in ("lib", "lib64")),
    ]
    system = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")
    return (
        *sorted({str(path.resolve()) for path in own if path.is_dir()}),
        *(*system, "/usr/share/zoneinfo", "/etc/localtime", *DEVICES[1:]),
    )


def wrapped(
    program: Sequence[str], *, child: Path, num_bytes: int, info_fd: int, folder: Path | None = None
) -> list[str]:
    """A program and its arguments, in namespaces of its own. It is told of the process inside on `info_fd`.

    `folder`: of the outside, the one directory that it sees, in place of one in memory. Nothing is mounted on it.
    """
    # User 0 with one capability, both of the new user namespace alone: to mount its folder, after which it drops it.
    inside = ["--uid", "0", "--gid", "0", "--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN"]
    alone = ["--unshare-all", "--die-with-parent", "--new-session", "--hostname", "sandbox"]
    binds = [word for path in (program[0], *readable()) for word in ("--ro-bind-try", path, path)]
    devices = [word for path in DEVICES for word in ("--dev-bind-try", path, path)]
    places = ["--ro-bind", str(child), CHILD, "--symlink", FOLDER.lstrip("/"), "/tmp"]
    places += (
        ["--size", str(num_bytes), "--tmpfs", FOLDER] if folder is None else ["--bind", str(folder), FOLDER]
    )
    root = ["--remount-ro", "/", "--chdir", FOLDER]
    return [
        find_bubblewrap() or "bwrap",
        *alone,
        *inside,
        *binds,
        *devices,
        *places,
        *root,
        *("--info-fd", str(info_fd), "--"),
        *program,
    ]
