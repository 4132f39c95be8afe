"""What is new in a prompt: instrumentations repeat the whole history in every span, a trace keeps it once."""

from __future__ import annotations

from msgspec import Struct

from baton.connect.readers.otlp.messages import Message, Talk, messages, talk_of
from baton.connect.readers.otlp.span import OtelSpan

_MESSAGES = "gen_ai.input.messages"
_INSTRUCTIONS = "gen_ai.system_instructions"


class GrownPrompt(Struct):
    """A call's messages, without those of the call that it grows from."""

    parent: str | None
    told: list[Message]
    said: list[Message]
    finish: str | None


class _Last(Struct):
    call: str
    talk: Talk
    span: OtelSpan


class PromptGrowth:
    """The last call of each agent."""

    def __init__(self) -> None:
        self._last: dict[str, _Last] = {}

    def grow(self, agent: str, call: str, span: OtelSpan) -> GrownPrompt:
        """What a call was told since the agent's last one, and what it said."""
        before = self._last.get(agent)
        rest = None if before is None else _rest_of_text(before.span, span)
        if before is not None and rest is not None:
            talk = _only_said(span)
            new = messages(rest)
            talk.told = before.talk.told + new if len(new) < 2 else [*before.talk.told, *new]
        else:
            talk = talk_of(span)
            new = [] if before is None else _rest(before.talk.told, talk.told)
        self._last[agent] = _Last(call, talk, span)
        if before is None or not new:
            return GrownPrompt(None, talk.told, talk.said, talk.finish)
        return GrownPrompt(before.call, _after_answer(before.talk.said, new), talk.said, talk.finish)


def _rest_of_text(before: OtelSpan, now: OtelSpan) -> str | None:
    """The new messages as a JSON list, where the old ones stand before them letter by letter."""
    old, new = before.attributes.get(_MESSAGES), now.attributes.get(_MESSAGES)
    if not isinstance(old, str) or not isinstance(new, str) or len(old) < 3 or len(new) <= len(old):
        return None
    if before.attributes.get(_INSTRUCTIONS) != now.attributes.get(_INSTRUCTIONS):
        return None
    if not new.startswith(old[:-1]) or old[-1] != "]":
        return None
    rest = new[len(old) - 1 :].lstrip()
    return f"[{rest[1:]}" if rest.startswith(",") else None


def _only_said(span: OtelSpan) -> Talk:
    """A span's answer, without reading its prompt again."""
    a = span.attributes
    kept = {key: value for key, value in a.items() if key not in (_MESSAGES, _INSTRUCTIONS)}
    kept[_MESSAGES] = "[]"
    return talk_of(OtelSpan("", "", None, "", 0, 0, kept))


def _rest(old: list[Message], new: list[Message]) -> list[Message]:
    """What follows the old messages; empty where the new ones do not begin with them."""
    return new[len(old) :] if old and len(new) > len(old) and new[: len(old)] == old else []


def _after_answer(said: list[Message], new: list[Message]) -> list[Message]:
    """The answer itself stands in the prompt of the next call: it is no news."""
    wanted = [(use.name, use.id) for message in said for use in message.uses]
    if new and new[0].role == "assistant" and said:
        first = new[0]
        same = "\n".join(m.text for m in said if m.text) == first.text
        if same and [(use.name, use.id) for use in first.uses] == wanted:
            return new[1:]
    return new
