"""What says nothing is a choice too: none, empty values, truth values; and names that look like somebody else's."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_guard import TOOLS, refusals

from baton.engine.scripted import ScriptedEngine
from baton.errors import UsageError
from baton.measure.safety.taint import taint
from baton.team.agent import Role
from baton.team.guard.values import is_same
from baton.team.protocol import Request
from baton.team.running import run
from baton.team.team import Assignment, Team, Topology
from baton.team.tools import make_tools
from baton.team.tools.tool import Tool, tool
from baton.trace.trace import Trace

MADE: list[dict[str, Any]] = []
READ = 'call web {"q": "x"}'
RULE = {
    "decided_by": "anyone",
    "arguments": {name: ["task"] for name in ("folder", "names", "count", "deep")},
}


@tool(consequential=True)
def wipe(
    folder: str | None = "tmp",
    names: list[str | None] | None = None,
    count: int = 1,
    deep: bool = False,
    where: dict[str, Any] | None = None,
) -> str:
    """Acts on the world; with no folder, on all of them."""
    MADE.append({"folder": folder, "names": names, "count": count, "deep": deep, "where": where})
    return "gone"


def play(
    *turns: str, rule: Any = RULE, prompt: str = "wipe old, 3 times", tools: tuple[Tool, ...] = ()
) -> Trace:
    """One agent that says these, under a guard. What it had made is in MADE."""
    found = make_tools([*(each for each in TOOLS if each.name == "web"), wipe, *tools, "plan"])

    def script(request: Request) -> str:
        said = sum(entry.speaker == "assistant" for entry in request.entries)
        return turns[said] if said < len(turns) else "stop done"

    role = Role(name="lead", verbs=("call", "stop"), tools=tuple(found))
    shape = Topology(name="centralized", root="lead", roles=(role,))
    team = Team.of(shape, ScriptedEngine("s", script), tools=found, guard={"tools": {"wipe": rule}})
    MADE.clear()
    return asyncio.run(run(team, Assignment(task_id="t", prompt=prompt)))


def call(**args: Any) -> str:
    return f"call wipe {json.dumps(args)}"


CHOICES: list[dict[str, Any]] = [
    {"folder": None}, {"folder": ""}, {"folder": " \u00a0"}, {"names": []}, {"names": [None]}, {"names": ["old", ""]},
    {"deep": True}, {"count": 1.5}, {"count": True}, {"where": {}}, {"where": {"old": None}}, {"where": {"old": [[]]}},
    {"where": {"old": True}}, {"where": {"old": {"old": ["old", ["mallory"]]}}}, {"where": {"mallory": "old"}},
    {"folder": "ol"}, {"count": 33}, {"names": ["old", "mallory"]},
]  # fmt: skip


@pytest.mark.parametrize("args", CHOICES, ids=str)
def test_what_says_nothing_is_a_choice(args: dict[str, Any]) -> None:
    trace = play(READ, call(**args))
    assert MADE == []
    assert refusals(trace)
    assert taint(trace).violations == ()


def test_what_stands_in_the_task_or_is_what_leaving_it_out_gives() -> None:
    play(READ, call(folder="old", names=["old"], count=3, deep=False, where={"old": [3, "old"]}))
    play_made = list(MADE)
    assert [each["count"] for each in play_made] == [3]
    for usual in ({}, {"folder": "tmp"}, {"names": None}, {"count": 1}, {"deep": False}):
        play(READ, call(**usual))
        assert len(MADE) == 1


def test_who_has_read_nothing_chooses_what_it_likes() -> None:
    play(call(folder=None, deep=True))
    assert [each["folder"] for each in MADE] == [None]


def test_a_planned_one_is_not_a_truth_value() -> None:
    rule = {"decided_by": "plan", "arguments": {"deep": ["task"]}}
    plan = 'call plan {"calls": [{"tool": "wipe", "arguments": {"where": {"a": [1]}}}]}'
    play(plan, READ, call(where={"a": [True]}), rule=rule)
    assert MADE == []
    play(plan, READ, call(where={"a": [1]}), rule=rule)
    assert len(MADE) == 1
    empty = 'call plan {"calls": [{"tool": "wipe", "arguments": {"folder": "", "names": []}}]}'
    play(empty, READ, call(folder="", names=[]), rule=rule)
    assert len(MADE) == 1


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
    )
)
@settings(max_examples=60)
def test_the_same_as_json_has_it(value: Any) -> None:
    again = json.loads(json.dumps(value))
    assert is_same(value, again)
    assert not is_same([value, True], [again, 1])
    assert not is_same({"a": 0}, {"a": False})


def test_a_role_that_is_named_like_a_person_endorses_nothing() -> None:
    found = make_tools([wipe, "plan"])
    roles = (
        Role(name="lead", verbs=("call", "stop", "spawn", "wait"), spawns=("person",), tools=tuple(found)),
        Role(name="person", verbs=("call", "return"), tools=tuple(found)),
    )
    shape = Topology(name="centralized", root="lead", roles=roles)
    with pytest.raises(UsageError, match="Give the role another name"):
        Team.of(
            shape,
            ScriptedEngine("s", lambda _: "stop"),
            tools=found,
            guard={"tools": {"wipe": {"endorse": ["person"]}}},
        )


@pytest.mark.parametrize("name", ["task", "clean", "any", "prose", "numbers"])
def test_no_tool_is_named_like_a_source(name: str) -> None:
    """Its results would pass for the user's words."""

    @tool(name=name, pure=True)
    def echo(text: str) -> str:
        """Says it back."""
        return text

    with pytest.raises(UsageError, match="a word of guards"):
        play("stop", tools=(echo,))


def test_another_tool_of_the_name_plan_is_judged_like_any() -> None:
    @tool(name="plan", consequential=True)
    def other(calls: list[dict[str, Any]]) -> str:
        """Acts on the world."""
        MADE.append({"calls": calls})
        return "made"

    found = make_tools([other])
    role = Role(name="lead", verbs=("call", "stop"), tools=("plan",))
    shape = Topology(name="centralized", root="lead", roles=(role,))
    turns = ['call plan {"calls": []}', "stop"]

    def script(request: Request) -> str:
        return turns[sum(entry.speaker == "assistant" for entry in request.entries)]

    MADE.clear()
    team = Team.of(shape, ScriptedEngine("s", script), tools=found, guard={})
    trace = asyncio.run(run(team, Assignment(task_id="t", prompt="go")))
    assert MADE == []
    assert "no rule of the guard names it" in str(refusals(trace))
