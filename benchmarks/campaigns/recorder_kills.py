"""Recorders that are killed with SIGKILL: what a line of code acknowledged can be read, once and as it was.

One file is recorded into ten times, each time by a process that dies at a moment drawn from the seed; what the
message about a torn last line says to type is typed.
"""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path
from zlib import crc32

from baton.errors import FormatError
from baton.trace.formats import read_all
from baton.trace.recorder import Recorder
from baton.trace.trace import Trace
from baton.trace.validation import validate
from campaigns.campaign import Row, Tally, run_child

_DEATHS_OF_A_FILE = 10


def recorder_kills(count: int, seed: int, folder: Path) -> Row:
    tally = Tally("recorder killed")
    draw = random.Random(seed)
    for number in range(count):
        if number % _DEATHS_OF_A_FILE == 0:
            suffix = ".db" if (number // _DEATHS_OF_A_FILE) % 2 else ".jsonl"
            path = folder / f"recorded{number}{suffix}"
            acknowledged: dict[str, list[str]] = {}
        _one(tally, path, f"life-{number}", acknowledged, draw)
    return tally.row()


def _one(
    tally: Tally, path: Path, name: str, acknowledged: dict[str, list[str]], draw: random.Random
) -> None:
    tally.tries += 1
    where = f"{path.name} {name}"
    child_draw = random.Random(draw.random())
    died = run_child(
        lambda pipe: _record(path, name, child_draw, pipe),
        path.with_suffix(".said"),
        kill_after=draw.random() * 0.05,
    )
    tally.faults += died.killed
    if not died.killed:
        tally.wrong(f"{where}: ended by itself: {died.said[-300:]}")
    acknowledged[name] = died.lines()
    traces = _read(tally, path, where)
    for known, lines in acknowledged.items():
        _compare(tally, f"{path.name} {known}", lines, traces.get(known))


def _record(path: Path, name: str, draw: random.Random, pipe: int) -> None:
    """Record for ever; acknowledge each event with its id and a sum of its text."""
    team = Recorder(path, task_id="campaign", trace_id=name)
    lead = team.agent("lead", role="orchestrator")
    number = 0
    while True:
        text = f"{name} {number} " + "é\n" * draw.choice((0, 3, 400))
        event = lead.decide(draw.choice(("communicate", "delegate")), text)
        os.write(pipe, f"{event} {crc32(text.encode())}\n".encode())
        number += 1


def _read(tally: Tally, path: Path, where: str) -> dict[str, Trace]:
    if not path.exists() or not path.stat().st_size:
        return {}
    for again in range(2):
        try:
            return {trace.trace_id: trace for trace in read_all(path)}
        except FormatError as error:
            _, told, command = str(error).partition("Drop it with: ")
            if again or not told or str(path) not in str(error):
                tally.unclear(f"{where}: {error}")
                return {}
            subprocess.run(["/bin/sh", "-c", command], check=True)  # as a person would
        except Exception as error:
            tally.wrong(f"{where}: {error!r}")
            return {}
    raise AssertionError("not reached")


def _compare(tally: Tally, where: str, lines: list[str], trace: Trace | None) -> None:
    found = [] if trace is None else [_line(trace, k) for k in range(len(trace.events))]
    if found[: len(lines)] != lines:
        if set(lines) - set(found):
            tally.lost(f"{where}: {len(set(lines) - set(found))} acknowledged events are not there")
        else:
            tally.wrong(f"{where}: in another order, or twice")
    if len(found) > len(lines) + 1:
        tally.wrong(f"{where}: {len(found) - len(lines)} events that nobody was told of")
    problems = [] if trace is None else [p for p in validate(trace) if p.code != "structure/unfinished"]
    if problems:
        tally.wrong(f"{where}: {problems[0]}")


def _line(trace: Trace, index: int) -> str:
    event = trace.events[index]
    return f"{event.id} {crc32((trace.text(event.content_ref) or '').encode())}"
