"""A run in a process of its own, whose agents' second answers come when the test says so."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

from child_process import on_path

from baton.cli import main
from baton.trace.formats import read
from baton.trace.trace import Trace
from baton.trace.validation import validate

GATED = """
import asyncio, pathlib

async def answer(request):
    turn = sum(entry.speaker == "assistant" for entry in request.entries)
    gate = pathlib.Path("open")
    while turn and not gate.exists():
        await asyncio.sleep(0.02)
    heard = request.entries[-1].text.replace("\\n", " / ")
    if request.role == "worker":
        return ["send orchestrator: half way", f"return {heard}"][min(turn, 1)]
    return ["spawn worker: one\\nspawn worker: two", "wait", f"stop {heard}"][min(turn, 2)]
"""


class Gated:
    """A run in another process, whose agents' second answers come when `open` is called."""

    def __init__(self, folder: Path, out: str = "runs") -> None:
        self.folder = folder
        (folder / "gated.py").write_text(textwrap.dedent(GATED))
        self.store = folder / out / "run.db"
        self.start(
            "run", "shard-sum", "--topology", "centralized", "--policy", "scripted:gated:answer", "--out", out
        )

    def start(self, *words: str) -> None:
        code = "import sys; from baton.cli import main; sys.exit(main())"
        with (self.folder / "said.txt").open("ab") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code, *words],
                cwd=self.folder,
                env=on_path(self.folder),
                stdout=said,
                stderr=said,
            )
        self.until(lambda: len(self.trace().events) >= 2)

    def until(self, holds: Callable[[], bool]) -> None:
        for _ in range(600):
            try:
                if holds():
                    return
            except Exception:  # there is no store yet
                pass
            time.sleep(0.05)
        raise AssertionError("never came true")

    def trace(self) -> Trace:
        return read(self.store)

    def open(self) -> None:
        (self.folder / "open").touch()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> Trace:
        self.open()
        self.process.wait(120)
        trace = self.trace()
        assert trace.finished
        assert validate(trace) == []
        assert self.replayed() == 0
        return trace

    def replayed(self) -> int:
        return main(["replay", str(self.store)])
