"""What lies outside the team: engines, tools and timers. Starts operations, and feeds recorded ones back.

For each operation there is one question: does the recording know how it ended? It does when the
same agent asks the same thing at the same place. Then the recorded result comes at its recorded
time, and nothing is run again; otherwise it is done for real.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from baton.errors import TraceError
from baton.team.agent import Agent, Item
from baton.team.clock import Op
from baton.team.intervene import Replace
from baton.team.protocol import Answer, Engine, EngineError
from baton.team.tools.tool import Tool, ToolOutcome, invoke, invoke_now
from baton.trace.records import Call, Sampling
from baton.trace.vocabulary import Status

if TYPE_CHECKING:
    from baton.team.run import Run
    from baton.team.turn import Question


class ForkRefused(TraceError):
    """A fork would run a tool again that acts on the world."""


class Usage(Struct, kw_only=True):
    """What ran, and what was fed back instead."""

    calls_run: int = 0
    calls_reused: int = 0
    tokens_run: int = 0
    tokens_reused: int = 0
    tools_run: int = 0
    tools_reused: int = 0


class Outside:
    """Engines, tools, timers, for one run."""

    def __init__(self, *, live: bool = True, forked: bool = False, allow_impure: bool = False) -> None:
        self.live = live
        """False: only what is recorded happens (replay)."""
        self.forked = forked
        self.allow_impure = allow_impure
        self.usage = Usage()
        self._tools: dict[str, dict[str, Op]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # -- calls ----------------------------------------------------------------------------------

    def start_call(self, run: Run, op: Op) -> None:
        question: Question = op.work
        agent: Agent = op.agent
        recording = run.recording
        if recording is not None and not agent.diverged:
            call = recording.calls.get(op.id)
            if (
                call is not None
                and _same_question(call, question)
                and (run.strict or _same_weights(call, question))
            ):
                self._feed_call(run, op, call)
                return
            if run.strict:
                if call is not None:
                    raise TraceError(
                        f"the run does not repeat its trace: call {op.id} is asked something else than was recorded. "
                        "Something outside the trace has changed: the task, the harness, the topology or a tool."
                    )
            else:
                agent.diverged = True
        if self.live:
            if run.replicate:
                op.work = _with_key(question, f"{question.request.sampling.key}/{run.replicate}")
            run.driver.fresh(op)

    def _feed_call(self, run: Run, op: Op, call: Call) -> None:
        assert run.recording is not None
        if call.sampling is not None and call.sampling.key is not None:
            op.work = _with_key(op.work, call.sampling.key)  # what is written again is what was drawn then
        found = run.recording.answer(op.id)
        if found is not None:
            op.result, (t, seq) = found
            self._count_call(op.result, len(op.work.ids or ()), reused=True)
            run.driver.recorded(op, *self._when(run, call.t, t, seq))
        elif not run.strict:  # its agent was cancelled meanwhile, and perhaps will not be now
            run.driver.defer(op, run.driver.now + (call.duration_s or 0.0))

    def _when(self, run: Run, start: float | None, end: float, seq: int) -> tuple[float, int]:
        """A recorded operation takes as long as it took; begun when it was begun, it ends exactly when it ended."""
        return (end if start is None else run.driver.now + (end - start)), seq

    def _count_call(self, answer: Answer | EngineError, prompt: int, *, reused: bool) -> None:
        said = 0 if isinstance(answer, EngineError) else answer.completion_tokens or 0
        if reused:
            self.usage.calls_reused += 1
            self.usage.tokens_reused += said + prompt
        else:
            self.usage.calls_run += 1
            self.usage.tokens_run += said + prompt

    # -- tools ----------------------------------------------------------------------------------

    def start_tool(self, run: Run, op: Op) -> None:
        agent: Agent = op.agent
        tool: Tool = op.work[0]
        op.start = run.driver.now
        self._tools.setdefault(agent.id, {})[op.id] = op
        recording = run.recording
        if recording is not None:
            found = recording.tool(op.id)
            before = recording.events.get(op.id)
            same = (
                before is not None
                and before.content_ref == run.events[-1].content_ref
                and before.tool == tool.name
            )
            if found is not None and same and (tool.pure or not agent.diverged):
                event, text, (t, seq) = found
                if event.status != "in_doubt":
                    op.result = ToolOutcome(
                        text=text, ok=event.status == "ok", truncated="truncated" in event.extra
                    )
                self.usage.tools_reused += 1
                run.driver.recorded(op, *self._when(run, event.t, t, seq))
                return
            ended = recording.events.get(op.id + "r")
            if ended is not None and found is None and same and not agent.diverged:
                if not run.strict:  # its agent was cancelled meanwhile, and perhaps will not be now
                    run.driver.defer(op, ended.t)
                return
            # Started before a crash and never heard of again: it may or may not have acted.
            op.in_doubt = (
                run.strict and before is not None and found is None and not (tool.pure or tool.idempotent)
            )
        if self.live:
            run.driver.fresh(op)

    def tool_finished(self, run: Run, op: Op) -> None:
        """A result is in: write it, and let the agent go on once it has all it waits for."""
        agent: Agent = op.agent
        tool: Tool = op.work[0]
        outcome: ToolOutcome | None = op.result
        self._tools[agent.id].pop(op.id)
        result_id = op.id + "r"
        extra: dict[str, Any] = {}
        if outcome is None:
            text = "It is not known whether this call took effect."
            status: Status = "in_doubt"
        else:
            text = outcome.text
            status = "ok" if outcome.ok else "failed"
            if outcome.truncated:
                extra["truncated"] = True
        change = run.interventions.get(result_id)
        if isinstance(change, Replace):
            text, extra = change.text, {"intervention": "replace"}
        event = run.emit(
            agent,
            "tool_result",
            id_=result_id,
            tool=tool.name,
            text=text,
            t=op.start,
            duration_s=run.driver.now - op.start,
            status=status,
            trusted=tool.trusted,
            extra=extra,
            causes=((op.id, "tool_dependency"),),
        )
        agent.inbox.append(Item(event.id, "causal", tool.name, f"{tool.name}: {text}", speaker="tool"))
        if not self._tools[agent.id] and agent.waits_for_tools:
            agent.waits_for_tools = False
            run.wake(agent)

    def tools_of(self, agent: Agent) -> bool:
        """Whether the agent has tool calls in flight."""
        return bool(self._tools.get(agent.id))

    # -- timers ---------------------------------------------------------------------------------

    def start_timer(self, run: Run, op: Op) -> None:
        if run.recording is not None:
            found = run.recording.timers.get(op.id)
            if found is not None and (run.strict or not op.agent.diverged):
                run.driver.recorded(op, *found)
                return
            if run.strict and not self.live:
                return
        run.driver.timer(op, op.work)

    # -- doing it for real ----------------------------------------------------------------------

    async def do(self, run: Run, ops: Sequence[Op]) -> None:
        """Perform fresh operations (see `Driver.next`)."""
        if self.forked and not self.allow_impure:
            for op in ops:
                if op.kind == "tool":
                    _refuse_impure(op)
        if run.driver.virtual:
            await self._do_virtually(run, ops)
        else:
            for op in ops:
                self._start(run, op)

    async def _do_virtually(self, run: Run, ops: Sequence[Op]) -> None:
        by_engine: dict[int, list[Op]] = {}
        engines: dict[int, Engine] = {}
        tools: list[Op] = []
        for op in ops:
            if op.kind == "tool":
                tools.append(op)
            else:
                engine = op.work.engine
                engines[id(engine)] = engine
                by_engine.setdefault(id(engine), []).append(op)
        answers = [_answer(engines[key], batch) for key, batch in by_engine.items()]
        await asyncio.gather(*answers, *(_invoke(run, op) for op in tools))
        latency = run.team.latency
        for op in ops:
            if op.kind == "tool":
                self.usage.tools_run += 1
                took = latency.tool(run.sampling_key(op.id))
            else:
                took = self._call_took(run, op)
            run.driver.schedule(op, max(run.driver.now, op.start + took))

    def _call_took(self, run: Run, op: Op) -> float:
        answer: Answer | EngineError = op.result
        self._count_call(answer, len(op.work.ids or ()), reused=False)
        if isinstance(answer, Answer) and answer.duration_s is not None:
            return answer.duration_s
        said = answer.completion_tokens or 0 if isinstance(answer, Answer) else 0
        return run.team.latency.call(op.work.request.sampling.key, said)

    def _start(self, run: Run, op: Op) -> None:
        """Real clock: begin, and arrive when done. What answers at once arrives at once."""
        if op.kind == "call":
            now = getattr(op.work.engine, "answer_now", None)
            if now is not None:
                op.result = now(op.work.request)
                self._count_call(op.result, len(op.work.ids or ()), reused=False)
                run.driver.arrive(op)
                return
        elif op.work[0].instant:
            self.usage.tools_run += 1
            op.result = invoke_now(*op.work, idempotency_key=_key(run, op))
            run.driver.arrive(op)
            return
        run.driver.in_flight += 1
        op.task = asyncio.get_running_loop().create_task(self._perform(run, op))
        self._tasks.add(op.task)
        op.task.add_done_callback(self._tasks.discard)

    async def _perform(self, run: Run, op: Op) -> None:
        try:
            if op.kind == "tool":
                self.usage.tools_run += 1
                await _invoke(run, op)
            else:
                await _answer(op.work.engine, [op])
                self._count_call(op.result, len(op.work.ids or ()), reused=False)
        finally:
            run.driver.in_flight -= 1
            run.driver.arrive(op)

    # -- cancelling -----------------------------------------------------------------------------

    def cancel(self, run: Run, agent: Agent, because: str | None = None) -> None:
        """Drop what an agent has in flight, because of an event. A tool that may have acted is left in doubt."""
        if agent.op is not None:
            agent.op.cancel()
            run.add_call(unanswered(run, agent.op, "cancelled"))
            agent.op = None
        if agent.reservation is not None:
            agent.reservation.settle_call(0)  # it was asked; what it cost is not known
            agent.reservation = None
        for op in self._tools.pop(agent.id, {}).values():
            op.cancel()
            tool: Tool = op.work[0]
            run.emit(
                agent,
                "tool_result",
                id_=op.id + "r",
                tool=tool.name,
                status="cancelled" if tool.pure else "in_doubt",
                causes=((op.id, "tool_dependency"), *(((because, "causal"),) if because else ())),
            )

    async def close(self, run: Run) -> None:
        """Leave nothing behind: not even what was cancelled a moment ago and has yet to notice."""
        run.driver.close()
        for agent in run.agents.values():
            if agent.coroutine is not None:
                agent.coroutine.close()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _same_question(call: Call, question: Question) -> bool:
    request = question.request
    return (
        call.prompt_ref == question.prompt_ref
        and call.parent == question.parent
        and call.keep == question.keep
        and call.prompt_ids == question.ids
        and call.sampling is not None
        and _same_draw(call.sampling, request.sampling)
        and call.harness == question.harness
    )


def _same_draw(recorded: Sampling, asked: Sampling) -> bool:
    """Under whichever replicate it was recorded; that stands behind the key that is asked for."""
    key = (recorded.key or "").removeprefix(asked.key or "")
    return structs.replace(recorded, key=asked.key) == asked and (not key or key.startswith("/"))


def _same_weights(call: Call, question: Question) -> bool:
    """Whether the engine is still the one that answered, where it says which it is."""
    version = getattr(question.engine, "version", None)
    return version is None or call.policy_version is None or call.policy_version == str(version)


def unanswered(run: Run, op: Op, why: str) -> Call:
    """The record of a call that was asked and not answered."""
    question: Question = op.work
    return Call(
        id=op.id,
        agent=op.agent.id,
        role=op.agent.role.name,
        policy=question.engine.name,
        harness=question.harness,
        parent=question.parent,
        keep=question.keep,
        prompt_ids=question.ids,
        prompt_ref=question.prompt_ref,
        sampling=question.request.sampling,
        finish_reason=why,
        t=op.start,
        duration_s=run.driver.now - op.start,
    )


def _with_key(question: Question, key: str) -> Question:
    request = question.request
    return structs.replace(
        question, request=structs.replace(request, sampling=structs.replace(request.sampling, key=key))
    )


def _refuse_impure(op: Op) -> None:
    tool: Tool = op.work[0]
    if not tool.pure:
        raise ForkRefused(
            f"the fork would call {tool.name!r} again at {op.id}, and it is not pure: its effect would happen "
            "a second time. Declare it pure, or pass allow_impure (--allow-impure)."
        )


async def _answer(engine: Engine, ops: Sequence[Op]) -> None:
    try:
        answers = await engine.answer([op.work.request for op in ops])
        if len(answers) != len(ops):
            raise EngineError(f"engine {engine.name!r} gave {len(answers)} answers to {len(ops)} requests.")
    except EngineError as error:
        answers = [error for _ in ops]
    except Exception as error:  # whatever an engine does, the team goes on and the trace says why
        answers = [
            EngineError(f"engine {engine.name!r} failed: {type(error).__name__}: {error}") for _ in ops
        ]
    for op, answer in zip(ops, answers, strict=True):
        op.result = answer


async def _invoke(run: Run, op: Op) -> None:
    if op.in_doubt:
        return
    tool, args = op.work
    if tool.instant:
        op.result = invoke_now(tool, args, idempotency_key=_key(run, op))
    else:
        op.result = await invoke(tool, args, idempotency_key=_key(run, op))


def _key(run: Run, op: Op) -> str:
    return f"{run.header.trace_id}/{op.id}"
