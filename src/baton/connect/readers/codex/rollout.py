"""One rollout file: its lines in order, whose thread it is, and where the thread's own turns begin.

Order is by `ordinal` where lines have one; else by place, or, in a file whose dates run backwards (shuffled lines), by
date. A thread that was forked from another's history begins with a copy of it, which the copied session's own first
line opens: what the thread did itself begins with its first turn, and a turn is its own when its id is later than the
thread's (both are UUIDs that begin with the time).
"""

from __future__ import annotations

import mmap
import re
import tempfile
from codecs import BOM_UTF8
from collections.abc import Iterator
from operator import attrgetter, gt
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Struct, field

from baton.connect.import_report import ImportReport
from baton.connect.readers.codex.entries import (
    ENVELOPES,
    ITEMS,
    LINES,
    METAS,
    PAYLOADS,
    ROLLOUT_LINES,
    SOURCES,
    CodexItem,
    FromSubAgent,
    Line,
    RolloutLine,
    SessionMeta,
    SubAgent,
    ThreadSpawn,
    decoded,
)
from baton.connect.readers.codex.team import OF_THE_TEAM
from baton.connect.readers.iso_time import seconds
from baton.connect.readers.zstd import unpacked_pieces

_LAST = 1 << 53  # past it, a number is none that a clock or a counter gave
_ID = re.compile(r"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})")
_KEY = attrgetter("key")
_V7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-")
ITEM_TYPES = frozenset({
    "message", "reasoning", "function_call", "function_call_output", "custom_tool_call",
    "custom_tool_call_output", "local_shell_call", "web_search_call", "tool_search_call",
    "tool_search_output", "image_generation_call", "agent_message",
})  # fmt: skip
LINE_TYPES = frozenset({
    "session_meta", "response_item", "event_msg", "turn_context", "compacted", "token_usage_record", "world_state",
    "inter_agent_communication", "inter_agent_communication_metadata", "security_risk_score",
})  # fmt: skip
_OF_OTHERS = frozenset({
    "function_call", "function_call_output", "task_complete", "user_message", "item_completed",
    "collab_agent_spawn_end", "sub_agent_activity",
})  # fmt: skip
_RANK = {"session_meta": 0.0, "turn_context": 1.0, "response_item": 2.0, "token_usage_record": 3.0}
_UNNUMBERED = {kind: (-1.0, rank) for kind, rank in _RANK.items()}
_OTHER = (-1.0, 2.0)
_LOOKS = 20  # lines in which a file must show what it is
_BURST_S = 0.005  # a copied history is written at once


class CodexPlace(Struct, gc=False):
    """Where a line stands."""

    key: tuple[float, float]
    """Its number, or -1; and which comes first of lines that have none and the same time."""
    t: float | None
    start: int
    end: int
    line: int
    old: bool = False
    looks: str | None = None
    """Of what may tell of other threads, its type: it is looked at before any thread is told."""
    told: tuple[str, CodexItem] | None = None
    """What the first look found, until its thread is told; None: the line is read again."""


class Rollout(Struct):
    """A file of one thread, looked at once."""

    path: Path
    thread: str
    meta: SessionMeta
    places: list[CodexPlace] = field(default_factory=list)
    own_from: int = 0
    """Index of the first place that is the thread's own; what stands before is a copy."""

    @property
    def parent(self) -> str | None:
        return self.meta.parent_thread_id or spawn_of(self.meta).parent_thread_id

    @property
    def session(self) -> str | None:
        return self.meta.session_id


def spawn_of(meta: SessionMeta) -> ThreadSpawn:
    """Who started the thread, as its source says; all None where nobody did."""
    source = decoded(SOURCES, meta.source) if bytes(meta.source)[:1] == b"{" else None
    return ((source or FromSubAgent()).subagent or SubAgent()).thread_spawn or ThreadSpawn()


class Pages:
    """The bytes of a file; a packed one is unpacked into a file without a name first."""

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] = path.open("rb", buffering=1 << 16)
        if path.suffix == ".zst":
            plain = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the pages
            try:
                with self._file as packed:
                    plain.writelines(unpacked_pieces(packed, str(path)))
                plain.flush()
            except BaseException:
                plain.close()
                raise
            self._file = plain
        try:
            self.content: mmap.mmap | None = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # an empty file
            self.content = None

    def lines(self) -> Iterator[tuple[int, bytes]]:
        size = 0 if self.content is None else len(self.content)
        self._file.seek(0)
        start = len(BOM_UTF8) if self._file.read(len(BOM_UTF8)) == BOM_UTF8 else 0
        self._file.seek(start)
        for line in self._file:
            if start >= size:  # it has grown since
                return
            yield start, line
            start += len(line)

    def at(self, place: CodexPlace) -> bytes:
        assert self.content is not None
        return self.content[place.start : place.end]

    def close(self) -> None:
        if self.content is not None:
            self.content.close()
        self._file.close()


def first_meta(path: Path, *, whole: bool = False) -> SessionMeta | None:
    """The session's line, from the first lines of a file or from the `whole` of it; None: there is none."""
    pages = Pages(path)
    other: SessionMeta | None = None
    try:
        for number, (_, line) in enumerate(pages.lines()):
            if number > _LOOKS and not (whole and b'"session_meta"' in line):
                if whole:
                    continue
                break
            head = decoded(LINES, line)
            if head is None:
                continue
            meta = _meta_of(head, line)
            if meta is not None and meta.id is not None:
                if meta.id in path.name:
                    return meta
                other = other or meta
    finally:
        pages.close()
    return other


def _meta_of(head: Line, line: bytes) -> SessionMeta | None:
    if head.type == "session_meta":
        return decoded(METAS, head.payload)
    if head.type is None and head.id is not None and bytes(head.instructions):
        return decoded(METAS, line)
    return None


class _SeenLines:
    """Which lines of a file were there before."""

    def __init__(self) -> None:
        self._numbered: set[tuple[int, str | None]] = set()
        self._same: set[int] = set()

    def before(self, head: Line | RolloutLine, line: bytes) -> bool:
        if head.ordinal is not None:
            name = (head.ordinal, head.type)
            if name in self._numbered:
                return True
            self._numbered.add(name)
        elif head.timestamp is not None:
            name_of_line = hash(line.rstrip())
            if name_of_line in self._same:
                return True
            self._same.add(name_of_line)
        return False


def looked_at(path: Path, pages: Pages, report: ImportReport) -> Rollout | None:
    """The file's places in order; None where no line of it is a rollout's."""
    rollout = Rollout(path=path, thread=_named(path), meta=SessionMeta())
    seen = _SeenLines()
    metas: list[SessionMeta] = []
    read, decode, places = 0, ROLLOUT_LINES.decode, rollout.places
    for number, (start, line) in enumerate(pages.lines(), 1):
        try:
            head = decode(line)
            kind, item = head.type, head.payload
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            kind = item = None
        if item is None or kind is None or kind == "session_meta" or kind not in LINE_TYPES:
            if not line.isspace():
                read += 1
                _look_closer(path, number, start, line, seen, rollout, metas, report)
            continue
        read += 1
        if seen.before(head, line):
            report.join("an entry that is there twice")
            continue
        looks = None
        if item.type in _OF_OTHERS and kind != "turn_context":
            looks = _of_others(item.type, item.name)
        when, end = seconds(head.timestamp), start + len(line)
        places.append(CodexPlace(_key(head), when, start, end, number, False, looks, (kind, item)))
    report.read(read)
    if not rollout.places:
        return None
    _order(rollout)
    if _take(rollout, metas):
        rollout.own_from = _own_from(rollout, pages)
    return rollout


def _look_closer(
    path: Path,
    number: int,
    start: int,
    line: bytes,
    seen: _SeenLines,
    rollout: Rollout,
    metas: list[SessionMeta],
    report: ImportReport,
) -> None:
    """A line that is of no ordinary form: the session's own, one of the old form, or none at all."""
    try:
        head = LINES.decode(line)
    except msgspec.ValidationError:
        report.skip("an entry of a form that is not known", f"{path.name}:{number}")
        return
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        report.skip("a line that is not JSON", f"{path.name}:{number}")
        return
    if seen.before(head, line):
        report.join("an entry that is there twice")
        return
    meta = _meta_of(head, line)
    if meta is not None:
        metas.append(meta)
    old = not bytes(head.payload)
    if meta is None and not (head.type in (ITEM_TYPES if old else LINE_TYPES) or head.record_type):
        report.skip(f"a type of entry that is not known ({str(head.type)[:40]})", f"{path.name}:{number}")
        return
    looks = _looks(head, line if old else head.payload)
    place = CodexPlace(_key(head), seconds(head.timestamp), start, start + len(line), number, old, looks)
    rollout.places.append(place)


def _key(head: Line | RolloutLine) -> tuple[float, float]:
    if head.ordinal is not None and abs(head.ordinal) < _LAST:
        return (float(head.ordinal), 0.0)
    return _UNNUMBERED.get(head.type or "", _OTHER)


def _looks(head: Line, payload: bytes | msgspec.Raw) -> str | None:
    if head.type == "turn_context":
        return None
    told = decoded(PAYLOADS, payload)
    return None if told is None else _of_others(told.type, told.name)


def _of_others(kind: str | None, name: str | None) -> str | None:
    """Its type, of what may tell of other threads."""
    if kind not in _OF_OTHERS:
        return None
    return kind if kind != "function_call" or name in OF_THE_TEAM else None


def _named(path: Path) -> str:
    ids = _ID.findall(path.name)
    return ids[-1] if ids else path.name.split(".", 1)[0]


def _take(rollout: Rollout, metas: list[SessionMeta]) -> bool:
    """Whose file it is; and whether another thread's line is there too, so that its history is copied here."""
    named = {meta.id: meta for meta in reversed(metas) if meta.id is not None}
    if not named:
        return False
    mine = [meta for id_, meta in named.items() if id_ in rollout.path.name]
    above = {
        above for meta in metas for above in (meta.forked_from_id, meta.parent_thread_id, meta.session_id)
    }
    below = [meta for id_, meta in named.items() if id_ not in above]
    rollout.meta = (mine or below or list(named.values()))[0]
    rollout.thread = rollout.meta.id or rollout.thread
    return len(named) > 1


def _order(rollout: Rollout) -> None:
    """Lines without a number stand before those with one: an older version wrote them."""
    numbered = [place for place in rollout.places if place.key[0] >= 0]
    numbered.sort(key=_KEY)
    rest = [place for place in rollout.places if place.key[0] < 0] if numbered else rollout.places
    times = [place.t for place in rest if place.t is not None]
    if any(map(gt, times, times[1:])):
        rest.sort(key=lambda place: (place.t or 0.0, place.key[1], place.end - place.start))
    rollout.places = rest + numbered


def _own_from(rollout: Rollout, pages: Pages) -> int:
    """The first line of the first turn that is later than the thread itself."""
    copied_at: float | None = None
    for index, place in enumerate(rollout.places):
        line = pages.at(place)
        if b'"session_meta"' in line[:200]:
            copied_at = place.t
            continue
        if b'"task_started"' not in line and b'"turn_context"' not in line and b'"turn_started"' not in line:
            continue
        head = decoded(LINES, line)
        item = decoded(ITEMS, head.payload) if head is not None else None
        if item is None or (head is not None and head.type == "response_item"):
            continue
        if item.turn_id is not None and _V7.match(item.turn_id) and _V7.match(rollout.thread):
            if item.turn_id >= rollout.thread:
                return index
        elif place.t is not None and copied_at is not None and place.t - copied_at > _BURST_S:
            return index
    return len(rollout.places)


def item_of(line: bytes, place: CodexPlace) -> tuple[str, CodexItem] | None:
    """What a line says and of which type it is, in the old form and in the new."""
    if not place.old:
        whole = decoded(ENVELOPES, line)
        return None if whole is None or whole.payload is None else (whole.type or "", whole.payload)
    head = decoded(LINES, line)
    if head is None:
        return None
    if head.type in ITEM_TYPES:
        item = decoded(ITEMS, line)
        return None if item is None else ("response_item", item)
    return (head.type or head.record_type or "session", CodexItem())
