"""The messages of Anthropic's dialect, in and out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from baton.serve.dialects.arguments import as_object, as_text
from baton.serve.dialects.codec import BadAsk
from baton.serve.dialects.fields import Fields, wrong
from baton.serve.dialects.wording import Unit
from baton.serve.exchange import ToolAsk, Utterance

Block = dict[str, Any]


def read_messages(fields: Fields, before: Sequence[Utterance]) -> list[Unit]:
    """One unit for each message; a user's message that brings tools' results says several things."""
    names = {use.id: use.name for message in before for use in message.uses}
    units = []
    for each in fields.each("messages", needed=True):
        role = each.text("role")
        if role == "assistant":
            said = read_assistant(each)
            names |= {use.id: use.name for use in said.uses}
            units.append(Unit(items=[each.raw], says=(said,)))
        elif role == "user":
            units.append(Unit(items=[each.raw], says=tuple(_user(each, names))))
        elif role == "system":
            text, others = read_blocks(each, "content")
            units.append(
                Unit(items=[each.raw], says=(Utterance(speaker="system", text=text, others=others),))
            )
        else:
            raise wrong(each.at("role"), role, "user, assistant or system")
    if not units and not before:
        raise BadAsk("`messages` is empty; expected at least one message.", field="messages")
    return units


def read_blocks(fields: Fields, name: str) -> tuple[str, tuple[Block, ...]]:
    """Text and other blocks of what may be a string or a list of blocks."""
    value = fields.get(name)
    if value is None or isinstance(value, str):
        return value or "", ()
    if not isinstance(value, list):
        raise wrong(fields.at(name), value, "a string or a list of blocks")
    texts, others = [], []
    for block in fields.each(name):
        if block.text("type") == "text":
            texts.append(block.text("text"))
        else:
            others.append(block.raw)
    return "\n".join(texts), tuple(others)


def _user(fields: Fields, names: dict[str, str]) -> list[Utterance]:
    """What a user's message says, in its order: runs of text and pictures, and each tool's result."""
    if not isinstance(fields.get("content"), list):
        text, _ = read_blocks(fields, "content")
        return [Utterance(speaker="user", text=text)]
    said: list[Utterance] = []
    texts: list[str] = []
    others: list[Block] = []

    def user_speaks() -> None:
        if texts or others:
            said.append(Utterance(speaker="user", text="\n".join(texts), others=tuple(others)))
        texts.clear()
        others.clear()

    for block in fields.each("content"):
        kind = block.text("type")
        if kind == "tool_result":
            user_speaks()
            said.append(_result(block, names))
        elif kind == "text":
            texts.append(block.text("text"))
        else:
            others.append(block.raw)
    user_speaks()
    return said or [Utterance(speaker="user")]


def _result(fields: Fields, names: dict[str, str]) -> Utterance:
    answers = fields.text("tool_use_id")
    text, others = read_blocks(fields, "content")
    failed = fields.flag("is_error", False)
    return Utterance(
        speaker="tool", text=text, others=others, answers=answers, name=names.get(answers), failed=failed
    )


def read_assistant(fields: Fields) -> Utterance:
    """What a model said before, or says now."""
    if not isinstance(fields.get("content"), list):
        text, _ = read_blocks(fields, "content")
        return Utterance(speaker="assistant", text=text)
    texts, thoughts, uses, others = [], [], [], []
    sign = None
    for block in fields.each("content"):
        match block.text("type"):
            case "text":
                texts.append(block.text("text"))
            case "thinking":
                thoughts.append(block.text("thinking"))
                sign = block.maybe_text("signature") or sign
            case "tool_use":
                said = as_text(block.object("input"))
                uses.append(ToolAsk(id=block.text("id"), name=block.text("name"), arguments=said))
            case _:
                others.append(block.raw)
    return Utterance(
        speaker="assistant", text="".join(texts), thinking="\n\n".join(filter(None, thoughts)), sign=sign,
        uses=tuple(uses), others=tuple(others),
    )  # fmt: skip


def write_messages(messages: Sequence[Utterance]) -> list[dict[str, Any]]:
    """Messages in their plain form: results of tools and what the user says after them are one message."""
    items: list[dict[str, Any]] = []
    results: list[Block] = []
    for message in messages:
        if message.speaker == "tool":
            results.append(_write_result(message))
        elif message.speaker == "user" and results:
            items.append({"role": "user", "content": [*results, *_write_parts(message)]})
            results = []
        else:
            if results:
                items.append({"role": "user", "content": results})
                results = []
            items.append({"role": message.speaker, "content": _write_content(message)})
    return [*items, {"role": "user", "content": results}] if results else items


def _write_content(message: Utterance) -> str | list[Block]:
    if message.speaker == "assistant" and (
        message.uses or message.thinking or message.sign or message.others
    ):
        return write_assistant(message)
    return [*_write_parts(message)] if message.others else message.text


def _write_parts(message: Utterance) -> list[Block]:
    return [*([{"type": "text", "text": message.text}] if message.text else []), *message.others]


def _write_result(message: Utterance) -> Block:
    content: Any = _write_parts(message) if message.others else message.text
    block = {"type": "tool_result", "tool_use_id": message.answers or "", "content": content}
    return {**block, "is_error": True} if message.failed else block


def write_assistant(message: Utterance, *, thoughts: bool = True) -> list[Block]:
    """What a model said, as blocks: thought, said, asked for."""
    blocks: list[Block] = []
    if thoughts and (message.thinking or message.sign):
        blocks.append({"type": "thinking", "thinking": message.thinking, "signature": message.sign or ""})
    blocks += [part for part in message.others if part.get("type") == "redacted_thinking"]
    refusal = "".join(part["refusal"] for part in message.others if part.get("type") == "refusal")
    if message.text or refusal:
        blocks.append({"type": "text", "text": message.text or refusal})
    blocks += [part for part in message.others if part.get("type") not in ("redacted_thinking", "refusal")]
    blocks += [
        {"type": "tool_use", "id": use.id, "name": use.name, "input": as_object(use.arguments)}
        for use in message.uses
    ]
    return blocks
