"""A Responses request as an ask, and an ask as such a request."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from baton.serve.dialects.codec import BadAsk, Resolve
from baton.serve.dialects.fields import Fields, parsed, wrong
from baton.serve.dialects.responses.conversation import read_input, write_items
from baton.serve.dialects.responses.offers import (
    read_choice,
    read_tools,
    tool_kinds,
    write_choice,
    write_tools,
)
from baton.serve.dialects.translation import told_in
from baton.serve.dialects.wording import (
    Item,
    after,
    before_wording,
    rewritten,
    rewritten_fields,
    worded_fields,
    worded_messages,
)
from baton.serve.exchange import Ask, Utterance
from baton.trace.records import Sampling

LOGPROBS = "message.output_text.logprobs"
MOST_ALTERNATIVES = 20
_ELSEWHERE = {
    "conversation": "is kept by nobody here; send the earlier items in `input`, or a `previous_response_id`",
    "prompt": "names a template that is kept elsewhere; send its text in `instructions` or `input`",
}

# Which parts of an ask each field tells; `input` and `instructions` have their own wording, the rest is `extra`.
PARTS: dict[str, tuple[str, ...]] = {
    "model": ("model",),
    "stream": ("stream",),
    "temperature": ("sampling",),
    "top_p": ("sampling",),
    "max_output_tokens": ("sampling",),
    "top_logprobs": ("logprobs",),
    "tools": ("tools",),
    "tool_choice": ("tool_choice",),
    "parallel_tool_calls": ("parallel",),
    "text": ("json", "json_schema", "extra"),
}


def read_request(data: bytes, resolve: Resolve) -> Ask:
    """What a request asks; `resolve` finds the response it goes on from."""
    body = parsed(data)
    fields = Fields(body)
    _refuse_what_is_elsewhere(fields)
    json, schema, rest = _format(fields.inner("text"))
    before = _before(fields, resolve)
    units = read_input(fields, before)
    instructions = fields.text("instructions", "")
    head = (Utterance(speaker="system", text=instructions),) if instructions else ()
    said = tuple(message for unit in units for message in unit.says)
    if not said and not before:
        raise wrong("input", body.get("input") or None, "a string or a list of items")
    extra = {k: v for k, v in body.items() if k not in (*PARTS, "input", "instructions") and v is not None}
    tools = read_tools(fields)
    ask = Ask(
        dialect="responses",
        model=fields.text("model"),
        messages=(*head, *before, *said),
        tools=tools,
        tool_choice=read_choice(fields),
        parallel=fields.flag("parallel_tool_calls", True),
        json=json,
        json_schema=schema,
        sampling=_sampling(fields),
        logprobs=_logprobs(fields),
        stream=fields.flag("stream", False),
        extra=extra | ({"text": rest} if rest else {}),
    )
    wording: dict[str, Any] = {"instructions": bool(head)} if fields.has("instructions") else {}
    if before:
        wording["before"] = before_wording(before)
    if isinstance(body.get("input"), str):
        wording["input"] = True
    if messages := worded_messages(units, lambda messages: write_items(messages, tool_kinds(tools))):
        wording["messages"] = messages
    if worded := worded_fields(body, _plain(ask), ask, PARTS):
        wording["fields"] = worded
    return replace(ask, wording=wording)


def _refuse_what_is_elsewhere(fields: Fields) -> None:
    for name, why in _ELSEWHERE.items():
        if fields.has(name):
            raise BadAsk(f"`{name}` {why}.", field=name)
    if fields.flag("background", False):
        raise BadAsk("`background` is not served here; ask without it and wait.", field="background")
    modalities = fields.get("modalities")
    if fields.has("audio") or (isinstance(modalities, list) and "audio" in modalities):
        raise BadAsk("`audio` is not served here; ask for text.", field="audio")


def _before(fields: Fields, resolve: Resolve) -> tuple[Utterance, ...]:
    """The conversation up to and with the response that this one goes on from, without its instructions."""
    name = fields.maybe_text("previous_response_id")
    if name is None:
        return ()
    earlier = resolve(name)
    if earlier is None or earlier.reply is None:
        shown = name if len(name) < 80 else name[:79] + "…"
        raise BadAsk(
            f"`previous_response_id` is {shown!r}, and this session gave no such response.",
            field="previous_response_id",
        )
    asked = earlier.ask.messages
    own = asked[1:] if earlier.ask.wording.get("instructions") else asked
    return (*own, earlier.reply.choices[0].message)


def _sampling(fields: Fields) -> Sampling:
    temperature, top_p = fields.number("temperature", 0, 2), fields.number("top_p", 0, 1)
    return Sampling(
        temperature=1.0 if temperature is None else temperature,
        top_p=1.0 if top_p is None else top_p,
        max_tokens=fields.whole("max_output_tokens", 1),
    )


def _logprobs(fields: Fields) -> int | None:
    most = fields.whole("top_logprobs", 0, MOST_ALTERNATIVES)
    return (most or 0) if LOGPROBS in fields.texts("include") or most else None


def _format(fields: Fields | None) -> tuple[bool, dict[str, Any] | None, dict[str, Any]]:
    """Whether the answer must be JSON, of which schema, and what else is said of the text."""
    if fields is None:
        return False, None, {}
    rest = {k: v for k, v in fields.raw.items() if k != "format" and v is not None}
    told = fields.inner("format")
    if told is None:
        return False, None, rest
    kind = told.text("type")
    if kind not in ("text", "json_object", "json_schema"):
        raise wrong(told.at("type"), kind, "text, json_object or json_schema")
    return kind != "text", told.object("schema") if kind == "json_schema" else None, rest


def write_request(ask: Ask) -> dict[str, Any]:
    """The request that asks this."""
    own = ask.dialect == "responses"
    ask = ask if own else told_in(ask, "responses")
    wording = ask.wording if own else {}
    fields = rewritten_fields(ask, _plain(ask), PARTS) if own else _plain(ask)
    extra = {k: v for k, v in ask.extra.items() if k != "text"} if own else {}
    messages = list(ask.messages)
    first = messages[0] if messages else None
    leads = first is not None and first.speaker == "system" and not first.others
    if leads and (wording.get("instructions") or (not own and len(messages) > 1)):
        fields["instructions"] = messages.pop(0).text
    elif wording.get("instructions") is False:
        fields["instructions"] = ""
    rest = after(messages, wording.get("before"))
    if rest is None:
        extra.pop("previous_response_id", None)
    else:
        messages = rest
    kinds = tool_kinds(ask.tools)
    items: list[Item] | str = rewritten(
        messages, wording.get("messages", ()), lambda m: write_items(m, kinds)
    )
    if (
        wording.get("input")
        and len(messages) == 1
        and messages[0].speaker == "user"
        and not messages[0].others
    ):
        items = messages[0].text
    if items or "previous_response_id" not in extra:
        fields["input"] = items
    return {**fields, **extra}


def _plain(ask: Ask) -> dict[str, Any]:
    """All fields but instructions and input, in the form that most programs use."""
    drawn = ask.sampling
    text = dict(ask.extra.get("text") or {}) if ask.dialect == "responses" else {}
    if ask.json_schema is not None:
        text["format"] = {"type": "json_schema", "name": "answer", "schema": ask.json_schema}
    elif ask.json:
        text["format"] = {"type": "json_object"}
    fields: dict[str, Any] = {
        "model": ask.model,
        "temperature": None if drawn.temperature == 1.0 else drawn.temperature,
        "top_p": None if drawn.top_p == 1.0 else drawn.top_p,
        "max_output_tokens": drawn.max_tokens,
        "top_logprobs": ask.logprobs or None,
        "include": None if ask.logprobs is None or ask.dialect == "responses" else [LOGPROBS],
        "tools": write_tools(ask.tools) or None,
        "tool_choice": None if ask.tool_choice == "auto" else write_choice(ask),
        "parallel_tool_calls": None if ask.parallel else False,
        "text": text or None,
        "stream": ask.stream or None,
    }
    return {name: value for name, value in fields.items() if value is not None}
