"""A Messages request as an ask, and an ask as such a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from baton.serve.dialects.codec import BadAsk, Resolve
from baton.serve.dialects.fields import Fields, parsed, wrong
from baton.serve.dialects.messages.conversation import read_blocks, read_messages, write_messages
from baton.serve.dialects.translation import told_in
from baton.serve.dialects.wording import (
    Unit,
    after,
    before_wording,
    rewritten,
    rewritten_fields,
    worded_fields,
    worded_messages,
)
from baton.serve.exchange import Ask, Exchange, ToolOffer, Utterance
from baton.trace.records import Sampling

VERSION = "2023-06-01"
MOST_TOKENS = 4096
"""What is asked of a server where the program set no bound: this dialect has to name one."""
MOST_STOPS = 8192
THREAD = "thread.previous_message_id"
_HEADERS = ("anthropic-version", "anthropic-beta")

# Which parts of an ask each field tells; `messages` and `system` have their own wording, the rest is `extra`.
PARTS: dict[str, tuple[str, ...]] = {
    "model": ("model",),
    "stream": ("stream",),
    "max_tokens": ("sampling",),
    "temperature": ("sampling",),
    "top_p": ("sampling",),
    "top_k": ("sampling",),
    "stop_sequences": ("sampling",),
    "tools": ("tools",),
    "tool_choice": ("tool_choice", "parallel"),
    "output_format": ("json", "json_schema"),
    "output_config": ("json", "json_schema", "extra"),
}


def read_request(data: bytes, headers: Mapping[str, str], resolve: Resolve, *, count: bool = False) -> Ask:
    """What a request asks; `count`: it only wants to know how many tokens that would be."""
    body = parsed(data)
    fields = Fields(body)
    schema, config = _format(fields)
    earlier = _earlier(fields, resolve)
    before = _before(earlier)
    units = read_messages(fields, before)
    system, others = read_blocks(fields, "system")
    says = [*before, *(message for unit in units for message in unit.says)]
    if system or others:
        says.insert(0, Utterance(speaker="system", text=system, others=others))
    extra = {k: v for k, v in body.items() if k not in (*PARTS, "messages", "system") and v is not None}
    ask = Ask(
        dialect="messages",
        model=fields.text("model"),
        messages=tuple(says),
        tools=earlier.ask.tools
        if earlier is not None and not fields.has("tools")
        else tuple(_tool(each) for each in fields.each("tools")),
        tool_choice=_tool_choice(fields.inner("tool_choice")),
        parallel=not (fields.inner("tool_choice") or Fields({})).flag("disable_parallel_tool_use", False),
        json=schema is not None,
        json_schema=schema,
        sampling=_sampling(fields, count),
        stream=fields.flag("stream", False),
        extra=extra | ({"output_config": config} if config else {}),
    )
    wording = _wording(body, ask, units, headers)
    return replace(ask, wording=wording | ({"before": before_wording(before)} if before else {}))


def _earlier(fields: Fields, resolve: Resolve) -> Exchange | None:
    """The exchange whose answer a thread goes on from."""
    thread = fields.inner("thread")
    if thread is None or thread.get("type") != "continue":
        return None
    name = thread.text("previous_message_id")
    earlier = resolve(name)
    if earlier is None or earlier.reply is None:
        why = f"`{THREAD}` is {name[:80]!r}, and this session gave no such message."
        raise BadAsk(why, field=THREAD, status=404)
    return earlier


def _before(earlier: Exchange | None) -> tuple[Utterance, ...]:
    """What the server holds of a thread: system, conversation and answer."""
    if earlier is None or earlier.reply is None:
        return ()
    return (*earlier.ask.messages, earlier.reply.choices[0].message)


def _wording(
    body: dict[str, Any], ask: Ask, units: Sequence[Unit], headers: Mapping[str, str]
) -> dict[str, Any]:
    wording: dict[str, Any] = {}
    if messages := worded_messages(units, write_messages):
        wording["messages"] = messages
    if worded := worded_fields(body, _plain(ask), ask, PARTS):
        wording["fields"] = worded
    if body.get("system") is not None and not (isinstance(body["system"], str) and body["system"]):
        wording["system"] = body["system"]
    if len(ask.messages) == sum(len(unit.says) for unit in units) and ask.messages[0].speaker == "system":
        wording["leads"] = False  # it is a message of its own, not the request's `system`
    if told := {name: headers[name] for name in _HEADERS if name in headers}:
        wording["headers"] = told
    return wording


def write_request(ask: Ask) -> dict[str, Any]:
    """The request that asks this."""
    own = ask.dialect == "messages"
    ask = ask if own else told_in(ask, "messages")
    wording = ask.wording if own else {}
    fields = rewritten_fields(ask, _plain(ask), PARTS) if own else _plain(ask)
    messages = list(ask.messages)
    extra = {k: v for k, v in ask.extra.items() if k != "output_config"} if own else {}
    rest = after(messages, wording.get("before"))
    if rest is not None:
        return {**fields, "messages": rewritten(rest, wording.get("messages", ()), write_messages), **extra}
    if wording.get("before"):
        extra.pop("thread", None)
    came = wording.get("system")
    leads = len(messages) > 1 and messages[0].speaker == "system" and wording.get("leads", True)
    first = messages.pop(0) if leads else Utterance(speaker="system")
    if came is not None and _system_of(came) == (first.text, first.others):
        fields["system"] = came
    elif leads:
        parts = [{"type": "text", "text": first.text}, *first.others]
        fields["system"] = parts if first.others else first.text
    items = rewritten(messages, wording.get("messages", ()), write_messages)
    return {**fields, "messages": items, **extra}


def _system_of(value: Any) -> tuple[str, tuple[dict[str, Any], ...]]:
    return read_blocks(Fields({"system": value}), "system")


def request_headers(ask: Ask) -> dict[str, str]:
    """Anthropic's version and betas, as they came."""
    told = ask.wording.get("headers", {}) if ask.dialect == "messages" else {}
    return {"anthropic-version": VERSION, **told}


def _sampling(fields: Fields, count: bool) -> Sampling:
    most = fields.whole("max_tokens", 1)
    if most is None and not count:
        raise wrong("max_tokens", None, "a whole number of at least 1")
    stop = fields.texts("stop_sequences", MOST_STOPS)
    if "" in stop:
        raise BadAsk("`stop_sequences` holds an empty string.", field="stop_sequences")
    temperature, top_p = fields.number("temperature", 0, 2), fields.number("top_p", 0, 1)
    return Sampling(
        temperature=1.0 if temperature is None else temperature,
        top_p=1.0 if top_p is None else top_p,
        top_k=fields.whole("top_k", 0) or None,
        max_tokens=most,
        stop=stop,
    )


def _format(fields: Fields) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """The schema an answer must have, and what else is said of the output."""
    config = fields.inner("output_config")
    told = (
        fields.inner("output_format")
        if config is None or not config.has("format")
        else config.inner("format")
    )
    rest = {} if config is None else {k: v for k, v in config.raw.items() if k != "format" and v is not None}
    if told is None:
        return None, rest
    if told.text("type") != "json_schema":
        raise wrong(told.at("type"), told.get("type"), "json_schema")
    return told.object("schema"), rest


def _tool(fields: Fields) -> ToolOffer:
    kind = fields.text("type", "custom")
    if kind != "custom":
        name = fields.get("name")
        return ToolOffer(name=name if isinstance(name, str) else kind, raw=fields.raw)
    name = fields.text("name")
    if not name:
        raise wrong(fields.at("name"), name, "a name of at least one character")
    return ToolOffer(
        name=name, description=fields.text("description", ""), parameters=fields.object("input_schema")
    )


def _tool_choice(fields: Fields | None) -> str:
    if fields is None:
        return "auto"
    kind = fields.text("type")
    if kind == "tool":
        return f"tool:{fields.text('name')}"
    known = {"auto": "auto", "any": "required", "none": "none"}
    if kind not in known:
        raise wrong(fields.at("type"), kind, "auto, any, tool or none")
    return known[kind]


def _plain(ask: Ask) -> dict[str, Any]:
    """All fields but system and messages, in the form that most programs use."""
    drawn = ask.sampling
    config = dict(ask.extra.get("output_config") or {}) if ask.dialect == "messages" else {}
    if ask.json_schema is not None:
        config["format"] = {"type": "json_schema", "schema": ask.json_schema}
    fields: dict[str, Any] = {
        "model": ask.model,
        "max_tokens": drawn.max_tokens or MOST_TOKENS,
        "temperature": None if drawn.temperature == 1.0 else drawn.temperature,
        "top_p": None if drawn.top_p == 1.0 else drawn.top_p,
        "top_k": drawn.top_k,
        "stop_sequences": list(drawn.stop) or None,
        "tools": [write_tool(offer) for offer in ask.tools] or None,
        "tool_choice": _write_choice(ask),
        "output_config": config or None,
        "stream": ask.stream or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def write_tool(offer: ToolOffer) -> dict[str, Any]:
    """A tool as Messages offers it."""
    if offer.raw is not None:
        return offer.raw
    told = {"name": offer.name} | ({"description": offer.description} if offer.description else {})
    return {**told, "input_schema": offer.parameters or {"type": "object", "properties": {}}}


def _write_choice(ask: Ask) -> dict[str, Any] | None:
    kind, _, name = ask.tool_choice.partition(":")
    if kind == "auto" and (ask.parallel or not ask.tools):
        return None
    told: dict[str, Any] = {"type": "any" if kind == "required" else kind}
    if kind == "tool":
        told["name"] = name
    return told if ask.parallel or kind == "none" else {**told, "disable_parallel_tool_use": True}
