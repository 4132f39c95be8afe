"""A call that was answered is never asked again, whichever clock, and nothing resets what was spent."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cli_runs import traces
from msgspec import structs
from paid_server import PaidServer, serving

from baton.cli import main
from baton.engine.scripted import ScriptedEngine
from baton.team.ahead import Passed
from baton.team.budget import Limits
from baton.team.protocol import Request
from baton.team.recording import StoreJournal
from baton.team.running import header_of, start
from baton.team.team import Assignment, Team
from baton.team.topology import make_topology
from baton.trace.formats import write
from baton.trace.formats.sqlite.store import Store
from baton.trace.formats.sqlite.store_rows import encode
from baton.trace.records import Payload
from baton.trace.validation import validate


@pytest.fixture
def server() -> Iterator[PaidServer]:
    with serving() as made:
        yield made


def num_kept(folder: Path) -> int:
    """Answers that a run has kept so far."""
    try:
        with closing(sqlite3.connect(f"file:{folder}/out/run.db?mode=ro", uri=True)) as connection:
            return int(
                connection.execute("SELECT sum(instr(body, x'63616d65') > 0) FROM ahead").fetchone()[0] or 0
            )
    except sqlite3.OperationalError:  # not made yet
        return 0


def killed(folder: Path, *args: str, until: Callable[[], bool]) -> None:
    """Type a command in a process, and kill it when something has come about."""
    words = [sys.executable, "-m", "baton", *args]
    process = subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while not until():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def run_words(server: PaidServer, *more: str, shards: int = 11) -> tuple[str, ...]:
    task = ("run", "shard-sum", "--set", f"task.num_shards={shards}", "--out", "out")
    return (*task, "--policy", server.policy, *more)


@pytest.mark.parametrize("clock", ["virtual", "real"])
def test_every_answer_is_kept_by_itself(tmp_path: Path, server: PaidServer, clock: str) -> None:
    server.hangs = lambda agent, _: agent == "worker7"  # all of its round are answered but this one
    expected = 11 if clock == "virtual" else 21  # on a real clock the others go on to their second turn
    words = run_words(server, "--clock", clock)
    killed(tmp_path, *words, until=lambda: server.answered.total() == num_kept(tmp_path) == expected)
    before = server.answered.copy()
    server.hangs = lambda _agent, _time: False
    assert main(["resume", str(tmp_path / "out"), "--trust"]) == 0
    (trace,) = traces(tmp_path / "out")
    assert trace.finished
    assert validate(trace) == []
    calls = {agent: sum(call.agent == agent for call in trace.calls) for agent in server.answered}
    assert before["worker7"] == 0
    assert server.answered == calls  # the server was paid once for each call that is in the trace
    assert main(["replay", str(tmp_path / "out")]) == 0


def test_lost_calls_are_charged(tmp_path: Path, server: PaidServer) -> None:
    limit = 10
    more = ("--set", f"limits.calls={limit}")
    server.hangs = lambda agent, time: agent == "worker3" or (agent in ("worker1", "worker5") and time == 1)
    first = run_words(server, *more, shards=5)
    killed(tmp_path, *first, until=lambda: server.asked.total() == 6 and num_kept(tmp_path) == 3)
    again = ("resume", "out", "--trust")
    killed(tmp_path, *again, until=lambda: server.asked["worker3"] == 2 and num_kept(tmp_path) == 5)
    server.hangs = lambda _agent, _time: False
    assert main(["resume", str(tmp_path / "out"), "--trust"]) == 0
    (trace,) = traces(tmp_path / "out")
    assert server.asked.total() <= limit  # the server counts what it was asked, whoever asked
    told = [event.extra["resumed"] for event in trace.events if "resumed" in event.extra]
    assert told[0] == ["worker1:1", "worker3:1", "worker5:1"]
    assert "worker3:1" in told[1]
    assert len(trace.calls) + sum(map(len, told)) >= server.asked.total()
    assert validate(trace) == []
    assert main(["replay", str(tmp_path / "out")]) == 0


@pytest.mark.parametrize("clock", ["virtual", "real"])
def test_a_call_that_is_lost_twice_is_not_asked_beyond_the_limit(
    tmp_path: Path, server: PaidServer, clock: str
) -> None:
    """The first loss, read again from the trace, let go of the call that the second one had to refuse."""
    server.hangs = lambda agent, _: agent == "worker1"
    words = run_words(server, "--clock", clock, "--set", "limits.calls=3", shards=1)
    killed(tmp_path, *words, until=lambda: server.asked.total() == 2)
    killed(tmp_path, "resume", "out", "--trust", until=lambda: server.asked.total() == 3)
    server.hangs = lambda _agent, _time: False
    assert main(["resume", str(tmp_path / "out"), "--trust"]) == 0
    (trace,) = traces(tmp_path / "out")
    assert server.asked.total() == 3
    assert [event.extra.get("refused") for event in trace.events if "resumed" in event.extra] == [
        None,
        ["worker1:1"],
    ]
    assert main(["replay", str(tmp_path / "out")]) == 0


@pytest.mark.parametrize("limit", [4000])
def test_what_lost_calls_are_charged_is_named(
    tmp_path: Path, server: PaidServer, limit: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The trace has 14 tokens for each answered call; the ledger also what was set aside for those that were lost."""
    server.hangs = lambda agent, _: agent in ("worker2", "worker3")
    first = run_words(server, "--set", f"limits.tokens={limit}", shards=3)
    killed(tmp_path, *first, until=lambda: server.asked.total() == 4 and num_kept(tmp_path) == 2)
    server.hangs = lambda _agent, _time: False
    capsys.readouterr()
    assert main(["resume", str(tmp_path / "out"), "--trust"]) == 0
    said = capsys.readouterr().out
    (trace,) = traces(tmp_path / "out")
    (event,) = [event for event in trace.events if "resumed" in event.extra]
    charged = event.extra["charged"]
    assert charged > 0
    assert f"lost     on its way when the run was cut off, and charged in full ({charged:,} tokens)" in said
    answered = sum(call.finish_reason == "stop" for call in trace.calls)
    assert trace.costs["tokens"] == 14 * answered
    (took,) = [line for line in said.splitlines() if line.startswith("took")]
    assert f"{14 * answered:,} tokens and {charged:,} charged for calls that were lost" in took
    assert charged <= limit
    refusals = [e for e in trace.events if e.extra.get("budget") == "tokens" and e.seq > event.seq]
    for each in refusals:
        before = sum(e.tokens or 0 for e in trace.events if e.seq < each.seq)
        assert each.extra["used"] == before + charged
    assert main(["replay", str(tmp_path / "out")]) == 0
    # A trace of before it was named is replayed as it was written.
    words = Payload.of((trace.text(event.content_ref) or "").replace(f" ({charged:,} tokens)", ""))
    extra = {key: value for key, value in event.extra.items() if key != "charged"}
    unnamed = structs.replace(event, extra=extra, content_ref=words.ref)
    events = tuple(unnamed if each is event else each for each in trace.events)
    payloads = {ref: each for ref, each in trace.payloads.items() if ref != event.content_ref}
    write(
        structs.replace(trace, events=events, payloads=payloads | {words.ref: words}), tmp_path / "old.jsonl"
    )
    assert main(["replay", str(tmp_path / "old.jsonl")]) == 0


class Kept(StoreJournal):
    """Has kept something for the run before it begins."""

    bodies: tuple[bytes, ...] = ()

    def kept(self) -> list[bytes]:
        return list(self.bodies)


def test_seconds_before_a_kill_have_passed(tmp_path: Path) -> None:
    seen: list[float] = []

    async def play(_request: Request) -> str:
        seen.append(going.driver.elapsed)
        await asyncio.sleep(600)
        return ""

    topology, limits = make_topology("centralized"), Limits(seconds=50.0)
    team = Team.of(topology, ScriptedEngine("s", play), limits=limits, clock="real")
    assignment = Assignment(task_id="t", prompt="p")
    with Store.open(tmp_path / "run.db") as store:
        journal = Kept(store, store.begin(header_of(team, assignment)))
        journal.bodies = (encode(Passed(17.0)), encode(Passed(49.9)))
        going = start(team, assignment, journal=journal)
        trace = asyncio.run(going.go())
    assert seen[0] >= 49.9
    assert trace.finished
    assert trace.events[0].extra["budget"] == "seconds"
    assert validate(trace) == []
