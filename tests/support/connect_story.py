"""A recorded or imported trace told in plain lines, so that a test can write down by hand what is true."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

import baton
from baton.connect.assemble import assemble
from baton.connect.import_report import ImportReport
from baton.connect.readers.seen_journal import read_journal
from baton.connect.seen import Seen
from baton.trace.records import Event
from baton.trace.trace import Trace

Story = dict[str, list[str]]


def only_in(name: str) -> None:
    """The tests of a module need another system, in the environment that `make test-connect` makes for it."""
    if os.environ.get("BATON_CONNECT") != name:
        pytest.skip(
            f"needs an environment of its own: make test-connect ARGS={name}", allow_module_level=True
        )


def recorded(folder: Path, report: ImportReport | None = None) -> list[Trace]:
    """The traces of all runs that were recorded into a folder, in the order in which they began; all are valid."""
    report = ImportReport() if report is None else report
    traces: list[Trace] = []
    for journal in sorted(folder.glob("journal/*.seen.jsonl")):
        sessions: dict[str, list[Seen]] = {}
        for seen in read_journal(journal, report):
            sessions.setdefault(seen.session, []).append(seen)
        for sightings in sessions.values():
            traces += assemble(sightings, report, kind="seen")
    for trace in traces:
        problems = [problem for problem in baton.validate(trace) if problem.code != "structure/unfinished"]
        assert problems == [], problems
    return traces


def keep_golden(folder: Path, name: str) -> None:
    """With BATON_CONNECT_GOLDEN=DIRECTORY, the journal of a test becomes a golden one."""
    if directory := os.environ.get("BATON_CONNECT_GOLDEN"):
        (journal,) = folder.glob("journal/*.seen.jsonl")
        shutil.copy(journal, Path(directory) / f"{name}.seen.jsonl")


def story(trace: Trace) -> Story:
    """Agent -> what it did, a line each, in its own order."""
    told: Story = {}
    for event in sorted(trace.events, key=lambda event: event.seq):
        told.setdefault(event.agent, []).append(line(trace, event))
    return told


def line(trace: Trace, event: Event) -> str:
    said = trace.text(event.content_ref)
    words = "" if said is None else f": {said}"
    status = "" if event.status == "ok" else f"{event.status} "
    inferred = " (inferred)" if event.inferred else ""
    return f"{status}{_act(trace, event)}{words}{inferred}"


def _act(trace: Trace, event: Event) -> str:
    if event.type == "spawn":
        return f"spawns {event.to}"
    if event.type == "return":
        return f"returns to {event.to}"
    if event.type == "tool_call":
        return f"uses {event.tool}"
    if event.type == "tool_result":
        return f"gets {event.tool}"
    if event.type == "message":
        return f"hands over to {event.to}" if event.decision == "delegate" else f"says to {event.to or 'all'}"
    if event.type == "aggregate":
        sources = {edge.src for edge in trace.edges if edge.dst == event.id and edge.type == "aggregate"}
        return f"aggregates {', '.join(sorted(trace.events[trace.position[source]].agent for source in sources))}"
    if event.type == "orchestrator_decision":
        return f"decides to {event.decision}{'' if event.to is None else f' to {event.to}'}"
    return event.type


def spent(trace: Trace) -> dict[str, list[tuple[int | None, int | None]]]:
    """Agent -> prompt and completion tokens of each of its calls."""
    told: dict[str, list[tuple[int | None, int | None]]] = {}
    for call in sorted(trace.calls, key=lambda call: call.t or 0.0):
        told.setdefault(call.agent, []).append((call.prompt_tokens, call.completion_tokens))
    return told


def prompts(trace: Trace, agent: str) -> list[str]:
    """What was new in each prompt of an agent, as JSON."""
    calls = sorted((call for call in trace.calls if call.agent == agent), key=lambda call: call.t or 0.0)
    return [trace.text(call.prompt_ref) or "" for call in calls]


def edges(
    trace: Trace, kinds: Iterable[str] = ("spawn", "return", "message", "aggregate", "causal")
) -> set[str]:
    """What depends on what, but for the plain order of each agent's own events."""
    by_id = {event.id: event for event in trace.events}
    return {
        f"{by_id[edge.src].agent} {by_id[edge.src].type} -> {by_id[edge.dst].agent} {by_id[edge.dst].type}"
        for edge in trace.edges
        if edge.type in kinds
    }


PAGES = Path(__file__).resolve().parents[2] / "docs" / "connect"
_TIMES = re.compile(r"\d+(\.\d+)?(ms|s)\b|parallelism [\d.]+|\d+ busy at once|[–…].*$")


def check_page(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page's program runs as printed, its commands too, and the picture is what `baton show` prints."""
    from baton.cli import main

    text = (PAGES / f"{name}.md").read_text("utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "baton:" not in done.stderr
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "110")
    (commands,) = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for command in commands.splitlines():
        words = shlex.split(command, comments=True)
        capsys.readouterr()
        assert main(words[1:]) == 0, command
        if words[1] == "show":
            (picture,) = re.findall(r"^```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
            assert _shape(capsys.readouterr().out) == _shape(picture)


def _shape(picture: str) -> list[str]:
    """A tree's lines without its times, its ids and the order of what ran side by side."""
    lines = [re.sub(r"^[│├└─ ]*(e\d+ +)?", "", _TIMES.sub("", line)) for line in picture.splitlines()[1:]]
    return sorted(line.split(" took ")[0].rstrip() for line in lines)
