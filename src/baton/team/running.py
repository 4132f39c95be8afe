"""Running a team: from nothing, from a crash (resume), from a trace (replay), from a change (fork).

All four are one machine fed with more or less of a recording.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct, structs

from baton.errors import TraceError, UsageError
from baton.team.budget import Ledger
from baton.team.intervene import Intervention, OnEvent, check_fits
from baton.team.outside import Outside, Usage
from baton.team.recording import Recording, moment, replicates_of
from baton.team.run import Run
from baton.team.team import Assignment, Team
from baton.team.writer import Journal
from baton.trace.formats.sqlite.store import Store, Writer
from baton.trace.graph.arrays import Graph
from baton.trace.trace import End, Header, Record, Trace, meta_as, meta_table

_MADE_HERE = re.compile(r"~[0-9a-f]{8}$")
"""How a fork's name ends unless it was given one."""


class StoreJournal:
    """A run's journal in a live store."""

    def __init__(self, store: Store, writer: Writer) -> None:
        self._store = store
        self._writer = writer

    def extend(self, records: Iterable[Record]) -> None:
        self._writer.extend(records)

    def commit(self) -> None:
        self._store.commit()

    def end(self, end: End) -> None:
        self._writer.end(end)


class Fork(Struct, frozen=True, kw_only=True):
    """A trace with one thing different, and what it took."""

    trace: Trace
    """Its header's meta has `forked_from`, the trace it was made of."""
    usage: Usage
    """What ran again and what was reused."""
    reused: tuple[str, ...]
    """Events that came out exactly as they were."""
    invalidated: tuple[str, ...]
    """Recorded events that did not happen again, or happened otherwise."""


def header_of(team: Team, assignment: Assignment, trace_id: str | None = None, **more: Any) -> Header:
    """Everything a later replay needs to set up the same run."""
    return Header(
        trace_id=trace_id or f"{assignment.task_id}-{team.seed}",
        task_id=assignment.task_id,
        system="baton",
        topology=team.topology.name,
        meta={
            "run": {
                "task": assignment.spec,
                "topology": team.topology.built_from,
                "surface": team.harness.surface_name,
                "harness": team.harness.hash,
                "policies": {role.name: team.engine(role).name for role in team.topology.roles},
                "limits": msgspec.to_builtins(team.limits),
                "latency": msgspec.to_builtins(team.latency),
                "clock": team.clock,
                "seed": team.seed,
                "hold_back_tokens": team.hold_back_tokens,
                **more,
            }
        },
    )


def start(
    team: Team,
    assignment: Assignment,
    *,
    trace_id: str | None = None,
    journal: Journal | None = None,
    ledger: Ledger | None = None,
) -> Run:
    """A run that has not begun: `await run.go()`; meanwhile `run.instruct`, `run.driver.pause`."""
    return Run(team, assignment, header_of(team, assignment, trace_id), journal=journal, ledger=ledger)


async def run(
    team: Team,
    assignment: Assignment,
    *,
    trace_id: str | None = None,
    journal: Journal | None = None,
    ledger: Ledger | None = None,
) -> Trace:
    """Run a team on an assignment. A nested team passes a child of its parent's ledger."""
    return await start(team, assignment, trace_id=trace_id, journal=journal, ledger=ledger).go()


async def replay(trace: Trace, team: Team, assignment: Assignment) -> Trace:
    """Run a trace again from its own answers. Raises where it does not come out exactly as it was."""
    _check_harness(trace, team)
    again = Run(
        team,
        assignment,
        trace.header,
        recording=Recording(trace),
        strict=True,
        interventions=interventions_of(trace),
        outside=Outside(live=False),
    )
    again.invalidated = _invalidated_before(trace)
    result = await again.go()
    if len(result.events) != len(trace.events):
        missing = sorted(set(trace.position) - set(result.position))[:3]
        raise TraceError(
            f"the run does not repeat its trace: {len(trace.events)} events were recorded, {len(result.events)} came "
            f"out; missing: {', '.join(missing) or 'none'}."
        )
    return result


def resuming(
    trace: Trace,
    team: Team,
    assignment: Assignment,
    journal: Journal,
    *,
    instructions: Mapping[str, str] | None = None,
) -> Run:
    """The rest of a run that was cut off, not begun yet."""
    _check_harness(trace, team)
    again = Run(
        team,
        assignment,
        trace.header,
        journal=journal,
        recording=Recording(trace),
        strict=True,
        skip=num_records(trace),
        interventions=interventions_of(trace),
    )
    again.invalidated = _invalidated_before(trace)
    last = max((moment(event)[0] for event in trace.events), default=0.0)
    for agent, text in (instructions or {}).items():
        if agent not in {event.agent for event in trace.events}:
            raise UsageError(f"there is no agent {agent!r} in trace {trace.trace_id} to instruct.")
        again.instruct(agent, text, at=last)
    return again


async def resume(
    trace: Trace,
    team: Team,
    assignment: Assignment,
    journal: Journal,
    *,
    instructions: Mapping[str, str] | None = None,
) -> Trace:
    """Go on with a run that was cut off. What is in the journal is not done again."""
    if trace.finished:
        return trace
    return await resuming(trace, team, assignment, journal, instructions=instructions).go()


async def fork(
    trace: Trace,
    team: Team,
    assignment: Assignment,
    interventions: Sequence[Intervention],
    *,
    replicate: int = 0,
    allow_impure: bool = False,
    journal: Journal | None = None,
    trace_id: str | None = None,
) -> Fork:
    """Run a trace again with something different: only what depends on it is done anew.

    That is drawn as the trace was at `replicate` 0, else apart from it and from forks of other replicates.
    """
    _check_harness(trace, team)
    for change in interventions:
        check_fits(change, trace)
    every = (*interventions_of(trace), *interventions)
    header = _forked_header(trace, every, _replicates(trace, replicate), trace_id)
    outside = Outside(forked=True, allow_impure=allow_impure)
    again = Run(
        # What is fed back comes at its recorded times, so what is new must be on the same clock: a modelled one.
        structs.replace(team, clock="virtual"),
        assignment,
        header,
        journal=journal,
        recording=Recording(trace),
        interventions=every,
        outside=outside,
    )
    again.invalidated = _invalidated_before(trace) | _cones(trace, interventions)
    result = await again.go()
    same = {event.id for event in result.events if _same(trace, event.id, event)}
    return Fork(
        trace=result,
        usage=outside.usage,
        reused=tuple(event.id for event in result.events if event.id in same),
        invalidated=tuple(event.id for event in trace.events if event.id not in same),
    )


def num_records(trace: Trace) -> int:
    """How many records a journal of this trace holds."""
    return sum(
        map(len, (trace.events, trace.edges, trace.calls, trace.payloads, trace.rewards, trace.credits))
    )


def interventions_of(trace: Trace) -> tuple[Intervention, ...]:
    """What was already changed in a trace that is itself a fork."""
    return tuple(meta_as(trace.header, list[Intervention], "run", "interventions") or ())


def _forked_header(
    trace: Trace, every: Sequence[Intervention], replicates: Sequence[int], trace_id: str | None
) -> Header:
    meta = dict(trace.header.meta)
    meta["run"] = meta_table(trace.header, "run") | {
        "interventions": msgspec.to_builtins(list(every)),
        "replicates": list(replicates),
    }
    name = trace_id or _fork_id(trace, every, replicates)
    return structs.replace(trace.header, trace_id=name, meta=meta | {"forked_from": trace.trace_id})


def fork_id(trace: Trace, interventions: Sequence[Intervention], replicate: int = 0) -> str:
    """The id a fork has unless told otherwise: the same change to the same trace has the same one."""
    every = (*interventions_of(trace), *interventions)
    return _fork_id(trace, every, _replicates(trace, replicate))


def _replicates(trace: Trace, replicate: int) -> tuple[int, ...]:
    """Of a fork of this trace. Two forks of a kind, of a trace and of its branch, must not draw alike."""
    return (*replicates_of(trace.header), *((replicate,) if replicate else ()))


def _fork_id(trace: Trace, every: Sequence[Intervention], replicates: Sequence[int]) -> str:
    told = blake2b(msgspec.json.encode([list(every), *(replicates or (0,))]), digest_size=4).hexdigest()
    return f"{_stem(trace)}~{told}"


def _stem(trace: Trace) -> str:
    """What names of forks begin with. A name made here is not added to: `every` tells its changes as well."""
    made_here = "forked_from" in trace.header.meta and _MADE_HERE.search(trace.trace_id)
    return trace.trace_id[: made_here.start()] if made_here else trace.trace_id


def _same(trace: Trace, id_: str, event: Any) -> bool:
    index = trace.position.get(id_)
    if index is None:
        return False
    before = trace.events[index]
    return bool(structs.replace(before, seq=event.seq, t=event.t, seed_key=event.seed_key) == event)


def _cones(trace: Trace, interventions: Sequence[Intervention]) -> dict[str, list[str]]:
    """For a person's edits: what followed from each edited event."""
    edited = [i for i in interventions if isinstance(i, OnEvent) and i.by is not None]
    if not edited:
        return {}
    graph = Graph.of(trace)
    return {i.at: [trace.events[int(k)].id for k in graph.descendants(trace.position[i.at])] for i in edited}


def _invalidated_before(trace: Trace) -> dict[str, list[str]]:
    """The same, as an earlier edit wrote it down."""
    return {e.extra["edits"]: e.extra["invalidated"] for e in trace.events if "edits" in e.extra}


def _check_harness(trace: Trace, team: Team) -> None:
    recorded = meta_table(trace.header, "run").get("harness")
    if recorded is None:
        raise TraceError(
            f"trace {trace.trace_id} was not made by a Baton run; there is nothing to run again."
        )
    if recorded != team.harness.hash:
        raise TraceError(
            f"trace {trace.trace_id} was made through harness {recorded}, this team has {team.harness.hash}. "
            "A policy run through another harness is another policy: use the same roles, prompts, verbs and tools."
        )
