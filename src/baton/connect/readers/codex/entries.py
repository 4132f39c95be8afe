"""The lines of a Codex rollout, with the fields that are read and no others.

A line is `{timestamp, type, payload}`; before September 2025 it was the payload by itself, after a first line that was
the session's. One struct holds what any payload says: they are told apart by `type`, and versions move fields about.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

T = TypeVar("T")


class CodexUsage(Struct, gc=False):
    """Tokens of one answer, or of all so far. Input counts what was read from a cache, output the reasoning."""

    input_tokens: int | float | None = None
    cached_input_tokens: int | float | None = None
    output_tokens: int | float | None = None
    reasoning_output_tokens: int | float | None = None
    total_tokens: int | float | None = None


class TokenInfo(Struct, gc=False):
    """The bill so far, and the last addition to it."""

    total_token_usage: CodexUsage | None = None
    last_token_usage: CodexUsage | None = None


class ItemInTurn(Struct, gc=False):
    """An item as the program shows it; read for who was started by which call."""

    type: str | None = None
    id: str | None = None
    tool: str | None = None
    kind: str | None = None
    receiver_thread_ids: list[str] | None = None
    agent_thread_id: str | None = None
    agent_path: str | None = None
    content: Raw = Raw(b"")


class Line(Struct, gc=False):
    """One line; what stands beside `payload` is of the old form."""

    timestamp: str | None = None
    ordinal: int | None = None
    type: str | None = None
    payload: Raw = Raw(b"")
    id: str | None = None
    record_type: str | None = None
    role: str | None = None
    instructions: Raw = Raw(b"")


NOTHING = Raw(b"")
"""Stands where a field is not there, and nowhere else."""


class CodexItem(Struct, gc=False):
    """What a payload says."""

    type: str | None = None
    id: str | None = None
    role: str | None = None
    content: Raw = NOTHING
    name: str | None = None
    arguments: Raw = NOTHING
    input: Raw = NOTHING
    action: Raw = NOTHING
    call_id: str | None = None
    output: Raw = NOTHING
    status: Raw = NOTHING
    tools: Raw = NOTHING
    author: str | None = None
    recipient: str | None = None
    message: Raw = NOTHING
    info: TokenInfo | None = None
    usage: CodexUsage | None = None
    response_id: str | None = None
    thread_token_usage: CodexUsage | None = None
    turn_id: str | None = None
    model: str | None = None
    last_agent_message: str | None = None
    item: ItemInTurn | None = None
    new_thread_id: str | None = None
    agent_thread_id: str | None = None
    event_id: str | None = None
    kind: Raw = NOTHING


class RolloutPayloadHead(Struct, gc=False):
    """What the first look at a payload needs."""

    type: str | None = None
    name: str | None = None


class RolloutEnvelope(Struct, gc=False):
    """A line with what it says."""

    type: str | None = None
    payload: CodexItem | None = None


class RolloutLine(Struct, gc=False):
    """A whole line of the ordinary form, for both looks at once.

    It takes nothing that `Line` and `RolloutEnvelope` would not; a line that it does not take goes by those two.
    """

    timestamp: str | None = None
    ordinal: int | None = None
    type: str | None = None
    payload: CodexItem | None = None
    id: str | None = None
    record_type: str | None = None
    role: str | None = None


class SessionMeta(Struct, gc=False):
    """The first line: which thread, and who started it."""

    id: str | None = None
    session_id: str | None = None
    timestamp: str | None = None
    cli_version: str | None = None
    parent_thread_id: str | None = None
    forked_from_id: str | None = None
    agent_nickname: str | None = None
    agent_role: str | None = None
    agent_path: str | None = None
    source: Raw = Raw(b"")


class ThreadSpawn(Struct, gc=False):
    """By whom a thread was started, and as whom."""

    parent_thread_id: str | None = None
    agent_nickname: str | None = None
    agent_role: str | None = None
    agent_path: str | None = None


class SubAgent(Struct, gc=False):
    """A thread that another started."""

    thread_spawn: ThreadSpawn | None = None


class FromSubAgent(Struct, gc=False):
    """A thread's source, where that is another thread."""

    subagent: SubAgent | None = None


class CodexPart(Struct, gc=False):
    """One part of a message."""

    type: str | None = None
    text: str | None = None
    encrypted_content: str | None = None


class AgentArguments(Struct, gc=False):
    """Arguments of the tools that start, write to, wait for and close agents, in both of their versions."""

    message: str | None = None
    items: list[CodexPart] | None = None
    task_name: str | None = None
    agent_type: str | None = None
    target: str | None = None
    targets: list[str] | None = None
    ids: list[str] | None = None
    id: str | None = None


class AgentOutput(Struct, gc=False):
    """What the tools of a team give back."""

    agent_id: str | None = None
    nickname: str | None = None
    task_name: str | None = None
    status: dict[str, Raw] | str | None = None


class Notification(Struct, gc=False):
    """How an agent stands, as the program tells its parent."""

    agent_id: str | None = None
    agent_path: str | None = None
    status: Raw = Raw(b"")


LINES = msgspec.json.Decoder(Line, strict=False)
ITEMS = msgspec.json.Decoder(CodexItem, strict=False)
PAYLOADS = msgspec.json.Decoder(RolloutPayloadHead, strict=False)
ROLLOUT_LINES = msgspec.json.Decoder(RolloutLine, strict=False)
ENVELOPES = msgspec.json.Decoder(RolloutEnvelope, strict=False)
METAS = msgspec.json.Decoder(SessionMeta, strict=False)
SOURCES = msgspec.json.Decoder(FromSubAgent, strict=False)
AGENT_ARGUMENTS = msgspec.json.Decoder(AgentArguments, strict=False)
AGENT_OUTPUTS = msgspec.json.Decoder(AgentOutput, strict=False)
NOTIFICATIONS = msgspec.json.Decoder(Notification, strict=False)
_TEXTS = msgspec.json.Decoder(str)
PARTS = msgspec.json.Decoder(list[CodexPart], strict=False)


def decoded(decoder: msgspec.json.Decoder[T], raw: bytes | str | Raw) -> T | None:
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def text_of(raw: Raw | bytes) -> str:
    """Words: a string, the texts of parts, or the JSON that it is."""
    if raw is NOTHING:
        return ""
    content = bytes(raw)
    if not content or content == b"null":
        return ""
    if content[:1] == b'"':
        try:
            return _TEXTS.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return ""
    if content[:1] == b"[":
        parts = decoded(PARTS, content)
        if parts is not None and all(part.text or part.encrypted_content for part in parts):
            return "".join(part.text or part.encrypted_content or "" for part in parts)
    if content[:1] == b"{":  # {"content": "...", "success": false}
        held = decoded(msgspec.json.Decoder(dict[str, Any]), content)
        inner = held.get("content") if held is not None else None
        if isinstance(inner, str):
            return inner
    return content.decode("utf-8", "replace")
