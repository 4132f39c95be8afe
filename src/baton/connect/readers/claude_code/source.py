"""Claude Code's sessions: `~/.claude/projects/<folder>/<session>.jsonl`, and the transcripts of its agents beside it.

An agent's transcript is `<session>/subagents/agent-<id>.jsonl` with a note of who started it (`.meta.json`); in older
versions `agent-<id>.jsonl` beside the session's file, and before that a side chain within it. A team's letters are in
`~/.claude/teams/<team>/inboxes/<name>.json`.
"""

from __future__ import annotations

import mmap
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import attrgetter
from pathlib import Path

from baton.connect.import_report import ImportReport
from baton.connect.readers.claude_code.between import Lives
from baton.connect.readers.claude_code.entries import (
    HEADS,
    JOURNALS,
    METAS,
    Meta,
    decoded,
    entry_of,
    result_text,
)
from baton.connect.readers.claude_code.inboxes import letters_of
from baton.connect.readers.claude_code.index import (
    MAIN,
    ClaudeRow,
    Indexer,
    SessionIndex,
)
from baton.connect.readers.claude_code.lives import ClaudeLife
from baton.connect.readers.claude_code.people import SessionAgent, parents_first, people_of
from baton.connect.seen import Seen, SeenAgent, SeenEvent, SeenSession
from baton.errors import UsageError

_OF_THE_PROGRAM = ("acompact", "aprompt_suggestion", "aside_question", "asession_memory", "aspeculation")
"""Agents that the program starts for itself: they repeat a conversation to shorten or to title it."""
_LOOKS = 40  # lines in which a file must show what it is
_OPEN = 64
_JOURNAL = "journal.jsonl"
_HELD_BYTES = 64 << 20
_PLACE = attrgetter("t", "depth", "uuid")
_AT_ONCE = 64  # sightings that are given on together


class ClaudeCode:
    """Sessions of Claude Code."""

    kind = "claude-code"
    about = "Claude Code sessions (~/.claude/projects/FOLDER/SESSION.jsonl, or a folder of them)"

    def recognises(self, place: Path) -> bool:
        if place.is_dir():
            return any(_shows(path) for path in islice(place.rglob("*.jsonl"), 16))
        return place.suffix == ".jsonl" and (_is_journal(place) or _shows(place))

    def read(self, place: Path, report: ImportReport) -> Iterator[Seen]:
        if not place.exists():
            raise UsageError(f"{place} is not there. Type the path of a session file or of a folder of them.")
        told: set[tuple[str, str | None, str]] = set()
        has_letters = place.is_dir()
        for files in _sessions(place):
            for some in _read_session(files, report):
                if has_letters:
                    told.update(
                        (seen.session, seen.to, (seen.content or "").strip())
                        for seen in some
                        if type(seen) is SeenEvent and seen.type == "message"
                    )
                yield from some
        yield from letters_of(place, report, told)


def _shows(path: Path) -> bool:
    """Whether the first lines are entries of Claude Code."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            for line in islice(file, _LOOKS):
                head = decoded(HEADS, line.removeprefix(BOM_UTF8))
                if head is None or head.type in (None, "session_meta"):
                    continue
                if head.sessionId and (head.uuid or head.type not in ("user", "assistant")):
                    return True
                if head.type == "summary" and b'"leafUuid"' in line:
                    return True
                if head.uuid and head.isSidechain is not None:
                    return True
    except OSError:
        return False
    return False


def _is_journal(path: Path) -> bool:
    """Whether it is the journal of a workflow, which is read with the agents beside it."""
    return path.name == _JOURNAL and "workflows" in path.parts and any(path.parent.glob("agent-*.jsonl"))


def _transcripts(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*.jsonl")) if _shows(path))


def _session_of(path: Path) -> str:
    """Which session a file belongs to: an agent's to that of the file its folder is named after, if that is there."""
    for folder in path.parents:
        if folder.name == "subagents":
            led = folder.parent.with_name(folder.parent.name + ".jsonl")
            return _says(led, _says(path, folder.parent.name))
    return _says(path, path.stem)


def _says(path: Path, other: str) -> str:
    """The session that the first entries name."""
    try:
        with path.open("rb") as file:
            for line in islice(file, _LOOKS):
                head = decoded(HEADS, line.removeprefix(BOM_UTF8))
                if head is not None and head.sessionId:
                    return head.sessionId
    except OSError:
        pass
    return other


def _sessions(place: Path) -> Iterator[list[Path]]:
    """The files of each session."""
    if place.is_dir():
        found = list(_transcripts(place))
        beside = place.with_name(place.name + ".jsonl")
        if beside.is_file():  # the folder of one session, named after its file
            found.insert(0, beside)
    else:
        found = [place]
        if not place.name.startswith("agent-"):
            folder = place.with_suffix("")
            found += _transcripts(folder) if folder.is_dir() else ()
            mine = _session_of(place)
            found += [
                path
                for path in sorted(place.parent.glob("agent-*.jsonl"))
                if path.is_file() and _session_of(path) == mine
            ]
    groups: dict[str, list[Path]] = {}
    for path in found:
        groups.setdefault(_session_of(path), []).append(path)
    yield from groups.values()


class _Pages:
    """The files of a session, mapped when they are looked at and let go when others are."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths
        self._open: dict[int, mmap.mmap] = {}
        self._seen = 0

    def line(self, row: ClaudeRow) -> bytes:
        page = self._open.get(row.file)
        if page is None:
            while len(self._open) >= _OPEN:
                self._open.pop(next(iter(self._open))).close()
            with self.paths[row.file].open("rb") as file:
                page = self._open[row.file] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._seen += row.end - row.start
        if (
            self._seen > _HELD_BYTES
        ):  # what was looked at stays in memory otherwise, as long as the file is open
            self._seen = 0
            if hasattr(page, "madvise"):
                page.madvise(mmap.MADV_DONTNEED)
        return page[row.start : row.end]

    def close(self) -> None:
        for page in self._open.values():
            page.close()


def _read_session(paths: list[Path], report: ImportReport) -> Iterator[list[Seen]]:
    indexer = Indexer(report)
    metas: dict[str, Meta] = {}
    own = []
    for path in paths:
        agent = path.stem.removeprefix("agent-") if path.name.startswith("agent-") else None
        if agent is not None and agent.startswith(_OF_THE_PROGRAM):
            _leave_out(path, report)
            continue
        if agent is not None:
            meta = _meta(path)
            if meta is not None:
                metas[agent] = meta
        own.append(path)
        indexer.add(path, len(own) - 1, agent, _session_of(path), forced="subagents" in path.parts)
    indexer.settle()
    pages = _Pages(own)
    try:
        for index in indexer.sessions.values():
            if index.rows:
                yield from _tell(index, metas, pages, report)
    finally:
        pages.close()


def _leave_out(path: Path, report: ImportReport) -> None:
    with path.open("rb") as file:
        for _ in file:
            report.read()
            report.skip("the transcript of a compaction or another helper of the program", path.name)


def _meta(path: Path) -> Meta | None:
    try:
        return decoded(METAS, path.with_suffix(".meta.json").read_bytes().removeprefix(BOM_UTF8))
    except OSError:
        return None


def _tell(
    index: SessionIndex, metas: dict[str, Meta], pages: _Pages, report: ImportReport
) -> Iterator[list[Seen]]:
    rows: dict[str, list[ClaudeRow]] = {}
    for row in index.rows:
        rows.setdefault(row.agent, []).append(row)
    index.rows.clear()
    for own in rows.values():
        own.sort(key=_PLACE)
    for times in index.times.values():
        times.sort()

    def opening(agent: str) -> str | None:
        for row in rows.get(agent, ())[:5]:
            entry = entry_of(pages.line(row))
            said = entry.message.content if entry is not None and entry.message is not None else None
            if said:
                return said if isinstance(said, str) else "".join(part.text or "" for part in said)
        return None

    people = people_of(index, metas, opening)
    session = SeenSession(
        session=index.key, key=index.key, at=pages.paths[0].name,
        system=f"claude-code {index.version}" if index.version else "claude-code", logged=True,
    )  # fmt: skip
    yield [session]
    lives = Lives(index, people, report, [path.name for path in pages.paths], pages.line)
    if MAIN not in rows and not people.started:
        del people.agents[MAIN]  # an agent's transcript by itself: nobody is known to have started it
        for person in people.agents.values():
            person.parent = person.why = None
    journal = _journal(pages.paths)
    for person in list(parents_first(people)):
        if person.parent is None and person.key != MAIN and MAIN in rows:
            report.mend("an agent that no call of the session starts has no parent", pages.paths[0].name)
        yield list(_births(index, person))
        life = ClaudeLife(lives, person)
        for row in rows.get(person.key, ()):
            entry = row.entry or entry_of(pages.line(row))
            if entry is None:
                report.skip("an entry of a form that is not known", lives.at(row))
                continue
            life.entry(row, entry)
            row.entry = None
            if len(life.told) >= _AT_ONCE:
                yield life.told
                life.told.clear()
        if person.key in journal and rows.get(person.key):
            lives.gives_back(person.key, journal[person.key], "ok", rows[person.key][-1], {})
        life.finish()
        yield life.told


def _journal(paths: list[Path]) -> dict[str, str]:
    """Agent -> what it gave back, of agents that a workflow's script ran: its journal lies beside their transcripts."""
    found: dict[str, str] = {}
    for folder in sorted({path.parent for path in paths if "workflows" in path.parts}):
        try:
            lines = (folder / _JOURNAL).read_bytes().removeprefix(BOM_UTF8).splitlines()
        except OSError:
            continue
        for line in lines:
            note = decoded(JOURNALS, line)
            if note is not None and note.type == "result" and note.agentId:
                found.setdefault(note.agentId, result_text(note.result))
    return found


def _births(index: SessionIndex, person: SessionAgent) -> Iterable[Seen]:
    """The agent, and its spawn where no call tells it."""
    yield SeenAgent(
        session=index.key, key=person.key, name=person.name, words=person.words, role=person.role, parent=person.parent,
        why=person.why,
    )  # fmt: skip
    if person.why is not None and person.spawn is None:
        yield SeenEvent(
            session=index.key, key=f"{person.key}/spawn", why=person.why, agent=person.parent or MAIN, type="spawn",
            order=(person.born, 0.0, 0.0), t=person.born or None, to=person.key,
        )  # fmt: skip
