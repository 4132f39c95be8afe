"""An answer of many lines costs what its length costs: nothing is done over the whole of it for each line."""

from __future__ import annotations

import asyncio

import pytest

from baton.engine.scripted import ScriptedEngine
from baton.team.protocol import Answer, Request
from baton.team.running import run
from baton.team.team import Assignment, Team
from baton.team.tools.tool import Registry, tool
from baton.team.topology import make_topology
from baton.trace.records import Floats, Ints


@tool(pure=True, instant=True)
def look(q: int) -> str:
    """Look at something."""
    return f"seen {q} é"


def test_spans_are_found_without_a_copy_of_all_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f'call look {{"q": {n}}}' + " " * (n % 3) for n in range(400)]
    text = "\n".join(lines)
    ends = [*range(3, len(text), 3), len(text)]
    answer = Answer(
        text=text,
        policy="p",
        completion_ids=Ints(range(len(ends))),
        token_ends=Ints(ends),
        logprobs=Floats([-0.001 * (n % 7) for n in range(len(ends))]),
        completion_tokens=len(ends),
    )

    def play(request: Request) -> str | Answer:
        return answer if len(request.entries) < 3 else "stop done"

    copies: list[int] = []
    plain = Ints.tolist
    monkeypatch.setattr(Ints, "tolist", lambda self: copies.append(len(self)) or plain(self))
    team = Team.of(
        make_topology("centralized", tools=("look",)), ScriptedEngine("s", play), tools=Registry([look])
    )
    trace = asyncio.run(run(team, Assignment(task_id="t", prompt="p")))
    assert copies.count(len(ends)) < 5
    called = [event for event in trace.events if event.type == "tool_call"]
    assert len(called) == 400
    starts = [0, *ends[:-1]]
    for event in called[::37]:  # tokens that have a character of the command in them, one by one
        assert event.span is not None
        said = trace.text(event.content_ref)
        position = text.index(f"call look {said.replace(':', ': ')}" if said else "?")
        long = len(lines[int(event.id.partition("#")[2]) - 1].rstrip())
        touched = [k for k in range(len(ends)) if starts[k] < position + long and ends[k] > position]
        assert event.span[0] == touched[0]
        assert event.span[1] >= touched[-1] + 1
