"""Runs to type commands at: made in the process, or in one that can be killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from child_process import on_path

from baton.cli import main
from baton.errors import FormatError
from baton.trace.formats import read_all
from baton.trace.trace import Trace

SLOW = """
import asyncio
import os
from baton.tasks.shard_sum import play as quick

left = int(os.environ.get("PLAYED", 1_000_000))

async def play(request):
    global left
    left -= 1
    await asyncio.sleep(0.1 if left >= 0 else 600)
    return quick(request)
"""


def made(out: Path, *args: str, topology: str = "centralized") -> Path:
    """A finished run of the example task."""
    assert main(["run", "shard-sum", "--topology", topology, "--out", str(out), *args]) == 0
    return out


def traces(place: Path) -> list[Trace]:
    return list(read_all(place))


def hears_interrupts() -> None:
    """What a shell starts in the background ignores Ctrl-C, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def started(
    folder: Path, command: Sequence[str], *, until_events: int, played: int = 2
) -> subprocess.Popen[str]:
    """A `baton` process that has written some events to its store, and hangs after some calls."""
    (folder / "slow_play.py").write_text(SLOW)
    process = subprocess.Popen(
        [sys.executable, "-m", "baton", *command],
        cwd=folder,
        env={**slow_environment(folder), "PLAYED": str(played)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hears_interrupts,
    )
    store = folder / "out" / "run.db"
    while _num_events(store) < until_events or not _num_traces(store):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    return process


def _num_traces(store: Path) -> int:
    return len(_so_far(store))


def _num_events(store: Path) -> int:
    return sum(len(trace.events) for trace in _so_far(store))


def _so_far(store: Path) -> list[Trace]:
    """What is in a store that may be being made: it is a database before it is one of Baton's."""
    if not store.exists() or not store.stat().st_size:
        return []
    try:
        return traces(store)
    except FormatError:
        return []


def slow_environment(folder: Path) -> dict[str, str]:
    return on_path(folder)


VIRTUAL_RUN = ("run", "shard-sum", "--policy", "scripted:slow_play:play", "--out", "out")
SLOW_RUN = (*VIRTUAL_RUN, "--clock", "real")
