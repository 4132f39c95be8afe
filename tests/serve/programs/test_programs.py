"""Unmodified programs of other frameworks through the endpoint: who began whom and who heard whom, against the truth.

Each program runs twice: bare, so that only its prompts tell who asked, and with OpenTelemetry around it, so that its
spans do. `make test-connect` runs this in each framework's own environment.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from program_plays import PROGRAMS, PlayBackend, Program

from baton.serve.server import Serving
from baton.serve.session_trace import session_trace
from baton.trace.trace import Trace
from baton.trace.validation import validate

HERE = Path(__file__).parent
ENV = os.environ.get("BATON_CONNECT")
MINE = [name for name, program in PROGRAMS.items() if program.env == ENV]
if not MINE:
    pytest.skip("no environment of a framework: type make test-connect", allow_module_level=True)
_TRACED = ("openai_agents", "pydantic_ai", "strands", "agent_framework", "smolagents")
"""Environments whose spans name agents, where OpenTelemetry is installed."""


def run(program: Program, folder: Path, *, otel: bool) -> Trace:
    with Serving(folder / "served", PlayBackend(program.plays)) as serving:
        base = f"{serving.address}/s/program/v1"
        environment = {
            **os.environ, "OPENAI_BASE_URL": base, "OPENAI_API_KEY": "none", "HOME": str(folder), **program.settings,
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{base}/traces", "ENABLE_INSTRUMENTATION": "true",
        }  # fmt: skip
        environment |= {"TRACING": "1"} if otel else {"OTEL_SDK_DISABLED": "true"}
        before = [str(HERE / "with_otel.py")] if otel else []
        command = [
            sys.executable,
            *before,
            str(HERE / program.file),
            "How old are the harbour and the bridge?",
        ]
        done = subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert done.stdout.strip().splitlines()[-1] == program.answer
        session = serving.end_session("program")
    trace = session_trace(session.exchanges, session.posted, session.journal.kept.spans, name="program")
    assert validate(trace) == []
    return trace


def plain(agent: str | None) -> str:
    """An agent's name without its number."""
    name, _, number = (agent or "").rpartition("-")
    return name if number.isdigit() else agent or ""


def check(program: Program, trace: Trace, *, by: set[str]) -> None:
    """Names may differ where a framework tells none to the model: then the shape is what counts."""
    spawns = [(plain(e.agent), plain(e.to)) for e in trace.events if e.type == "spawn"]
    lead = {parent for parent, _ in program.spawns} - {child for _, child in program.spawns} - {"program"}
    named = {"main": next(iter(lead), "main"), "ToolCallingAgent": next(iter(lead), "main")}
    found = Counter((named.get(parent, parent), named.get(child, child)) for parent, child in spawns)
    assert found == Counter(program.spawns)
    assert sum(e.type == "return" for e in trace.events) == program.returns
    handed = [
        (plain(e.agent), plain(e.to))
        for e in trace.events
        if e.type == "message" and e.decision == "delegate"
    ]
    assert tuple(handed) == program.handoffs
    assert set(trace.header.meta["asked_by"]) == by
    assert all((e.why is None) == (by == {"traceparent"}) for e in trace.events if e.type == "spawn")


@pytest.mark.parametrize("name", MINE)
def test_prompts_tell_who_asked(name: str, tmp_path: Path) -> None:
    check(PROGRAMS[name], run(PROGRAMS[name], tmp_path, otel=False), by={"words"})


@pytest.mark.parametrize("name", MINE if ENV in _TRACED else [])
def test_spans_tell_who_asked(name: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("opentelemetry.sdk") is None:
        pytest.skip("OpenTelemetry's SDK is not in this environment")
    check(PROGRAMS[name], run(PROGRAMS[name], tmp_path, otel=True), by={"traceparent"})
