"""Tools read out of what models say, and what is not well formed left as text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.errors import UsageError
from baton.serve.backends.reading import read_completion, split_thought
from baton.serve.exchange import Ask, ToolAsk, ToolOffer, Utterance
from baton.serve.tool_parsers import PARSERS, find_parser, parser_of

WEATHER = ToolOffer(
    name="get_weather",
    description="The weather\nof a place",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
)
ADD = ToolOffer(
    name="add",
    parameters={"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
)
DONE = ToolOffer(name="transfer_to_billing")
TOOLS = (WEATHER, ADD, DONE)

READ = [
    (
        "hermes",
        '<tool_call>\n{"name": "add", "arguments": {"a": 1,  "b": 2}}\n</tool_call>',
        "",
        [("add", '{"a": 1,  "b": 2}')],
    ),
    (
        "hermes",
        'Both:\n<tool_call>{"name":"add","arguments":{}}</tool_call>\n'
        '<tool_call>{"name":"x","arguments":{"y":[]}}',
        "Both:",
        [("add", "{}"), ("x", '{"y":[]}')],
    ),
    ("hermes", '<tool_call>{"name":"add","arguments":"{\\"a\\": 3}"}</tool_call>', "", [("add", '{"a": 3}')]),
    (
        "hermes",
        '<tool_call>[{"name":"add"},{"name":"get_weather","arguments":null}]</tool_call>',
        "",
        [("add", "{}"), ("get_weather", "{}")],
    ),
    (
        "hermes",
        '<tool_call>{"name": "add", "arguments": {"a": </tool_call> hm',
        '<tool_call>{"name": "add", "arguments": {"a": </tool_call> hm',
        [],
    ),
    (
        "hermes",
        '<tool_call>nonsense</tool_call><tool_call>{"name":"add"}</tool_call>',
        "<tool_call>nonsense</tool_call>",
        [("add", "{}")],
    ),
    (
        "llama",
        '{"name": "get_weather", "parameters": {"city": "Rom"}}',
        "",
        [("get_weather", '{"city": "Rom"}')],
    ),
    (
        "llama",
        '<|python_tag|>{"name": "add", "parameters": {"a": 1}}; {"name": "other", "parameters": {}}',
        "",
        [("add", '{"a": 1}'), ("other", "{}")],
    ),
    (
        "llama",
        '[get_weather(city="Oslo", days=2), add(a=1, b=-2.5)]',
        "",
        [("get_weather", '{"city": "Oslo", "days": 2}'), ("add", '{"a": 1, "b": -2.5}')],
    ),
    ("llama", '<|python_tag|>brave_search.call(query="x")', "", [("brave_search", '{"query": "x"}')]),
    ("llama", '{"name": "unknown", "parameters": {}}', '{"name": "unknown", "parameters": {}}', []),
    ("llama", 'add(a=__import__("os"))', 'add(a=__import__("os"))', []),
    ("mistral", '[TOOL_CALLS][{"name": "add", "arguments": {"a": 1}}]', "", [("add", '{"a": 1}')]),
    (
        "mistral",
        'Yes.[TOOL_CALLS]add[ARGS]{"a": 1}[TOOL_CALLS]f.g[CALL_ID]abc[ARGS]{}',
        "Yes.",
        [("add", '{"a": 1}'), ("f.g", "{}")],
    ),
    ("mistral", ' [{"name": "add", "arguments": {}}]', "", [("add", "{}")]),
    ("mistral", "[TOOL_CALLS] oh", "[TOOL_CALLS] oh", []),
    (
        "xml",
        "Hm.<tool_call>\n<function=get_weather>\n<parameter=city>\nNew\nYork\n</parameter>\n"
        "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
        "Hm.",
        [("get_weather", '{"city": "New\\nYork", "days": 3}')],
    ),
    (
        "xml",
        "<function=get_weather><parameter=city>7</parameter><parameter=days>soon</parameter></function>",
        "",
        [("get_weather", '{"city": "7", "days": "soon"}')],
    ),
    (
        "lines",
        'Well.\ncall add {"a": 1, "b": 2}\ncall get_weather New York',
        "Well.",
        [("add", '{"a": 1, "b": 2}'), ("get_weather", '{"city": "New York"}')],
    ),
    ("json", '{"name": "add", "arguments": {"a": 1}}', "", [("add", '{"a": 1}')]),
    ("json", 'Yes. <|tool_call|>[{"name": "add", "arguments": {}}]', "Yes.", [("add", "{}")]),
    ("json", '```json\n[{"name": "add"}, {"name": "add"}]\n```', "", [("add", "{}"), ("add", "{}")]),
    ("json", 'functools[{"name": "add", "arguments": {"a": [1]}}]', "", [("add", '{"a": [1]}')]),
    ("json", '[get_weather(city="Oslo")]', "", [("get_weather", '{"city": "Oslo"}')]),
    ("json", '{"name": "else"}', '{"name": "else"}', []),
    ("json", '{"name": "add"} is how', '{"name": "add"} is how', []),
    ("lines", "call transfer_to_billing", "", [("transfer_to_billing", "{}")]),
    (
        "lines",
        "call add 1 2\ncall me later\ncall get_weather {oops",
        "call add 1 2\ncall me later\ncall get_weather {oops",
        [],
    ),
    ("lines", 'a <tool_call>{"name": "add"}</tool_call>', "a", [("add", "{}")]),
]


@pytest.mark.parametrize(("parser", "said", "text", "asked"), READ)
def test_read(parser: str, said: str, text: str, asked: list[tuple[str, str]]) -> None:
    read = PARSERS[parser].read(said, TOOLS)
    assert (read.text, [tuple(each) for each in read.asked]) == (text, asked)


@pytest.mark.parametrize("name", PARSERS)
@given(
    said=st.text(max_size=60) | st.text(alphabet='<tool_cal>{}[]"name:,argumentsTOLCS=/ \n()', max_size=80)
)
def test_reading_never_fails(name: str, said: str) -> None:
    read = PARSERS[name].read(said, TOOLS)
    assert read.asked or read.text == said


@pytest.mark.parametrize("deep", ["[" * 100_000, "{" * 100_000, "(" * 100_000, '{"a":' * 50_000])
@pytest.mark.parametrize("name", PARSERS)
def test_deep_nesting_is_text(name: str, deep: str) -> None:
    for said in (deep, f"<tool_call>{deep}", f"[TOOL_CALLS]{deep}", f"call add {deep}", f"f({deep})"):
        assert PARSERS[name].read(said, TOOLS).asked == []


@pytest.mark.parametrize("name", PARSERS)
def test_what_is_written_is_read_again(name: str) -> None:
    """The form a model is shown for its earlier uses is the form that is read."""
    parser = PARSERS[name]
    uses = [
        ToolAsk(id="1", name="get_weather", arguments='{"city": "a\\n\\"b\\" é", "days": 2}'),
        ToolAsk(id="2", name="add", arguments="{}"),
    ]
    read = parser.read(parser.write(uses), TOOLS)
    assert [(each.name, json.loads(each.arguments)) for each in read.asked] == [
        (use.name, json.loads(use.arguments)) for use in uses
    ]
    assert read.text == ""
    offer = parser.offer(TOOLS)
    assert offer == "" if name == "bare" else all(tool.name in offer for tool in TOOLS)


def test_which_form_a_template_shows() -> None:
    assert parser_of("{{ tools }} <tool_call>").name == "hermes"
    assert parser_of("{{ tools }} <tool_call><function=x>").name == "xml"
    assert parser_of({"default": "", "tool_use": "tools [TOOL_CALLS]"}).name == "mistral"
    assert parser_of("tools <|start_header_id|>ipython").name == "llama"
    assert parser_of("{{ messages }}").name == "lines"
    assert parser_of("{{ tools }}").name == "json"
    assert parser_of(None).name == "lines"
    with pytest.raises(UsageError, match="Did you mean 'hermes'"):
        find_parser("herms")


def _ask(**more: object) -> Ask:
    return Ask(
        dialect="chat", model="m", messages=(Utterance(speaker="user", text="q"),), tools=TOOLS, **more
    )  # type: ignore[arg-type]


def test_reading_a_completion() -> None:
    said = "<think>\nhm\n</think>\n\ncall add {}\ncall transfer_to_billing"
    lines = PARSERS["lines"]
    read = read_completion(said, _ask(), key="k/1", finish="stop", parser=lines)
    assert (read.message.thinking, read.message.text, read.finish) == ("hm", "", "tool_calls")
    ids = [use.id for use in read.message.uses]
    assert len(set(ids)) == 2
    again = read_completion(said, _ask(), key="k/1", finish="stop", parser=lines)
    assert [use.id for use in again.message.uses] == ids
    other = read_completion(said, _ask(), key="k/2", finish="stop", parser=lines)
    assert not {use.id for use in other.message.uses} & set(ids)
    alone = read_completion(said, _ask(parallel=False), key="k", finish="stop", parser=lines)
    assert len(alone.message.uses) == 1
    assert alone.rules == {"parallel": "the first of 2 tools"}
    none = read_completion(said, _ask(tool_choice="none"), key="k", finish="length", parser=lines)
    assert (none.message.uses, none.finish, none.message.text) == (
        (),
        "length",
        said.partition("</think>")[2].lstrip(),
    )


def test_thoughts() -> None:
    assert split_thought("<think>a</think>b") == ("a", "b")
    assert split_thought("a</think>\nb", in_thought=True) == ("a", "b")
    assert split_thought("a</think>b") == ("", "a</think>b")
    assert split_thought("<think>cut") == ("cut", "")
    assert split_thought("b <think>a</think>") == ("", "b <think>a</think>")
