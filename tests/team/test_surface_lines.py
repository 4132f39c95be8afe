"""One-line commands, as models write them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from baton.team.action import (
    VERBS,
    Action,
    Aggregate,
    CallTool,
    Cancel,
    Delegate,
    Return,
    Send,
    Spawn,
    Stop,
    Wait,
)
from baton.team.surface import Lines, Parsed, ParseError

ALL = frozenset(VERBS)


@pytest.mark.parametrize(
    ("said", "action"),
    [
        ("spawn worker: count: to 3", Spawn("worker", "count: to 3")),
        ("  spawn worker :  x  ", Spawn("worker", "x")),
        ('spawn "data scientist": x', Spawn("data scientist", "x")),
        ("delegate worker-1: again", Delegate("worker-1", "again")),
        ('send worker-1: "two\\nlines"', Send("worker-1", "two\nlines")),
        ('send worker-1: "yes" is what it said', Send("worker-1", '"yes" is what it said')),
        ("call clock", CallTool("clock")),
        ('call search {"q": [1, "x"]}', CallTool("search", {"q": [1, "x"]})),
        ('call search: {"q": 1}', CallTool("search", {"q": 1})),
        ('call search{"q": 1}', CallTool("search", {"q": 1})),
        ("wait", Wait()),
        ("wait any", Wait((), "any")),
        ("wait all", Wait()),
        ("wait a b", Wait(("a", "b"))),
        ("wait any a, b", Wait(("a", "b"), "any")),
        ('wait "any"', Wait(("any",))),
        ("cancel a, b", Cancel(("a", "b"))),
        ("aggregate", Aggregate()),
        ("aggregate first a b", Aggregate("first", ("a", "b"))),
        ("return the sum: 3", Return("the sum: 3")),
        ('stop ""', Stop("")),
        ("stop 42\r", Stop("42")),
    ],
)
def test_commands(said: str, action: Action) -> None:
    [item] = Lines().parse(said, ALL)
    assert isinstance(item, Parsed)
    assert item.action == action


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("spawn", "ROLE is missing"),
        ("spawn worker do it", "no ':' after ROLE 'worker'"),
        ("spawn worker:", "text is missing"),
        ("send : hello", "AGENT is missing"),
        ("call", "TOOL is missing"),
        ("call search [1]", "not a JSON object"),
        ('call search {"q":', "ends too early"),
        ("call search q=1", "not JSON on one line"),
        ("cancel", "no agent is named"),
        ('wait a "b', "is not a name"),
        ("return", "text is missing"),
        ("stop", "text is missing"),
    ],
)
def test_malformed_commands_say_what_was_expected(said: str, reason: str) -> None:
    [error] = Lines().parse(said, ALL)
    assert isinstance(error, ParseError)
    assert reason in error.message
    assert "Expected: " + said.split()[0] in error.message
    assert (error.start, error.end) == (0, len(said))


@pytest.mark.parametrize(
    "prose", ["Stop here", "STOP", "wait, no", "returning now", "- stop 3", "return: 3", "(stop)"]
)
def test_prose_is_not_a_command(prose: str) -> None:
    [item] = Lines().parse(f"{prose}\nwait", ALL)
    assert isinstance(item, Parsed)
    assert item.action == Wait()
    assert (item.start, item.end) == (len(prose) + 1, len(prose) + 5)


def test_good_and_bad_commands_stand_in_order() -> None:
    found = Lines().parse("spawn a: x\nspawn b\nwait any", ALL)
    assert [type(item) for item in found] == [Parsed, ParseError, Parsed]


def test_description_names_what_is_open_and_nothing_else() -> None:
    tool = SimpleNamespace(
        name="search", description="Find pages.", schema={"properties": {"q": {"type": "string"}}}
    )
    said = Lines().describe(frozenset({"call", "return"}), [tool])
    assert 'search {"q":{"type":"string"}}  Find pages.' in said
    assert "return text" in said
    assert "spawn" not in said
    assert "search" not in Lines().describe(frozenset({"return"}), [tool])
    assert Lines().schemas(ALL, ["worker"], [tool]) == ()
