"""Mermaid: whatever a trace says, the diagram stays a diagram."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import arbitrary_traces, texts, valid_traces

from baton.errors import UsageError
from baton.trace import Event, Header, Payload, Trace
from baton.trace.formats.mermaid import encode_mermaid, to_mermaid

# One line of the diagrams we write. Text: letters, digits, a few marks, and character codes.
TEXT = r"(?:[\w .,\-]|#\d+;)*"
LINE = re.compile(
    rf"sequenceDiagram|    (?:participant p\d+ as {TEXT}"
    rf"|p\d+(?:->>|-->>|-x)p\d+: {TEXT}|note over p\d+(?:,p\d+)?: {TEXT})"
)
HOSTILE = [
    "end",
    "a\nend\nparticipant z",
    "x; p0->>p0: y",
    "%%{init: {'theme':'x'}}%%",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "#60;b#62;",
    "&lt;b&gt;",
    "A->>B: hi",
    "```\n# out of the fence",
    "$$x$$",
    "wrap: x",
    "\u2028\u202e\x00",
    "",
]


def trace_saying(agent: str, said: str, **fields: Any) -> Trace:
    payload = Payload.of(said)
    event = Event(id="e", t=0, type="message", agent=agent, seq=0, content_ref=payload.ref, **fields)
    return Trace(header=Header(trace_id="t", task_id="k"), events=(event,), payloads={payload.ref: payload})


def assert_sound(diagram: str) -> None:
    assert diagram.endswith("\n")
    for line in diagram[:-1].split("\n"):
        assert LINE.fullmatch(line), line
    for char in "<>&;\"'`%$":
        assert char not in re.sub(r"#\d+;|-{1,2}>>", "", diagram)
    assert not re.search(r": (?:.* )?end(?: |$)", diagram, re.IGNORECASE | re.MULTILINE)


@given(arbitrary_traces() | valid_traces(), st.integers(1, 4))
def test_sound(trace: Trace, max_events: int) -> None:
    assert_sound(to_mermaid(trace, max_events))


@given(st.sampled_from(HOSTILE) | texts, st.sampled_from(HOSTILE) | texts, st.sampled_from(HOSTILE) | texts)
def test_nothing_said_breaks_out(agent: str, said: str, to: str) -> None:
    assert_sound(to_mermaid(trace_saying(agent, said, to=to, role=agent, tool=said)))


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_fence_holds(hostile: str) -> None:
    text = encode_mermaid(trace_saying(hostile, hostile, to="b"), fenced=True).decode()
    assert text.startswith("```mermaid\n")
    assert text.count("```") == 2
    assert text.endswith("```\n")


def test_reads_as_written() -> None:
    trace = Trace(
        header=Header(trace_id="t", task_id="k"),
        events=(
            Event(id="0", t=0, type="spawn", agent="boss", seq=0, to="ann", role="critic", decision="spawn"),
            Event(id="1", t=1, type="tool_call", agent="ann", seq=1, tool="web"),
            Event(id="2", t=2, type="tool_result", agent="web", seq=2, tool="web", status="failed"),
            Event(id="3", t=3, type="return", agent="ann", seq=3, to="boss"),
            Event(id="4", t=4, type="despawn", agent="boss", seq=4, to="ann"),
            Event(id="5", t=5, type="orchestrator_decision", agent="boss", seq=5, decision="stop"),
        ),
    )
    assert to_mermaid(trace).splitlines() == [
        "sequenceDiagram",
        "    participant p0 as boss",
        "    participant p1 as ann",
        "    participant p2 as web",
        "    p0->>p1: spawn as critic",
        "    p1->>p2: tool call",
        "    p2-->>p1: tool result #91;failed#93;",
        "    p1-->>p0: return",
        "    p0-xp1: despawn",
        "    note over p0: orchestrator decision #40;stop#41;",
    ]


def test_says_what_it_left_out() -> None:
    events = tuple(Event(id=str(n), t=n, type="message", agent=f"a{n % 3}", seq=n) for n in range(250))
    trace = Trace(header=Header(trace_id="t", task_id="k"), events=events)
    lines = to_mermaid(trace, max_events=10).splitlines()
    assert lines[-1] == "    note over p0,p2: 240 more events left out"
    assert len(lines) == 1 + 3 + 10 + 1
    assert "left out" not in to_mermaid(trace, max_events=250)
    with pytest.raises(UsageError, match="max_events"):
        to_mermaid(trace, max_events=0)


def test_long_text_is_cut() -> None:
    longest = max(map(len, to_mermaid(trace_saying("n" * 10_000, "w " * 10_000)).splitlines()))
    assert longest < 120
