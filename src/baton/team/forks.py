"""Forks: a trace run again with one thing different, so that only what depends on it is done anew.

`fork` makes one. `Forks` makes many of one team's traces, each once: a fork is named by (trace, what is different,
replicate), and asking for the same one again costs nothing. Random numbers are common: a call's draw is keyed by
(seed, slot, replicate), so two branches with the same replicate differ only through what the change did. Replicate 0
draws as the recorded run drew: of a trace that is a fork itself, by the replicates it was made with.

Three things can be different:
- interventions, as `baton.team.intervene` has them;
- `said`: another answer in place of a recorded call's (the agent remembers having said it);
- `redraw`: everything that followed from an event is drawn anew, even where it reads the same.

Invariant: `Forks` never runs a tool that is not pure and never feeds one from a recording into a changed context; a
branch that would need it is refused by name. Forks run on the virtual clock for that reason.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct, structs

from baton.errors import UsageError
from baton.team.altered import ForkError, OtherAnswer, barring, cone, find_call, forgetting, saying
from baton.team.intervene import Intervention, OnEvent, check_fits
from baton.team.outside import Mode, Usage
from baton.team.protocol import Answer, Engine, EngineError, Entry, Request
from baton.team.recording import Journal, Recording, first_events, replicates_of
from baton.team.running import Run, check_harness, interventions_of, invalidated_before
from baton.team.team import Assignment, Team
from baton.trace.graph.arrays import Graph
from baton.trace.records import Call, Ints
from baton.trace.trace import Header, Trace, meta_table

_MADE_HERE = re.compile(r"~[0-9a-f]{8}$")
"""How a fork's name ends unless it was given one."""


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


class Cost(Struct, frozen=True):
    """What was run again, over any number of forks."""

    tokens: int = 0
    calls: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.tokens + other.tokens, self.calls + other.calls)

    @classmethod
    def of(cls, forks: Iterable[Fork]) -> Cost:
        """The cost of forks, which say what ran anew and what was fed back."""
        found = list(forks)
        return cls(sum(fork.usage.tokens_run for fork in found), sum(fork.usage.calls_run for fork in found))


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
    check_harness(trace, team)
    for change in interventions:
        check_fits(change, trace)
    every = (*interventions_of(trace), *interventions)
    header = _forked_header(trace, every, _replicates(trace, replicate), trace_id)
    again = Run(
        # What is fed back comes at its recorded times, so what is new must be on the same clock: a modelled one.
        structs.replace(team, clock="virtual"),
        assignment,
        header,
        journal=journal,
        recording=Recording(trace),
        interventions=every,
        mode=Mode(forked=True, allow_impure=allow_impure),
    )
    again.state.invalidated = invalidated_before(trace) | _cones(trace, interventions)
    result = await again.go()
    same = {event.id for event in result.events if _same(trace, event.id, event)}
    return Fork(
        trace=result,
        usage=again.state.outside.usage,
        reused=tuple(event.id for event in result.events if event.id in same),
        invalidated=tuple(event.id for event in trace.events if event.id not in same),
    )


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


Rerun = Callable[[Trace, Sequence[Intervention], int], Trace]
"""A trace with something different, as a plain function of (trace, interventions, replicate)."""


def rerun_of(team: Team, assignment: Assignment) -> Rerun:
    """Reruns by the team that made a trace. A branch that would run a tool again that is not pure is refused."""

    def rerun(trace: Trace, interventions: Sequence[Intervention], replicate: int = 0) -> Trace:
        made = fork(trace, team, assignment, interventions, replicate=replicate, allow_impure=False)
        return asyncio.run(made).trace

    return rerun


class Forks:
    """Branches of one team's traces, each run once.

    `assignment` is one for all traces, or says which one a trace was about (its header knows).
    """

    def __init__(self, team: Team, assignment: Assignment | Callable[[Trace], Assignment]) -> None:
        self.team: Team = structs.replace(team, clock="virtual")
        self._assignment = assignment
        self._traces: dict[str, Trace] = {}
        self._branches: dict[tuple[Any, ...], Fork] = {}
        self._answers: dict[tuple[str, str, int], Answer] = {}
        self.cost = Cost()
        """What has been re-run so far."""
        self.num_run = 0
        self.num_reused = 0
        """How often a branch was asked for that had been run before."""

    async def fork(
        self,
        trace: Trace,
        interventions: Sequence[Intervention] = (),
        *,
        replicate: int = 0,
        said: OtherAnswer | None = None,
        redraw: str | None = None,
        barred: Sequence[str] = (),
        trace_id: str | None = None,
    ) -> Fork:
        """A branch. Whatever it does not share with the trace is run, at this replicate's draws.

        `barred` cannot be spawned in it, whether or not the recorded run had agents of these names. `trace_id` is
        the branch's; None: one made from what is different.
        """
        self._check_known(trace)
        told = msgspec.json.encode(
            [list(interventions), said and (said.call, said.answer.text), redraw, list(barred)]
        )
        key = (trace.trace_id, told, replicate)
        found = self._branches.get(key)
        if found is not None:
            self.num_reused += 1
            return found
        recording = trace
        if said is not None:
            recording = saying(recording, said)
        if redraw is not None:
            named = {change.at for change in interventions if isinstance(change, OnEvent)}
            recording = forgetting(recording, cone(trace, redraw), named | {redraw})
        made = await fork(
            barring(recording, barred) if barred else recording,
            self._seeded(trace),
            self._assigned(trace),
            interventions,
            replicate=replicate,
            allow_impure=False,
            trace_id=trace_id,
        )
        self._branches[key] = made
        self.num_run += 1
        self.cost += Cost.of([made])
        return made

    async def ask(self, trace: Trace, call_id: str, replicates: Sequence[int]) -> list[Answer]:
        """What the policy says at a recorded call with other draws, at the frozen prefix. Nothing follows from it."""
        self._check_known(trace)
        missing = [r for r in replicates if (trace.trace_id, call_id, r) not in self._answers]
        if missing:
            heard = await self._overhear(trace, find_call(trace, call_id), missing)
            for replicate, answer in zip(missing, heard, strict=True):
                self._answers[trace.trace_id, call_id, replicate] = answer
        return [self._answers[trace.trace_id, call_id, r] for r in replicates]

    async def _overhear(self, trace: Trace, call: Call, replicates: Sequence[int]) -> list[Answer]:
        """Run up to the call, ask it several times, and go no further."""
        first = first_events(trace).get(call.id)
        if first is None:
            raise ForkError(f"call {call.id} of trace {trace.trace_id} was never answered; ask another one.")
        wrapped: dict[int, _Listener] = {}
        engines = {
            name: wrapped.setdefault(id(engine), _Listener(engine, call.id, replicates))
            for name, engine in self.team.engines.items()
        }
        recording = forgetting(trace, cone(trace, first.id) | {first.id})
        try:
            await fork(
                recording, structs.replace(self._seeded(trace), engines=engines), self._assigned(trace), ()
            )
        except _Heard as heard:
            for answer in heard.answers:
                if isinstance(answer, EngineError):
                    raise ForkError(f"the policy did not answer call {call.id} again: {answer}") from None
            answers = [answer for answer in heard.answers if isinstance(answer, Answer)]
            prompt = len(call.prompt_ids or ())
            said = sum(answer.completion_tokens or 0 for answer in answers)
            self.cost += Cost(said + prompt * len(answers), len(answers))
            return answers
        raise ForkError(
            f"call {call.id} does not come up again when trace {trace.trace_id} is run from its own answers. "
            "Check it first: baton replay"
        )

    def _seeded(self, trace: Trace) -> Team:
        """Rollouts of a group differ in their seed; a fork draws with the one its trace was run with."""
        seed = meta_table(trace.header, "run").get("seed", self.team.seed)
        return self.team if seed == self.team.seed else structs.replace(self.team, seed=seed)

    def _assigned(self, trace: Trace) -> Assignment:
        return self._assignment if isinstance(self._assignment, Assignment) else self._assignment(trace)

    def _check_known(self, trace: Trace) -> None:
        known = self._traces.setdefault(trace.trace_id, trace)
        if known is not trace and known.events != trace.events:
            raise UsageError(
                f"two different traces are called {trace.trace_id!r}, so their forks cannot be told apart. "
                "Run them with trace ids of their own (trace_id=...)."
            )


class _Heard(BaseException):
    """Not an error: it carries what was asked for out of the run."""

    def __init__(self, answers: list[Answer | EngineError]) -> None:
        super().__init__("heard")
        self.answers = answers


class _Listener:
    """An engine that, at one call, asks the real one several times and ends the run."""

    def __init__(self, engine: Engine, call_id: str, replicates: Sequence[int]) -> None:
        self.name = engine.name
        self._engine = engine
        self._call = call_id
        self._replicates = replicates

    def encode(self, entries: Sequence[Entry], after: Answer | None) -> Ints | None:
        return self._engine.encode(entries, after)

    async def answer(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
        for request in requests:
            if request.call == self._call:
                again = [_keyed(request, replicate) for replicate in self._replicates]
                raise _Heard(await self._engine.answer(again))
        return await self._engine.answer(requests)


def _keyed(request: Request, replicate: int) -> Request:
    sampling = request.sampling
    key = f"{sampling.key}/{replicate}" if replicate else sampling.key
    return structs.replace(request, sampling=structs.replace(sampling, key=key))
