"""Whatever was acknowledged is there after a crash, and the run goes on to the same end."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

import pytest
from chaos import TOPOLOGY_NAMES, make_team
from child_process import with_support
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.engine.scripted import ScriptedEngine
from baton.team.protocol import Request
from baton.team.recording import StoreJournal
from baton.team.running import header_of, resume, run
from baton.team.team import Assignment, Team
from baton.team.tools.tool import Registry, tool
from baton.team.topology import make_topology
from baton.trace.canonical import canonical_hash
from baton.trace.formats import read
from baton.trace.formats.sqlite.store import Store
from baton.trace.trace import End, Record, Trace
from baton.trace.validation import validate


class Crash(Exception):
    """The process dies here."""


class CrashingJournal(StoreJournal):
    """Dies at its n-th commit, before or after it took hold."""

    def __init__(self, store: Store, trace: Trace | None, header: object, dies_at: int, after: bool) -> None:
        writer = store.begin(header) if trace is None else store.writer(trace.trace_id)  # type: ignore[arg-type]  # a Header
        super().__init__(store, writer)
        self.store, self.left, self.after = store, dies_at, after

    def commit(self) -> None:
        self.left -= 1
        if self.left < 0 and not self.after:
            raise Crash
        super().commit()
        if self.left < 0:
            raise Crash


def run_with_crashes(
    topology: str, seed: int, path: Path, crashes: Iterable[tuple[int, bool]], clock: str
) -> Trace:
    """Run, dying at each crash point and resuming, until it is done."""
    team, assignment = make_team(topology, seed, clock=clock)  # type: ignore[arg-type]  # one of the two
    header = header_of(team, assignment)
    points = iter(crashes)
    while True:
        dies_at, after = next(points, (10**9, False))
        trace = read(path) if path.exists() else None
        if trace is not None and trace.finished:
            return trace
        store = Store.open(path, durability="process")
        try:
            journal = CrashingJournal(store, trace, header, dies_at, after)
            store.commit()
            if trace is None:
                asyncio.run(run(team, assignment, journal=journal))
            else:
                asyncio.run(resume(trace, team, assignment, journal))
        except Crash:
            store._records.clear()  # what was not committed is gone with the process
            store._links.clear()
            store._payloads.clear()
            store._ahead.clear()
            store._changed.clear()
        finally:
            store.close()


@pytest.mark.parametrize("topology", TOPOLOGY_NAMES)
@given(seed=st.integers(0, 10**6), crashes=st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=4))
@settings(max_examples=10)
def test_resumed_runs_end_with_the_hash_of_the_uninterrupted_one(
    tmp_path_factory: pytest.TempPathFactory, topology: str, seed: int, crashes: list[tuple[int, bool]]
) -> None:
    team, assignment = make_team(topology, seed)
    whole = asyncio.run(run(team, assignment))
    path = tmp_path_factory.mktemp("store") / "run.db"
    trace = run_with_crashes(topology, seed, path, crashes, "virtual")
    assert validate(trace) == []
    assert canonical_hash(trace, times=True) == canonical_hash(whole, times=True)


@given(
    seed=st.integers(0, 10**6),
    crashes=st.lists(st.tuples(st.integers(0, 30), st.booleans()), min_size=1, max_size=3),
)
@settings(max_examples=15)
def test_real_clock_runs_resume_without_loss_or_repetition(
    tmp_path_factory: pytest.TempPathFactory, seed: int, crashes: list[tuple[int, bool]]
) -> None:
    trace = run_with_crashes(
        "centralized", seed, tmp_path_factory.mktemp("store") / "run.db", crashes, "real"
    )
    assert validate(trace) == []
    assert trace.finished


def _paying_team(ledger: Path) -> tuple[Team, Assignment]:
    @tool
    def pay(amount: int) -> str:
        """Spends money: neither pure nor idempotent."""
        with ledger.open("a") as file:
            file.write(f"{amount}\n")
        if ledger.with_suffix(".die").exists():
            raise Crash
        return "paid"

    def script(request: Request) -> str:
        turn = sum(entry.speaker == "assistant" for entry in request.entries)
        return ['call pay {"amount": 3}', "stop " + request.entries[-1].text.replace("\n", " ")][turn]

    team = Team.of(
        make_topology("centralized", tools=("pay",)), ScriptedEngine("s", script), tools=Registry([pay])
    )
    return team, Assignment(task_id="t", prompt="p")


@pytest.mark.parametrize("heard", [False, True])
def test_a_tool_that_may_have_acted_is_left_in_doubt(tmp_path: Path, heard: bool) -> None:
    ledger, path = tmp_path / "ledger", tmp_path / "run.db"
    team, assignment = _paying_team(ledger)

    class Dies(StoreJournal):
        """The crash comes while the tool runs, or when it was heard of: before its result is in its place."""

        def keep(self, body: bytes) -> None:
            if not heard:
                raise Crash
            super().keep(body)

        def extend(self, records: Iterable[Record]) -> None:
            records = list(records)
            if any(getattr(r, "type", "") == "tool_result" for r in records):
                raise Crash
            super().extend(records)

        def end(self, end: End) -> None:
            raise AssertionError("not reached")

    with Store.open(path) as store:
        writer = store.begin(header_of(team, assignment))
        with pytest.raises(Crash):
            asyncio.run(run(team, assignment, journal=Dies(store, writer)))
    trace = read(path)
    assert [e.type for e in trace.events] == ["tool_call"]
    with Store.open(path) as store:
        done = asyncio.run(resume(trace, team, assignment, StoreJournal(store, store.writer(trace.trace_id))))
    assert ledger.read_text() == "3\n"  # once, not twice
    status = "ok" if heard else "in_doubt"
    assert [(e.type, e.status) for e in done.events][:2] == [("tool_call", "ok"), ("tool_result", status)]
    assert ("paid" if heard else "not known") in (done.text(done.events[-1].content_ref) or "")
    assert validate(done) == []


CHILD = """
import asyncio, sys
from pathlib import Path
from chaos import make_team
from baton.team.recording import StoreJournal
from baton.team.running import header_of, resume, run
from baton.trace.formats import read_all
from baton.trace.formats.sqlite.store import Store

path, seed = Path(sys.argv[1]), int(sys.argv[2])
team, assignment = make_team("swarm", seed, peers=12, clock="real")
trace = next(iter(read_all(path)), None) if path.exists() and path.stat().st_size else None

class Loud(StoreJournal):
    events = ()
    def extend(self, records):
        records = list(records)
        self.events = [r.id for r in records if hasattr(r, "seq")]
        super().extend(records)
    def commit(self):
        super().commit()
        print(*self.events, flush=True)
        self.events = ()

with Store.open(path, durability="process") as store:
    if trace is None:
        writer = store.begin(header_of(team, assignment))
        store.commit()
        asyncio.run(run(team, assignment, journal=Loud(store, writer)))
    elif not trace.finished:  # killed after its end was written, before it could say so
        asyncio.run(resume(trace, team, assignment, Loud(store, store.writer(trace.trace_id))))
print("DONE", flush=True)
"""


def _killed_run(path: Path, seed: int, rng: random.Random) -> tuple[list[str], int]:
    """Run in a process that is killed at random moments, until it gets through. What it acknowledged, and the kills."""
    acknowledged: list[str] = []
    kills = 0
    while True:
        command = [
            sys.executable,
            "-c",
            textwrap.dedent(CHILD),
            str(path),
            str(seed),
        ]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=with_support())
        assert child.stdout is not None
        lines = rng.randrange(0, 25) if kills < 6 else 10**9
        assert kills < 10, "a run that is no longer killed must get through"
        finished = False
        for _ in range(lines):
            line = child.stdout.readline()
            if not line or line.strip() == "DONE":
                finished = line.strip() == "DONE"
                break
            acknowledged += line.split()
        if finished:
            child.wait()
            child.stdout.close()
            return acknowledged, kills
        os.kill(child.pid, signal.SIGKILL)
        rest = child.stdout.read()
        acknowledged += [
            word
            for line in rest.splitlines()
            if line != "DONE" and rest.endswith("\n")
            for word in line.split()
        ]
        child.wait()
        child.stdout.close()
        kills += 1


@pytest.mark.parametrize("seed", range(3))
def test_killed_processes_lose_nothing_they_acknowledged(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "run.db"
    acknowledged, kills = _killed_run(path, seed, random.Random(seed))
    trace = read(path)
    assert kills > 0
    assert trace.finished
    assert validate(trace) == []
    ids = [event.id for event in trace.events]
    assert len(set(ids)) == len(ids)
    assert len(set(acknowledged)) == len(acknowledged)  # nothing was journaled twice
    assert set(acknowledged) <= set(ids)
