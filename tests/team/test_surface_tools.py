"""Tool-calling JSON, as chat models write it."""

from __future__ import annotations

from types import SimpleNamespace

import jsonschema
import msgspec
import pytest

from baton.team.action import VERBS, Action, CallTool, Return, Spawn, Stop, Wait
from baton.team.surface import Parsed, ParseError, Tools

ALL = frozenset(VERBS)
surface = Tools(["search", "python"])
STOP = '{"name": "stop", "arguments": {"answer": "x"}}'


@pytest.mark.parametrize(
    ("said", "action"),
    [
        (f"<tool_call>{STOP}</tool_call>", Stop("x")),
        (f"<tool_call>\n  {STOP}\n</tool_call>", Stop("x")),
        (f"<tool_call>\n```json\n{STOP}\n```\n</tool_call>", Stop("x")),
        (f"```\n<tool_call>{STOP}</tool_call>\n```", Stop("x")),
        (f"I will stop.\n<tool_call>{STOP}", Stop("x")),
        (STOP, Stop("x")),
        (f"```json\n{STOP}\n```", Stop("x")),
        (f"[{STOP}]", Stop("x")),
        ('<tool_call>{"name": "stop", "arguments": "{\\"answer\\": \\"x\\"}"}</tool_call>', Stop("x")),
        ('<tool_call>{"name": "wait"}</tool_call>', Wait()),
        ('<tool_call>{"name": "wait", "arguments": ""}</tool_call>', Wait()),
        ('<tool_call>{"name": "search", "arguments": {"q": 1}}</tool_call>', CallTool("search", {"q": 1})),
        ('<tool_call>{"name": "call", "arguments": {"tool": "other"}}</tool_call>', CallTool("other")),
        (
            '<tool_call>{"name": "return", "arguments": {"text": "</tool_call>"}}</tool_call>',
            Return("</tool_call>"),
        ),
    ],
)
def test_calls(said: str, action: Action) -> None:
    [item] = surface.parse(said, ALL)
    assert isinstance(item, Parsed)
    assert item.action == action


def test_a_bare_array_gives_each_call_its_own_span() -> None:
    parts = [STOP, '{"name": "return", "arguments": {"text": "é – [1]"}}', '{"name": "nope"}']
    said = f" [ {parts[0]} ,\n{parts[1]}, {parts[2]}]"
    found = surface.parse(said, ALL)
    assert [said[item.start : item.end] for item in found] == parts
    assert [type(item) for item in found] == [Parsed, Parsed, ParseError]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ('{"name": "stop", ', "not valid JSON"),
        ("", "ends too early"),
        ("[1]", 'a JSON object with "name"'),
        ('{"answer": "x"}', 'a JSON object with "name"'),
        ('{"name": "serch"}', "Did you mean 'search'?"),
        ('{"name": "spwan"}', "Did you mean 'spawn'?"),
        ('{"name": "stop", "arguments": 3}', "not a JSON object"),
        ('{"name": "stop", "arguments": "{"}', "arguments of 'stop' are not valid JSON"),
        ('{"name": "stop", "arguments": {"answer": 3}}', "Expected `str`, got `int` - at `answer`"),
        ('{"name": "spawn", "arguments": {"role": "x"}}', "missing required field `task`"),
        ('{"name": "stop", "arguments": {"answer": "", "why": 1}}', "unknown field `why`"),
        ('{"name": "cancel", "arguments": {"agents": []}}', "no agent is named"),
        ('{"name": "search", "arguments": ' + "[" * 99 + "]" * 99 + "}", "nested deeper"),
        ('{"name": "search", "arguments": {"n": ' + "9" * 9999 + "}}", "out of range"),
    ],
)
def test_bad_calls_say_what_was_expected(said: str, reason: str) -> None:
    said = f"<tool_call>{said}</tool_call>"
    [error] = surface.parse(said, ALL)
    assert isinstance(error, ParseError)
    assert reason in error.message
    assert "For example: <tool_call>" in error.message
    assert (error.start, error.end) == (0, len(said))
    assert len(error.message) < 500


def test_bare_json_that_is_no_call() -> None:
    for said in ('{"answer": "x"}', "[1]", '{"name": "stop"', "[1, "):
        [error] = surface.parse(said, ALL)
        assert isinstance(error, ParseError)
        assert "JSON" in error.message


def test_a_broken_string_does_not_swallow_the_next_call() -> None:
    broken = '<tool_call>{"name": "stop, "arguments": {}}</tool_call>'
    found = surface.parse(f"{broken}\n<tool_call>{STOP}</tool_call>", ALL)
    assert [type(item) for item in found] == [ParseError, Parsed]
    assert found[0].end == len(broken)


def test_tools_need_the_call_verb() -> None:
    [error] = surface.parse('{"name": "search", "arguments": {}}', frozenset({"stop"}))
    assert isinstance(error, ParseError)
    assert "may not call tools" in error.message


def test_schemas_accept_what_parses() -> None:
    tool = SimpleNamespace(name="search", description="Find.", schema={"type": "object", "properties": {}})
    offered = {
        schema["function"]["name"]: schema["function"] for schema in surface.schemas(ALL, ["worker"], [tool])
    }
    assert set(offered) == ALL - {"call"} | {"search"}
    assert offered["spawn"]["parameters"]["properties"]["role"]["enum"] == ["worker"]
    for action in (Spawn("worker", "x"), Stop("x"), Wait(("a",), "any")):
        call = msgspec.json.decode(surface.render(action)[len("<tool_call>") : -len("</tool_call>")])
        jsonschema.validate(call["arguments"], offered[call["name"]]["parameters"])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"role": "boss", "task": "x"}, offered["spawn"]["parameters"])
    assert '"name":"search"' in surface.describe(ALL, [tool])
    assert not any(
        s["function"]["name"] == "search" for s in surface.schemas(frozenset({"stop"}), [], [tool])
    )
