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
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from baton.errors import UsageError
from baton.team.altered import ForkError, OtherAnswer, cone, find_call, forgetting, saying
from baton.team.asking import Overheard, listening, request_at, with_replicate
from baton.team.budget import LedgerRules, bill_of, charge_again
from baton.team.forking import Fork, Forking
from baton.team.intervene import Intervention, OnEvent
from baton.team.protocol import Answer, Engine, EngineError, Request
from baton.team.recording import Journal
from baton.team.team import Assignment, Team
from baton.team.together import Together
from baton.trace.records import Call
from baton.trace.trace import Trace, meta_as, meta_table

_AT_ONCE = 64
"""Forks that are under way together, so that their calls are answered together."""


class Cost(Struct, frozen=True):
    """What was run again, over any number of forks."""

    tokens: int = 0
    calls: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.tokens + other.tokens, self.calls + other.calls)

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.tokens - other.tokens, self.calls - other.calls)

    @classmethod
    def of(cls, forks: Iterable[Fork]) -> Cost:
        """The cost of forks, which say what ran anew and what was fed back."""
        found = list(forks)
        return cls(sum(fork.usage.tokens_run for fork in found), sum(fork.usage.calls_run for fork in found))


def asking_again(trace: Trace, call: Call, answer: Answer | EngineError) -> int:
    """Tokens that it took to ask a recorded call once more."""
    return bill_of(charge_again(call, meta_as(trace.header, LedgerRules, "run", "ledger")), answer).charged


class WhatIf(Struct, frozen=True, kw_only=True):
    """What is different in a fork."""

    interventions: tuple[Intervention, ...] = ()
    replicate: int = 0
    """Whose draws whatever is run anew has."""
    said: OtherAnswer | None = None
    redraw: str | None = None

    @property
    def told(self) -> bytes:
        """What names it."""
        said = self.said and (self.said.call, self.said.answer.text)
        return msgspec.json.encode([self.interventions, said, self.redraw, self.replicate])


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
    return await Forking(trace, team, lambda: assignment).make(
        interventions, replicate=replicate, allow_impure=allow_impure, journal=journal, trace_id=trace_id
    )


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
        self._forkings: dict[str, Forking] = {}
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
        trace_id: str | None = None,
    ) -> Fork:
        """A branch. Whatever it does not share with the trace is run, at this replicate's draws.

        `trace_id` is the branch's; None: one made from what is different.
        """
        branch = WhatIf(interventions=tuple(interventions), replicate=replicate, said=said, redraw=redraw)
        return await self._fork(trace, branch, None, trace_id)

    def is_made(self, trace: Trace, branch: WhatIf) -> bool:
        """Whether a branch has been run, so that asking for it costs nothing."""
        return (trace.trace_id, branch.told) in self._branches

    def is_asked(self, trace: Trace, call_id: str, replicates: Sequence[int]) -> bool:
        """Whether a call has been asked with all these draws."""
        return all((trace.trace_id, call_id, r) in self._answers for r in replicates)

    async def fork_all(self, trace: Trace, branches: Sequence[WhatIf]) -> list[Fork]:
        """Branches of a trace, made side by side: what they ask at the same time goes to an engine together."""
        different = {branch.told: branch for branch in branches}
        missing = [b for told, b in different.items() if (trace.trace_id, told) not in self._branches]
        for start in range(0, len(missing), _AT_ONCE):
            group = missing[start : start + _AT_ONCE]
            together = Together(len(group))
            await asyncio.gather(*(self._with_others(trace, branch, together) for branch in group))
            self.num_reused -= len(group)  # they are about to be asked for once more
        return [await self._fork(trace, branch, None, None) for branch in branches]

    async def _with_others(self, trace: Trace, branch: WhatIf, together: Together) -> None:
        try:
            await self._fork(trace, branch, together, None)
        finally:
            together.leave()

    async def _fork(
        self, trace: Trace, branch: WhatIf, together: Together | None, trace_id: str | None
    ) -> Fork:
        key = (trace.trace_id, branch.told)
        forking = self._forking(trace)
        found = self._branches.get(key)
        if found is not None:
            self.num_reused += 1
            return found
        altered = saying(trace, branch.said) if branch.said is not None else None
        if branch.redraw is not None:
            named = {change.at for change in branch.interventions if isinstance(change, OnEvent)}
            altered = forgetting(trace, cone(trace, branch.redraw), named | {branch.redraw}, altered)
        made = await forking.make(
            branch.interventions,
            replicate=branch.replicate,
            altered=altered,
            trace_id=trace_id,
            together=together,
        )
        self._branches[key] = made
        self.num_run += 1
        self.cost += Cost.of([made])
        return made

    async def ask(self, trace: Trace, call_id: str, replicates: Sequence[int]) -> list[Answer]:
        """What the policy says at a recorded call with other draws, at the frozen prefix. Nothing follows from it."""
        return (await self.ask_all(trace, {call_id: replicates}))[call_id]

    async def ask_all(self, trace: Trace, calls: Mapping[str, Sequence[int]]) -> dict[str, list[Answer]]:
        """The same for several calls, which are asked together."""
        forking = self._forking(trace)
        missing = {
            call: [r for r in replicates if (trace.trace_id, call, r) not in self._answers]
            for call, replicates in calls.items()
        }
        missing = {call: replicates for call, replicates in missing.items() if replicates}
        heard = await self._overhear(forking, missing)
        for (call, replicate), answer in heard.items():
            if isinstance(answer, EngineError):
                raise ForkError(f"the policy did not answer call {call} again: {answer}")
            self._answers[trace.trace_id, call, replicate] = answer
            self.cost += Cost(asking_again(trace, find_call(trace, call), answer), 1)
        return {call: [self._answers[trace.trace_id, call, r] for r in told] for call, told in calls.items()}

    async def _overhear(
        self, forking: Forking, calls: Mapping[str, Sequence[int]]
    ) -> dict[tuple[str, int], Answer | EngineError]:
        """What is said at calls: each engine is asked once. Where a trace does not tell a state, it is run up to."""
        trace, first = forking.trace, forking.recording.said_by
        heard: dict[tuple[str, int], Answer | EngineError] = {}
        asked: dict[int, tuple[Engine, list[tuple[str, int]], list[Request]]] = {}
        for name, replicates in calls.items():
            call = find_call(trace, name)
            if name not in first:
                raise ForkError(f"call {name} of trace {trace.trace_id} was never answered; ask another one.")
            if forking.assign().state is not None:
                heard |= await self._run_up_to(forking, call, replicates)
                continue
            request = request_at(trace, forking.team, call, first[name])
            engine = forking.team.engine(forking.team.harness.role(request.role))
            _, names, requests = asked.setdefault(id(engine), (engine, [], []))
            names += [(name, replicate) for replicate in replicates]
            requests += [with_replicate(request, replicate) for replicate in replicates]
        for engine, names, requests in asked.values():
            heard |= zip(names, await engine.answer(requests), strict=True)
        return heard

    async def _run_up_to(
        self, forking: Forking, call: Call, replicates: Sequence[int]
    ) -> dict[tuple[str, int], Answer | EngineError]:
        """Run up to the call, ask it several times, and go no further."""
        trace = forking.trace
        first = forking.recording.said_by[call.id]
        again = Forking(trace, listening(forking.team, call.id, replicates), forking.assign)
        try:
            await again.make((), altered=forgetting(trace, cone(trace, first.id) | {first.id}), whole=True)
        except Overheard as heard:
            return {(call.id, r): answer for r, answer in zip(replicates, heard.answers, strict=True)}
        raise ForkError(
            f"call {call.id} does not come up again when trace {trace.trace_id} is run from its own answers. "
            "Check it first: baton replay"
        )

    def _forking(self, trace: Trace) -> Forking:
        self._check_known(trace)
        found = self._forkings.get(trace.trace_id)
        if found is None:
            found = Forking(trace, self._seeded(trace), lambda: self._assigned(trace))
            self._forkings[trace.trace_id] = found
        return found

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
