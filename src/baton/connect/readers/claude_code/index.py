"""The first look at a session's transcripts: where each entry stands, and what the second look must know beforehand.

Entries name their parent, so their order is the chain's and not the file's: `EntryChain` gives every entry the latest
time of its ancestors (clocks run backwards in these files: an attachment is written after the result it hangs on and
dated before it) and its depth. What is kept of an entry is its place in the file, so memory grows by some words an
entry and never with what entries say.

Invariant: the index of a file whose lines were shuffled or doubled is the index of the file.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
from msgspec import Struct, field

from baton.connect.import_report import ImportReport
from baton.connect.readers.claude_code.chain import EntryChain
from baton.connect.readers.claude_code.entries import (
    HEADS,
    SEND_INPUTS,
    SPAWN_INPUTS,
    SPAWN_RESULTS,
    AgentNote,
    Block,
    Head,
    ProgressNote,
    SendInput,
    SpawnInput,
    decoded,
    entry_of,
    result_text,
)
from baton.connect.readers.claude_code.texts import agent_in
from baton.connect.readers.iso_time import seconds

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
_COUNTED = 1 << 53  # past it, a number is none that a counter gave
_NO_JSON = "a line that is not JSON"
_OTHER_FORM = "an entry of a form that is not known"
_UNKNOWN = "a type of entry that is not known"
_TWICE = "an entry that is there twice"
_REPEATED = "an agent's entry that its transcript has and the session's file repeats"


class ClaudeRow(Struct, gc=False):
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

    head: Head
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
        echoes: list[tuple[_Found, Head]] = []
        notes: Counter[str] = Counter()
        decode, link = HEADS.decode, chain.add
        with path.open("rb", buffering=1 << 20) as lines:
            start = read = 0
            for number, line in enumerate(lines, 1):
                end = start + len(line)
                try:
                    head = decode(line)
                except msgspec.ValidationError:
                    read += 1
                    self.report.skip(_OTHER_FORM, f"{path.name}:{number}")
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    if not line.isspace():
                        read += 1
                        self.report.skip(_NO_JSON, f"{path.name}:{number}")
                else:
                    read += 1
                    t = seconds(head.timestamp)
                    if head.uuid is not None:
                        link(head.uuid, head.parentUuid, t)
                    kind = head.type
                    if kind == "assistant":
                        found.append(_Found(head, number, start, end, t, line if _asks(head) else None))
                    elif kind == "user":
                        names = line if _names_agents(head, line) else None
                        found.append(_Found(head, number, start, end, t, names))
                    elif self._is_read(head, line):
                        found.append(_Found(head, number, start, end, t, None))
                    elif (echo := self._sign_of_life(head)) is not None:
                        echoes.append((_Found(echo[0], number, start, end, t, echo[1]), head))
                    else:
                        notes[kind or "None"] += 1
                start = end
        self.report.read(read)
        self._left_out(notes)
        chain.settle()
        self._place(found, chain, (file, agent, session, forced))
        for one, head in echoes:
            note = head.data
            assert isinstance(note, ProgressNote)
            assert note.agentId is not None
            t, depth = chain.settled.get(head.uuid or "", (one.t or 0.0, 0))
            uuid = one.head.uuid or f"{file}:{one.line}"
            row = ClaudeRow(t, depth, uuid, file, one.line, one.start, one.end, note.agentId)
            self._echoes.append(_Echo(session if forced else head.sessionId or session, one, row))

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

    def _is_read(self, head: Head, line: bytes) -> bool:
        """Whether the second look needs this entry, which is neither an answer nor a user's."""
        kind = head.type
        if kind == "attachment":
            return b'"queued_command"' in line or b'"teammate_mailbox"' in line
        if kind == "system":
            return head.subtype == "compact_boundary"
        if kind == "queue-operation":
            return b'"enqueue"' in line and b"<task-notification>" in line
        return False

    def _sign_of_life(self, head: Head) -> tuple[Head, bytes | None] | None:
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
    ) -> None:
        file, file_agent, file_session, forced = where
        sides: dict[str, str] = {}
        inline = {f.head.uuid for f in found if f.head.isSidechain and not f.head.agentId and f.head.uuid}
        settled, key, version = chain.settled, None, None
        for one in found:
            head = one.head
            own = file_session if forced else head.sessionId or file_session
            if own != key:
                key, version, index = own, None, self.session(own)
                known, first = self._uuids.setdefault(own, set()), index.first
            uuid = head.uuid
            if uuid is None:
                uuid = f"{file}:{one.line}"
            elif uuid in known:
                self.report.join(_TWICE)
                continue
            else:
                known.add(uuid)
            t, depth = settled.get(uuid) or (one.t or 0.0, 0)
            agent = head.agentId or file_agent
            if agent is None:
                agent = _side(uuid, chain.parents, inline, sides) if uuid in inline else MAIN
            row = ClaudeRow(t, depth, uuid, file, one.line, one.start, one.end, agent)
            index.rows.append(row)
            if forced:
                index.listed.add(agent)
            if head.version != version:
                version = head.version
                index.version = max(index.version or "", version or "") or None
            if t and (agent not in first or t < first[agent]):
                first[agent] = t
            self._take(index, one, row)

    def _take(self, index: SessionIndex, one: _Found, row: ClaudeRow) -> None:
        if one.head.type == "assistant":
            self._answer(index, one.head, row)
            if one.names is not None:
                self._asks(index, row, one.names)
        elif one.names is not None:
            self._result(index, one.head, row, one.names)

    def _answer(self, index: SessionIndex, head: Head, row: ClaudeRow) -> None:
        message = head.message
        if message is None:
            return
        call = row.call = (
            f"{message.id}/{head.requestId}" if message.id and head.requestId else message.id or row.uuid
        )
        parts = index.calls.get(call)
        if parts is None:
            parts = index.calls[call] = CallParts(t=row.t)
            index.times.setdefault(row.agent, []).append(row.t)
        parts.parts += 1
        if row.t < parts.t:
            parts.t = row.t
        usage = message.usage
        if usage is not None and message.model != "<synthetic>":
            _bill(parts, usage.input_tokens, usage.cache_creation_input_tokens,
                  usage.cache_read_input_tokens, usage.output_tokens)  # fmt: skip

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

    def _result(self, index: SessionIndex, head: Head, row: ClaudeRow, line: bytes) -> None:
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


def _asks(head: Head) -> bool:
    """Whether an answer starts agents or writes to them."""
    said = head.message.content if head.message is not None else None
    if isinstance(said, list):
        for block in said:  # a loop: `any` of a generator costs more than all of it
            if block.name in _NAMED:
                return True
    return False


def _names_agents(head: Head, line: bytes) -> bool:
    """Whether a user's entry may say which agent a call started or that it started none, or opens a side chain."""
    said = head.message.content if head.message is not None else None
    answers = False
    for block in said if isinstance(said, list) else ():
        if block.is_error:
            return True
        answers = answers or block.type == "tool_result"
    if not answers:
        return bool(head.isSidechain)
    note = head.toolUseResult
    if isinstance(note, AgentNote):
        return bool(bytes(note.agentId) or bytes(note.agent_id))
    return b"agentId: " in line


def _bill(
    parts: CallParts, fresh: float | None, made: float | None, read: float | None, out: float | None
) -> None:
    """Take the highest of each count: an answer's parts repeat its bill as far as it was known."""
    total = -1.0
    for part in (fresh, made, read):
        if part is not None and 0 <= part < _COUNTED:
            total = max(total, 0.0) + part
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
