"""Servers that misbehave: each becomes an error that says so or is tried again, in time, in little memory, and the run
goes on: killed with the bad reply in its journal it is resumed, and replays exactly.
"""

from __future__ import annotations

import os
import random
import re
import signal
from collections.abc import Iterable
from pathlib import Path

from baton.cli import main
from baton.engine.openai import OpenAIEngine, ServerLimits
from baton.learn.stage import failures
from baton.team.recording import StoreJournal
from baton.trace.formats import read_all
from baton.trace.records import Call
from baton.trace.trace import Record, Trace
from baton.trace.validation import validate
from campaigns.campaign import Died, Row, Tally, is_traceback, run_child, warm
from campaigns.misbehaviours import KEY, MISBEHAVIOURS
from campaigns.server import serving

_TIMEOUT = 0.4
_MOST_SECONDS = 60.0
"""A run asks at most a few times in turn, each with two tries."""
_MOST_MEGABYTES = 300


def quick(rest: str) -> OpenAIEngine:
    """The engine of `MODEL@URL` with little patience: `--policy campaigns.servers:quick:MODEL@URL`."""
    model, _, url = rest.rpartition("@")
    limits = ServerLimits(timeout_seconds=_TIMEOUT, retries=1, first_wait_seconds=0.01)
    return OpenAIEngine(model, url, limits=limits)


def misbehaving_servers(count: int, seed: int, folder: Path) -> Row:
    """At most `count` of them, in an order drawn from the seed."""
    tally = Tally("servers that misbehave")
    warm("httpx", "baton.cli.run", "baton.cli.resume", "baton.cli.replay", "baton.tasks.shard_sum")
    names = list(MISBEHAVIOURS)
    random.Random(seed).shuffle(names)
    os.environ["OPENAI_API_KEY"] = KEY
    with serving(folder / "log") as url:
        for name in names[:count]:
            place = folder / re.sub(r"\W", "-", name)
            place.mkdir()
            _one(tally, name, place, f"campaigns.servers:quick:{name}@{url}/{name}/v1")
    return tally.row()


def _one(tally: Tally, name: str, folder: Path, policy: str) -> None:
    tally.tries += 1
    out = folder / "out"
    began = len(tally.row().notes)
    for number, work in enumerate(
        (
            lambda _: _run_and_die(["run", "shard-sum", "--policy", policy, "--out", str(out)]),
            lambda _: main(["resume", str(out), "--trust"]),
            lambda _: main(["replay", str(out), "--trust"]),
        )
    ):
        died = run_child(work, folder / f"said{number}", most_seconds=_MOST_SECONDS)
        _look(tally, name, number, died)
        if len(tally.row().notes) > began:
            return
    tally.faults += 1
    try:
        (trace,) = read_all(out)
    except Exception as error:
        tally.wrong(f"{name}: its trace cannot be read: {error!r}")
        return
    _check(tally, name, trace)
    if any(KEY.encode() in file.read_bytes() for file in folder.rglob("*") if file.is_file()):
        tally.wrong(f"{name}: the key was written down")


def _look(tally: Tally, name: str, number: int, died: Died) -> None:
    what = ("run", "resume", "replay")[number]
    if is_traceback(died.said):
        tally.wrong(f"{name}: {what} printed a traceback: {died.said.strip().splitlines()[-1]}")
    elif died.killed and (number or died.seconds > _MOST_SECONDS):
        tally.wrong(f"{name}: {what} hung for {_MOST_SECONDS} s")
    elif died.megabytes > _MOST_MEGABYTES:
        tally.wrong(f"{name}: {what} took {died.megabytes:.0f} MB more")
    elif number == 2 and (died.code or "identical" not in died.said):
        tally.wrong(f"{name}: its trace does not replay: {died.said.strip()}")
    elif number == 1 and died.code not in (0, 1):
        tally.wrong(f"{name}: it cannot be resumed: {died.said.strip()}")


def _check(tally: Tally, name: str, trace: Trace) -> None:
    kind = MISBEHAVIOURS[name][0]
    if problems := validate(trace):
        tally.wrong(f"{name}: {problems[0]}")
    if not trace.finished:
        tally.wrong(f"{name}: the run has no end")
    errors = [error for _, error in failures(trace)]
    if kind == "error" and not errors:
        tally.silent(f"{name}: was taken for an answer")
    if kind in ("answer", "cured") and errors:
        tally.wrong(f"{name}: {errors[0]}")
    for error in dict.fromkeys(errors):
        if len(error) > 700 or "\n" in error.strip() or not re.search(r"http://|server", error):
            tally.unclear(f"{name}: {error[:300]!r}")


def _run_and_die(command: list[str]) -> int:
    """Run, and be killed as soon as an answer after the first is in the journal."""
    extend, commit, calls = StoreJournal.extend, StoreJournal.commit, 0

    def counting(self: StoreJournal, records: Iterable[Record]) -> None:
        nonlocal calls
        listed = list(records)
        calls += sum(isinstance(record, Call) for record in listed)
        extend(self, listed)

    def dying(self: StoreJournal) -> None:
        commit(self)
        if calls > 1:
            os.kill(os.getpid(), signal.SIGKILL)

    StoreJournal.extend, StoreJournal.commit = counting, dying  # type: ignore[method-assign]  # in this child alone
    return main(command)
