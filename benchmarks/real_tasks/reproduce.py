"""All runs of the real task with one command: several at once on one GPU, in slices, then compared.

A run is a process of its own with its own folder and log, so that one that fails takes nothing along; what is there
already is gone on with, or left alone where it is finished.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from baton.errors import UsageError, nearest
from baton.learn.run.folder import read_lines
from real_tasks.compare import compare
from real_tasks.runs import ALONE

__all__ = ["RUNS", "reproduce"]

COURSES = "task.name=reasoning:course_schedule"
SHORT = "team.max_tokens=64"
"""A problem of courses is handed on word for word, a sum is not; slots for long answers take memory."""
HALF = tuple(f"policies.{name}.dtype=bfloat16" for name in ("orchestrator", "worker"))
"""Half of the memory: of long rounds and long answers much is kept."""
RUNS = {
    "team": ("reasoning",),
    "uniform": ("reasoning-uniform",),
    "single": ("reasoning-single",),
    "worked": ("reasoning-worked",),
    "tools": ("reasoning-tools", *HALF),
    "stop": ("reasoning-stop", *HALF),
    "stop-uniform": ("reasoning-stop-uniform", *HALF),
    "spawn-sum": ("reasoning-spawn", SHORT),
    "spawn-course": ("reasoning-spawn", COURSES),
}
"""A recipe and what is set in it, by the folder's name."""
MORE_TRIES = 8
"""Of an agent alone, which costs less: as many as a team's tokens buy however prefixes are counted."""
_LOOK_SECONDS = 1.0
_TELL_SECONDS = 20.0


class _Run(NamedTuple):
    folder: Path
    command: tuple[str, ...]

    @property
    def begun(self) -> bool:
        return (self.folder / "run.json").exists()

    @property
    def finished(self) -> bool:
        return (self.folder / "measured.jsonl").exists() and self._status() == "finished"

    def _status(self) -> str:
        return str(json.loads((self.folder / "run.json").read_text("utf-8"))["status"])

    def at(self) -> str:
        """For people: how far it is."""
        lines = read_lines(self.folder / "metrics.jsonl") if self.begun else []
        return f"{self.folder.name} {lines[-1]['step'] if lines else 0}"


def reproduce(args: argparse.Namespace) -> int:
    """0: everything is finished and compared; 1: something failed; 2: the slice is over, the same command goes on."""
    out = Path(args.reproduce)
    out.mkdir(parents=True, exist_ok=True)
    runs = [_run(out, name, seed, args) for seed in range(args.seeds) for name in _chosen(args)]
    deadline = time.monotonic() + 60 * args.minutes
    failed = _play([run for run in runs if not run.finished], args.processes, deadline, args.finish)
    for run in failed:
        print(f"{run.folder.name} failed: {_last_words(run)}", file=sys.stderr)
    begun = [str(run.folder) for run in runs if run.begun]
    if begun:
        compare(begun, str(out / "curves.svg"))
        print(f"\ncurves: {out / 'curves.svg'}")
    if failed:
        return 1
    left = [run for run in runs if not run.finished]
    if left:
        print(f"{len(left)} of {len(runs)} runs are not finished. To go on, type the same command again.")
    return 2 if left else 0


def _chosen(args: argparse.Namespace) -> list[str]:
    for name in args.only:
        if name not in RUNS:
            raise UsageError(f"--only: there is no run {name!r}. {nearest(name, RUNS)}")
    return args.only or [*RUNS]


def _run(out: Path, name: str, seed: int, args: argparse.Namespace) -> _Run:
    recipe, *changes = RUNS[name]
    folder = out / f"{name}-{seed}"
    command = [sys.executable, str(Path(__file__).parents[1] / "real_task.py"), "--train", recipe]
    tries = args.tries * (MORE_TRIES if recipe in ALONE else 1)
    command += ["--out", str(folder), "--instances", str(args.instances), "--tries", str(tries)]
    if not (folder / "run.json").exists():
        for change in (*changes, f"train.seed={seed}", *args.changes):
            command += ["--set", change]
    return _Run(folder, tuple(command))


def _play(waiting: list[_Run], processes: int, deadline: float, finish: bool) -> list[_Run]:
    """Runs that failed."""
    playing: dict[_Run, subprocess.Popen[bytes]] = {}
    failed: list[_Run] = []
    told = time.monotonic()
    try:
        while playing or (waiting and time.monotonic() < deadline):
            while waiting and len(playing) < processes and time.monotonic() < deadline:
                run = waiting.pop(0)
                playing[run] = _started(run, (deadline - time.monotonic()) / 60, finish)
            time.sleep(_LOOK_SECONDS)
            over = [run for run, process in playing.items() if process.poll() is not None]
            failed += [run for run in over if playing.pop(run).returncode]
            if time.monotonic() - told > _TELL_SECONDS:
                told = time.monotonic()
                print("  ".join(run.at() for run in playing), file=sys.stderr, flush=True)
    finally:
        for process in playing.values():
            process.terminate()
    return failed


def _started(run: _Run, minutes: float, finish: bool) -> subprocess.Popen[bytes]:
    command = [*run.command, "--minutes", f"{minutes:.2f}", *(["--finish"] if finish else [])]
    # What one run does not use is of use to the others.
    env = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", **os.environ}
    with _log(run).open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=env)


def _log(run: _Run) -> Path:
    return run.folder.with_suffix(".log")


def _last_words(run: _Run) -> str:
    lines = _log(run).read_text("utf-8", "replace").strip().splitlines()
    last = lines[-1] if lines else "it said nothing"
    advice = " Type the same command with fewer --processes." if "OutOfMemoryError" in last else ""
    return f"{last} (all of it: {_log(run)}){advice}"
