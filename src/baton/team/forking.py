"""Making forks of one trace: a run fed from its recording, in which one thing is different.

Agents that the change does not reach stand by and are not run again (`baton.team.partial`); where nobody can, everybody
is run from the beginning, fed from the recording. Both give the same trace.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct, structs

from baton.team.altered import graph_of
from baton.team.blocks import Blocks, blocks_of, held_by, near_caps
from baton.team.budget import Budget
from baton.team.bystanders import Plan
from baton.team.intervene import BarAgent, Intervention, MuteAgent, OnEvent, OnlyAgents, check_fits
from baton.team.outside import Mode, Usage
from baton.team.partial import PartialRun, Touched
from baton.team.recording import Altered, Journal, Recording, replicates_of
from baton.team.running import Run, check_harness, interventions_of, invalidated_before
from baton.team.team import Assignment, Team
from baton.team.together import Together
from baton.team.tool_calls import ForkRefused
from baton.trace.records import Event
from baton.trace.trace import Header, Trace, meta_table

_MADE_HERE = re.compile(r"~[0-9a-f]{8}$")
"""How a fork's name ends unless it was given one."""
_TRIES = 8
"""How often those that a change reaches are found out one after the other, before everybody is run."""
_WORTH_COPYING = 0.2
"""Of a recorded run; where less stands by, everybody is run."""
_MANY_PLANS = 64


class Fork(Struct, frozen=True, kw_only=True, dict=True):
    """A trace with one thing different, and what it took."""

    trace: Trace
    """Its header's meta has `forked_from`, the trace it was made of."""
    usage: Usage
    """What ran again and what was reused."""
    before: Trace
    """The trace it was made of."""
    events_run: int = 0
    """Events of agents that were run, be it from their recording; those of bystanders are copied."""

    @cached_property
    def reused(self) -> tuple[str, ...]:
        """Events that came out exactly as they were."""
        return tuple(event.id for event in self.trace.events if _same(self.before, event))

    @cached_property
    def invalidated(self) -> tuple[str, ...]:
        """Recorded events that did not happen again, or happened otherwise."""
        same = set(self.reused)
        return tuple(event.id for event in self.before.events if event.id not in same)


class Forking:
    """Makes forks of one trace; what they share is found once."""

    def __init__(self, trace: Trace, team: Team, assign: Callable[[], Assignment]) -> None:
        check_harness(trace, team)
        self.trace = trace
        # What is fed back comes at its recorded times, so what is new must be on the same clock: a modelled one.
        self.team: Team = structs.replace(team, clock="virtual")
        self.assign = assign
        """The assignment that a run of it gets."""
        self._plans: dict[frozenset[int], Plan] = {}
        self._reached: dict[frozenset[int], frozenset[int]] = {}
        """Who turned out to be touched by changes to these."""

    @cached_property
    def recording(self) -> Recording:
        return Recording(self.trace)

    @cached_property
    def _voided(self) -> dict[str, list[str]]:
        return invalidated_before(self.trace)

    @cached_property
    def _spawned(self) -> frozenset[str | None]:
        return frozenset(event.to for event in self.trace.events if event.type == "spawn")

    @cached_property
    def blocks(self) -> Blocks | None:
        return blocks_of(self.trace, self.team, self.assign())

    async def make(
        self,
        interventions: Sequence[Intervention],
        *,
        replicate: int = 0,
        altered: Altered | None = None,
        allow_impure: bool = False,
        journal: Journal | None = None,
        trace_id: str | None = None,
        together: Together | None = None,
        whole: bool = False,
    ) -> Fork:
        """A fork. `whole`: everybody is run again from the beginning, as is done where nobody can stand by."""
        trace = self.trace
        for change in interventions:
            if not (isinstance(change, BarAgent) and change.agent in self._spawned):
                check_fits(change, trace)
        every = (*interventions_of(trace), *interventions)
        machine: dict[str, Any] = {
            "header": _forked_header(trace, every, _replicates(trace, replicate), trace_id),
            "recording": self.recording.altered(altered) if altered is not None else self.recording,
            "interventions": every,
        }
        mode = Mode(forked=True, allow_impure=allow_impure, together=together)
        voided = self._voided | _cones(trace, interventions)
        if not (whole or allow_impure or journal is not None or voided) and self.blocks is not None:
            memory: dict[Any, Any] = {}
            mode = structs.replace(mode, memory=memory)
            changed = self._changed(self.blocks, interventions, altered)
            made = await self._partial(self.blocks, changed, machine, mode)
            if made is not None:
                return made
        again = Run(self.team, self.assign(), journal=journal, mode=mode, **machine)
        again.state.invalidated = voided
        result = await again.go()
        usage = again.state.outside.usage
        return Fork(trace=result, usage=usage, before=trace, events_run=len(result.events))

    async def _partial(
        self, blocks: Blocks, changed: frozenset[int], machine: dict[str, Any], mode: Mode
    ) -> Fork | None:
        """Only those are run whom the change reaches. None: everybody has to be."""
        if near_caps(self.trace):
            return None
        touched = self._reached.get(changed, changed)
        for _ in range(_TRIES):
            plan = self._plan(blocks, touched)
            if plan.share < _WORTH_COPYING:
                return None
            limits = self.team.limits
            bounded = any(limit is not None for limit in structs.astuple(limits))
            again = PartialRun(
                self.team,
                self.assign(),
                mode=mode,
                budget=Budget(held_by(blocks, ~plan.run, self.team)) if bounded else None,
                **machine,
            )
            again.stand_by(plan)
            try:
                result = await again.go()
            except Touched as reached:
                if not reached.agents:
                    return None
                touched = touched | {blocks.index[name] for name in reached.agents}
                continue
            except ForkRefused:  # said by everybody's run, if it is so
                return None
            self._reached[changed] = touched
            usage = again.state.outside.usage
            return Fork(trace=result, usage=usage, before=self.trace, events_run=again.num_own)
        return None

    def _plan(self, blocks: Blocks, touched: frozenset[int]) -> Plan:
        if touched not in self._plans:
            if len(self._plans) >= _MANY_PLANS:
                self._plans.clear()
            programs = self.team.topology.programs
            own = {i for i, role in enumerate(blocks.role) if role in programs}
            self._plans[touched] = Plan(blocks, touched | own)
        return self._plans[touched]

    def _changed(
        self, blocks: Blocks, interventions: Sequence[Intervention], altered: Altered | None
    ) -> frozenset[int]:
        """The agents that something is different for to begin with."""
        trace = self.trace
        found: set[int] = set()
        for change in interventions:
            if isinstance(change, BarAgent):
                agent = blocks.index.get(change.agent)
                found |= set() if agent is None else {int(blocks.parent[agent])}
            elif isinstance(change, OnlyAgents):
                gone = self._spawned - {None, *change.agents}
                found |= {int(blocks.parent[blocks.index[name]]) for name in gone if name in blocks.index}
            elif isinstance(change, MuteAgent):
                found.add(blocks.index[change.agent])
            else:
                found |= self._speakers(blocks, [change.at])
        if altered is not None:
            found |= {blocks.index[trace.call_by_id[call].agent] for call in altered.calls}
            found |= self._speakers(blocks, altered.events)
        return frozenset(found)

    def _speakers(self, blocks: Blocks, events: Iterable[str]) -> set[int]:
        """Who acts in events, and those they speak to: who hears something else is sure to be reached."""
        found: set[int] = set()
        for name in events:
            index = self.trace.position[name]
            found.add(int(blocks.agent_of[index]))
            if blocks.told[index]:
                found.add(int(blocks.to[index]))
        return found


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


def _same(trace: Trace, event: Event) -> bool:
    index = trace.position.get(event.id)
    if index is None:
        return False
    before = trace.events[index]
    if event is before:
        return True
    return bool(structs.replace(before, seq=event.seq, t=event.t, seed_key=event.seed_key) == event)


def _cones(trace: Trace, interventions: Sequence[Intervention]) -> dict[str, list[str]]:
    """For a person's edits: what followed from each edited event."""
    edited = [i for i in interventions if isinstance(i, OnEvent) and i.by is not None]
    if not edited:
        return {}
    graph = graph_of(trace)
    return {i.at: [trace.events[int(k)].id for k in graph.descendants(trace.position[i.at])] for i in edited}
