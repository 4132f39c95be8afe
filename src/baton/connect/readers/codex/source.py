"""Codex: `~/.codex/sessions/YEAR/MONTH/DAY/rollout-*.jsonl`, packed (`.zst`) or not, and trace bundles.

Each thread has a rollout of its own; those of one session are found by what their first lines say. A bundle is the
folder that `CODEX_ROLLOUT_TRACE_ROOT` makes: all threads of a session in one log, in causal order.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from baton.connect.import_report import UNREADABLE, ImportReport
from baton.connect.readers.codex.answers import Where
from baton.connect.readers.codex.bundle import MANIFEST, bundles, is_bundle, read_bundle, root_of
from baton.connect.readers.codex.entries import SessionMeta
from baton.connect.readers.codex.rollout import Pages, Rollout, first_meta, item_of, looked_at, spawn_of
from baton.connect.readers.codex.team import CodexTeam, Member
from baton.connect.readers.codex.threads import Thread
from baton.connect.seen import Seen, SeenAgent, SeenSession
from baton.errors import BatonError, UsageError

_ENDINGS = (".jsonl", ".jsonl.zst")
_AT_ONCE = 64  # sightings that are given on together


class Codex:
    """Sessions of Codex."""

    kind = "codex"
    about = "Codex rollouts (~/.codex/sessions/YEAR/MONTH/DAY/rollout-*.jsonl) and trace bundles"

    def recognises(self, place: Path) -> bool:
        if place.is_dir():
            if is_bundle(place) or any(True for _ in islice(bundles(place), 1)):
                return True
            return any(_meta(path) is not None for path in islice(_rollouts(place), 4))
        if place.name == MANIFEST:
            return is_bundle(place.parent)
        return place.name.endswith(_ENDINGS) and _meta(place) is not None

    def read(self, place: Path, report: ImportReport) -> Iterator[Seen]:
        if not place.exists():
            raise UsageError(
                f"{place} is not there. Type the path of a rollout, of a folder of them, or of a bundle."
            )
        told: set[str] = set()
        for paths in _sessions(place, report):
            sightings = _read_session(paths, report, alone=paths == [place])
            for seen in islice(sightings, 1):  # all are of one session
                told.add(seen.session)
                yield seen
            yield from sightings
        folder = place.parent if place.name == MANIFEST else place
        if folder.is_dir():
            for bundle in [folder] if is_bundle(folder) else list(bundles(folder)):
                if root_of(bundle) in told:
                    report.skip("a bundle of a session whose rollouts are here and tell it", bundle.name)
                else:
                    yield from _bundle(bundle, report, alone=bundle in (place, place.parent))


def _bundle(bundle: Path, report: ImportReport, *, alone: bool) -> Iterator[Seen]:
    try:
        yield from read_bundle(bundle, report)
    except (BatonError, OSError) as error:
        if alone:
            raise
        _leave_out(error, report)


def _leave_out(error: BatonError | OSError, report: ImportReport) -> None:
    """One file of many costs no other."""
    report.skip(UNREADABLE, str(error))


def _rollouts(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*.jsonl*")):
        is_one = path.name.endswith(_ENDINGS) and path.is_file()
        if is_one and (path.name.startswith("rollout-") or _meta(path) is not None):
            yield path


def _meta(path: Path) -> SessionMeta | None:
    try:
        return first_meta(path)
    except (OSError, BatonError):
        return None


def _sessions(place: Path, report: ImportReport) -> Iterator[list[Path]]:
    """The files of each session: every thread with the one that started it."""
    if place.is_dir():
        found = [] if is_bundle(place) else list(_rollouts(place))
    elif place.name == MANIFEST:
        found = []
    else:
        found = sorted(
            {place, *(path for path in place.parent.glob("rollout-*") if path.name.endswith(_ENDINGS))}
        )
    above: dict[str, str] = {}
    thread: dict[Path, str] = {}
    for path in list(found):
        try:
            meta = _meta(path) if path != place else first_meta(path)
            if meta is None or (meta.id or "") not in path.name:
                meta = first_meta(path, whole=True) or meta
        except (BatonError, OSError) as error:
            if path == place:
                raise
            _leave_out(error, report)
            found.remove(path)
            continue
        own = (meta.id if meta is not None else None) or path.name
        thread[path] = own
        if meta is not None:
            parent = meta.session_id or meta.parent_thread_id or spawn_of(meta).parent_thread_id
            if parent is not None and parent != own:
                above[own] = parent
    groups: dict[str, list[Path]] = {}
    for path in found:
        root, seen = thread[path], set[str]()
        while root in above and root not in seen:
            seen.add(root)
            root = above[root]
        groups.setdefault(root, []).append(path)
    for paths in groups.values():
        if place.is_dir() or place in paths:
            yield paths


def _read_session(paths: list[Path], report: ImportReport, *, alone: bool) -> Iterator[Seen]:
    looked: list[tuple[Rollout, Pages]] = []
    try:
        for path in paths:
            try:
                pages = Pages(path)
            except (BatonError, OSError) as error:
                if alone:
                    raise
                _leave_out(error, report)
                continue
            rollout = looked_at(path, pages, report)
            if rollout is None:
                pages.close()
                continue
            looked.append((rollout, pages))
        if looked:
            yield from _tell(looked, report)
    finally:
        for _, pages in looked:
            pages.close()


def _tell(looked: list[tuple[Rollout, Pages]], report: ImportReport) -> Iterator[Seen]:
    threads = {rollout.thread for rollout, _ in looked}
    roots = [rollout for rollout, _ in looked if rollout.parent not in threads]
    root = min(roots or [looked[0][0]], key=lambda rollout: (rollout.parent is not None, rollout.thread))
    team = CodexTeam(session=root.session or root.thread)
    for rollout, _ in looked:
        if rollout.thread not in team.members:
            team.add(*_member(rollout))
    _look(looked, team, results=False)
    if team.asked:
        _look(looked, team, results=True)
    team.settle()
    version = max((rollout.meta.cli_version or "" for rollout, _ in looked), default="")
    yield SeenSession(
        session=team.session,
        key=team.session,
        at=root.path.name,
        system=f"codex {version}" if version else "codex",
        logged=True,
    )
    for member in team.members.values():
        yield SeenAgent(
            session=team.session, key=member.key, name=member.name, role=member.role, parent=member.parent
        )
    told_threads: dict[str, Thread] = {}
    files: dict[str, int] = {}
    for rollout, pages in sorted(looked, key=lambda both: (both[0].thread, both[0].path.name)):
        file = files[rollout.thread] = files.get(rollout.thread, -1) + 1
        thread = told_threads.get(rollout.thread)
        if thread is None:
            thread = told_threads[rollout.thread] = Thread(team, team.members[rollout.thread], report)
        yield from _life(thread, rollout, file, pages, report)
    for thread in told_threads.values():
        thread.finish()
        yield from thread.told


def _look(looked: list[tuple[Rollout, Pages]], team: CodexTeam, *, results: bool) -> None:
    """What threads tell of each other: first all but results of calls, then those."""
    for rollout, pages in looked:
        for place in rollout.places[rollout.own_from :]:
            if place.looks is not None and (place.looks == "function_call_output") == results:
                told = place.told or item_of(pages.at(place), place)
                if told is not None:
                    team.look(rollout.thread, *told, place.t or 0.0)


def _member(rollout: Rollout) -> tuple[Member, str | None]:
    meta, spawn = rollout.meta, spawn_of(rollout.meta)
    nickname = meta.agent_nickname or spawn.agent_nickname
    path = meta.agent_path or spawn.agent_path
    role = meta.agent_role or spawn.agent_role
    started = rollout.parent is not None
    name = ((path or "").rsplit("/", 1)[-1] or nickname or role or rollout.thread) if started else "main"
    member = Member(
        key=rollout.thread, name=name, role=role, parent=rollout.parent, path=path if started else "/root"
    )
    return member, nickname


def _life(thread: Thread, rollout: Rollout, file: int, pages: Pages, report: ImportReport) -> Iterator[Seen]:
    name, told = rollout.path.name, thread.told
    for number, place in enumerate(rollout.places):
        if number < rollout.own_from:
            report.skip("a copy of another thread's history", f"{name}:{place.line}")
            continue
        found = place.told or item_of(pages.at(place), place)
        place.told = None
        order = (2.0 * file + 1, place.key[0]) if place.key[0] >= 0 else (2.0 * file, float(number))
        where = Where(order, place.t, f"{name}:{place.line}")
        if found is None:
            report.skip("an entry of a form that is not known", where.at)
        elif found[0] not in ("session_meta", "session"):
            thread.entry(where, *found)
            if len(told) >= _AT_ONCE:
                yield from told
                told.clear()
    yield from told
    told.clear()
