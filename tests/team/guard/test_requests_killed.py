"""A run that is killed while a call waits for its endorsement: when it goes on, the person is asked again, once."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from child_process import on_path

from baton.trace.formats import read
from baton.trace.trace import Trace
from baton.trace.validation import validate

CHILD = """
import asyncio, sys, time
from pathlib import Path
from test_guard import GOOD, READ, TOOLS, says
from baton.team.recording import StoreJournal
from baton.team.running import Run, header_of, resuming, start
from baton.team.team import Assignment, Team
from baton.team.tools import make_tools
from baton.team.tools.tool import tool
from baton.team.topology import make_topology
from baton.trace.formats import read
from baton.trace.formats.sqlite.store import Store

folder, clock, then = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

@tool(consequential=True)
def pay(to: str, amount: int, note: str = "") -> str:
    "Acts on the world."
    with (folder / "paid").open("a") as file:
        file.write(f"{to}\\n")
    return f"paid {to}"

tools = make_tools([TOOLS[0], TOOLS[1], pay])
team = Team.of(
    make_topology("harness", tools=tuple(tools)),
    says(READ, 'call pay {"to": "bob", "amount": 5}', 'call pay {"to": "eve", "amount": 6}', "stop ok"),
    tools=tools, clock=clock,
    guard={"tools": {"pay": {"endorse": ["person"]}}, "wait_seconds": 600},
)
task = Assignment(task_id="t", prompt="pay bob 5 and eve 6")
path = folder / "run.db"

def go(going):
    def person(request):
        to = request.arguments["to"]
        with (folder / "asked").open("a") as file:
            file.write(f"{to}\\n")
        if to == "eve" and then == "hang":
            time.sleep(600)
        going.decide(request, approved=then != "refuse" or to == "bob")
    going.state.ask_person = person
    asyncio.run(going.go())

with Store.open(path, durability="process") as store:
    if len(sys.argv) == 5:
        trace = read(path)
        go(resuming(trace, team, task, StoreJournal(store, store.writer(trace.trace_id))))
    else:
        go(start(team, task, journal=StoreJournal(store, store.begin(header_of(team, task)))))
"""


def child(folder: Path, *words: str) -> subprocess.Popen[str]:
    here = Path(__file__).parent
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder), *words],
        env=on_path(here, here.parents[1] / "support"),
        stderr=subprocess.PIPE,
        text=True,
    )


def lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def killed_while_it_waits(folder: Path, clock: str, *more: str) -> None:
    before = len(lines(folder / "asked"))
    process = child(folder, clock, "hang", *more)
    try:
        for _ in range(1200):
            if lines(folder / "asked")[before:][-1:] == ["eve"] or process.poll() is not None:
                break
            time.sleep(0.05)
        assert lines(folder / "asked")[-1:] == ["eve"], process.stderr and process.stderr.read()
    finally:
        process.kill()
        process.communicate()


def goes_on(folder: Path, clock: str, then: str) -> Trace:
    process = child(folder, clock, then, "again")
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    trace = read(folder / "run.db")
    assert trace.finished
    assert validate(trace) == []
    return trace


@pytest.mark.parametrize("clock", ["virtual", "real"])
def test_it_is_asked_again_once(tmp_path: Path, clock: str) -> None:
    killed_while_it_waits(tmp_path, clock)
    cut = read(tmp_path / "run.db")
    requests = [e for e in cut.events if "request" in e.extra and e.status == "in_doubt"]
    assert len(requests) == 2, "what a person is asked about is written down before"
    assert lines(tmp_path / "paid") == ["bob"]
    killed_while_it_waits(tmp_path, clock, "again")  # and again
    trace = goes_on(tmp_path, clock, "approve")
    assert lines(tmp_path / "asked") == ["bob", "eve", "eve", "eve"], (
        "bob's was decided; eve's is asked once each"
    )
    assert lines(tmp_path / "paid") == ["bob", "eve"], "each once"
    asked = [e.id for e in trace.events if "request" in e.extra and e.status == "in_doubt"]
    assert asked == [e.id for e in requests]
    assert sum(e.type == "human_intervention" for e in trace.events) == 2


def test_it_may_be_refused_then(tmp_path: Path) -> None:
    killed_while_it_waits(tmp_path, "virtual")
    trace = goes_on(tmp_path, "virtual", "refuse")
    assert lines(tmp_path / "asked") == ["bob", "eve", "eve"]
    assert lines(tmp_path / "paid") == ["bob"]
    assert any("a person refused it" in (trace.text(e.content_ref) or "") for e in trace.events)
