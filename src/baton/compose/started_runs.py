"""Runs that are started from the viewer's page: each is the command one would type, in a process of its own.

Invariant: what is run is made of names that Baton or an installed package has, of policies that were typed where the
viewer was started, and of whole numbers. Nothing that a trace or a recipe file names is used, and `--trust` is never
given. A run goes on when the viewer ends.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from baton.errors import UsageError, nearest
from baton.games.reference import REFERENCE
from baton.registry import names

_NAME = re.compile(r"[\w][\w.-]{0,63}", re.ASCII)
_MOST = 16
_TAIL_BYTES = 2_000


class RunOrder(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person fills in: a team on a task, or a recipe to train by."""

    kind: Literal["run", "train"] = "run"
    name: str
    """The folder it gets, below the one that is looked at."""
    task: str = ""
    topology: str = ""
    """Empty: the task's own."""
    policy: str = "reference"
    clock: Literal["virtual", "real"] = "virtual"
    seed: int = 0
    rollouts: int = 1
    recipe: str = ""
    steps: int | None = None


class _Started(Struct, eq=False):
    name: str
    command: tuple[str, ...]
    process: subprocess.Popen[bytes]
    log: Path
    began: float


class StartedRuns:
    """The runs that were started here."""

    def __init__(self, folder: Path, policies: Sequence[str] = ()) -> None:
        """`policies` were typed where the viewer was started, and may be chosen besides those of Baton."""
        self._folder = folder
        self._policies = tuple(dict.fromkeys(("reference", *REFERENCE, *policies)))
        self._started: dict[str, _Started] = {}
        self._lock = threading.Lock()

    def choices(self) -> dict[str, Any]:
        """What can be filled in."""
        return {
            "folder": self._folder.name or str(self._folder),
            "tasks": list(names("task")),
            "topologies": list(names("topology")),
            "policies": list(self._policies),
            "recipes": list(names("recipe")),
        }

    def start(self, order: RunOrder) -> dict[str, Any]:
        """Begin a run; returns what was typed for it."""
        words = self._words(order)
        with self._lock:
            if sum(one.process.poll() is None for one in self._started.values()) >= _MOST:
                raise UsageError(f"{_MOST} runs are going on already. Wait for one, or end one.")
            before = self._started.get(order.name)
            if before is not None and before.process.poll() is None:
                raise UsageError(f"{order.name} is at work already. Give another name.")
            place = self._folder / order.name
            if order.kind == "train" and place.exists():
                raise UsageError(f"{order.name} is there already. Give another name.")
            if place.is_symlink():
                raise UsageError(f"{order.name} is a link. Give another name.")
            logs = self._folder / ".started"
            logs.mkdir(parents=True, exist_ok=True)
            log = logs / f"{order.name}.log"
            with log.open("wb") as told:
                process = subprocess.Popen(
                    [sys.executable, "-m", "baton", *words],
                    stdin=subprocess.DEVNULL,
                    stdout=told,
                    stderr=told,
                    start_new_session=True,
                )
            typed = ("baton", *words)
            self._started[order.name] = _Started(order.name, typed, process, log, time.time())
        return {"name": order.name, "command": list(typed)}

    def told(self) -> list[dict[str, Any]]:
        """How each of them goes."""
        with self._lock:
            return [
                {
                    "name": one.name,
                    "command": list(one.command),
                    "code": one.process.poll(),
                    "began": one.began,
                    "said": _tail(one.log),
                }
                for one in self._started.values()
            ]

    def end(self, name: str) -> dict[str, Any]:
        """Stop a run as Ctrl-C does: everything so far is kept."""
        with self._lock:
            one = self._started.get(name)
            if one is None:
                raise UsageError(f"{name!r} was not started here. {nearest(name, self._started)}")
            if one.process.poll() is None:
                with suppress(ProcessLookupError):
                    os.kill(one.process.pid, signal.SIGINT)
        return {"ended": name}

    def _words(self, order: RunOrder) -> list[str]:
        if not _NAME.fullmatch(order.name):
            raise UsageError(
                f"{order.name[:80]!r} cannot name a folder: expected letters, digits, _ - and ., and no other first."
            )
        out = ["--out", str(self._folder / order.name)]
        if order.kind == "train":
            _known("recipe", order.recipe, names("recipe"))
            steps = [] if order.steps is None else ["--set", f"train.steps={_whole('steps', order.steps, 1)}"]
            return ["train", order.recipe, *steps, *out]
        _known("task", order.task, names("task"))
        _known("policy", order.policy, self._policies)
        words = ["run", order.task, "--policy", order.policy, "--seed", str(_whole("seed", order.seed, 0))]
        words += ["--clock", order.clock]
        if order.topology:
            _known("topology", order.topology, names("topology"))
            words += ["--topology", order.topology]
        if order.rollouts != 1:
            words += ["--rollouts", str(_whole("rollouts", order.rollouts, 1))]
        return [*words, *out]


def _known(what: str, given: str, known: Sequence[str]) -> None:
    if given not in known:
        raise UsageError(f"there is no {what} {given[:80]!r} here. {nearest(given, known)}")


def _whole(what: str, given: int, least: int) -> int:
    if not least <= given < 2**31:
        raise UsageError(f"{what} is {given}; expected a whole number from {least} on.")
    return given


def _tail(log: Path) -> str:
    """The end of what a run said."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            return file.read().decode("utf-8", "replace").rpartition("\r")[2].strip()
    except OSError:
        return ""
