"""Messages of chat models as files hold them: OpenAI's two forms, Anthropic's and ShareGPT's, read as one.

Invariant: nothing is made up. A text that is no text is kept as JSON; a tool call without an id has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

ROLES: Final = {
    "human": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "developer": "system",
    "function": "tool",
    "observation": "tool",
    "function_response": "tool",
    "tool_response": "tool",
    "function_call": "assistant",
    "tool_call": "assistant",
}
"""Words of other forms -> OpenAI's."""
_CALLS_AS_TEXT = frozenset({"function_call", "tool_call"})


class ChatToolUse(Struct, frozen=True):
    """A tool that an answer asks for."""

    id: str | None
    name: str
    arguments: str
    """JSON as text."""


class ChatToolAnswer(Struct, frozen=True):
    """What a tool gave back."""

    id: str | None
    """Of the tool use."""
    name: str | None
    text: str
    failed: bool = False


class ChatMessage(Struct, frozen=True, kw_only=True):
    """One message, whatever form it came in."""

    role: str
    name: str | None = None
    text: str = ""
    reasoning: str | None = None
    uses: tuple[ChatToolUse, ...] = ()
    answers: tuple[ChatToolAnswer, ...] = ()
    model: str | None = None
    usage: Mapping[str, Any] | None = None
    finish_reason: str | None = None


def chat_message(value: Any) -> ChatMessage | None:
    """A message, or None where the value is none."""
    if not isinstance(value, dict):
        return None
    role = value.get("role", value.get("from"))
    if not isinstance(role, str):
        return _item(value)
    content = value.get("content", value.get("value"))
    kind = ROLES.get(role.lower(), role.lower())
    name = value.get("name")
    name = name if isinstance(name, str) and name else None
    if role in _CALLS_AS_TEXT and isinstance(content, str):
        return ChatMessage(role="assistant", name=name, uses=_uses_in_text(content))
    text, uses, answers = _parts(content)
    if isinstance(content, list):
        thoughts = [part["thinking"] for part in content if isinstance(part, dict) and "thinking" in part]
    else:
        thoughts = []
    if kind == "tool":
        answers = (
            ChatToolAnswer(_text_or_none(value.get("tool_call_id")), name, text or _joined(answers), False),
        )
        return ChatMessage(role="tool", name=None, answers=answers)
    reasoning = value.get("reasoning_content", value.get("reasoning"))
    usage = value.get("usage")
    return ChatMessage(
        role=kind,
        name=name,
        text=text,
        reasoning=reasoning if isinstance(reasoning, str) else "\n".join(map(as_text, thoughts)) or None,
        uses=uses + _openai_uses(value),
        answers=answers,
        model=_text_or_none(value.get("model")),
        usage=usage if isinstance(usage, dict) else None,
        finish_reason=_text_or_none(value.get("finish_reason", value.get("stop_reason"))),
    )


def _item(value: dict[str, Any]) -> ChatMessage | None:
    """An item of OpenAI's Responses that is no message: a call, its output, reasoning."""
    kind, id_ = value.get("type"), _text_or_none(value.get("call_id"))
    if kind in ("function_call", "custom_tool_call"):
        arguments = as_text(value.get("arguments", value.get("input", {})))
        use = ChatToolUse(id_, as_text(value.get("name")) or "unnamed", arguments)
        return ChatMessage(role="assistant", uses=(use,))
    if kind in ("function_call_output", "custom_tool_call_output"):
        return ChatMessage(role="tool", answers=(ChatToolAnswer(id_, None, text_of(value.get("output"))),))
    return None


def text_of(content: Any) -> str:
    """The text of a message's content: a text, a list of parts, or whatever it is, as JSON."""
    return _parts(content)[0]


def as_text(value: Any) -> str:
    """A value as text: itself, or its JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode()


def seconds_of(stamp: Any) -> float | None:
    """Seconds since 1970 of an ISO 8601 time; None where it is none. A time without a zone is taken as UTC."""
    if not isinstance(stamp, str) or not stamp:
        return None
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def count_of(value: Any) -> int | None:
    """A number of tokens; None where it is none."""
    return value if type(value) is int and value >= 0 else None


def usage_of(usage: Mapping[str, Any] | None) -> tuple[int | None, int | None]:
    """Tokens of the whole prompt, with what a cache gave, and of the answer, by OpenAI's or Anthropic's words."""
    if usage is None:
        return None, None
    if "prompt_tokens" in usage or "completion_tokens" in usage:
        return count_of(usage.get("prompt_tokens")), count_of(usage.get("completion_tokens"))
    given = count_of(usage.get("input_tokens"))
    cached = [
        count_of(usage.get(word)) or 0 for word in ("cache_read_input_tokens", "cache_creation_input_tokens")
    ]
    return None if given is None else given + sum(cached), count_of(usage.get("output_tokens"))


def _parts(content: Any) -> tuple[str, tuple[ChatToolUse, ...], tuple[ChatToolAnswer, ...]]:
    if isinstance(content, str):
        return content, (), ()
    if not isinstance(content, list):
        return as_text(content), (), ()
    texts: list[str] = []
    uses: list[ChatToolUse] = []
    answers: list[ChatToolAnswer] = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
            continue
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "tool_use":
            uses.append(
                ChatToolUse(
                    _text_or_none(part.get("id")), as_text(part.get("name")), as_text(part.get("input", {}))
                )
            )
        elif kind == "tool_result":
            failed = part.get("is_error") is True
            text = text_of(part.get("content"))
            answers.append(ChatToolAnswer(_text_or_none(part.get("tool_use_id")), None, text, failed))
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif kind == "thinking":
            continue
        else:
            texts.append(f"<{kind}>" if isinstance(kind, str) else as_text(part))
    return "\n".join(texts), tuple(uses), tuple(answers)


def _openai_uses(value: dict[str, Any]) -> tuple[ChatToolUse, ...]:
    given = value.get("tool_calls")
    if given is None and isinstance(value.get("function_call"), dict):
        given = [{"function": value["function_call"]}]
    if not isinstance(given, list):
        return ()
    found = []
    for each in given:
        if not isinstance(each, dict):
            continue
        function = each.get("function")
        body = function if isinstance(function, dict) else each
        name = body.get("name") if not isinstance(function, str) else function
        arguments = body.get("arguments", body.get("input", {}))
        found.append(
            ChatToolUse(_text_or_none(each.get("id")), as_text(name) or "unnamed", as_text(arguments))
        )
    return tuple(found)


def _uses_in_text(text: str) -> tuple[ChatToolUse, ...]:
    """ShareGPT puts a call's JSON into the text."""
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return (ChatToolUse(None, "unnamed", text),)
    each = value if isinstance(value, list) else [value]
    return tuple(
        ChatToolUse(
            None,
            as_text(one.get("name")) or "unnamed",
            as_text(one.get("arguments", one.get("parameters", {}))),
        )
        for one in each
        if isinstance(one, dict)
    )


def _joined(answers: tuple[ChatToolAnswer, ...]) -> str:
    return "\n".join(answer.text for answer in answers)


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
