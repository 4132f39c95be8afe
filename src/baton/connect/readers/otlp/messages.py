"""What a model was told and what it said, out of a span: every form in which instrumentations have put messages.

| where | who |
|---|---|
| `gen_ai.input.messages`, `gen_ai.output.messages`: role and parts | GenAI conventions since 1.37 |
| events and log records `gen_ai.user.message`, `gen_ai.choice` | GenAI conventions before that, strands |
| an attribute `events`, which is the same as a JSON list | pydantic-ai before 1.0 |
| `gen_ai.prompt.0.content`, `gen_ai.completion.0.content` | OpenLLMetry (traceloop) |
| `llm.input_messages.0.message.content` | OpenInference |
| `gcp.vertex.agent.llm_request` and `llm_response` | ADK |
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from baton.connect.readers.otlp.span import OtelSpan

_ROLES = {
    "human": "user",
    "ai": "assistant",
    "model": "assistant",
    "developer": "system",
    "function": "tool",
}
_RESULTS = ("tool_call_response", "tool_result", "function_result")
_DETAILS = "gen_ai.client.inference.operation.details"
_encode = msgspec.json.Encoder(enc_hook=str).encode


class AskedTool(Struct, frozen=True, gc=False):
    """A tool that a model asked for."""

    id: str
    name: str
    arguments: str
    """As JSON."""


class Message(Struct, frozen=True):
    """One message of a prompt or of an answer."""

    role: str
    text: str
    uses: tuple[AskedTool, ...] = ()
    answers: str = ""
    """Id of the tool use that it is the result of."""

    def shown(self) -> str:
        """Its text and what it asks for, as one text: tools as `name({arguments})`, a line each."""
        if not self.uses:
            return self.text
        asked = (f"{use.name}({use.arguments})" for use in self.uses)
        return "\n".join((*((self.text,) if self.text else ()), *asked))


class Talk(Struct):
    """The messages of one model call."""

    told: list[Message]
    said: list[Message]
    finish: str | None = None


def as_text(value: Any) -> str:
    """Text as it is, anything else as JSON."""
    return value if isinstance(value, str) else "" if value is None else as_json(value)


def as_json(value: Any) -> str:
    return _encode(value).decode()


def parsed(value: Any) -> Any:
    """A JSON text as what it says; any other text, and what is no text, as it is."""
    if isinstance(value, str) and value[:1] in ("[", "{", '"'):
        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError, ValueError):
            return value
    return value


def talk_of(span: OtelSpan) -> Talk:
    """What was told and said in a span; empty where the instrumentation keeps content out."""
    a = span.attributes
    told, said = a.get("gen_ai.input.messages"), a.get("gen_ai.output.messages")
    if told is not None or said is not None:
        answer = parsed(said)
        list_said = messages(
            said if isinstance(answer, str) else answer
        )  # a text is not taken for JSON twice
        return _instructed(a, Talk(messages(told), list_said, _finish(a, answer)))
    for event in span.events:
        if event.name == _DETAILS:
            own = event.attributes
            said = own.get("gen_ai.output.messages")
            talk = Talk(messages(own.get("gen_ai.input.messages")), messages(said), _finish(a, parsed(said)))
            return _instructed({**a, **own}, talk)
    if any(event.name.startswith("gen_ai.") for event in span.events):
        return _of_events(((event.name, event.attributes) for event in span.events), a)
    listed = parsed(a.get("events") or a.get("all_messages_events"))
    if isinstance(listed, list):
        named = ((str(event.get("event.name", "")), event) for event in listed if isinstance(event, dict))
        return _of_events(named, a)
    if "gcp.vertex.agent.llm_request" in a:
        return _of_vertex(a)
    return _of_flat(a)


def messages(value: Any) -> list[Message]:
    """A list of messages in any of the forms that are lists: parts, contents, OpenAI's, Bedrock's."""
    value = parsed(value)
    if isinstance(value, str):
        cut = value.startswith(('[{"role"', "[{'role'"))  # by a limit on the length of attributes
        return [Message("user", value)] if value and not cut else []
    if isinstance(value, dict):
        value = value.get("messages", [value])
    if not isinstance(value, list):
        return []
    return [one for item in value if isinstance(item, dict | str) for one in _split(item)]


def _split(item: Any) -> list[Message]:
    """A message that holds several tools' results is one for each."""
    parts = item.get("parts") if isinstance(item, dict) else None
    if isinstance(parts, list) and len(parts) > 1 and all(_is_result(part) for part in parts):
        return [_message({**item, "parts": [part]}, "user") for part in parts]
    return [_message(item, "user")]


def _is_result(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in _RESULTS


def _message(item: Any, role: str) -> Message:
    if not isinstance(item, dict):
        return Message(role, as_text(item))
    role = str(item.get("role") or item.get("type") or role)
    if isinstance(item.get("data"), dict):  # LangChain's messages
        item = item["data"]
    return _from_content(_ROLES.get(role, role), item)


def _from_content(role: str, item: dict[str, Any]) -> Message:
    content = item.get("parts")
    if content is None:
        content = parsed(item.get("content"))
    texts: list[str] = []
    uses: list[AskedTool] = []
    answers = str(item.get("tool_call_id") or (item.get("id") if role == "tool" else "") or "")
    for part in content if isinstance(content, list) else [content]:
        answers = _part(part, texts, uses) or answers
    uses += _uses(parsed(item.get("tool_calls")))
    return Message("tool" if answers and role == "user" else role, "\n".join(texts), tuple(uses), answers)


def _part(part: Any, texts: list[str], uses: list[AskedTool]) -> str:
    """Puts a part where it belongs; gives the id of the tool use that it answers, if it does."""
    if not isinstance(part, dict):
        if part is not None and part != "":
            texts.append(as_text(part))
        return ""
    kind = part.get("type")
    if kind == "text" or (kind is None and "text" in part):
        texts.append(as_text(part.get("content", part.get("text"))))
    elif kind in ("tool_call", "tool_use", "function_call"):
        uses.append(_use(part))
    elif kind in _RESULTS:
        texts.append(as_text(_inner_text(_first(part, "result", "response", "content", "output"))))
        return str(_first(part, "id", "tool_use_id", "call_id") or "")
    elif isinstance(part.get("toolUse"), dict):
        uses.append(_use({**part["toolUse"], "id": part["toolUse"].get("toolUseId")}))
    elif isinstance(part.get("toolResult"), dict):
        texts.append(as_text(_inner_text(part["toolResult"].get("content"))))
        return str(part["toolResult"].get("toolUseId") or "")
    elif isinstance(call := part.get("function_call", part.get("functionCall")), dict):
        uses.append(_use(call))
    elif isinstance(answer := part.get("function_response", part.get("functionResponse")), dict):
        texts.append(as_text(answer.get("response")))
        return str(answer.get("id") or answer.get("name") or "")
    elif kind in ("reasoning", "thinking"):
        pass  # what a model thinks is no part of what it says; its tokens are counted
    elif "content" in part:
        texts.append(as_text(_inner_text(part["content"])))
    else:
        texts.append(as_json(part))
    return ""


def _inner_text(value: Any) -> Any:
    """`[{"text": "Paris"}]` is Paris."""
    value = parsed(value)
    if isinstance(value, list) and value and all(isinstance(item, dict) and "text" in item for item in value):
        return "\n".join(as_text(item["text"]) for item in value)
    return value


def _use(item: dict[str, Any]) -> AskedTool:
    function = item.get("function")
    if isinstance(function, dict):
        item = {"id": item.get("id"), **function}
    arguments = _first(item, "arguments", "args", "input")
    return AskedTool(
        str(_first(item, "id", "tool_call_id", "call_id") or ""),
        str(item.get("name") or ""),
        arguments if isinstance(arguments, str) else as_json({} if arguments is None else arguments),
    )


def _uses(value: Any) -> list[AskedTool]:
    return [_use(item) for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _of_events(events: Iterable[tuple[str, dict[str, Any]]], a: dict[str, Any]) -> Talk:
    talk = Talk([], [], _finish(a, None))
    for name, own in events:
        if name == "gen_ai.choice":
            inner = parsed(own.get("message"))
            item = inner if isinstance(inner, dict) else {"content": inner}
            if "tool_calls" not in item and "tool_calls" in own:
                item = {**item, "tool_calls": own["tool_calls"]}
            talk.said.append(_from_content("assistant", item))
            talk.finish = talk.finish or _word(own.get("finish_reason"))
        elif name.startswith("gen_ai.") and name.endswith(".message"):
            role = str(own.get("role") or name.split(".")[1])
            talk.told.append(_from_content(_ROLES.get(role, role), own))
        elif name == "gen_ai.content.prompt":
            talk.told += messages(own.get("gen_ai.prompt"))
        elif name == "gen_ai.content.completion":
            talk.said += _as_said(messages(own.get("gen_ai.completion")))
    return talk


def _of_vertex(a: dict[str, Any]) -> Talk:
    asked, answered = (parsed(a.get(f"gcp.vertex.agent.llm_{end}")) for end in ("request", "response"))
    told: list[Message] = []
    if isinstance(asked, dict):
        config = asked.get("config")
        if isinstance(config, dict) and config.get("system_instruction"):
            told.append(Message("system", as_text(config["system_instruction"])))
        told += messages(asked.get("contents") or [])
    said: list[Message] = []
    finish = None
    if isinstance(answered, dict):
        said = messages([answered["content"]]) if isinstance(answered.get("content"), dict) else []
        finish = _word(answered.get("finish_reason"))
    return Talk(told, said, _finish(a, None) or finish)


def _of_flat(a: dict[str, Any]) -> Talk:
    """Attributes of which the name holds the place: one message over many keys."""
    told: dict[int, dict[str, Any]] = {}
    said: dict[int, dict[str, Any]] = {}
    for key, value in a.items():
        if key.startswith("llm.input_messages."):
            _place(told, key[19:].replace("message.", "", 1), value)
        elif key.startswith("llm.output_messages."):
            _place(said, key[20:].replace("message.", "", 1), value)
        elif key.startswith(("gen_ai.prompt.", "llm.prompts.")):
            _place(told, key.split(".prompt", 1)[1].lstrip("s."), value)
        elif key.startswith(("gen_ai.completion.", "llm.completions.")):
            _place(said, key.split(".completion", 1)[1].lstrip("s."), value)
    talk = Talk(_flat_messages(told, "user"), _as_said(_flat_messages(said, "assistant")), _finish(a, None))
    for item in said.values():
        talk.finish = talk.finish or _word(item.get("finish_reason"))
    if not told and not said:  # what remains: input and output of the span as one text
        if text := a.get("input.value") or a.get("gen_ai.prompt") or a.get("traceloop.entity.input"):
            talk.told = [Message("user", as_text(text))]
        if text := a.get("output.value") or a.get("gen_ai.completion") or a.get("traceloop.entity.output"):
            talk.said = [Message("assistant", as_text(text))]
    return talk


def _place(found: dict[int, dict[str, Any]], rest: str, value: Any) -> None:
    number, _, field = rest.partition(".")
    if number.isdigit() and field:
        found.setdefault(int(number), {})[field] = value


def _flat_messages(found: dict[int, dict[str, Any]], role: str) -> list[Message]:
    return [_flat_message(found[number], role) for number in sorted(found)]


def _flat_message(item: dict[str, Any], role: str) -> Message:
    own = str(item.get("role") or role)
    uses: dict[int, dict[str, Any]] = {}
    texts: dict[int, dict[str, Any]] = {}
    for field, value in item.items():
        if field.startswith("tool_calls."):
            _place(uses, field[11:].replace("tool_call.", "", 1).replace("function.", "", 1), value)
        elif field.startswith("contents."):
            _place(texts, field[9:].replace("message_content.", "", 1), value)
    # Some instrumentations put a list of blocks into `content`, as JSON.
    plain = _from_content(_ROLES.get(own, own), {"content": item.get("content")})
    text = plain.text or "\n".join(
        as_text(part["text"]) for _, part in sorted(texts.items()) if "text" in part
    )
    return Message(
        plain.role,
        text,
        (*plain.uses, *(_use(use) for _, use in sorted(uses.items()))),
        str(item.get("tool_call_id") or plain.answers),
    )


def _instructed(a: dict[str, Any], talk: Talk) -> Talk:
    """System instructions stand in an attribute of their own since 1.37."""
    told = parsed(a.get("gen_ai.system_instructions"))
    if told:
        parts = told if isinstance(told, list) else [told]
        first = _from_content("system", {"parts": parts})
        if not talk.told or talk.told[0] != first:
            talk.told.insert(0, first)
    talk.said = _as_said(talk.said)
    return talk


def _as_said(said: list[Message]) -> list[Message]:
    return [m if m.role != "user" else Message("assistant", m.text, m.uses, m.answers) for m in said]


def _finish(a: dict[str, Any], said: Any) -> str | None:
    reasons = a.get("gen_ai.response.finish_reasons", a.get("llm.finish_reason"))
    if isinstance(reasons, str):
        reasons = parsed(reasons)
    if isinstance(reasons, list | tuple) and reasons:
        return _word(reasons[0])
    if isinstance(reasons, str) and reasons:
        return reasons
    if isinstance(said, list) and said and isinstance(said[-1], dict):
        return _word(said[-1].get("finish_reason"))
    return None


def _word(value: Any) -> str | None:
    return str(value) if value else None


def _first(item: dict[str, Any], *names: str) -> Any:
    return next((item[name] for name in names if item.get(name) is not None), None)
