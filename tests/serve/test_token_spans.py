"""The tokens of a tool ask are those of its name and of all its arguments, in whatever form a model writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from baton.serve.exchange import ReplyChoice, ToolAsk, Utterance
from baton.serve.lineage.token_spans import use_spans

_XML = (
    "<tool_call>\n<function=lookup>\n<parameter=word>\nGröße {x}\n</parameter>\n<parameter=times>\n3\n</parameter>\n"
    "</function>\n</tool_call>"
)


def _texts(said: str, uses: list[tuple[str, Any]], text: str = "") -> list[str | None]:
    """What the span of each ask covers, where every character is a token."""
    asks = tuple(
        ToolAsk(id=f"u{place}", name=name, arguments=json.dumps(arguments))
        for place, (name, arguments) in enumerate(uses)
    )
    choice = ReplyChoice(
        message=Utterance(speaker="assistant", text=text, uses=asks),
        said=said,
        completion_ids=list(range(len(said))),
        token_ends=list(range(1, len(said) + 1)),
    )
    return [None if span is None else said[span[0] : span[1]] for span in use_spans(choice)]


@pytest.mark.parametrize(
    ("said", "uses", "text", "expected"),
    [
        ("call lookup grey heron", [("lookup", {"word": "grey heron"})], "", ["call lookup grey heron"]),
        ("call ask a {b}", [("ask", {"q": "a {b}"})], "", ["call ask a {b}"]),
        (
            "call ask scout\ncall scout two birds",
            [("ask", {"q": "scout"}), ("scout", {"task": "two birds"})],
            "",
            ["call ask scout", "call scout two birds"],
        ),
        (_XML, [("lookup", {"word": "Größe {x}", "times": 3})], "", [_XML]),
        (
            'So.\n{"name": "f", "arguments": {"a": {"b": "}"}}} ',
            [("f", {"a": {"b": "}"}})],
            "So.",
            ['{"name": "f", "arguments": {"a": {"b": "}"}}}'],
        ),
        ("call stop", [("stop", {})], "", ["call stop"]),
    ],
)
def test_the_span_of_a_tool_ask_has_all_of_its_arguments(
    said: str, uses: list[tuple[str, Any]], text: str, expected: list[str]
) -> None:
    assert _texts(said, uses, text) == expected
