"""Forks of a program's session for credit: what `baton.team.forks.Forks` is for a team's trace.

A fork is the program run once more, in a process of its own, with one answer different or with everything that was
asked after a call drawn anew; what it asks in recorded words comes from the recording. Forks of one session share
their random numbers: the same question under the same replicate gets the same answer in all of them.

Invariant: a fork runs the program's own code again, so whatever that does outside (files, network) is done again;
whoever asks for credit says that this may be.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from msgspec import structs

from baton.serve.backend import Backend, GrownAsk, Unanswerable
from baton.serve.exchange import Exchange, Reply
from baton.serve.growth import GrowthIndex
from baton.serve.journal import KeptSession
from baton.serve.lineage.told_calls import words_of
from baton.serve.program_run import ProgramRun, run_program
from baton.serve.program_session import post_end
from baton.serve.replay.beside import RecordedBeside
from baton.serve.replay.find import answered, exchange_of_events
from baton.serve.replay.forking import told_of
from baton.serve.replay.masks import Masks
from baton.serve.replay.recorded import RecordedBackend
from baton.serve.server import Serving
from baton.serve.session_trace import session_trace
from baton.team.altered import ForkError
from baton.team.forking import Fork
from baton.team.forks import Cost, WhatIf
from baton.team.outside import Usage
from baton.team.protocol import Answer
from baton.team.team import Team
from baton.trace.records import Reward
from baton.trace.trace import Trace

RunOne = Callable[[Serving, str], Awaitable[ProgramRun]]
"""Runs the program as a session of this name."""
Score = Callable[[str], float]
"""What a program's output is worth."""
_AT_ONCE = 4
_ONLY_SAID = (
    "what an agent of an outside program reads cannot be changed, only what a model says. "
    'Use level="message" (--set level=message).'
)


def program_runner(
    command: Sequence[str], *, cwd: Path | None = None, timeout_s: float | None = None
) -> RunOne:
    """Runs a command, each time in a process of its own."""

    async def run(serving: Serving, name: str) -> ProgramRun:
        return await run_program(command, address=serving.address, session=name, cwd=cwd, timeout_s=timeout_s)

    return run


class ProgramForks:
    """Forks of one session, each made once; a context manager."""

    def __init__(
        self,
        session: KeptSession,
        run: RunOne,
        live: Backend,
        *,
        seed: str = "0",
        masks: Masks | None = None,
        score: Score | None = None,
        beginning: Callable[[], None] = lambda: None,
    ) -> None:
        """`score` reads a return off the program's output, where the program posts none. `beginning` is called before
        anything is run."""
        self.session = session
        self.cost = Cost()
        self.usage = Usage()
        """All that forks ran and reused."""
        self.num_run = 0
        self._run, self._live, self._masks, self._score = run, live, masks, score
        self._stream = f"{seed}/{session.name}"
        self.beginning = beginning
        self._exchanges = answered(session)
        self._by_id = {one.id: one for one in self._exchanges}
        self.trace: Trace = self._scored(session, session.name)
        """The session's own."""
        self._said = exchange_of_events(self.trace)
        self._growth = GrowthIndex()
        for one in self._exchanges:
            self._growth.add(one)
        self._replies: dict[tuple[str, str], Reply] = {}
        self._answers: dict[tuple[str, int], Answer] = {}
        self._made: dict[bytes, Fork] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="baton-forks-")
        self._serving = Serving(Path(self._folder.name), live, traces=False)

    @property
    def team(self) -> Team:
        """Refused: an outside program has no team of Baton's, and so no surface by which a message could be changed."""
        raise ForkError(_ONLY_SAID)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._serving.close()
        self._folder.cleanup()

    # -- asking -----------------------------------------------------------------------------------

    async def ask(self, trace: Trace, call_id: str, replicates: Sequence[int]) -> list[Answer]:
        """What else would have been said at a call."""
        return (await self.ask_all(trace, {call_id: replicates}))[call_id]

    async def ask_all(self, trace: Trace, calls: Mapping[str, Sequence[int]]) -> dict[str, list[Answer]]:
        """The same for several calls."""
        self._check(trace)
        missing = [(c, r) for c, every in calls.items() for r in every if (c, r) not in self._answers]
        if missing:
            self.beginning()
        await asyncio.gather(*(self._asked(call, replicate) for call, replicate in missing))
        return {call: [self._answers[call, r] for r in every] for call, every in calls.items()}

    def is_asked(self, trace: Trace, call_id: str, replicates: Sequence[int]) -> bool:
        """Whether a call has been asked with all these draws."""
        self._check(trace)
        return all((call_id, r) in self._answers for r in replicates)

    async def _asked(self, call: str, replicate: int) -> None:
        exchange = self._exchange(call)
        key = f"{self._stream}/{replicate}/{exchange.id}"
        growth: GrownAsk | None = self._growth.find(exchange.ask)
        try:
            reply = await self._on_server(self._live.reply(exchange.ask, key=key, growth=growth))
        except Unanswerable as error:
            raise ForkError(f"the engine did not answer call {call} again: {error}") from None
        answer = _as_answer(reply)
        self._replies[call, answer.text] = reply
        self._answers[call, replicate] = answer
        self.cost += Cost((reply.prompt_tokens or 0) + (reply.completion_tokens or 0), 1)

    # -- forks ------------------------------------------------------------------------------------

    async def fork(self, trace: Trace, interventions: Sequence[Any] = (), **more: Any) -> Fork:
        """The session again with something different."""
        return (await self.fork_all(trace, [WhatIf(interventions=tuple(interventions), **more)]))[0]

    def is_made(self, trace: Trace, branch: WhatIf) -> bool:
        """Whether a branch has been run."""
        self._check(trace)
        return branch.told in self._made

    async def fork_all(self, trace: Trace, branches: Sequence[WhatIf]) -> list[Fork]:
        """Several branches, some side by side."""
        self._check(trace)
        missing = {one.told: one for one in branches if one.told not in self._made}
        if missing:
            self.beginning()
        turn = asyncio.Semaphore(_AT_ONCE)

        async def one(branch: WhatIf) -> None:
            async with turn:
                self._made[branch.told] = await self._make(branch)

        await asyncio.gather(*map(one, missing.values()))
        return [self._made[one.told] for one in branches]

    async def _make(self, branch: WhatIf) -> Fork:
        if branch.interventions:
            raise ForkError(_ONLY_SAID)
        self.num_run += 1
        name = f"{self.session.name[:100]}-{self.num_run}"
        backend = self._backend(branch)
        session = self._serving.open_session(name, backend=backend)
        run = await self._run(self._serving, name)
        await self._on_server(post_end(session, run))
        told = told_of(name, run, backend)
        made = self._scored(session.journal.kept, name)
        if self._is_rewarded(self.trace) and not self._is_rewarded(made):
            raise ForkError(
                f"the program posted no reward in a fork (exit code {run.exit_code}), where it had posted one. Let it "
                "post one however it ends, or score its output: --score module:function"
            )
        self.cost += Cost(told.tokens_run, told.calls_run)
        self.usage.calls_run += told.calls_run
        self.usage.calls_reused += told.calls_reused
        self.usage.tokens_run += told.tokens_run
        self.usage.tokens_reused += told.tokens_reused
        usage = Usage(
            calls_run=told.calls_run,
            calls_reused=told.calls_reused,
            tokens_run=told.tokens_run,
            tokens_reused=told.tokens_reused,
        )
        return Fork(trace=made, usage=usage, before=self.trace, events_run=len(made.events))

    def _backend(self, branch: WhatIf) -> RecordedBackend:
        """Who answers in a branch. A redraw forgets everything that was asked after the call it names."""
        kept = self._exchanges
        if branch.redraw is not None:
            at = self._exchange(branch.redraw)
            end = at.begun + (at.duration_s or 0.0)
            kept = [one for one in kept if one.begun < end]
        instead: dict[str, Reply | str] = {}
        if branch.said is not None:
            reply = self._replies[branch.said.call, branch.said.answer.text]
            instead[self._exchange(branch.said.call).id] = reply
        stream = self._stream + (f"/{branch.replicate}" if branch.replicate else "")
        beside = RecordedBeside(self.session)
        return RecordedBackend(
            kept, masks=self._masks, live=self._live, instead=instead, beside=beside, stream=stream
        )

    # -- what it is made of -----------------------------------------------------------------------

    def _exchange(self, event_or_call: str) -> Exchange:
        id = self._said.get(event_or_call)
        if id is None or id not in self._by_id:
            raise ForkError(f"{event_or_call} was said by no call of session {self.session.name!r}.")
        return self._by_id[id]

    def _check(self, trace: Trace) -> None:
        if trace is not self.trace and trace.trace_id != self.trace.trace_id:
            raise ForkError(f"{trace.trace_id} is no trace of session {self.session.name!r}.")

    def _scored(self, kept: KeptSession, name: str) -> Trace:
        """A session's trace with its return."""
        trace = session_trace(kept.exchanges, kept.posted, kept.spans, name=name)
        if self._score is None:
            return trace
        end = next((one for one in reversed(kept.posted) if one.ended), None)
        value = float(self._score("" if end is None or end.answer is None else end.answer))
        reward = Reward(family="shared", unit="team", target="team", value=value, by="score of the output")
        others = tuple(one for one in trace.rewards if one.unit != "team")
        return structs.replace(trace, rewards=(*others, reward))

    def _is_rewarded(self, trace: Trace) -> bool:
        return any(one.unit == "team" for one in trace.rewards)

    async def _on_server(self, work: Any) -> Any:
        return await asyncio.to_thread(self._serving.call, work)


def _as_answer(reply: Reply) -> Answer:
    """A reply as a trace tells it."""
    choice = reply.choices[0]
    return Answer(
        text=choice.said if choice.said is not None else words_of(choice.message),
        policy=reply.policy,
        policy_version=reply.policy_version,
        completion_ids=choice.completion_ids,
        logprobs=choice.logprobs,
        token_ends=choice.token_ends,
        prompt_tokens=reply.prompt_tokens,
        completion_tokens=reply.completion_tokens,
        estimated=reply.estimated,
        finish_reason=choice.finish,
    )
