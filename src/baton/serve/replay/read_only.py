"""A program that cannot change the folder it works in: it sees an overlay, and what it writes there is gone afterwards.

Linux gives it without privileges: a mount namespace of the program's own, in which an overlay in memory lies over the
folder (unshare(1), overlayfs; kernel 5.11 or later). Whether it does is tried, not assumed. Only that folder is
covered: what the program writes elsewhere, sends or deletes over the network is done.

Invariant: where the overlay cannot be had, nothing is run.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from baton.errors import UsageError

_MOUNT = (
    'mount -t tmpfs -o mode=700 tmpfs "$1" && mkdir "$1/up" "$1/work" && '
    'mount -t overlay overlay -o "lowerdir=$2,upperdir=$1/up,workdir=$1/work" "$2" && cd "$2" && shift 2 && exec "$@"'
)
_TRY_SECONDS = 20


@contextmanager
def read_only(command: Sequence[str], folder: Path) -> Iterator[list[str]]:
    """The command that runs another one over an overlay of a folder; refused where there is none."""
    why = overlay_refusal()
    if why is None and set(str(folder.resolve())) & set(",:\\"):
        why = f"the path {folder} has a comma, a colon or a backslash in it, which an overlay cannot name"
    if why is not None:
        raise UsageError(
            f"--read-only cannot be had here: {why}. Nothing was run. Run it on a copy of the folder instead, without "
            "--read-only."
        )
    scratch = tempfile.mkdtemp(prefix="baton-overlay-")
    try:
        yield [*_unshared(), "sh", "-c", _MOUNT, "baton-read-only", scratch, str(folder.resolve()), *command]
    finally:
        with suppress(OSError):
            Path(scratch).rmdir()


def _unshared() -> list[str]:
    return [shutil.which("unshare") or "unshare", "--user", "--map-current-user", "--keep-caps", "--mount"]


@cache
def overlay_refusal() -> str | None:
    """Why there can be no overlay on this machine; None: it was tried, and holds."""
    if sys.platform != "linux":
        return f"overlays are Linux's, and this is {sys.platform}"
    if shutil.which("unshare") is None:
        return "there is no command unshare (package util-linux)"
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryDirectory() as scratch:
        Path(place, "kept").write_text("as it was")
        inside = [
            "sh",
            "-c",
            _MOUNT,
            "try",
            scratch,
            place,
            "sh",
            "-c",
            "echo new > kept && echo new > other && cat kept",
        ]
        try:
            done = subprocess.run(
                [*_unshared(), *inside],
                capture_output=True,
                text=True,
                timeout=_TRY_SECONDS,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"unshare does not run ({error})"
        kept = Path(place, "kept").read_text() == "as it was" and not Path(place, "other").exists()
        if done.returncode == 0 and done.stdout == "new\n" and kept:
            return None
        said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        return f"the system does not let a program mount an overlay of its own ({said})"
