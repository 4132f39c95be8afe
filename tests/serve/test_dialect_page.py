"""docs/serve/dialects.md says of every field what is done with it; here it is held to its word."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from dialect_requests import encoded, request

from baton.serve.dialects import codec_of
from baton.serve.dialects.chat import request as chat
from baton.serve.dialects.codec import BadAsk
from baton.serve.dialects.messages import request as messages
from baton.serve.dialects.responses import request as responses
from baton.serve.exchange import Dialect

PAGE = (Path(__file__).parents[2] / "docs" / "serve" / "dialects.md").read_text()
COLUMNS: dict[Dialect, int] = {"chat": 2, "responses": 3, "messages": 4}
UNDERSTOOD = {"chat": chat.PARTS, "responses": responses.PARTS, "messages": messages.PARTS}


def rows() -> list[list[str]]:
    table = PAGE.split("| field |")[1].split("\n\n")[0]
    return [line.split("|") for line in table.splitlines()[2:]]


@pytest.mark.parametrize("dialect", sorted(COLUMNS))
def test_every_field_that_is_understood_is_on_the_page(dialect: Dialect) -> None:
    told = {
        word
        for row in rows()
        for cell in (row[1], row[COLUMNS[dialect]])
        for word in re.findall(r"[\w.]+", cell)
    }
    heads = {word.split(".")[0] for word in told}
    bare = {"model", "stream"}  # every request names its model; streams have a row
    assert set(UNDERSTOOD[dialect]) - heads == bare


@pytest.mark.parametrize("dialect", sorted(COLUMNS))
def test_what_the_page_says_is_refused_is_refused(dialect: Dialect) -> None:
    values: dict[str, Any] = {"conversation": "conv_1", "prompt": {"id": "p"}, "background": True}
    for row in rows():
        cell = row[COLUMNS[dialect]]
        if "refused" not in cell:
            continue
        for name in re.findall(r"`(\w+)`", cell) or (["audio"] if row[1].strip() == "audio" else []):
            asked = request(dialect, **{name: values.get(name, {"voice": "alto"})})
            with pytest.raises(BadAsk, match=f"`{name}`"):
                codec_of(dialect).read(encoded(asked))


@pytest.mark.parametrize("dialect", sorted(COLUMNS))
def test_what_the_page_says_is_passed_on_is_passed_on(dialect: Dialect) -> None:
    for row in rows():
        cell = row[COLUMNS[dialect]]
        if not cell.strip().startswith("passed on"):
            continue
        for name in re.findall(r"`([\w.]+)`", cell) or re.findall(r"`([a-z_]+)`", row[1]):
            head, _, inner = name.partition(".")
            if row[1].strip().startswith("tools"):
                continue
            value: Any = {inner: "odd"} if inner else {"odd": 1}
            asked = request(dialect, **{head: value})
            ask = codec_of(dialect).read(encoded(asked))
            assert ask.extra[head] == value
            assert codec_of(dialect).request_body(ask) == asked


def test_the_printed_refusal_is_what_is_said() -> None:
    printed = json.loads(PAGE.split("```json\n")[1].split("```")[0])
    with pytest.raises(BadAsk) as refused:
        codec_of("chat").read(encoded(request("chat", temperature=7)))
    bad = refused.value
    told = codec_of("chat").refusal(str(bad), status=bad.status, field=bad.field)
    assert told.body == printed
    assert told.headers == {"x-should-retry": "false"}
