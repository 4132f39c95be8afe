"""Kills writers, again and again, and checks what they left. Run as a script by test_kill.

It forks from one warm interpreter, so that a kill costs milliseconds; the child resumes from the
store, writes, and sends each acknowledgement down a pipe before it goes on.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from baton.trace import Event, Header, Payload
from baton.trace.formats.parquet.sealing import seal_store
from baton.trace.formats.parquet.shard_read import read_sealed, sealed_ids, verify_sealed
from baton.trace.formats.sqlite.store import Store, Writer
from baton.trace.formats.sqlite.store_read import list_traces, read_store

TRACE_LENGTH = 60
Acknowledged = dict[str, tuple[int, bool]]  # trace -> events, and whether its end


def spawn(work: Callable[[int], None], kill_after: float | None = None) -> tuple[bytes, bool]:
    """Run `work` in a child and perhaps kill it. Gives what it acknowledged, and whether it was killed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reader)
            work(writer)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
        raise SystemExit("a child failed instead of being killed")
    return said, os.WIFSIGNALED(status)


def play(path: Path, rng: random.Random, num_commits: int, acknowledge: int) -> None:
    """Go on with every unfinished trace, keep two under way, acknowledge each commit."""
    with Store.open(path) as store:
        store._connection.execute("PRAGMA wal_autocheckpoint = 10")  # die inside checkpoints, too
        live: dict[str, tuple[Writer, int]] = {}
        summaries = list_traces(path)
        for each in summaries:
            if not each.finished:
                live[each.trace_id] = (store.writer(each.trace_id), len(store.read(each.trace_id).events))
        started = len(summaries)
        for _ in range(num_commits):
            while len(live) < 2:
                name = f"t{started:05d}"
                started += 1
                live[name] = (store.begin(Header(trace_id=name, task_id="x")), 0)
            said = [append_some(live, name, rng) for name in list(live)]
            store.commit()
            os.write(acknowledge, "".join(said).encode())


def append_some(live: dict[str, tuple[Writer, int]], name: str, rng: random.Random) -> str:
    writer, seq = live[name]
    for _ in range(rng.randrange(1, 12)):
        text = Payload.of(f"{name} {seq} " * rng.choice((1, 50)))
        writer.append(text)
        writer.append(
            Event(id=f"e{seq}", t=0.0, type="message", agent="a", seq=seq, content_ref=text.ref, tokens=seq)
        )
        seq += 1
    live[name] = (writer, seq)
    if seq < TRACE_LENGTH:
        return f"{name} {seq} 0\n"
    writer.end()
    del live[name]
    return f"{name} {seq} 1\n"


def check(path: Path, acknowledged: Acknowledged) -> None:
    """All that was acknowledged is there, once, and what is there is a prefix of what was written."""
    if not acknowledged:  # it may have died while it made the store; it must open all the same
        Store.open(path).close()
    traces = {trace.trace_id: trace for trace in read_store(path)}
    for name, (num_events, finished) in acknowledged.items():
        assert len(traces[name].events) >= num_events, f"{name}: acknowledged events were lost"
        assert traces[name].finished or not finished, f"{name}: its end was lost"
    for name, trace in traces.items():
        assert [event.seq for event in trace.events] == list(range(len(trace.events))), (
            f"{name}: not a prefix"
        )
        for event in trace.events:
            text = trace.text(event.content_ref)
            assert text is not None, f"{name}: a payload is missing"
            assert text.startswith(f"{name} {event.seq} "), f"{name}: a payload is wrong"
    assert sorted(traces) == [f"t{index:05d}" for index in range(len(traces))]


def note(acknowledged: Acknowledged, said: bytes) -> None:
    whole = said[: said.rfind(b"\n") + 1].decode()
    for line in whole.splitlines():
        name, num_events, finished = line.split()
        acknowledged[name] = (int(num_events), finished == "1")


def kill_at_random(folder: Path, num_kills: int, seed: int) -> None:
    """Die anywhere: inside a system call, a checkpoint, the making of the store."""
    rng = random.Random(seed)
    for kill in range(num_kills):
        if kill % 100 == 0:  # a fresh store keeps the checks short
            path = folder / f"store{kill}.db"
            acknowledged: Acknowledged = {}
        child_rng = random.Random(rng.random())
        said, _ = spawn(partial(play, path, child_rng, 10**9), kill_after=rng.random() * 0.02)
        note(acknowledged, said)
        check(path, acknowledged)
    print(f"{num_kills} kills")


def kill_at_every_step(folder: Path, ops: int) -> None:
    """Die at every statement (ops = 0) or every so many steps of SQLite's machine; then resume."""
    for at in range(10**6):
        path = folder / f"store{at}.db"
        acknowledged: Acknowledged = {}
        said, killed = spawn(partial(play_and_die, path, at, ops))
        note(acknowledged, said)
        check(path, acknowledged)
        note(acknowledged, spawn(partial(play, path, random.Random(8), 2))[0])
        check(path, acknowledged)
        if not killed:
            print(f"{at} kills")
            return


def play_and_die(path: Path, at: int, ops: int, acknowledge: int) -> None:
    seen = 0

    def count(*_: object) -> None:
        nonlocal seen
        if seen == at:
            os.kill(os.getpid(), signal.SIGKILL)
        seen += 1

    connect = sqlite3.connect

    def connect_and_count(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*args, **options)
        if ops:
            connection.set_progress_handler(count, ops)
        else:
            connection.set_trace_callback(count)
        return connection

    sqlite3.connect = connect_and_count  # in this child alone
    play(path, random.Random(7), 3, acknowledge)


def kill_seals(folder: Path, num_kills: int, seed: int) -> None:
    rng = random.Random(seed)
    for kill in range(num_kills):
        if kill % 10 == 0:
            store, out = folder / f"store{kill}.db", folder / f"out{kill}"
            spawn(partial(play, store, random.Random(kill), 15))
            everything = {trace.trace_id: trace for trace in read_store(store)}
        spawn(lambda _, store=store, out=out: seal_store(store, out), kill_after=rng.random() * 0.04)
        sealed = {}
        if out.exists() and any(out.glob("shard-*")):
            verify_sealed(out)
            names = sealed_ids(out)
            assert len(names) == len(set(names)), "a trace was sealed twice"
            sealed = {trace.trace_id: trace for trace in read_sealed(out)}
        live = {trace.trace_id: trace for trace in read_store(store)}
        assert {**live, **sealed} == everything, "a trace was lost or changed"
        assert all(live[name] == sealed[name] for name in set(live) & set(sealed))
        if kill % 10 == 9:
            seal_store(store, out)
            live = {trace.trace_id: trace for trace in read_store(store)}
            sealed = {trace.trace_id: trace for trace in read_sealed(out)}
            assert not set(live) & set(sealed)
            assert {**live, **sealed} == everything
            assert not list(out.glob(".sealing-*"))
    print(f"{num_kills} kills")


if __name__ == "__main__":
    what, place, first, second = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    if what == "random":
        kill_at_random(place, first, second)
    elif what == "steps":
        kill_at_every_step(place, first)
    else:
        kill_seals(place, first, second)
