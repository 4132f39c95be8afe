"""The first look at a session's transcripts: where each entry stands, and what the second look must know beforehand.

Entries name their parent, so their order is the chain's and not the file's: `EntryChain` gives every entry the latest
time of its ancestors (clocks run backwards in these files: an attachment is written after the result it hangs on and
dated before it) and its depth. What is kept of an entry is its place in the file, so memory grows by some words an
entry and never with what entries say.

Invariant: the index of a file whose lines were shuffled or doubled is the index of the file.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections import Counter
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct, field

from baton.connect.import_report import ImportReport
from baton.connect.readers.claude_code.chain import EntryChain
from baton.connect.readers.claude_code.entries import (
    HEADS,
    NOTHING,
    PLAIN,
    SEND_INPUTS,
    SPAWN_INPUTS,
    SPAWN_RESULTS,
    AgentNote,
    Block,
    ClaudeUsage,
    Head,
    PlainEntry,
    ProgressNote,
    SendInput,
    SpawnInput,
    decoded,
    entry_of,
    result_text,
)
from baton.connect.readers.claude_code.texts import agent_in

MAIN = "main"
SPAWNING = frozenset({"Task", "Agent"})
SENDING = frozenset({"SendMessage", "SendMessageTool"})
_BOOKKEEPING = frozenset({
    "agent-color", "agent-name", "agent-setting", "ai-title", "api-request", "api-request-blob",
    "api-request-shape", "atis-latch", "attachment", "attribution-snapshot", "content-replacement",
    "context-collapse-commit", "cost-state", "custom-title", "file-history-snapshot", "last-prompt",
    "marble-origami-commit", "marble-origami-snapshot", "mode", "permission-mode", "pr-link",
    "progress", "queue-operation", "result", "saved_hook_context", "speculation-accept", "summary",
    "system", "tag", "task-summary", "tools-used", "worktree-state",
})  # fmt: skip
_SPOKEN = frozenset({"assistant", "user"})
_BATCH = 256  # entries that are put in their places at once
_COUNTED = 1 << 53  # past it, a number is none that a counter gave
_NO_JSON = "a line that is not JSON"
_OTHER_FORM = "an entry of a form that is not known"
_UNKNOWN = "a type of entry that is not known"
_TWICE = "an entry that is there twice"
_REPEATED = "an agent's entry that its transcript has and the session's file repeats"


class ClaudeRow(Struct, gc=False):
    """One entry that the second look reads."""

    t: float
    depth: float
    uuid: str
    file: int
    line: int
    start: int
    end: int
    agent: str
    call: str | None = None
    entry: PlainEntry | None = None
    """What the first look found, until the second has told it; None: it is read again."""


class CallParts(Struct, gc=False):
    """The parts of one answer: how many entries it was split over, and the highest bill among them."""

    parts: int = 0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached: int | None = None


class ClaudeSpawn(Struct, gc=False):
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
    rows: list[ClaudeRow] = field(default_factory=list)
    calls: dict[str, CallParts] = field(default_factory=dict)
    times: dict[str, list[float]] = field(default_factory=dict)
    """Agent -> when its answers came."""
    spawns: dict[str, ClaudeSpawn] = field(default_factory=dict)
    sent: dict[str, Sent] = field(default_factory=dict)
    children: dict[str, str] = field(default_factory=dict)
    """Tool call -> the agent that it started, as an entry beside it says."""
    named: dict[str, str] = field(default_factory=dict)
    """The same, as the words of its result say."""
    refused: set[str] = field(default_factory=set)
    """Tool calls that failed without naming an agent."""
    first: dict[str, float] = field(default_factory=dict)
    """Agent -> its first entry."""
    listed: set[str] = field(default_factory=set)
    """Agents whose transcript lies in the session's own folder."""
    echoed: set[str] = field(default_factory=set)
    """Agents whose transcript is not there: known by what the session's file repeats of it."""
    roots: dict[str, str] = field(default_factory=dict)
    """Agent of an inline side chain -> the prompt that it opens with."""


class _Found(Struct, gc=False):
    """An entry before its place in the chain is known."""

    head: Head | PlainEntry
    line: int
    start: int
    end: int
    t: float | None
    names: bytes | None
    """The line itself, if it names agents: it is looked into before the rest."""


class _Echo(Struct, gc=False):
    """An agent's entry as the session's file repeats it, with its place there."""

    session: str
    found: _Found
    row: ClaudeRow


class Indexer:
    """Goes through the files once and fills the sessions' indexes."""

    def __init__(self, report: ImportReport) -> None:
        self.report = report
        self.sessions: dict[str, SessionIndex] = {}
        self._uuids: dict[str, set[str]] = {}
        """Session -> its entries so far."""
        self._echoes: list[_Echo] = []

    def session(self, key: str) -> SessionIndex:
        found = self.sessions.get(key)
        if found is None:
            found = self.sessions[key] = SessionIndex(key=key)
        return found

    def add(self, path: Path, file: int, agent: str | None, session: str, forced: bool = False) -> None:
        """One file; `agent` is whose it is by its name, `session` what entries that name none belong to.

        `forced`: to that session belong all, whatever they name.
        """
        chain = EntryChain()
        found: list[_Found] = []
        echoes: list[tuple[_Found, Head | PlainEntry]] = []
        notes: Counter[str] = Counter()
        where = (file, agent, session, forced)
        decode, date = PLAIN.decode, datetime.fromisoformat
        parents, settled = chain.parents, chain.settled
        with path.open("rb", buffering=1 << 20) as lines:
            start = end = read = 0
            if lines.read(len(BOM_UTF8)) == BOM_UTF8:  # what some editors put there
                end = len(BOM_UTF8)
            lines.seek(end)
            for number, line in enumerate(lines, 1):
                start, end = end, end + len(line)
                head: Head | PlainEntry | None
                try:
                    head = decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    if line.isspace():
                        continue
                    head = self._head(line, f"{path.name}:{number}")
                read += 1
                if head is None:
                    continue
                try:
                    t = date(head.timestamp).timestamp() if head.timestamp else None
                except (ValueError, OverflowError):
                    t = None
                uuid, parent = head.uuid, head.parentUuid
                if uuid is not None and uuid not in parents:
                    if parent in settled:  # `chain.add`, as it nearly always goes
                        before, depth = settled[parent]
                        parents[uuid] = parent
                        settled[uuid] = (before if t is None or t < before else t, depth + 1.0)
                    else:
                        chain.add(uuid, parent, t)
                kind = head.type
                if kind in _SPOKEN:
                    names = _asks(head) if kind == "assistant" else _names_agents(head, line)
                    found.append(_Found(head, number, start, end, t, line if names else None))
                elif self._is_read(head, line):
                    found.append(_Found(head, number, start, end, t, None))
                elif (echo := self._sign_of_life(head)) is not None:
                    echoes.append((_Found(echo[0], number, start, end, t, echo[1]), head))
                else:
                    notes[kind or "None"] += 1
                if len(found) == _BATCH and not chain.late and not _inline(found):
                    self._place(found, chain, where, set())  # while they are at hand
                    found.clear()
        self.report.read(read)
        self._left_out(notes)
        chain.settle()
        self._place(found, chain, where, _inline(found))
        self._keep_echoes(echoes, chain, where)

    def _keep_echoes(
        self,
        echoes: list[tuple[_Found, Head | PlainEntry]],
        chain: EntryChain,
        where: tuple[int, str | None, str, bool],
    ) -> None:
        file, _, session, forced = where
        for one, head in echoes:
            note = head.data
            assert isinstance(note, ProgressNote)
            assert note.agentId is not None
            t, depth = chain.settled.get(head.uuid or "", (one.t or 0.0, 0.0))
            uuid = one.head.uuid or f"{file}:{one.line}"
            row = ClaudeRow(t, depth, uuid, file, one.line, one.start, one.end, note.agentId)
            self._echoes.append(_Echo(session if forced else head.sessionId or session, one, row))

    def _head(self, line: bytes, at: str) -> Head | None:
        """What can be known of a line that is of no ordinary form; None: nothing, which is told."""
        try:
            return HEADS.decode(line)
        except msgspec.ValidationError:
            self.report.skip(_OTHER_FORM, at)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.report.skip(_NO_JSON, at)
        return None

    def settle(self) -> None:
        """After the last file: agents whose transcript was in none of them are told by what others repeat of it."""
        told = {(index.key, row.agent) for index in self.sessions.values() for row in index.rows}
        for echo in self._echoes:
            index = self.session(echo.session)
            if (index.key, echo.row.agent) in told:
                self.report.join(_REPEATED)
            elif echo.row.uuid in (known := self._uuids.setdefault(index.key, set())):
                self.report.join(_TWICE)
            else:
                known.add(echo.row.uuid)
                index.echoed.add(echo.row.agent)
                index.rows.append(echo.row)
                index.first[echo.row.agent] = min(echo.row.t, index.first.get(echo.row.agent, echo.row.t))
                self._take(index, echo.found, echo.row)
        self._echoes.clear()

    def _left_out(self, notes: Counter[str]) -> None:
        for kind, times in notes.items():
            known = "a note of the program, nothing of the team" if kind in _BOOKKEEPING else _UNKNOWN
            reason = f"{known} ({kind[:40]})"
            self.report.skip(reason)
            self.report.skipped[reason] += times - 1

    def _is_read(self, head: Head | PlainEntry, line: bytes) -> bool:
        """Whether the second look needs this entry, which is neither an answer nor a user's."""
        kind = head.type
        if kind == "attachment":
            return b'"queued_command"' in line or b'"teammate_mailbox"' in line
        if kind == "system":
            return head.subtype == "compact_boundary"
        if kind == "queue-operation":
            return b'"enqueue"' in line and b"<task-notification>" in line
        return False

    def _sign_of_life(self, head: Head | PlainEntry) -> tuple[Head, bytes | None] | None:
        """What a sign of life repeats of an agent's transcript: the entry, and its line if it names agents."""
        note = head.data
        if not isinstance(note, ProgressNote) or note.type != "agent_progress" or not note.agentId:
            return None
        if head.parentToolUseID and head.sessionId:
            self.session(head.sessionId).children.setdefault(head.parentToolUseID, note.agentId)
        line = bytes(note.message)
        echo = decoded(HEADS, line) if line.startswith(b"{") else None
        if echo is None or echo.message is None or echo.type not in ("user", "assistant"):
            return None
        names = _asks(echo) if echo.type == "assistant" else _names_agents(echo, line)
        return echo, line if names else None

    def _place(
        self,
        found: list[_Found],
        chain: EntryChain,
        where: tuple[int, str | None, str, bool],
        inline: set[str],
    ) -> None:
        file, file_agent, file_session, forced = where
        sides: dict[str, str] = {}
        settled, key, version = chain.settled, None, None
        for one in found:
            head = one.head
            own = file_session if forced else head.sessionId or file_session
            if own != key:
                key, version, index = own, None, self.session(own)
                known, first, rows = self._uuids.setdefault(own, set()), index.first, index.rows
            uuid = head.uuid
            if uuid is None:
                uuid = f"{file}:{one.line}"
            elif uuid in known:
                self.report.join(_TWICE)
                continue
            else:
                known.add(uuid)
            t, depth = settled.get(uuid) or (one.t or 0.0, 0.0)
            agent = head.agentId or file_agent
            if agent is None:
                agent = _side(uuid, chain.parents, inline, sides) if uuid in inline else MAIN
            row = ClaudeRow(t, depth, uuid, file, one.line, one.start, one.end, agent)
            rows.append(row)
            if type(head) is PlainEntry and head.type in _SPOKEN:
                row.entry = head
            if forced:
                index.listed.add(agent)
            if head.version != version:
                version = head.version
                index.version = max(index.version or "", version or "") or None
            if t and (agent not in first or t < first[agent]):
                first[agent] = t
            if head.type == "assistant":
                self._answer(index, head, row)
                if one.names is not None:
                    self._asks(index, row, one.names)
            elif one.names is not None:
                self._result(index, head, row, one.names)

    def _take(self, index: SessionIndex, one: _Found, row: ClaudeRow) -> None:
        if one.head.type == "assistant":
            self._answer(index, one.head, row)
            if one.names is not None:
                self._asks(index, row, one.names)
        elif one.names is not None:
            self._result(index, one.head, row, one.names)

    def _answer(self, index: SessionIndex, head: Head | PlainEntry, row: ClaudeRow) -> None:
        message = head.message
        if message is None:
            return
        call = row.call = (
            f"{message.id}/{head.requestId}" if message.id and head.requestId else message.id or row.uuid
        )
        parts = index.calls.get(call)
        if parts is None:
            parts = index.calls[call] = CallParts()
            index.times.setdefault(row.agent, []).append(row.t)
        parts.parts += 1
        usage = message.usage
        if usage is not None and message.model != "<synthetic>":
            _bill(parts, usage)

    def _asks(self, index: SessionIndex, row: ClaudeRow, line: bytes) -> None:
        """Calls that start agents or write to them."""
        for block in _blocks(line):
            if block.type != "tool_use" or block.id is None:
                continue
            if block.name in SPAWNING:
                asked = decoded(SPAWN_INPUTS, block.input) or SpawnInput()
                index.spawns.setdefault(block.id, ClaudeSpawn(block.id, row.agent, row.t, asked))
            elif block.name in SENDING:
                note = decoded(SEND_INPUTS, block.input) or SendInput()
                index.sent.setdefault(block.id, Sent(block.id, row.agent, row.t, note))

    def _result(self, index: SessionIndex, head: Head | PlainEntry, row: ClaudeRow, line: bytes) -> None:
        """The agent a result names, which the spawn must know before it is told."""
        opening = row.agent.startswith("side:") and head.parentUuid is None
        entry = entry_of(line)
        if entry is None or entry.message is None:
            return
        said = entry.message.content
        if opening:
            text = said if isinstance(said, str) else "".join(b.text or "" for b in said or ())
            index.roots.setdefault(row.agent, text)
            return
        note = bytes(entry.toolUseResult)
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


_NAMED = SPAWNING | SENDING


def _inline(found: list[_Found]) -> set[str]:
    """Entries of side chains within a file that no agent's id tells apart."""
    return {
        one.head.uuid for one in found if one.head.isSidechain and not one.head.agentId and one.head.uuid
    }  # fmt: skip


def _asks(head: Head | PlainEntry) -> bool:
    """Whether an answer starts agents or writes to them."""
    said = head.message.content if head.message is not None else None
    if type(said) is list:
        for block in said:  # a loop: `any` of a generator costs more than all of it
            if block.name in _NAMED:
                return True
    return False


def _names_agents(head: Head | PlainEntry, line: bytes) -> bool:
    """Whether a user's entry may say which agent a call started or that it started none, or opens a side chain."""
    said = head.message.content if head.message is not None else None
    answers = False
    if type(said) is list:
        for block in said:
            if block.is_error:
                return True
            if block.type == "tool_result":
                answers = True
    if not answers:
        return bool(head.isSidechain)
    note = head.toolUseResult
    if type(note) is AgentNote:
        return note.agentId is not NOTHING or note.agent_id is not NOTHING
    return b"agentId: " in line


def _bill(parts: CallParts, usage: ClaudeUsage) -> None:
    """Take the highest of each count: an answer's parts repeat its bill as far as it was known."""
    read, out = usage.cache_read_input_tokens, usage.output_tokens
    total = -1.0
    for part in (usage.input_tokens, usage.cache_creation_input_tokens, read):
        if part is not None and 0 <= part < _COUNTED:
            total = part if total < 0 else total + part
    if total >= 0 and (parts.prompt_tokens is None or total > parts.prompt_tokens):
        parts.prompt_tokens = int(total)
    if read is not None and 0 <= read < _COUNTED and read > (parts.cached or -1):
        parts.cached = int(read)
    if out is not None and 0 <= out < _COUNTED and out > (parts.completion_tokens or -1):
        parts.completion_tokens = int(out)


def _side(
    uuid: str,
    parents: dict[str, str | None],
    inline: set[str],
    sides: dict[str, str],
) -> str:
    """The agent of an inline side chain: named by the entry that opens it."""
    walked = []
    at = uuid
    while at not in sides:
        walked.append(at)
        parent = parents.get(at)
        if parent is None or parent not in inline or parent in walked:
            sides[at] = f"side:{at}"
            break
        at = parent
    for name in walked:
        sides[name] = sides[at]
    return sides[uuid]


def _blocks(line: bytes) -> list[Block]:
    entry = entry_of(line)
    said = None if entry is None or entry.message is None else entry.message.content
    return said if isinstance(said, list) else []
