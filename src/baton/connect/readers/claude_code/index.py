"""The first look at a session's transcripts: where each entry stands, and what the second look must know beforehand.

Entries name their parent, so their order is the chain's and not the file's: `settle` gives every entry the latest time
of its ancestors (clocks run backwards in these files: an attachment is written after the result it hangs on and dated
before it) and its depth. What is kept of an entry is its place in the file, so memory grows by some words an entry and
never with what entries say.

Invariant: the index of a file whose lines were shuffled or doubled is the index of the file.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct, field

from baton.connect.import_report import ImportReport
from baton.connect.readers.claude_code.entries import (
    ENTRIES,
    HEADS,
    PROGRESS,
    SEND_INPUTS,
    SPAWN_INPUTS,
    SPAWN_RESULTS,
    Block,
    Entry,
    Head,
    SendInput,
    SpawnInput,
)
from baton.connect.readers.claude_code.texts import agent_in

T = TypeVar("T")
MAIN = "main"
SPAWNING = frozenset({"Task", "Agent"})
SENDING = frozenset({"SendMessage", "SendMessageTool"})
_BOOKKEEPING = frozenset(
    "agent-color agent-name agent-setting ai-title api-request api-request-blob api-request-shape atis-latch "
    "attachment attribution-snapshot content-replacement context-collapse-commit cost-state custom-title "
    "file-history-snapshot last-prompt marble-origami-commit marble-origami-snapshot mode permission-mode pr-link "
    "progress queue-operation result saved_hook_context speculation-accept summary system tag task-summary tools-used "
    "worktree-state".split()
)
_NO_JSON = "a line that is not JSON"
_OTHER_FORM = "an entry of a form that is not known"
_TWICE = "an entry that is there twice"


class Row(Struct, gc=False):
    """One entry that the second look reads."""

    t: float
    depth: int
    uuid: str
    file: int
    line: int
    start: int
    end: int
    agent: str
    call: str | None = None


class CallParts(Struct, gc=False):
    """The parts of one answer: how many entries it was split over, and the highest bill among them."""

    parts: int = 0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached: int | None = None
    t: float = 0.0


class Spawn(Struct, gc=False):
    """A call that starts an agent, or sends one that has returned back to work (`resume`)."""

    call: str
    by: str
    t: float
    asked: SpawnInput


class Sent(Struct, gc=False):
    """A call that sends a message."""

    call: str
    by: str
    t: float
    asked: SendInput


class SessionIndex(Struct):
    """All that was found of one session, in all its files."""

    key: str
    version: str | None = None
    rows: list[Row] = field(default_factory=list)
    calls: dict[str, CallParts] = field(default_factory=dict)
    times: dict[str, list[float]] = field(default_factory=dict)
    """Agent -> when its answers came."""
    spawns: dict[str, Spawn] = field(default_factory=dict)
    sent: dict[str, Sent] = field(default_factory=dict)
    children: dict[str, str] = field(default_factory=dict)
    """Tool call -> the agent that it started, as an entry beside it says."""
    named: dict[str, str] = field(default_factory=dict)
    """The same, as the words of its result say."""
    refused: set[str] = field(default_factory=set)
    """Tool calls that failed without naming an agent."""
    first: dict[str, float] = field(default_factory=dict)
    """Agent -> its first entry."""
    roots: dict[str, str] = field(default_factory=dict)
    """Agent of an inline side chain -> the prompt that it opens with."""


class _Found(Struct, gc=False):
    """An entry before its place in the chain is known."""

    head: Head
    line: int
    start: int
    end: int
    t: float | None


@contextmanager
def mapped(path: Path) -> Iterator[mmap.mmap | bytes]:
    """The file's bytes, of which the system loads what is looked at."""
    with path.open("rb") as file:
        try:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # an empty file cannot be mapped
            yield b""
            return
        try:
            yield content
        finally:
            content.close()


def seconds(stamp: str | None) -> float | None:
    """Seconds since 1970 of a date as these programs write it; None: none, or none that can be read."""
    if not stamp:
        return None
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except (ValueError, OverflowError):
        return None


def settle(chain: dict[str, tuple[str | None, float | None]]) -> dict[str, tuple[float, int]]:
    """Uuid -> (the latest time among it and its ancestors, how many ancestors there are)."""
    settled: dict[str, tuple[float, int]] = {}
    for uuid in chain:
        waiting = []
        at: str | None = uuid
        seen: set[str] = set()
        while at is not None and at in chain and at not in settled and at not in seen:
            seen.add(at)
            waiting.append(at)
            at = chain[at][0]
        for name in reversed(waiting):
            parent, t = chain[name]
            before, depth = settled.get(parent, (0.0, -1)) if parent is not None else (0.0, -1)
            settled[name] = (before if t is None or t < before else t, depth + 1)
    return settled


class Indexer:
    """Goes through the files once and fills the sessions' indexes."""

    def __init__(self, report: ImportReport) -> None:
        self.report = report
        self.sessions: dict[str, SessionIndex] = {}
        self._uuids: set[tuple[str, str]] = set()

    def session(self, key: str) -> SessionIndex:
        found = self.sessions.get(key)
        if found is None:
            found = self.sessions[key] = SessionIndex(key=key)
        return found

    def add(self, path: Path, file: int, agent: str | None, session: str) -> None:
        """One file; `agent` is whose it is by its name, `session` what entries that name none belong to."""
        chain: dict[str, tuple[str | None, float | None]] = {}
        found: list[_Found] = []
        with mapped(path) as content:
            start = number = 0
            for line in iter(content.readline, b"") if isinstance(content, mmap.mmap) else ():
                end = start + len(line)
                number += 1
                if not line.isspace():
                    self.report.read()
                    head = self._head(line, f"{path.name}:{number}")
                    if head is not None:
                        t = seconds(head.timestamp)
                        if head.uuid is not None:
                            chain.setdefault(head.uuid, (head.parentUuid or head.logicalParentUuid, t))
                        if self._is_read(head, line):
                            found.append(_Found(head, number, start, end, t))
                start = end
            self._place(found, settle(chain), chain, (file, agent, session), content)

    def _head(self, line: bytes, at: str) -> Head | None:
        try:
            return HEADS.decode(line)
        except msgspec.ValidationError:
            self.report.skip(_OTHER_FORM, at)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.report.skip(_NO_JSON, at)
        return None

    def _is_read(self, head: Head, line: bytes) -> bool:
        """Whether the second look needs this entry; what it does not is told to the report."""
        kind = head.type
        if kind == "assistant" or kind == "user":
            return True
        if kind == "attachment" and b'"queued_command"' in line:
            return True
        if kind == "system" and head.subtype == "compact_boundary":
            return True
        if kind == "queue-operation" and b'"enqueue"' in line and b"<task-notification>" in line:
            return True
        if kind == "progress" and head.parentToolUseID and b'"agent_progress"' in line:
            try:
                note = PROGRESS.decode(head.data)
            except msgspec.DecodeError:
                note = None
            if note is not None and note.agentId and head.sessionId:
                self.session(head.sessionId).children.setdefault(head.parentToolUseID, note.agentId)
        if kind in _BOOKKEEPING:
            self.report.skip(f"a note of the program, nothing of the team ({kind})")
        else:
            self.report.skip(f"a type of entry that is not known ({str(kind)[:40]})")
        return False

    def _place(
        self,
        found: list[_Found],
        settled: dict[str, tuple[float, int]],
        chain: dict[str, tuple[str | None, float | None]],
        where: tuple[int, str | None, str],
        content: mmap.mmap | bytes,
    ) -> None:
        file, file_agent, file_session = where
        sides: dict[str, str] = {}
        inline = {f.head.uuid for f in found if f.head.isSidechain and not f.head.agentId and f.head.uuid}
        for one in found:
            head = one.head
            uuid = head.uuid or f"{file}:{one.line}"
            index = self.session(head.sessionId or file_session)
            if head.uuid is not None:
                if (index.key, uuid) in self._uuids:
                    self.report.join(_TWICE)
                    continue
                self._uuids.add((index.key, uuid))
            t, depth = settled.get(uuid, (one.t or 0.0, 0))
            agent = head.agentId or file_agent
            if agent is None and uuid in inline:
                agent = _side(uuid, chain, inline, sides)
            row = Row(t, depth, uuid, file, one.line, one.start, one.end, agent or MAIN)
            index.rows.append(row)
            index.version = max(index.version or "", head.version or "") or None
            if row.t and row.t < index.first.get(row.agent, float("inf")):
                index.first[row.agent] = row.t
            if head.type == "assistant":
                self._answer(index, head, row, content)
            elif head.type == "user":
                self._result(index, head, row, content)

    def _answer(self, index: SessionIndex, head: Head, row: Row, content: mmap.mmap | bytes) -> None:
        message = head.message
        if message is None:
            return
        row.call = f"{message.id}/{head.requestId}" if message.id and head.requestId else message.id or row.uuid
        parts = index.calls.get(row.call)
        if parts is None:
            parts = index.calls[row.call] = CallParts(t=row.t)
            index.times.setdefault(row.agent, []).append(row.t)
        parts.parts += 1
        parts.t = min(parts.t, row.t)
        if message.usage is not None and message.model != "<synthetic>":
            _bill(parts, message.usage.input_tokens, message.usage.cache_creation_input_tokens,
                  message.usage.cache_read_input_tokens, message.usage.output_tokens)  # fmt: skip
        line = content[row.start : row.end]
        if any(b'"%s"' % name.encode() in line for name in (*SPAWNING, *SENDING)):
            self._asks(index, row, line)

    def _asks(self, index: SessionIndex, row: Row, line: bytes) -> None:
        """Calls that start agents or write to them."""
        for block in _blocks(line):
            if block.type != "tool_use" or block.id is None:
                continue
            if block.name in SPAWNING:
                asked = decoded(SPAWN_INPUTS, block.input) or SpawnInput()
                index.spawns.setdefault(block.id, Spawn(block.id, row.agent, row.t, asked))
            elif block.name in SENDING:
                note = decoded(SEND_INPUTS, block.input) or SendInput()
                index.sent.setdefault(block.id, Sent(block.id, row.agent, row.t, note))

    def _result(self, index: SessionIndex, head: Head, row: Row, content: mmap.mmap | bytes) -> None:
        """The agent a result names, which the spawn must know before it is told."""
        note = bytes(head.toolUseResult)
        opening = row.agent.startswith("side:") and head.parentUuid is None
        line = b""
        if not opening and b'"agentId"' not in note and b'"agent_id"' not in note:
            line = content[row.start : row.end]
            if not note.startswith(b'"') and b"agentId: " not in line:
                return
        entry = entry_of(line or content[row.start : row.end])
        if entry is None or entry.message is None:
            return
        said = entry.message.content
        if opening:
            text = said if isinstance(said, str) else "".join(b.text or "" for b in said or ())
            index.roots.setdefault(row.agent, text)
            return
        told = decoded(SPAWN_RESULTS, note) if note.startswith(b"{") else None
        for block in said if isinstance(said, list) else ():
            if block.type != "tool_result" or block.tool_use_id is None:
                continue
            agent = told and (told.agentId or told.agent_id)
            if agent:
                index.children.setdefault(block.tool_use_id, agent)
            elif (agent := agent_in(result_text(block.content))) is not None:
                index.named.setdefault(block.tool_use_id, agent)
            elif block.is_error:
                index.refused.add(block.tool_use_id)


def _bill(parts: CallParts, fresh: float | None, made: float | None, read: float | None, out: float | None) -> None:
    """Take the highest of each count: an answer's parts repeat its bill as far as it was known."""
    known = [part for part in (fresh, made, read) if part is not None]
    if known:
        parts.prompt_tokens = max(parts.prompt_tokens or 0, int(sum(known)))
    if read is not None:
        parts.cached = max(parts.cached or 0, int(read))
    if out is not None:
        parts.completion_tokens = max(parts.completion_tokens or 0, int(out))


def _side(
    uuid: str,
    chain: dict[str, tuple[str | None, float | None]],
    inline: set[str],
    sides: dict[str, str],
) -> str:
    """The agent of an inline side chain: named by the entry that opens it."""
    walked = []
    at = uuid
    while at not in sides:
        walked.append(at)
        parent = chain.get(at, (None, None))[0]
        if parent is None or parent not in inline or parent in walked:
            sides[at] = f"side:{at}"
            break
        at = parent
    for name in walked:
        sides[name] = sides[at]
    return sides[uuid]


def entry_of(line: bytes) -> Entry | None:
    try:
        return ENTRIES.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _blocks(line: bytes) -> list[Block]:
    entry = entry_of(line)
    said = None if entry is None or entry.message is None else entry.message.content
    return said if isinstance(said, list) else []


def decoded(decoder: msgspec.json.Decoder[T], raw: bytes | msgspec.Raw) -> T | None:
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


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


