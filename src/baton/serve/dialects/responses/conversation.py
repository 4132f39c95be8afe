"""The items of Responses, in and out: what a model made in one go is one message, however many items it has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from baton.serve.dialects.arguments import as_object, as_text
from baton.serve.dialects.codec import BadAsk
from baton.serve.dialects.fields import Fields, wrong
from baton.serve.dialects.wording import Unit
from baton.serve.exchange import ToolAsk, Utterance

Item = dict[str, Any]
_PARTS = ("input_image", "input_file", "refusal", "computer_screenshot")
"""Parts of a message that are no text; whatever else is kept among a message's others is an item of its own."""
_TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
_OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output", "shell_call_output",
            "apply_patch_call_output", "computer_call_output")  # fmt: skip


def read_input(fields: Fields, before: Sequence[Utterance]) -> list[Unit]:
    """One unit for each message, each result of a tool, and each run of items that a model made."""
    value = fields.get("input")
    if value is None:
        return []
    if isinstance(value, str):
        return [
            Unit(items=[{"role": "user", "content": value}], says=(Utterance(speaker="user", text=value),))
        ]
    units: list[Unit] = []
    run: list[Fields] = []
    names = {use.id: use.name for message in before for use in message.uses}

    def end_run() -> None:
        if run:
            said = read_made(run)
            names.update({use.id: use.name for use in said.uses})
            units.append(Unit(items=[each.raw for each in run], says=(said,)))
        run.clear()

    for item in fields.each("input"):
        if _made(item):
            run.append(item)
        else:
            end_run()
            units.append(Unit(items=[item.raw], says=(_given(item, names),)))
    end_run()
    return units


def _kind(item: Fields) -> str:
    return item.text("type", "message" if item.has("role") else None)


def _made(item: Fields) -> bool:
    """Whether a model made the item."""
    kind = _kind(item)
    if kind == "message":
        return bool(item.get("role") == "assistant")
    return kind in ("reasoning", "compaction") or kind.endswith("_call")


def _given(item: Fields, names: dict[str, str]) -> Utterance:
    """What somebody else than the model said."""
    kind = _kind(item)
    if kind == "message":
        role = item.text("role")
        if role not in ("user", "system", "developer"):
            raise wrong(item.at("role"), role, "user, system, developer or assistant")
        text, others = read_parts(item, "content", "\n")
        return Utterance(speaker="user" if role == "user" else "system", text=text, others=others)
    if kind in _OUTPUTS:
        answers = item.text("call_id" if item.has("call_id") else "id")
        text, others = read_parts(item, "output", "\n")
        return Utterance(speaker="tool", text=text, others=others, answers=answers, name=names.get(answers))
    if kind == "item_reference":
        raise BadAsk(f"`{item.path}` refers to an item by its id; send the item itself.", field=item.path)
    content = item.get("content")
    text = read_parts(item, "content", "\n")[0] if isinstance(content, str | list) else ""
    return Utterance(speaker="user", text=text, others=(item.raw,))


def read_parts(fields: Fields, name: str, between: str) -> tuple[str, tuple[Item, ...]]:
    """Text and other parts of what may be a string, a list of parts, or (a tool's result) an object."""
    value = fields.get(name)
    if value is None or isinstance(value, str):
        return value or "", ()
    if isinstance(value, dict):
        return "", (value,)
    texts, others = [], []
    for part in fields.each(name):
        kind = part.text("type", "")
        if kind == "input_audio":
            raise BadAsk(f"`{part.path}` is audio, which is not served here; send text.", field=part.path)
        if kind in _TEXTS:
            texts.append(part.text("text"))
        else:
            others.append(part.raw)
    return between.join(texts), tuple(others)


def read_made(items: Sequence[Fields]) -> Utterance:
    """The message that a run of a model's items amounts to."""
    texts: list[str] = []
    thoughts: list[str] = []
    uses: list[ToolAsk] = []
    others: list[Item] = []
    sign = None
    for item in items:
        kind = _kind(item)
        if kind == "message":
            text, parts = read_parts(item, "content", "")
            texts.append(text)
            others += parts
        elif kind == "reasoning":
            thoughts.append(read_parts(item, "content", "\n\n")[0] or read_parts(item, "summary", "\n\n")[0])
            sign = item.maybe_text("encrypted_content") or sign
        elif kind in ("function_call", "custom_tool_call", "local_shell_call"):
            uses.append(_use(item, kind))
        else:
            others.append(item.raw)
    return Utterance(
        speaker="assistant", text="".join(texts), thinking="\n\n".join(filter(None, thoughts)), sign=sign,
        uses=tuple(uses), others=tuple(others),
    )  # fmt: skip


def _use(item: Fields, kind: str) -> ToolAsk:
    if kind == "local_shell_call":
        name = item.text("call_id" if item.has("call_id") else "id")
        return ToolAsk(id=name, name="local_shell", arguments=as_text(item.object("action")))
    space, name = item.maybe_text("namespace"), item.text("name")
    said = item.text("arguments" if kind == "function_call" else "input")
    return ToolAsk(id=item.text("call_id"), name=f"{space}/{name}" if space else name, arguments=said)


def write_items(messages: Sequence[Utterance], kinds: dict[str, str]) -> list[Item]:
    """Messages in their plain form; `kinds` says which tools are no functions."""
    return [item for message in messages for item in _write(message, kinds)]


def _write(message: Utterance, kinds: dict[str, str]) -> list[Item]:
    if message.speaker == "assistant":
        return write_made(message, kinds)
    parts = [part for part in message.others if part.get("type") in _PARTS]
    items = [item for item in message.others if item.get("type") not in _PARTS]
    if items and message.speaker == "user":
        return items
    if message.speaker == "tool":
        call = kinds.get(message.name or "", "function")
        kind = {"custom": "custom_tool_call_output", "local_shell": "local_shell_call_output"}.get(
            call, "function_call_output"
        )
        told = [{"type": "input_text", "text": message.text}] if message.text else []
        output: Any = [*told, *message.others] if message.others else message.text
        return [{"type": kind, "call_id": message.answers or "", "output": output}]
    told = [{"type": "input_text", "text": message.text}] if message.text else []
    return [{"role": message.speaker, "content": [*told, *parts] if parts else message.text}]


def write_made(message: Utterance, kinds: dict[str, str]) -> list[Item]:
    """What a model made, as items without ids."""
    items: list[Item] = []
    if message.thinking or message.sign:
        summary = [{"type": "summary_text", "text": message.thinking}] if message.thinking else []
        thought: Item = {"type": "reasoning", "summary": summary}
        items.append(thought if message.sign is None else {**thought, "encrypted_content": message.sign})
    parts: list[Item] = [part for part in message.others if part.get("type") in _PARTS]
    if message.text:
        parts.insert(0, {"type": "output_text", "text": message.text, "annotations": []})
    if parts or not (message.uses or message.others or items):
        items.append({"type": "message", "role": "assistant", "content": parts})
    items += [item for item in message.others if item.get("type") not in _PARTS]
    return items + [write_use(use, kinds.get(use.name, "function")) for use in message.uses]


def write_use(use: ToolAsk, kind: str) -> Item:
    """A tool that is asked for."""
    space, _, name = use.name.rpartition("/")
    inside = {"namespace": space} if space else {}
    if kind == "custom":
        return {"type": "custom_tool_call", "call_id": use.id, "name": name, "input": use.arguments, **inside}
    if kind == "local_shell":
        return {"type": "local_shell_call", "call_id": use.id, "action": as_object(use.arguments)}
    return {"type": "function_call", "call_id": use.id, "name": name, "arguments": use.arguments, **inside}
