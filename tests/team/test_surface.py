"""What must hold of both surfaces: write–read identity, no exception, spans in order, linear time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

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
from baton.team.surface import Lines, Parsed, ParseError, Surface, Tools

ALL = frozenset(VERBS)
SURFACES = [Lines(), Tools(), Tools(["search", "python", 'odd "name"'])]

nasty = st.sampled_from(
    [
        "</tool_call>",
        "<tool_call>",
        '"',
        '\\"',
        "\n",
        "\r\n",
        "```",
        "any",
        "all",
        "stop now",
        " ",
        "\u2028",
        ":",
        "{",
    ]
)
text = st.one_of(st.text(), st.lists(nasty | st.text(max_size=5), max_size=6).map("".join))
name = st.one_of(st.sampled_from(["worker", "worker-1", "any", "all", "search", "stop"]), text)
names = st.lists(name, max_size=4).map(tuple)
json_value: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
actions: st.SearchStrategy[Action] = st.one_of(
    st.builds(Spawn, name, text),
    st.builds(Delegate, name, text),
    st.builds(Send, name, text),
    st.builds(CallTool, name, st.dictionaries(text, json_value, max_size=3)),
    st.builds(Wait, names, st.sampled_from(["all", "any"])),
    st.builds(Cancel, st.lists(name, min_size=1, max_size=3).map(tuple)),
    st.builds(Aggregate, name, names),
    st.builds(Return, text),
    st.builds(Stop, text),
)
fragments = st.lists(
    nasty
    | st.sampled_from(
        [*VERBS, *(f"\n{verb} " for verb in VERBS), '{"name": "stop", "arguments": ', "{}}", "[", "]"]
    )
    | st.text(max_size=4),
    max_size=12,
).map("".join)


def check_spans(found: list[Parsed | ParseError], said: str) -> None:
    assert found
    at = 0
    for item in found:
        assert at <= item.start <= item.end <= len(said)
        at = item.end


@pytest.mark.parametrize("surface", SURFACES, ids=["lines", "tools", "tools-named"])
@given(action=actions)
def test_an_action_is_read_back_as_written(surface: Surface, action: Action) -> None:
    said = surface.render(action)
    assert surface.parse(said, ALL) == [Parsed(action, 0, len(said))]


@pytest.mark.parametrize("surface", SURFACES, ids=["lines", "tools", "tools-named"])
@given(several=st.lists(actions, min_size=1, max_size=4))
def test_several_actions_among_prose(surface: Surface, several: list[Action]) -> None:
    said = "Let me think.\n" + "\nand then\n".join(surface.render(action) for action in several) + "\nDone."
    found = surface.parse(said, ALL)
    assert [item.action for item in found if isinstance(item, Parsed)] == several
    check_spans(found, said)
    for item, action in zip(found, several, strict=True):
        assert said[item.start : item.end] == surface.render(action)


@pytest.mark.parametrize("surface", SURFACES, ids=["lines", "tools", "tools-named"])
@given(
    said=text | fragments | st.text(st.characters(categories=["Cs", "Lu"])),
    verbs=st.frozensets(st.sampled_from(sorted(VERBS))),
)
@example("<tool_call>" + "[" * 5000, ALL)
@example('stop "\ud800', ALL)
@example('<tool_call>{"name": "stop", "arguments": {"answer": "\ud800"}}</tool_call>', ALL)
@example('{"name": "search", "arguments": ' + '{"a":' * 200 + "1" + "}" * 201, ALL)
def test_no_text_raises(surface: Surface, said: str, verbs: frozenset[str]) -> None:
    found = surface.parse(said, verbs)
    check_spans(found, said)
    for item in found:
        if isinstance(item, Parsed):
            assert item.action.__struct_config__.tag in verbs
        else:
            assert item.message


HOSTILE = [
    *("<tool_call>", '<tool_call>"', '<tool_call>{"a":', '<tool_call>{"', "</tool_call>", '"<tool_call>['),
    *('"', "[", "{", "\\", " ", "\n", "```", "stop ", "stop\n", 'wait "', "wait a,", "call x {\n"),
]


@pytest.mark.parametrize("unit", HOSTILE)
@pytest.mark.parametrize("lead", ["", '<tool_call>{"name": "', 'wait "', 'call x {"a": "'])
def test_long_hostile_text_is_read(unit: str, lead: str) -> None:
    """Quadratic work on these would show as minutes."""
    said = lead + unit * (400_000 // len(unit))
    for surface in (Lines(), Tools(["x"])):
        check_spans(surface.parse(said, ALL), said)


@pytest.mark.parametrize("surface", SURFACES, ids=["lines", "tools", "tools-named"])
def test_a_verb_that_is_not_allowed(surface: Surface) -> None:
    verbs = frozenset({"return", "send"})
    [error] = surface.parse(surface.render(Spawn("worker", "x")), verbs)
    assert isinstance(error, ParseError)
    assert "'spawn'" in error.message
    assert "return, send" in error.message


@pytest.mark.parametrize("surface", SURFACES, ids=["lines", "tools", "tools-named"])
@pytest.mark.parametrize("said", ["", "Stop here and think.", "hm\n\nyes"])
def test_no_action_at_all(surface: Surface, said: str) -> None:
    [error] = surface.parse(said, frozenset({"stop"}))
    assert isinstance(error, ParseError)
    assert (error.start, error.end) == (0, len(said))
    assert "stop" in error.message
    assert "For example" in error.message


@pytest.mark.parametrize("surface", SURFACES, ids=["lines", "tools", "tools-named"])
def test_the_examples_shown_to_a_model_parse(surface: Surface) -> None:
    for verb in VERBS:
        [error] = surface.parse("nothing", frozenset({verb}))
        assert isinstance(error, ParseError)
        shown = error.message.split("For example: ")[1]
        [item] = surface.parse(shown, frozenset({verb}))
        assert isinstance(item, Parsed)
        assert item.action.__struct_config__.tag == verb
