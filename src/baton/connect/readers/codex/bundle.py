"""A trace bundle: `manifest.json`, `trace.jsonl` in causal order (`seq`), and what events point to in `payloads/`.

Its events are turned into the entries a rollout has, so that one reader tells both.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from baton.connect.import_report import ImportReport
from baton.connect.readers.codex.answers import Where
from baton.connect.readers.codex.entries import CodexItem, CodexUsage, SubAgent, ThreadSpawn, decoded, text_of
from baton.connect.readers.codex.team import CodexTeam, Member
from baton.connect.readers.codex.threads import Thread
from baton.connect.seen import Seen, SeenAgent, SeenSession
from baton.errors import CorruptError

MANIFEST = "manifest.json"
_LAST = 1 << 53  # past it, a number is none that a clock or a counter gave
_INPUTS = frozenset({"message", "agent_message", "function_call_output", "custom_tool_call_output"})
Step = tuple[str, str, CodexItem, Where]
"""Thread, type of entry, what it says, where."""


class CodexManifest(Struct):
    """`manifest.json`."""

    raw_event_log: str | None = None
    rollout_id: str | None = None
    root_thread_id: str | None = None
    trace_id: str | None = None
    started_at_unix_ms: int | float | None = None


class Pointer(Struct):
    """Where a payload lies."""

    path: str | None = None


class CodexPayload(Struct):
    """What an event of the log says."""

    type: str | None = None
    thread_id: str | None = None
    event_type: str | None = None
    model: str | None = None
    agent_path: str | None = None
    response_id: str | None = None
    status: str | None = None
    tool_call_id: str | None = None
    metadata_payload: Pointer | None = None
    request_payload: Pointer | None = None
    response_payload: Pointer | None = None
    result_payload: Pointer | None = None


class CodexEvent(Struct):
    """One line of the log."""

    seq: int | None = None
    wall_time_unix_ms: int | float | None = None
    thread_id: str | None = None
    payload: CodexPayload = msgspec.field(default_factory=CodexPayload)


class CodexSource(Struct):
    """Where a thread comes from."""

    subagent: SubAgent | None = None


class ThreadMeta(Struct):
    """Who a thread is."""

    agent_path: str | None = None
    task_name: str | None = None
    nickname: str | None = None
    agent_role: str | None = None
    session_source: CodexSource | str | None = None


class Response(Struct):
    """One answer."""

    token_usage: CodexUsage | None = None
    output_items: list[CodexItem] = []


class Result(Struct):
    """A tool's result."""

    response_item: CodexItem | None = None


class CodexRequest(Struct):
    """What a model was sent."""

    input: list[CodexItem] = []


_EVENTS = msgspec.json.Decoder(CodexEvent, strict=False)
_MANIFESTS = msgspec.json.Decoder(CodexManifest, strict=False)
_METAS = msgspec.json.Decoder(ThreadMeta, strict=False)
_RESPONSES = msgspec.json.Decoder(Response, strict=False)
_RESULTS = msgspec.json.Decoder(Result, strict=False)
_REQUESTS = msgspec.json.Decoder(CodexRequest, strict=False)


def is_bundle(folder: Path) -> bool:
    if not (folder / MANIFEST).is_file():
        return False
    try:
        manifest = decoded(_MANIFESTS, (folder / MANIFEST).read_bytes().removeprefix(BOM_UTF8))
    except OSError:
        return False
    return manifest is not None and manifest.raw_event_log is not None


def bundles(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob(MANIFEST)):
        if is_bundle(path.parent):
            yield path.parent


def root_of(folder: Path) -> str:
    """The thread that a bundle's session begins with, by which the session is named."""
    manifest = decoded(_MANIFESTS, (folder / MANIFEST).read_bytes().removeprefix(BOM_UTF8)) or CodexManifest()
    return manifest.root_thread_id or manifest.rollout_id or folder.name


def read_bundle(folder: Path, report: ImportReport) -> Iterator[Seen]:
    manifest = decoded(_MANIFESTS, (folder / MANIFEST).read_bytes().removeprefix(BOM_UTF8)) or CodexManifest()
    events = _events(folder / (manifest.raw_event_log or "trace.jsonl"), report)
    root = root_of(folder)
    team = CodexTeam(session=root, mark=f"/{(manifest.trace_id or folder.name)[:8]}")
    log = _Log(folder, team, root, float(manifest.started_at_unix_ms or 0.0), report)
    steps = [step for event in events for step in log.steps(event)]
    for thread, kind, item, where in steps:
        if thread in team.members:
            team.look(thread, kind, item, where.t or 0.0)
    team.settle()
    yield SeenSession(session=root, key=root, at=folder.name, system="codex")
    threads = {}
    for member in list(team.members.values()):
        yield SeenAgent(
            session=root, key=member.key, name=member.name, role=member.role, parent=member.parent
        )
        threads[member.key] = Thread(team, member, report)
    for thread, kind, item, where in steps:
        if thread in threads:
            life = threads[thread]
            if kind == "bill":
                life.bill(where, item.usage, None, item.response_id)
            else:
                life.entry(where, kind, item)
            yield from life.told
            life.told.clear()
    for life in threads.values():
        life.finish()
        yield from life.told


def _events(log: Path, report: ImportReport) -> list[CodexEvent]:
    found: dict[int, CodexEvent] = {}
    try:
        lines = log.read_bytes().removeprefix(BOM_UTF8).splitlines()
    except OSError as error:
        raise CorruptError(f"{log} cannot be read: {error}. A bundle is its whole folder.") from None
    for number, line in enumerate(lines, 1):
        report.read()
        event = decoded(_EVENTS, line)
        if event is None or event.seq is None:
            report.skip("a line that is no event of a bundle", f"{log.name}:{number}")
        elif event.seq in found:
            report.join("an entry that is there twice")
        else:
            found[event.seq] = event
    return [found[seq] for seq in sorted(found)]


class _Log:
    """Turns a bundle's events into what a rollout would say in their place."""

    def __init__(self, folder: Path, team: CodexTeam, root: str, began: float, report: ImportReport) -> None:
        self.folder = folder
        self.team = team
        self.root = root
        self.began = began
        self.report = report
        self.said: dict[str, str] = {}
        self.asked: set[str] = set()
        self.called: dict[str, str] = {}
        """Call -> thread, of calls whose result no event has told."""

    def steps(self, event: CodexEvent) -> Iterator[Step]:
        payload = event.payload
        thread = payload.thread_id or event.thread_id or self.root
        ms, seq = event.wall_time_unix_ms, event.seq or 0
        t = ms / 1000 if ms is not None and 0 <= ms < _LAST else None
        where = Where(
            (self.began, float(min(max(seq, -1), _LAST))), t, f"trace.jsonl seq {seq if seq < _LAST else '?'}"
        )
        if payload.type == "thread_started":
            meta = decoded(_METAS, _content(self.folder, payload.metadata_payload)) or ThreadMeta()
            self.team.add(*_member(thread, meta, payload.agent_path, self.root))
        elif payload.type == "inference_started":
            yield thread, "turn_context", CodexItem(type="turn_context", model=payload.model), where
            yield from self._said_to(payload, thread, where)
        elif payload.type == "inference_completed":
            yield from self._answer(payload, thread, where)
        elif payload.type == "tool_call_ended":
            result = decoded(_RESULTS, _content(self.folder, payload.result_payload))
            if result is None or result.response_item is None:
                self.report.skip("a result whose payload is not there", where.at)
                return
            self.called.pop(result.response_item.call_id or "", None)
            yield thread, "response_item", result.response_item, where
        elif payload.type == "codex_turn_ended" and payload.status == "completed":
            words = self.said.get(thread, "")  # the log does not repeat what was said last, as rollouts do
            yield thread, "event_msg", CodexItem(type="task_complete", last_agent_message=words), where
        else:
            self.report.skip(f"a note of the program, nothing of the team ({str(payload.type)[:40]})")

    def _answer(self, payload: CodexPayload, thread: str, where: Where) -> Iterator[Step]:
        response = decoded(_RESPONSES, _content(self.folder, payload.response_payload))
        if response is None:
            self.report.skip("an answer whose payload is not there", where.at)
            return
        for place, item in enumerate(response.output_items):
            if item.type == "message":
                self.said[thread] = text_of(item.content)
            elif item.call_id is not None:
                self.called[item.call_id] = thread
            yield thread, "response_item", item, _later(where, place / 1000)
        yield (
            thread,
            "bill",
            CodexItem(usage=response.token_usage, response_id=payload.response_id),
            _later(where, 0.999),
        )

    def _said_to(self, payload: CodexPayload, thread: str, where: Where) -> Iterator[Step]:
        """What came before an answer that no event tells: words, and results of tools that are not there."""
        request = decoded(_REQUESTS, _content(self.folder, payload.request_payload)) or CodexRequest()
        new: list[CodexItem] = []
        for item in reversed(request.input):
            if item.type not in _INPUTS or item.role == "assistant":
                if thread == self.root and thread not in self.asked:
                    yield thread, "resumed", CodexItem(), _later(where, -0.9)
                break
            if item.call_id is None:
                new.append(item)
            elif self.called.get(item.call_id) == thread:
                del self.called[item.call_id]
                new.append(item)
        if thread not in self.asked and thread != self.root:
            new = new[:1]  # its task; before it stands what it was given of another's history
        self.asked.add(thread)
        for place, item in enumerate(reversed(new)):
            yield thread, "response_item", item, _later(where, place / 1000 - 0.5)


def _later(where: Where, by: float) -> Where:
    return Where((where.order[0], where.order[1] + by), where.t, where.at)


def _member(thread: str, meta: ThreadMeta, path: str | None, root: str) -> tuple[Member, str | None]:
    source = meta.session_source
    spawn = (
        (source.subagent if isinstance(source, CodexSource) else None) or SubAgent()
    ).thread_spawn or ThreadSpawn()
    started = thread != root
    own = spawn.agent_path or (path if path != "/root" else None)
    name = (own or "").rsplit("/", 1)[-1] or meta.task_name or meta.nickname or meta.agent_role or thread
    member = Member(
        key=thread, name=name if started else "main", role=meta.agent_role,
        parent=spawn.parent_thread_id, path=own if started else "/root",
    )  # fmt: skip
    return member, meta.nickname


def _content(folder: Path, pointer: Pointer | None) -> bytes:
    if pointer is None or pointer.path is None:
        return b""
    path = folder / pointer.path
    if ".." in Path(pointer.path).parts or Path(pointer.path).is_absolute():
        return b""  # a bundle points into itself
    try:
        return path.read_bytes().removeprefix(BOM_UTF8)
    except (OSError, ValueError):  # it is not there, or no path at all
        return b""
