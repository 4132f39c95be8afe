"""Runs in stores: begin one, go on with one, find one. A run is written as it goes, so that it can be cut off."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import msgspec

from baton.compose.run_settings import Settings
from baton.compose.steering import desk_of, forget
from baton.compose.stores import STORE, resume_command
from baton.errors import BatonError, UsageError, nearest
from baton.team.budget import Limits
from baton.team.protocol import EngineError
from baton.team.recording import StoreJournal
from baton.team.running import Run, check_tools, header_of, resuming, vault_of
from baton.team.team import Assignment, Team
from baton.trace.formats import read_all
from baton.trace.formats.durable import NotWritten
from baton.trace.formats.parquet.manifest import has_shards
from baton.trace.formats.parquet.shard_read import sealed_ids
from baton.trace.formats.recognition import opened_name
from baton.trace.formats.sqlite.store import Store
from baton.trace.formats.sqlite.store_read import list_traces, read_store
from baton.trace.trace import Trace

_SIDE_BY_SIDE = 8
CAPS = Limits(agents=1_000, tokens=10_000_000, seconds=4 * 3600.0)
"""What a run takes at the most where nobody sets a limit: more is a team that has gone astray, or is worth a word."""
Watching = Callable[[Run], AbstractContextManager[None]]
"""Shows a run while it goes on."""


def caps_for(limits: Limits) -> Limits:
    """The caps of a run: a limit that somebody set takes the place of one."""
    return Limits(
        agents=None if limits.agents is not None else CAPS.agents,
        tokens=None if limits.tokens is not None else CAPS.tokens,
        seconds=None if limits.seconds is not None else CAPS.seconds,
    )


def unwatched(_run: Run) -> AbstractContextManager[None]:
    """Runs without showing anything."""
    return nullcontext()


async def run_into(
    path: Path,
    settings: Settings | None,
    team: Team,
    assignment: Assignment,
    *,
    watching: Watching = unwatched,
    trace_id: str | None = None,
) -> Trace:
    """A team's run, into a store. Where it is interrupted, everything so far is kept."""
    if (path.parent / "run.json").is_file():
        raise UsageError(f"{path.parent} holds a training run. Give another --out.")
    await reach(team, assignment)
    path.parent.mkdir(parents=True, exist_ok=True)
    told = {} if settings is None else {"settings": msgspec.to_builtins(settings)}
    base = trace_id or header_of(team, assignment).trace_id
    header = header_of(team, assignment, _free_id(path, base), caps=caps_for(team.limits), **told)
    with _open(path) as store, desk_of(path) as desk:
        forget(path, header.trace_id)
        journal = StoreJournal(store, store.begin(header))
        going = Run(team, assignment, header, journal=journal, steering=desk.seat(header.trace_id))
        store.commit()  # killed before its first answer, it is known by name
        with watching(going):
            return await going.go()


Planned = tuple[Settings, Team, Assignment]


async def run_all_into(
    path: Path, planned: Sequence[Planned], done: Callable[[Trace], None] = lambda _: None
) -> list[Trace]:
    """Several runs side by side, into one store, each as it goes. `done` hears of each when it is over."""
    await reach(*planned[0][1:])
    path.parent.mkdir(parents=True, exist_ok=True)
    taken = {summary.trace_id for summary in list_traces(path)} if path.exists() else set()
    if again := [name for name in (default_id(settings) for settings, _, _ in planned) if name in taken]:
        raise UsageError(
            f"{path} holds {again[0]!r} already, and the same draws are no new rollout. Give another --seed or --out."
        )
    turn = asyncio.Semaphore(_SIDE_BY_SIDE)
    for settings, _, _ in planned:
        forget(path, default_id(settings))
    with _open(path) as store, desk_of(path) as desk:

        async def one(settings: Settings, team: Team, assignment: Assignment) -> Trace:
            async with turn:
                told = msgspec.to_builtins(settings)
                caps = caps_for(team.limits)
                header = header_of(team, assignment, default_id(settings), caps=caps, settings=told)
                journal = StoreJournal(store, store.begin(header))
                store.commit()
                seat = desk.seat(header.trace_id)
                trace = await Run(team, assignment, header, journal=journal, steering=seat).go()
                done(trace)
                return trace

        return list(await asyncio.gather(*(one(*plan) for plan in planned)))


def default_id(settings: Settings) -> str:
    """The name of a run that was given none."""
    instance = "" if settings.instance is None else f"{settings.instance}-"
    return f"{settings.task}-{settings.topology}-{instance}{settings.seed}"


async def go_on(
    path: Path,
    trace_id: str,
    again: Callable[[Trace], tuple[Team, Assignment]],
    *,
    instructions: Mapping[str, str] | None = None,
    watching: Watching = unwatched,
) -> tuple[Trace, Trace]:
    """Go on with a run that was cut off: the trace before and after. `again` sets its team up once more."""
    (before,) = read_store(path, [trace_id])
    team, assignment = again(before)
    with _open(path) as store, desk_of(path) as desk:
        journal = StoreJournal(store, store.writer(trace_id))
        seat = desk.seat(trace_id)
        going = resuming(before, team, assignment, journal, instructions=instructions, steering=seat)
        with watching(going):
            return before, await going.go()


def unfinished(path: Path, trace_id: str | None = None) -> tuple[list[str], int]:
    """Runs of a store that were cut off, all or one; and how many there are in all."""
    found = list_traces(path)
    if trace_id is not None and trace_id not in {summary.trace_id for summary in found}:
        raise UsageError(
            f"there is no trace {trace_id!r} in {path}. Type: baton stats {shlex.quote(str(path))}"
        )
    return [s.trace_id for s in found if not s.finished and trace_id in (None, s.trace_id)], len(found)


def one_trace(path: str, trace_id: str | None) -> Trace:
    """The trace that is meant, of those in a place."""
    ids: list[str] = []
    first: Trace | None = None
    for trace in read_all(opened_name(path)):
        if trace_id is None or trace.trace_id == trace_id:
            first = first or trace
        ids.append(trace.trace_id)
    if first is None:
        hint = nearest(trace_id, ids) if trace_id and ids else "It holds none."
        raise UsageError(f"{path} has no trace {trace_id or ''!r}. {hint}")
    if trace_id is None and len(ids) > 1:
        raise UsageError(f"{path} holds {len(ids)} traces. Type: --trace ID, for example --trace {ids[0]}")
    return first


def traces_at(*paths: str | Path) -> list[Trace]:
    """Every trace in some places, in which there has to be one."""
    return [trace for _, trace in placed_traces(*paths)]


def placed_traces(*paths: str | Path) -> list[tuple[str, Trace]]:
    """The same, each with the place where it is: what made a trace of training stands beside it."""
    found = [(str(path), trace) for path in paths for trace in read_all(opened_name(path))]
    if not found:
        raise UsageError(f"{', '.join(str(opened_name(path)) for path in paths)}: no trace in there.")
    return found


@contextmanager
def _open(path: Path) -> Iterator[Store]:
    """A store for a run; what an interruption leaves behind is written down."""
    try:
        with Store.open(path, durability="process") as store:
            try:
                yield store
            except NotWritten:
                raise
            except BaseException:
                store.commit()
                raise
    except NotWritten as error:
        raise NotWritten(f"{error} {_once_there_is_room(path)}") from None


def _once_there_is_room(path: Path) -> str:
    try:
        kept = bool(list_traces(path))
    except BatonError:
        kept = False
    if not kept:
        return "Nothing of this run is kept. Make room or give another --out, then type it again."
    again = resume_command(str(path.parent if path.name == STORE else path))
    return f"Make room, then go on with what is there: {again}"


async def reach(team: Team, assignment: Assignment) -> None:
    """Refuse a policy that says it cannot be reached, and tools that lack something, before anything is written."""
    vault_of(team, assignment)
    check_tools(team.harness.roles, team.harness.tools)
    for name, engine in team.engines.items():
        if (ask := getattr(engine, "reach", None)) is not None:
            try:
                await ask()
            except EngineError as error:
                raise UsageError(
                    f"the policy of {name} cannot be reached: {error}. Start the server, or name another: "
                    "--policy openai:MODEL@URL"
                ) from error


def _free_id(path: Path, base: str) -> str:
    """A name for this run that the store, and what was sealed beside it, do not have yet."""
    taken = {summary.trace_id for summary in list_traces(path)} if path.exists() else set()
    if has_shards(path.parent):
        taken |= set(sealed_ids(path.parent))
    name, count = base, 1
    while name in taken:
        count += 1
        name = f"{base}.{count}"
    return name
