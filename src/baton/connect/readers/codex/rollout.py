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
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Struct, field

from baton.connect.import_report import ImportReport
from baton.connect.readers.codex.entries import (
    ITEMS,
    LINES,
    METAS,
    SOURCES,
    CodexItem,
    FromSubAgent,
    Line,
    SessionMeta,
    SubAgent,
    ThreadSpawn,
    decoded,
)
from baton.connect.readers.codex.zstd import unpacked
from baton.connect.readers.iso_time import seconds

_ID = re.compile(r"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})")
_V7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-")
ITEM_TYPES = frozenset({
    "message", "reasoning", "function_call", "function_call_output", "custom_tool_call",
    "custom_tool_call_output", "local_shell_call", "web_search_call", "tool_search_call",
    "tool_search_output", "image_generation_call", "agent_message",
})  # fmt: skip
_RANK = {"session_meta": 0, "turn_context": 1, "response_item": 2, "token_usage_record": 3}
_BURST_S = 0.005  # a copied history is written at once


class CodexPlace(Struct, gc=False):
    """Where a line stands."""

    key: tuple[float, float]
    t: float | None
    start: int
    end: int
    line: int
    old: bool = False


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
        self._file: IO[bytes] = path.open("rb")
        if path.suffix == ".zst":
            plain = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the pages
            with self._file as packed:
                unpacked(packed, plain, path)
            plain.flush()
            self._file = plain
        try:
            self.content: mmap.mmap | None = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # an empty file
            self.content = None

    def lines(self) -> Iterator[tuple[int, bytes]]:
        if self.content is not None:
            self.content.seek(0)
            start = 0
            for line in iter(self.content.readline, b""):
                yield start, line
                start += len(line)

    def at(self, place: CodexPlace) -> bytes:
        assert self.content is not None
        return self.content[place.start : place.end]

    def close(self) -> None:
        if self.content is not None:
            self.content.close()
        self._file.close()


def first_meta(path: Path) -> SessionMeta | None:
    """The session's line, from the first lines of a file; None: it is no rollout."""
    pages = Pages(path)
    try:
        for number, (_, line) in enumerate(pages.lines()):
            if number > 20:
                return None
            head = decoded(LINES, line)
            if head is None:
                continue
            if head.type == "session_meta":
                return decoded(METAS, head.payload)
            if head.type is None and head.id is not None and bytes(head.instructions):
                return decoded(METAS, line)
            if head.record_type is None and head.type not in ITEM_TYPES and not bytes(head.payload):
                return None
    finally:
        pages.close()
    return None


def looked_at(path: Path, pages: Pages, report: ImportReport) -> Rollout | None:
    """The file's places in order; None where no line of it is a rollout's."""
    rollout = Rollout(path=path, thread=_named(path), meta=SessionMeta())
    numbered: set[tuple[int, str | None]] = set()
    same: set[int] = set()
    foreign = False
    for number, (start, line) in enumerate(pages.lines(), 1):
        if line.isspace():
            continue
        report.read()
        at = f"{path.name}:{number}"
        try:
            head = LINES.decode(line)
        except msgspec.ValidationError:
            report.skip("an entry of a form that is not known", at)
            continue
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            report.skip("a line that is not JSON", at)
            continue
        if _is_double(head, line, numbered, same):
            report.join("an entry that is there twice")
            continue
        if head.type == "session_meta" or (head.type is None and head.id and bytes(head.instructions)):
            meta = decoded(METAS, head.payload if head.type else line)
            if meta is not None:
                foreign |= _take(rollout, meta, path)
        t = seconds(head.timestamp)
        key = (
            (float(head.ordinal), 0.0)
            if head.ordinal is not None
            else (-1.0, float(_RANK.get(head.type or "", 2)))
        )
        old = not bytes(head.payload)
        rollout.places.append(CodexPlace(key, t, start, start + len(line), number, old))
    if not rollout.places:
        return None
    _order(rollout)
    if foreign:
        rollout.own_from = _own_from(rollout, pages)
    return rollout


def _named(path: Path) -> str:
    ids = _ID.findall(path.name)
    return ids[-1] if ids else path.name.split(".", 1)[0]


def _is_double(head: Line, line: bytes, numbered: set[tuple[int, str | None]], same: set[int]) -> bool:
    if head.ordinal is not None:
        name = (head.ordinal, head.type)
        if name in numbered:
            return True
        numbered.add(name)
    elif head.timestamp is not None:
        name_of_line = hash(line.rstrip())
        if name_of_line in same:
            return True
        same.add(name_of_line)
    return False


def _take(rollout: Rollout, meta: SessionMeta, path: Path) -> bool:
    """Whether this is the line of another thread, whose history is copied here."""
    named = _ID.search(path.name)
    mine = meta.id is not None and (
        meta.id in path.name or (named is None and rollout.meta.id in (None, meta.id))
    )
    if mine and meta.id is not None:
        rollout.thread = meta.id
        if rollout.meta.id is None:
            rollout.meta = meta
    elif rollout.meta.id is None and meta.id is not None and not meta.forked_from_id:
        rollout.meta, rollout.thread = meta, meta.id
        return False
    return not mine


def _order(rollout: Rollout) -> None:
    places = rollout.places
    if all(place.key[0] >= 0 for place in places):
        places.sort(key=lambda place: place.key)
        return
    times = [place.t for place in places if place.t is not None]
    if any(after < before for before, after in pairwise(times)):
        places.sort(key=lambda place: (place.t or 0.0, place.key[1], place.end - place.start))


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
    head = decoded(LINES, line)
    if head is None:
        return None
    if not place.old:
        item = decoded(ITEMS, head.payload)
        return None if item is None else (head.type or "", item)
    if head.type in ITEM_TYPES:
        item = decoded(ITEMS, line)
        return None if item is None else ("response_item", item)
    return (head.type or head.record_type or "session", CodexItem())
