"""What was asked can be asked again word for word, and whatever else comes is refused in one sentence."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest
from dialect_bodies import bodies, json_values
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from baton.serve.dialects import codec_of
from baton.serve.dialects.codec import BadAsk
from baton.serve.dialects.fields import without_nulls
from baton.serve.exchange import Ask, Dialect, Utterance
from baton.trace.records import decode_hook, encode_hook

DIALECTS: list[Dialect] = ["chat", "responses", "messages"]


def encoded(body: Any) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()


def through_a_journal(ask: Ask) -> Ask:
    return msgspec.json.decode(msgspec.json.encode(ask, enc_hook=encode_hook), type=Ask, dec_hook=decode_hook)


@pytest.mark.parametrize("dialect", DIALECTS)
@given(data=st.data())
def test_a_request_is_sent_on_as_it_came(dialect: Dialect, data: st.DataObject) -> None:
    body = data.draw(bodies[dialect])
    codec = codec_of(dialect)
    ask = codec.read(encoded(body))
    assert without_nulls(codec.request_body(through_a_journal(ask))) == without_nulls(body)


@pytest.mark.parametrize("dialect", DIALECTS)
@given(data=st.data())
def test_wording_says_nothing_new(dialect: Dialect, data: st.DataObject) -> None:
    """Without it the request is put differently and asks the same."""
    codec = codec_of(dialect)
    ask = replace(codec.read(encoded(data.draw(bodies[dialect]))), wording={})
    plain = codec.request_body(ask)
    again = codec.read(encoded(plain))
    if len(again.messages) == len(ask.messages):  # neighbours of one speaker may be put together
        assert again.tool_choice == ask.tool_choice
        assert [m.speaker for m in again.messages] == [m.speaker for m in ask.messages]
        assert [m.text for m in again.messages] == [m.text for m in ask.messages]
        assert [[u.arguments for u in m.uses] for m in again.messages] == [
            [u.arguments for u in m.uses] for m in ask.messages
        ]
    assert again.sampling == ask.sampling
    assert again.json_schema == ask.json_schema
    assert [tool.name for tool in again.tools] == [tool.name for tool in ask.tools]


@pytest.mark.parametrize("dialect", DIALECTS)
@given(data=st.data())
def test_a_changed_message_is_sent_changed(dialect: Dialect, data: st.DataObject) -> None:
    codec = codec_of(dialect)
    ask = codec.read(encoded(data.draw(bodies[dialect])))
    place = data.draw(st.integers(0, len(ask.messages) - 1))
    told = Utterance(speaker="user", text="No: something else entirely.")
    changed = replace(ask, messages=(*ask.messages[:place], told, *ask.messages[place + 1 :]))
    sent = codec.request_body(changed)
    again = codec.read(encoded(sent))
    assert told.text in " ".join(message.text for message in again.messages)
    others = [message.text for message in ask.messages[:place]]
    assert [message.text for message in again.messages][:place] == others


def _replaced(value: Any, path: list[int], new: Any) -> Any:
    """The value with what stands at the path replaced; a path may stop early."""
    if not path or not isinstance(value, dict | list) or not value:
        return new
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = keys[path[0] % len(keys)]
    value[key] = _replaced(value[key], path[1:], new)
    return value


@pytest.mark.parametrize("dialect", DIALECTS)
@given(data=st.data())
def test_a_request_with_something_wrong_is_refused_or_kept(dialect: Dialect, data: st.DataObject) -> None:
    body = data.draw(bodies[dialect])
    path = data.draw(st.lists(st.integers(0, 9), max_size=6))
    broken = _replaced(copy.deepcopy(body), path, data.draw(json_values))
    codec = codec_of(dialect)
    try:
        ask = codec.read(encoded(broken))
    except BadAsk as bad:
        why, status = str(bad), bad.status
        assert why.endswith((".", ".)"))
        assert "\n" not in why
        assert len(why) < 400
        assert 400 <= status < 500
    else:
        assert without_nulls(codec.request_body(through_a_journal(ask))) == without_nulls(broken)


@pytest.mark.parametrize("dialect", DIALECTS)
@given(data=st.binary(max_size=60) | st.text(max_size=40).map(lambda text: text.encode()))
def test_bytes_that_are_no_request_are_refused(dialect: Dialect, data: bytes) -> None:
    with pytest.raises(BadAsk):
        codec_of(dialect).read(data)
