"""A Chat Completions request as an ask, and an ask as such a request."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from baton.serve.dialects.chat.conversation import read_messages, write_messages
from baton.serve.dialects.codec import BadAsk
from baton.serve.dialects.fields import Fields, parsed, wrong
from baton.serve.dialects.translation import TEXT_INPUT, told_in
from baton.serve.dialects.wording import rewritten, rewritten_fields, worded_fields, worded_messages
from baton.serve.exchange import Ask, ToolOffer
from baton.trace.records import Sampling

MOST_STOPS = 64
MOST_CHOICES = 128
MOST_ALTERNATIVES = 20

# Which parts of an ask each field tells; what is not here and not `messages` is kept in `extra`.
PARTS: dict[str, tuple[str, ...]] = {
    "model": ("model",),
    "stream": ("stream",),
    "temperature": ("sampling",),
    "top_p": ("sampling",),
    "top_k": ("sampling",),
    "max_tokens": ("sampling",),
    "max_completion_tokens": ("sampling",),
    "stop": ("sampling",),
    "seed": ("seed",),
    "n": ("n",),
    "logprobs": ("logprobs",),
    "top_logprobs": ("logprobs",),
    "response_format": ("json", "json_schema"),
    "tools": ("tools",),
    "functions": ("tools",),
    "tool_choice": ("tool_choice",),
    "function_call": ("tool_choice",),
    "parallel_tool_calls": ("parallel",),
}


def read_request(data: bytes) -> Ask:
    """What a request asks."""
    body = parsed(data)
    fields = Fields(body)
    _no_audio(fields)
    json, schema = _response_format(fields.inner("response_format"))
    units = read_messages(fields)
    ask = Ask(
        dialect="chat",
        model=fields.text("model"),
        messages=tuple(message for unit in units for message in unit.says),
        tools=_tools(fields),
        tool_choice=_tool_choice(fields),
        parallel=fields.flag("parallel_tool_calls", True),
        json=json,
        json_schema=schema,
        sampling=_sampling(fields),
        seed=fields.whole("seed", -(2**63), 2**63 - 1),
        n=fields.whole("n", 1, MOST_CHOICES) or 1,
        logprobs=_logprobs(fields),
        stream=fields.flag("stream", False),
        extra={k: v for k, v in body.items() if k not in PARTS and k != "messages" and v is not None},
    )
    wording: dict[str, Any] = {}
    if messages := worded_messages(units, write_messages):
        wording["messages"] = messages
    if worded := worded_fields(body, _plain(ask), ask, PARTS):
        wording["fields"] = worded
    return replace(ask, wording=wording)


def write_request(ask: Ask) -> dict[str, Any]:
    """The request that asks this."""
    own = ask.dialect == "chat"
    ask = ask if own else told_in(ask, "chat")
    kept = ask.wording.get("messages", ()) if own else ()
    fields = rewritten_fields(ask, _plain(ask), PARTS) if own else _plain(ask)
    extra = ask.extra if own else {}
    return {**fields, "messages": rewritten(ask.messages, kept, write_messages), **extra}


def _no_audio(fields: Fields) -> None:
    modalities = fields.get("modalities")
    if fields.has("audio") or (isinstance(modalities, list) and "audio" in modalities):
        raise BadAsk("`audio` is not served here; ask for text.", field="audio")


def _sampling(fields: Fields) -> Sampling:
    most = fields.whole("max_completion_tokens", 1)
    stop = fields.texts("stop", MOST_STOPS)
    if "" in stop:
        raise BadAsk("`stop` holds an empty string, which would stop before the first token.", field="stop")
    top_k = fields.whole("top_k", -1)
    temperature, top_p = fields.number("temperature", 0, 2), fields.number("top_p", 0, 1)
    return Sampling(
        temperature=1.0 if temperature is None else temperature,
        top_p=1.0 if top_p is None else top_p,
        top_k=top_k if top_k is not None and top_k > 0 else None,
        max_tokens=fields.whole("max_tokens", 1) if most is None else most,
        stop=stop,
    )


def _logprobs(fields: Fields) -> int | None:
    most = fields.whole("top_logprobs", 0, MOST_ALTERNATIVES)
    return (most or 0) if fields.flag("logprobs", False) else None


def _response_format(fields: Fields | None) -> tuple[bool, dict[str, Any] | None]:
    if fields is None:
        return False, None
    kind = fields.text("type")
    if kind == "json_schema":
        inner = fields.inner("json_schema")
        if inner is None:
            raise wrong(fields.at("json_schema"), None, "an object with a `schema`")
        return True, inner.object("schema")
    if kind not in ("text", "json_object"):
        raise wrong(fields.at("type"), kind, "text, json_object or json_schema")
    return kind == "json_object", None


def _tools(fields: Fields) -> tuple[ToolOffer, ...]:
    offers = [_tool(each) for each in fields.each("tools")]
    offers += [_function(each) for each in fields.each("functions")]
    return tuple(offers)


def _tool(fields: Fields) -> ToolOffer:
    kind = fields.text("type")
    inner = fields.inner(kind) if kind in ("function", "custom") else None
    if kind == "function" and inner is None:
        raise wrong(fields.at("function"), None, "an object with a `name`")
    if kind == "function" and inner is not None:
        return _function(inner)
    name = fields.get("name") if inner is None else inner.text("name")
    return ToolOffer(
        name=name if isinstance(name, str) else kind,
        description=inner.text("description", "") if inner is not None else "",
        parameters=TEXT_INPUT if kind == "custom" else {},
        raw=fields.raw,
    )


def _function(fields: Fields) -> ToolOffer:
    name = fields.text("name")
    if not name:
        raise wrong(fields.at("name"), name, "a name of at least one character")
    return ToolOffer(
        name=name, description=fields.text("description", ""), parameters=fields.object("parameters")
    )


def _tool_choice(fields: Fields) -> str:
    name = "tool_choice" if fields.has("tool_choice") else "function_call"
    value = fields.get(name)
    if value is None or value in ("auto", "none", "required"):
        return value or "auto"
    if isinstance(value, str):
        raise wrong(name, value, "auto, none, required, or an object that names a tool")
    chosen = Fields(value, name)
    if name == "function_call":
        return f"tool:{chosen.text('name')}"
    kind = chosen.text("type")
    inner = chosen.inner(kind)
    if inner is None or kind not in ("function", "custom", "allowed_tools"):
        raise wrong(chosen.at("type"), kind, "function, custom or allowed_tools, and what it names")
    return inner.text("mode") if kind == "allowed_tools" else f"tool:{inner.text('name')}"


def _plain(ask: Ask) -> dict[str, Any]:
    """All fields but the messages, in the form that most programs use."""
    drawn = ask.sampling
    fields: dict[str, Any] = {
        "model": ask.model,
        "temperature": None if drawn.temperature == 1.0 else drawn.temperature,
        "top_p": None if drawn.top_p == 1.0 else drawn.top_p,
        "top_k": drawn.top_k,
        "max_completion_tokens": drawn.max_tokens,
        "stop": list(drawn.stop) or None,
        "seed": ask.seed,
        "n": None if ask.n == 1 else ask.n,
        "logprobs": None if ask.logprobs is None else True,
        "top_logprobs": ask.logprobs or None,
        "tools": [write_tool(offer) for offer in ask.tools] or None,
        "tool_choice": None if ask.tool_choice == "auto" else _write_choice(ask),
        "parallel_tool_calls": None if ask.parallel else False,
        "stream": ask.stream or None,
    }
    if ask.json_schema is not None:
        inner = {"name": "answer", "schema": ask.json_schema}
        fields["response_format"] = {"type": "json_schema", "json_schema": inner}
    elif ask.json:
        fields["response_format"] = {"type": "json_object"}
    return {name: value for name, value in fields.items() if value is not None}


def write_tool(offer: ToolOffer) -> dict[str, Any]:
    """A tool as Chat Completions offers it."""
    if offer.raw is not None:
        return offer.raw
    inner: dict[str, Any] = {"name": offer.name}
    if offer.description:
        inner["description"] = offer.description
    if offer.parameters:
        inner["parameters"] = offer.parameters
    return {"type": "function", "function": inner}


def _write_choice(ask: Ask) -> Any:
    kind, _, name = ask.tool_choice.partition(":")
    if kind != "tool":
        return ask.tool_choice
    offered = next((offer for offer in ask.tools if offer.name == name), None)
    kind = "custom" if offered is not None and (offered.raw or {}).get("type") == "custom" else "function"
    return {"type": kind, kind: {"name": name}}
