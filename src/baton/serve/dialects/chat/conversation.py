"""The messages of Chat Completions, in and out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from baton.serve.dialects.codec import BadAsk
from baton.serve.dialects.fields import Fields, wrong
from baton.serve.dialects.wording import Unit
from baton.serve.exchange import ToolAsk, Utterance

_ROLES = "system, developer, user, assistant, tool or function"
LEGACY = "function_call:"
"""Before tools had ids there was one function at a time; its id is its name after this."""


def read_messages(fields: Fields) -> list[Unit]:
    """One unit for each message."""
    names: dict[str, str] = {}
    units = []
    for place, raw in enumerate(fields.entries("messages", needed=True)):
        said = _plain_message(raw)
        plain = said is not None
        if said is None:
            each = Fields(raw, (fields, "messages", place))
            said = _message(each, names)
            if said.uses:
                names |= {use.id: use.name for use in said.uses}
            plain = _write(said) == raw
        units.append(Unit(items=[raw], says=(said,), plain=plain))
    if not units:
        raise BadAsk("`messages` is empty; expected at least one message.", field="messages")
    return units


def _plain_message(raw: Any) -> Utterance | None:
    """A message of nothing but a text: most are, and long conversations are read at every turn."""
    if type(raw) is dict and len(raw) == 2 and type(text := raw.get("content")) is str:
        role = raw.get("role")
        if role == "user" or role == "assistant" or role == "system":
            return Utterance(speaker=role, text=text)
    return None


def _message(fields: Fields, names: dict[str, str]) -> Utterance:
    role = fields.text("role")
    text, others = read_content(fields, "content", "" if role == "assistant" else "\n")
    name = fields.maybe_text("name")
    match role:
        case "system" | "developer":
            return Utterance(speaker="system", text=text, others=others, name=name)
        case "user":
            return Utterance(speaker="user", text=text, others=others, name=name)
        case "tool":
            answers = fields.text("tool_call_id")
            return Utterance(
                speaker="tool", text=text, others=others, answers=answers, name=name or names.get(answers)
            )
        case "function":
            name = fields.text("name")
            return Utterance(speaker="tool", text=text, others=others, answers=LEGACY + name, name=name)
        case "assistant":
            return read_assistant(fields, text, others, name)
    raise wrong(fields.at("role"), role, _ROLES)


def read_assistant(
    fields: Fields, text: str, others: tuple[dict[str, Any], ...], name: str | None
) -> Utterance:
    """What a model said before, or says now."""
    uses = [_use(each) for each in fields.each("tool_calls")]
    if (old := fields.inner("function_call")) is not None:
        called = old.text("name")
        uses.append(ToolAsk(id=LEGACY + called, name=called, arguments=old.text("arguments")))
    if (refusal := fields.maybe_text("refusal")) is not None:
        others = (*others, {"type": "refusal", "refusal": refusal})
    thought = next(
        (
            each
            for each in (fields.get("reasoning_content"), fields.get("reasoning"))
            if isinstance(each, str)
        ),
        "",
    )
    return Utterance(
        speaker="assistant", text=text, thinking=thought, uses=tuple(uses), others=others, name=name
    )


def _use(fields: Fields) -> ToolAsk:
    kind = fields.text("type", "function")
    inner = fields.inner(kind) if kind in ("function", "custom") else None
    if inner is None:
        raise wrong(fields.at("type"), kind, "function or custom, and an object of that name")
    said = inner.text("arguments" if kind == "function" else "input")
    return ToolAsk(id=fields.text("id"), name=inner.text("name"), arguments=said)


def read_content(fields: Fields, name: str, between: str) -> tuple[str, tuple[dict[str, Any], ...]]:
    """Text and other parts of a message, which may be a string or a list of parts."""
    value = fields.get(name)
    if value is None or isinstance(value, str):
        return value or "", ()
    if not isinstance(value, list):
        raise wrong(fields.at(name), value, "a string or a list of parts")
    texts, others = [], []
    for part in fields.each(name):
        kind = part.text("type")
        if kind == "input_audio":
            raise BadAsk(f"`{part.path}` is audio, which is not served here; send text.", field=part.path)
        if kind == "text":
            texts.append(part.text("text"))
        else:
            others.append(part.raw)
    return between.join(texts), tuple(others)


def write_messages(messages: Sequence[Utterance]) -> list[dict[str, Any]]:
    """Messages in their plain form."""
    return [_write(message) for message in messages]


def _write(message: Utterance) -> dict[str, Any]:
    if message.speaker == "assistant":
        return write_assistant(message)
    item: dict[str, Any] = {"role": message.speaker, "content": message.text}
    if message.others:
        told = [{"type": "text", "text": message.text}] if message.text else []
        item["content"] = [*told, *message.others]
    if message.speaker == "tool":
        answers = message.answers or ""
        if answers.startswith(LEGACY):
            return {"role": "function", "name": answers.removeprefix(LEGACY), "content": item["content"]}
        return {**item, "tool_call_id": answers}
    return item if message.name is None else {**item, "name": message.name}


def write_assistant(message: Utterance, customs: frozenset[str] = frozenset()) -> dict[str, Any]:
    """What a model said; `customs` are tools that take text and no JSON."""
    old = [use for use in message.uses if use.id.startswith(LEGACY)]
    refusal = next((part["refusal"] for part in message.others if part.get("type") == "refusal"), None)
    item: dict[str, Any] = {
        "role": "assistant",
        "content": message.text if message.text or not (message.uses or refusal) else None,
        "refusal": refusal,
        "reasoning_content": message.thinking or None,
        "tool_calls": [_write_use(use, customs) for use in message.uses if use not in old] or None,
        "function_call": {"name": old[0].name, "arguments": old[0].arguments} if old else None,
        "name": message.name,
    }
    return {k: v for k, v in item.items() if v is not None or k == "content"}


def _write_use(use: ToolAsk, customs: frozenset[str]) -> dict[str, Any]:
    if use.name in customs:
        return {"id": use.id, "type": "custom", "custom": {"name": use.name, "input": use.arguments}}
    return {"id": use.id, "type": "function", "function": {"name": use.name, "arguments": use.arguments}}
