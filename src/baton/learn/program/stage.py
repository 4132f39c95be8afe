"""Where a recipe's program is played: every rollout a process of its own, answered by the run's policies.

It has the interface of `baton.learn.stage.Stage`, so that rollouts, scoring, credit, updates and evaluation are the
same as for a team of Baton's. A rollout is a session of the endpoint; its trace is made from the session's exchanges,
with the ids and log-probabilities that the engine gave.

What a program does wrong is data: it earns what its reward says, its trace tells how it ended (ok, failed, cut, empty)
and the end of what it said on standard error, and a step's figures count the four. Only a program that fails before it
has asked anything, in the first run of all, ends the training: that is a mistake in the recipe, or in the program.

Invariant: (recipe, seed, step, episode) names a rollout's instance, its session and its sampling keys for good. Calls
that are answered together are rounded together, so that the last digits of a log-probability may depend on what else
was asked at the time; where the engine can answer independently of that, `at_once = 1` is not needed for it.
"""

from __future__ import annotations

import asyncio
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import structs

from baton.errors import UsageError
from baton.learn.program.backends import backend_of
from baton.learn.program.filling import filled, values_of
from baton.learn.program.house import ProgramHouse, session_name
from baton.learn.program.part import ProgramPart
from baton.learn.program.result import ProgramResult, Rewarding, read_answer
from baton.learn.program.roles import RoleBackend
from baton.learn.program.rollout_trace import rollout_trace
from baton.learn.stage import Episode, Stage, Unanswered
from baton.serve.backend import Backend
from baton.serve.exchange import Posted
from baton.serve.journal import SpansLine
from baton.serve.program_run import ProgramRun
from baton.serve.sessions import ProgramSession
from baton.tasks.task import Instance
from baton.team.protocol import MODEL_FAILED, Engine
from baton.trace.trace import Trace

STDERR_KEPT = 2_000
"""Characters of a failed program's standard error that its trace keeps, and a message shows."""
_LINES_SHOWN = 8
ENDINGS = ("ok", "failed", "cut", "empty")


class ProgramStage(Stage, frozen=True, kw_only=True):
    """Runs a program for every episode."""

    part: ProgramPart
    house: ProgramHouse
    rewarding: Rewarding

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(role.name for role in self.topology.roles)

    def settle(self, folder: Path) -> None:
        self.house.settle(folder)

    def close(self) -> None:
        self.house.close()

    def alone(self) -> Stage:
        """The same instances with the command of a single agent."""
        if not self.part.alone:
            raise Unanswered(
                "the recipe names no single agent to compare with. Write its command as program.alone"
            )
        return structs.replace(self, part=structs.replace(self.part, command=self.part.alone, roles={}))

    def figures(self, traces: Sequence[Trace]) -> dict[str, Any]:
        """How the runs ended, and how long they took."""
        told = [trace.header.meta["program"] for trace in traces]
        ended = Counter(each["ended"] for each in told)
        seconds = sorted(each["seconds"] for each in told)
        return {
            "program": {
                **{ending: ended[ending] / len(told) for ending in ENDINGS},
                "seconds": seconds[len(seconds) // 2],
                "calls": sum(each["calls"] for each in told) / len(told),
            }
        }

    async def play_all(self, engines: Mapping[str, Engine], episodes: Sequence[Episode]) -> list[Trace]:
        by_role = {role: self._backend(engine) for role, engine in engines.items()}
        backend = RoleBackend(self.part, {self.part.role: next(iter(by_role.values())), **by_role})
        self.house.sweep(min(episode.step for episode in episodes))
        first: list[Trace] = []
        if not self.house.tried:
            self.house.tried = True
            first = [await self._tried(backend, episodes[0])]
        rest = episodes[len(first) :]
        return [*first, *await asyncio.gather(*(self._rollout(backend, episode) for episode in rest))]

    def _backend(self, engine: Engine) -> Backend:
        """One for each engine, for good: it knows the engine's tokenizer."""
        known = self.house.backends
        own = getattr(engine, "engine", engine)
        if own not in known:
            known[own] = backend_of(own, self.part)
        return known[own]

    def check(self, engines: Mapping[str, Engine], traces: Sequence[Trace]) -> None:  # noqa: ARG002
        """Raise where a model broke, or where nobody was answered."""
        told = [trace.header.meta["program"] for trace in traces]
        refused = [each["refused"] for each in told if each["refused"]]
        broken = [why for why in refused if MODEL_FAILED in why]
        if broken:
            raise Unanswered(f"{len(broken)} of {len(told)} programs were not answered: {broken[0]}")
        if any(each["calls"] for each in told):
            return
        if refused:
            raise Unanswered(f"none of {len(told)} programs was answered. The first was told: {refused[0]}")
        worst = next((each for each in told if each["ended"] == "failed"), told[0])
        raise Unanswered(
            f"none of {len(told)} programs asked for anything, so there is nothing to learn from. The first "
            f"{worst['ended']} one ended with code {worst['exit_code']}" + last_lines(worst["stderr"])
        )

    async def results(self, backend: Backend, episodes: Sequence[Episode]) -> list[ProgramResult]:
        """The runs alone, without rewards and traces: what a supervised start learns from.

        The first of all goes ahead of the others, who would fail as it does.
        """
        first: list[ProgramResult] = []
        if not self.house.tried and episodes:
            first = [await self._run(backend, episodes[0])]
            self._check_first(episodes[0], first[0])
            self.house.tried = True
        rest = episodes[len(first) :]
        return [*first, *await asyncio.gather(*(self._run(backend, episode) for episode in rest))]

    def _check_first(self, episode: Episode, result: ProgramResult) -> None:
        if any(each.reply is not None for each in result.exchanges):
            return
        refused = next((each.refused for each in result.exchanges if each.refused), None)
        if refused is not None:
            raise UsageError(f"the program's first call was not answered: {refused}")
        told = {"ended": result.ending, "exit_code": result.exit_code, "stderr": result.stderr}
        raise UsageError(self._broken(episode, told))

    async def _tried(self, backend: Backend, episode: Episode) -> Trace:
        """The first run of all."""
        trace = await self._rollout(backend, episode)
        told = trace.header.meta["program"]
        if told["ended"] in ("failed", "cut", "empty") and not told["calls"] and not told["refused"]:
            raise UsageError(self._broken(episode, told))
        return trace

    def _broken(self, episode: Episode, told: Mapping[str, Any]) -> str:
        how = {
            "failed": f"ended with code {told['exit_code']} before it asked for anything",
            "cut": f"asked for nothing within {self.part.timeout_s:g} s",
            "empty": "ended without asking for anything",
        }[told["ended"]]
        instance = self.task.instance(episode.instance, episode.split)
        command = filled(self.part, values_of(instance, "main", self.part, ".")).command
        asks = "It asks whoever OPENAI_BASE_URL or ANTHROPIC_BASE_URL names."
        by_hand = f"baton serve --engine scripted:echo --out runs/try -- {shlex.join(command)}"
        return f"the program {how}{last_lines(told['stderr'])} {asks} Try it by hand: {by_hand}"

    async def _rollout(self, backend: Backend, episode: Episode) -> Trace:
        earned: list[float] = []

        def reward(result: ProgramResult) -> float:
            earned.append(self.rewarding(result))
            return earned[0]

        spans: list[SpansLine] = []
        result = await self._run(backend, episode, reward, spans)
        told = {
            "ended": result.ending,
            "exit_code": result.exit_code,
            "cut": result.cut,
            "calls": sum(each.reply is not None for each in result.exchanges),
            "refused": next((each.refused for each in result.exchanges if each.refused), None),
            "stderr": result.stderr[-STDERR_KEPT:] if result.ending != "ok" else "",
            "seconds": round(result.seconds, 3),
        }
        return rollout_trace(self.part, result, episode, reward=earned[0], spans=spans, told=told)

    async def _run(
        self,
        backend: Backend,
        episode: Episode,
        reward: Rewarding | None = None,
        spans: list[SpansLine] | None = None,
    ) -> ProgramResult:
        """One run: its session is opened, the program runs, is rewarded, and the session is closed."""
        name = session_name(episode.name)
        instance = self.task.instance(episode.instance, episode.split)
        async with self.house.gate():
            session = self.house.open_session(name, backend, episode.seed)
            work = self.house.work_folder(name)
            try:
                run = await self.house.run(
                    filled(self.part, values_of(instance, name, self.part, work)), session, work
                )
                answer = read_answer(self.part.answer, run.text)
                result = _result(session, run, instance, answer, work)
                value = None if reward is None else reward(result)
                if self.part.reward == "post":
                    value = None  # it is there already
                await self.house.post(session, _end(result, value, over=session.ended is not None))
                result = structs.replace(result, posted=tuple(session.posted))
                if spans is not None:
                    spans += session.journal.kept.spans
            finally:
                await self.house.end_session(name, episode.step)
                shutil.rmtree(work, ignore_errors=True)
        return result


def _end(result: ProgramResult, reward: float | None, *, over: bool) -> Posted:
    """What is said of a session in the end; `over`: it ended already, at a limit."""
    status: Literal["ok", "failed", "cut"] = "ok" if result.ending == "empty" else result.ending
    return Posted(
        session=result.session,
        ended=not over,
        status=status,
        answer=result.answer,
        reward=reward,
        at=time.time(),
    )


def last_lines(stderr: str) -> str:
    """The last lines of what a program said, on one line as messages are."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()][-_LINES_SHOWN:]
    return f". It said: {' | '.join(lines)}." if lines else ", and said nothing on standard error."


def _result(
    session: ProgramSession, run: ProgramRun, instance: Instance, answer: str, work: Path
) -> ProgramResult:
    ended = session.ended
    cut = run.cut or ("the session reached a limit" if ended is not None and ended.status == "cut" else None)
    return ProgramResult(
        session=session.name,
        instance=instance,
        exit_code=run.exit_code,
        stdout=run.text,
        stderr=run.stderr_tail.decode(errors="replace"),
        answer=answer,
        seconds=run.seconds,
        folder=str(work),
        cut=cut,
        exchanges=tuple(session.exchanges),
        posted=tuple(session.posted),
    )
