"""Counterfactuals of a trace, run once each and paid for: the runner that estimators with forks share.

A fork is named by (trace, what is different, replicate); asking for the same one again costs nothing.
Random numbers are common: a call's draw is keyed by (seed, slot, replicate), so two branches with the
same replicate differ only through what the change did. Replicate 0 draws as the recorded run drew: of a
trace that is a fork itself, by the replicates it was made with.

Three things can be different:
- interventions, as `baton.team.intervene` has them;
- `said`: another answer in place of a recorded call's (the agent remembers having said it);
- `redraw`: everything that followed from an event is drawn anew, even where it reads the same.

Invariant: a tool that is not pure is never run and never fed from a recording into a changed context;
a branch that would need it is refused by name. Forks run on the virtual clock for that reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any

import msgspec
from msgspec import Struct, structs

from baton.credit.estimator import Cost, CreditError
from baton.errors import UsageError
from baton.team.intervene import BarAgent, Intervention, OnEvent
from baton.team.outside import Usage
from baton.team.protocol import Answer, Engine, EngineError, Entry, Request
from baton.team.running import Fork, fork
from baton.team.team import Assignment, Team
from baton.trace.graph.arrays import Graph
from baton.trace.numbers import Ints
from baton.trace.records import Call, Event, Payload
from baton.trace.trace import Trace, meta_table


class Said(Struct, frozen=True):
    """Another answer to a recorded call."""

    call: str
    answer: Answer


class Forks:
    """Branches of one team's traces (a `Runner`), each run once.

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
        said: Said | None = None,
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
            recording = _saying(recording, said)
        if redraw is not None:
            named = {change.at for change in interventions if isinstance(change, OnEvent)}
            recording = _forgetting(recording, cone(trace, redraw), named | {redraw})
        made = await fork(
            _barring(recording, barred) if barred else recording,
            self._seeded(trace),
            self._assigned(trace),
            interventions,
            replicate=replicate,
            allow_impure=False,
            trace_id=trace_id,
        )
        self._branches[key] = made
        self.num_run += 1
        self._pay(made.usage)
        return made

    async def ask(self, trace: Trace, call_id: str, replicates: Sequence[int]) -> list[Answer]:
        """What the policy says at a recorded call with other draws, at the frozen prefix. Nothing follows from it."""
        self._check_known(trace)
        missing = [r for r in replicates if (trace.trace_id, call_id, r) not in self._answers]
        if missing:
            heard = await self._overhear(trace, _call(trace, call_id), missing)
            for replicate, answer in zip(missing, heard, strict=True):
                self._answers[trace.trace_id, call_id, replicate] = answer
        return [self._answers[trace.trace_id, call_id, r] for r in replicates]

    async def _overhear(self, trace: Trace, call: Call, replicates: Sequence[int]) -> list[Answer]:
        """Run up to the call, ask it several times, and go no further."""
        first = _first_events(trace).get(call.id)
        if first is None:
            raise CreditError(
                f"call {call.id} of trace {trace.trace_id} was never answered; ask another one."
            )
        wrapped: dict[int, _Listener] = {}
        engines = {
            name: wrapped.setdefault(id(engine), _Listener(engine, call.id, replicates))
            for name, engine in self.team.engines.items()
        }
        recording = _forgetting(trace, cone(trace, first.id) | {first.id})
        try:
            await fork(
                recording, structs.replace(self._seeded(trace), engines=engines), self._assigned(trace), ()
            )
        except _Heard as heard:
            for answer in heard.answers:
                if isinstance(answer, EngineError):
                    raise CreditError(f"the policy did not answer call {call.id} again: {answer}") from None
            answers = [answer for answer in heard.answers if isinstance(answer, Answer)]
            prompt = len(call.prompt_ids or ())
            said = sum(answer.completion_tokens or 0 for answer in answers)
            self.cost += Cost(said + prompt * len(answers), len(answers))
            return answers
        raise CreditError(
            f"call {call.id} does not come up again when trace {trace.trace_id} is run from its own answers. "
            "Check it first: baton replay"
        )

    def _seeded(self, trace: Trace) -> Team:
        """Rollouts of a group differ in their seed; a fork draws with the one its trace was run with."""
        seed = meta_table(trace.header, "run").get("seed", self.team.seed)
        return self.team if seed == self.team.seed else structs.replace(self.team, seed=seed)

    def _assigned(self, trace: Trace) -> Assignment:
        return self._assignment if isinstance(self._assignment, Assignment) else self._assignment(trace)

    def _pay(self, usage: Usage) -> None:
        self.cost += Cost(usage.tokens_run, usage.calls_run)

    def _check_known(self, trace: Trace) -> None:
        known = self._traces.setdefault(trace.trace_id, trace)
        if known is not trace and known.events != trace.events:
            raise UsageError(
                f"two different traces are called {trace.trace_id!r}, so their forks cannot be told apart. "
                "Run them with trace ids of their own (trace_id=...)."
            )


def cone(trace: Trace, event_id: str) -> frozenset[str]:
    """What followed from an event, without the event itself."""
    graph = Graph.of(trace)
    start = trace.position[trace.event(event_id).id]
    return frozenset(trace.events[int(i)].id for i in graph.descendants(start)) - {event_id}


def call_of(trace: Trace, event_id: str) -> Call:
    """The call that said an event."""
    event = trace.event(event_id)
    if event.call is None:
        raise CreditError(
            f"{event_id} was said by no call of a policy, so there is no other thing its policy might have said. "
            "Give the alternatives yourself."
        )
    return _call(trace, event.call)


def coupling(trace: Trace, branch: Trace, cone_ids: frozenset[str]) -> float | None:
    """Share of a change's cone that came out the same all the same. None: nothing followed from it."""
    if not cone_ids:
        return None
    same = 0
    for event_id in cone_ids:
        where = branch.position.get(event_id)
        if where is not None:
            now, before = branch.events[where], trace.event(event_id)
            same += structs.replace(before, seq=now.seq, t=now.t, duration_s=now.duration_s) == now
    return same / len(cone_ids)


def _call(trace: Trace, call_id: str) -> Call:
    try:
        return trace.call_by_id[call_id]
    except KeyError:
        raise CreditError(f"trace {trace.trace_id} has no record of call {call_id!r}.") from None


def _first_events(trace: Trace) -> dict[str, Event]:
    """Call -> the first event its answer led to."""
    found: dict[str, Event] = {}
    for event in trace.events:
        if event.call is not None:
            found.setdefault(event.call, event)
    return found


def _forgetting(trace: Trace, events: frozenset[str], named: Set[str] = frozenset()) -> Trace:
    """A recording that does not know how these came about: their calls are asked again, their luck is drawn again.

    Those `named` are kept, for changes to be made there, but not what chance made of them. So are results of
    pure tools, which are no luck.
    """
    first = _first_events(trace)
    gone = {call for call, event in first.items() if event.id in events}
    pure = {e.id for e in trace.events if e.type == "tool_call" and e.pure}
    kept = []
    for event in trace.events:
        if event.id in named:
            kept.append(structs.replace(event, extra={}))
        elif (
            event.id not in events or event.id.removesuffix("r") in pure or event.type == "human_intervention"
        ):
            kept.append(event)
    return structs.replace(
        trace, calls=tuple(call for call in trace.calls if call.id not in gone), events=tuple(kept)
    )


def _barring(trace: Trace, agents: Sequence[str]) -> Trace:
    """As if these had been barred from it before."""
    run = dict(meta_table(trace.header, "run"))
    run["interventions"] = [
        *run.get("interventions", []),
        *msgspec.to_builtins([BarAgent(a) for a in agents]),
    ]
    return structs.replace(
        trace, header=structs.replace(trace.header, meta={**trace.header.meta, "run": run})
    )


def _without_impure(trace: Trace, events: frozenset[str]) -> tuple[Event, ...]:
    """Pure tools may be fed back anywhere; others not into a context that is no longer the same."""
    impure = {e.id for e in trace.events if e.type == "tool_call" and not e.pure and e.id in events}
    impure |= {f"{event_id}r" for event_id in impure}
    return tuple(event for event in trace.events if event.id not in impure) if impure else trace.events


def _saying(trace: Trace, said: Said) -> Trace:
    """A recording in which a call was answered otherwise.

    Later calls of the same context are forgotten: their questions name their parent, not its words.
    """
    call, answer = _call(trace, said.call), said.answer
    first = _first_events(trace)[call.id]
    payload = Payload.of(answer.text)
    replaced = structs.replace(
        call,
        completion_ids=answer.completion_ids,
        completion_ref=payload.ref,
        completion_tokens=answer.completion_tokens,
        logprobs=answer.logprobs,
        token_ends=answer.token_ends,
        finish_reason=answer.finish_reason,
    )
    grown = _grown_from(trace, call)
    after = cone(trace, first.id)
    changed = structs.replace(first, choice=answer.choice, option_propensities=answer.option_propensities)
    return structs.replace(
        trace,
        calls=tuple(replaced if c.id == call.id else c for c in trace.calls if c.id not in grown),
        events=tuple(changed if e.id == first.id else e for e in _without_impure(trace, after | {first.id})),
        payloads={**trace.payloads, payload.ref: payload},
    )


def _grown_from(trace: Trace, call: Call) -> set[str]:
    """Calls whose context holds this one's answer."""
    found = {call.id}
    for other in trace.calls:  # parents come before those that grow from them
        if other.parent in found:
            found.add(other.id)
    return found - {call.id}


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
