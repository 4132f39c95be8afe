"""The entries of a Claude Code transcript, with the fields that are read and no others.

Fields that versions disagree on are left raw and looked into where they matter, so that one odd field never costs an
entry. Unknown types of entries, and unknown fields, are let through: versions add some every week.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

T = TypeVar("T")


class ClaudeUsage(Struct, gc=False):
    """What one answer was billed. Parts of an answer repeat it, as it stood when the part was written."""

    input_tokens: int | float | None = None
    cache_creation_input_tokens: int | float | None = None
    cache_read_input_tokens: int | float | None = None
    output_tokens: int | float | None = None


class HeadBlock(Struct, gc=False):
    """A part of a message without what it says."""

    type: str | None = None
    name: str | None = None
    is_error: bool | None = None


NOTHING = Raw(b"")
"""Stands where a field is not there, and nowhere else."""


class AgentNote(Struct, gc=False):
    """Whether the program notes an agent beside a tool's result."""

    agentId: Raw = NOTHING
    agent_id: Raw = NOTHING
    task: Raw = NOTHING


class ProgressNote(Struct, gc=False):
    """A sign of life; of an agent, with its id."""

    type: str | None = None
    agentId: str | None = None
    message: Raw = Raw(b"")
    """The entry of the agent that it repeats, as far as a version repeats them."""


class HeadMessage(Struct, gc=False):
    """An answer without its words."""

    content: str | list[HeadBlock] | None = None
    id: str | None = None
    model: str | None = None
    usage: ClaudeUsage | None = None
    stop_reason: str | None = None


class Head(Struct, gc=False):
    """What the first look at an entry needs: who, when, after what, and which answer it is a part of."""

    type: str | None = None
    subtype: str | None = None
    uuid: str | None = None
    parentUuid: str | None = None
    timestamp: str | None = None
    sessionId: str | None = None
    agentId: str | None = None
    isSidechain: bool | None = None
    isMeta: bool | None = None
    version: str | None = None
    requestId: str | None = None
    message: HeadMessage | None = None
    toolUseResult: AgentNote | str | list[Raw] | int | float | bool | None = None
    parentToolUseID: str | None = None
    data: ProgressNote | str | list[Raw] | int | float | bool | None = None


class Block(Struct, gc=False):
    """One part of a message."""

    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: Raw = Raw(b"")
    tool_use_id: str | None = None
    content: Raw = Raw(b"")
    is_error: bool | None = None


class ClaudeMessage(Struct, gc=False):
    """What was said, by the user or by the model."""

    id: str | None = None
    model: str | None = None
    content: str | list[Block] | None = None
    stop_reason: str | None = None


class InboxLetter(Struct, gc=False):
    """One message in a team's inbox."""

    sender: str | None = msgspec.field(default=None, name="from")
    text: str | None = None
    timestamp: str | None = None


class Attachment(Struct, gc=False):
    """What the program adds to a turn; a `queued_command` is what somebody said meanwhile."""

    type: str | None = None
    prompt: str | list[Block] | None = None
    messages: list[InboxLetter] | None = None
    """Of a `teammate_mailbox`."""


class CompactMetadata(Struct, gc=False):
    """Why the conversation was shortened."""

    trigger: str | None = None
    preTokens: int | float | None = None


class ClaudeEntry(Struct, gc=False):
    """A user's or assistant's entry, an attachment, a boundary of a compaction, an operation of the queue."""

    type: str | None = None
    subtype: str | None = None
    operation: str | None = None
    content: Raw = Raw(b"")
    message: ClaudeMessage | None = None
    attachment: Attachment | None = None
    compactMetadata: CompactMetadata | None = None
    toolUseResult: Raw = Raw(b"")
    isMeta: bool | None = None
    isCompactSummary: bool | None = None
    isApiErrorMessage: bool | None = None


class PlainBlock(Struct, gc=False):
    """One part of a message whose results are texts, as nearly all are."""

    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: Raw = Raw(b"")
    tool_use_id: str | None = None
    content: str | list[PlainBlock] | None = ""
    is_error: bool | None = None


class PlainMessage(Struct, gc=False):
    """An answer, or what was said to the agent."""

    content: str | list[PlainBlock] | None = None
    id: str | None = None
    model: str | None = None
    usage: ClaudeUsage | None = None
    stop_reason: str | None = None


class PlainEntry(Struct, gc=False):
    """A user's or assistant's entry of the ordinary form, for both looks at once.

    It takes nothing that `Head` and `ClaudeEntry` would not; a line that it does not take goes by those two.
    """

    type: str | None = None
    subtype: str | None = None
    uuid: str | None = None
    parentUuid: str | None = None
    timestamp: str | None = None
    sessionId: str | None = None
    agentId: str | None = None
    isSidechain: bool | None = None
    isMeta: bool | None = None
    version: str | None = None
    requestId: str | None = None
    message: PlainMessage | None = None
    toolUseResult: AgentNote | str | list[Raw] | int | float | bool | None = None
    parentToolUseID: str | None = None
    data: ProgressNote | str | list[Raw] | int | float | bool | None = None
    isCompactSummary: bool | None = None
    isApiErrorMessage: bool | None = None
    operation: str | None = None
    attachment: Attachment | None = None
    compactMetadata: CompactMetadata | None = None


class Repeated(Struct, gc=False):
    """What a sign of life repeats."""

    message: ClaudeEntry | None = None


class Echo(Struct, gc=False):
    """A sign of life in a session's file that repeats an entry of an agent."""

    data: Repeated | None = None


class SpawnInput(Struct, gc=False):
    """Arguments of the tool that starts an agent (`Task`, later `Agent`)."""

    prompt: str | None = None
    description: str | None = None
    subagent_type: str | None = None
    name: str | None = None
    team_name: str | None = None
    resume: str | None = None


class SendInput(Struct, gc=False):
    """Arguments of `SendMessage`, in its two forms."""

    to: str | None = None
    recipient: str | None = None
    message: str | Raw | None = None
    content: str | None = None
    type: str | None = None
    summary: str | None = None


class BackgroundTask(Struct, gc=False):
    """A task in the background, as a look at its output shows it."""

    task_id: str | None = None
    task_type: str | None = None
    status: str | None = None
    result: str | None = None
    output: str | None = None


class SpawnResult(Struct, gc=False):
    """What the program notes beside a tool's result: of an agent, its id and how it went."""

    status: str | None = None
    isAsync: bool | None = None
    agentId: str | None = None
    agent_id: str | None = None
    name: str | None = None
    agentType: str | None = None
    content: Raw = Raw(b"")
    totalTokens: int | float | None = None
    totalDurationMs: int | float | None = None
    task: BackgroundTask | None = None
    retrieval_status: str | None = None


class Meta(Struct, gc=False):
    """`agent-<id>.meta.json`: who started the agent, and by which call."""

    agentType: str | None = None
    description: str | None = None
    toolUseId: str | None = None
    parentAgentId: str | None = None
    name: str | None = None


class JournalEntry(Struct, gc=False):
    """One line of a workflow's journal."""

    type: str | None = None
    agentId: str | None = None
    result: Raw = Raw(b"")


class ClaudeTeam(Struct, gc=False):
    """`teams/<team>/config.json`."""

    leadSessionId: str | None = None


def decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, strict=False)


PLAIN: msgspec.json.Decoder[PlainEntry] = decoder(PlainEntry)
HEADS: msgspec.json.Decoder[Head] = decoder(Head)
ENTRIES: msgspec.json.Decoder[ClaudeEntry] = decoder(ClaudeEntry)
ECHOES: msgspec.json.Decoder[Echo] = decoder(Echo)
SPAWN_INPUTS: msgspec.json.Decoder[SpawnInput] = decoder(SpawnInput)
SEND_INPUTS: msgspec.json.Decoder[SendInput] = decoder(SendInput)
SPAWN_RESULTS: msgspec.json.Decoder[SpawnResult] = decoder(SpawnResult)
METAS: msgspec.json.Decoder[Meta] = decoder(Meta)
JOURNALS: msgspec.json.Decoder[JournalEntry] = decoder(JournalEntry)
INBOXES: msgspec.json.Decoder[list[InboxLetter]] = decoder(list[InboxLetter])
TEAMS: msgspec.json.Decoder[ClaudeTeam] = decoder(ClaudeTeam)


def entry_of(line: bytes) -> ClaudeEntry | None:
    """An entry, or that which it repeats."""
    try:
        entry = ENTRIES.decode(line)
        if entry.type != "progress":
            return entry
        echo = ECHOES.decode(line)
        return None if echo.data is None else echo.data.message
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def decoded(decoder: msgspec.json.Decoder[T], raw: bytes | msgspec.Raw) -> T | None:
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def plain_text(content: str | list[PlainBlock] | None) -> str:
    """A tool's result as text, of a part that `is_plain`."""
    if isinstance(content, str):
        return content
    return "null" if content is None else "\n".join(part.text or "" for part in content)


def is_plain(content: str | list[PlainBlock] | None) -> bool:
    """Whether a result is text; other parts stand in the trace as the JSON that they were."""
    return type(content) is not list or all(part.type == "text" for part in content)


def result_text(raw: msgspec.Raw | bytes) -> str:
    """A tool's result as text: its texts, or the JSON that it is."""
    content = bytes(raw)
    if not content:
        return ""
    try:
        if content[:1] == b'"':
            return msgspec.json.decode(content, type=str)
        if content[:1] == b"[":
            parts = msgspec.json.decode(content, type=list[Block])
            if all(part.type == "text" for part in parts):
                return "\n".join(part.text or "" for part in parts)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    return content.decode("utf-8", "replace")
