"""Telling a server what was asked in another dialect: pictures and files, and tools that only some dialects know.

Text, tools and results have one form in an ask. What is left is translated here, part by part; what the other dialect
has no words for is refused rather than left out, except tools that run on their own server: nobody else has them.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from baton.serve.backend import Unanswerable
from baton.serve.exchange import Ask, Dialect, ToolOffer, Utterance

_DATA = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,(.*)", re.DOTALL)
_NAMES = {"chat": "Chat Completions", "responses": "Responses", "messages": "Messages"}
TEXT_INPUT: dict[str, Any] = {
    "type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"],
}  # fmt: skip
"""A tool that takes plain text, as a function: that is how models and servers without such tools know it."""
SHELL_INPUT: dict[str, Any] = {
    "type": "object", "required": ["command"],
    "properties": {"command": {"type": "array", "items": {"type": "string"}}},
}  # fmt: skip


class _Medium(Struct, frozen=True, kw_only=True):
    """A picture or a file: where it is, or itself as a data URL."""

    picture: bool
    url: str
    name: str | None = None


def plain_name(name: str) -> str:
    """A tool's name for servers whose names have no namespaces."""
    return name.replace("/", "__")


def told_in(ask: Ask, dialect: Dialect) -> Ask:
    """The ask with every part in the forms of another dialect."""
    messages = tuple(
        replace(message, others=_parts(message, ask.dialect, dialect)) if message.others else message
        for message in map(_plain_uses, ask.messages)
    )
    tools = tuple(_function(offer) for offer in ask.tools if offer.raw is None or offer.parameters)
    choice = ask.tool_choice
    if choice.startswith("tool:"):
        choice = plain_name(choice)
    return replace(ask, messages=messages, tools=tools, tool_choice=choice)


def _function(offer: ToolOffer) -> ToolOffer:
    return ToolOffer(name=plain_name(offer.name), description=offer.description, parameters=offer.parameters)


def _plain_uses(message: Utterance) -> Utterance:
    if not any("/" in use.name for use in message.uses):
        return message
    return replace(message, uses=tuple(replace(use, name=plain_name(use.name)) for use in message.uses))


def _parts(message: Utterance, source: Dialect, target: Dialect) -> tuple[dict[str, Any], ...]:
    told = []
    for part in message.others:
        kind = part.get("type")
        if kind == "redacted_thinking" or (kind == "refusal" and target != "messages"):
            told += [part] if kind == "refusal" else []
            continue
        medium = _READ[source](part)
        written = None if medium is None else _WRITE[target](medium)
        if written is None:
            what = f"a part of the type {str(kind)[:40]!r}"
            raise Unanswerable(f"{what} of {_NAMES[source]} cannot be told in {_NAMES[target]}; send text.")
        told.append(written)
    return tuple(told)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _from_chat(part: dict[str, Any]) -> _Medium | None:
    inner = part.get("image_url") if part.get("type") == "image_url" else part.get("file")
    inner = inner if isinstance(inner, dict) else {}
    url = _text(inner.get("url")) or _text(inner.get("file_data"))
    picture = part.get("type") == "image_url"
    return None if url is None else _Medium(picture=picture, url=url, name=_text(inner.get("filename")))


def _from_responses(part: dict[str, Any]) -> _Medium | None:
    picture = part.get("type") == "input_image"
    if not picture and part.get("type") != "input_file":
        return None
    url = _text(part.get("image_url" if picture else "file_data")) or _text(part.get("file_url"))
    return None if url is None else _Medium(picture=picture, url=url, name=_text(part.get("filename")))


def _from_messages(part: dict[str, Any]) -> _Medium | None:
    source = part.get("source")
    if part.get("type") not in ("image", "document") or not isinstance(source, dict):
        return None
    url = _text(source.get("url"))
    if source.get("type") == "base64":
        url = f"data:{source.get('media_type')};base64,{source.get('data')}"
    picture = part.get("type") == "image"
    return None if url is None else _Medium(picture=picture, url=url, name=_text(part.get("title")))


def _to_chat(medium: _Medium) -> dict[str, Any] | None:
    if medium.picture:
        return {"type": "image_url", "image_url": {"url": medium.url}}
    if not medium.url.startswith("data:"):
        return None
    return {"type": "file", "file": {"filename": medium.name or "file", "file_data": medium.url}}


def _to_responses(medium: _Medium) -> dict[str, Any] | None:
    if medium.picture:
        return {"type": "input_image", "image_url": medium.url, "detail": "auto"}
    if not medium.url.startswith("data:"):
        return {"type": "input_file", "file_url": medium.url}
    return {"type": "input_file", "filename": medium.name or "file", "file_data": medium.url}


def _to_messages(medium: _Medium) -> dict[str, Any] | None:
    source: dict[str, Any] = {"type": "url", "url": medium.url}
    if data := _DATA.fullmatch(medium.url):
        source = {"type": "base64", "media_type": data[1], "data": data[2]}
    named = {"title": medium.name} if medium.name and not medium.picture else {}
    return {"type": "image" if medium.picture else "document", "source": source, **named}


_READ = {"chat": _from_chat, "responses": _from_responses, "messages": _from_messages}
_WRITE = {"chat": _to_chat, "responses": _to_responses, "messages": _to_messages}
