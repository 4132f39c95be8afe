"""What lies outside the team: engines, tools and timers. Starts operations, and feeds recorded ones back.

For each operation there is one question: does the recording know how it ended? It does when the
same agent asks the same thing at the same place. Then the recorded result comes at its recorded
time, and nothing is run again; otherwise it is done for real.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from baton.errors import BatonError, TraceError
from baton.team.agent import Agent, Item
from baton.team.ahead import Ahead
from baton.team.budget import Bill, Refusal, bill_of
from baton.team.clock import Latency, Op
from baton.team.credentials import Vault
from baton.team.folders import recorded, told
from baton.team.guard.watch import GuardWatch
from baton.team.intervene import OnEvent, Replace
from baton.team.protocol import Answer, Engine, EngineError
from baton.team.question import Question, has_weights, memory_key, same_question, with_key
from baton.team.recording import RAW, TraceWriter
from baton.team.together import Together
from baton.team.tool_calls import ToolCalls, refuse_impure
from baton.team.tools.tool import Tool, ToolOutcome
from baton.trace.provenance import HELD
from baton.trace.records import Call
from baton.trace.vocabulary import Status


class Usage(Struct, kw_only=True):
    """What ran, and what was fed back instead."""

    calls_run: int = 0
    calls_reused: int = 0
    tokens_run: int = 0
    estimated_run: int = 0
    """Of the tokens that ran, those that nobody counted."""
    tokens_reused: int = 0
    tools_run: int = 0
    tools_reused: int = 0


class Mode(Struct, frozen=True, kw_only=True):
    """How far a run may reach outside."""

    live: bool = True
    """False: only what is recorded happens (replay)."""
    forked: bool = False
    allow_impure: bool = False
    """Whether a fork may run tools again that act on the world."""
    memory: dict[Any, Any] | None = None
    """What was answered when the same fork was tried before; None: it is not kept."""
    together: Together | None = None
    """Runs that go side by side with this one, and ask engines with it."""


class Outside:
    """The engines, tools and timers of one run."""

    def __init__(
        self,
        writer: TraceWriter,
        *,
        latency: Latency,
        seed: int,
        replicate: str,
        interventions: Mapping[str, OnEvent],
        mode: Mode,
        counted: bool,
        vault: Vault | None = None,
    ) -> None:
        """`counted`: a budget counts calls or tokens, so that none may go unnoticed."""
        self._writer = writer
        self._driver = writer.driver
        self._recording = writer.recording
        self._strict = writer.strict
        self._latency = latency
        self._seed = seed
        self._replicate = replicate
        self._interventions = interventions
        self._mode = mode
        self._vault = vault
        """Credentials that tools are given; None: there are none."""
        self._tool_calls: ToolCalls | None = None
        """None: no tool was called."""
        self.live = mode.live
        self.usage = Usage()
        journal, recording = writer.journal, writer.recording
        self.ahead = None if journal is None else Ahead(journal, counted=counted)
        """None: the run is kept in memory alone."""
        self.lost = [] if self.ahead is None else self.ahead.lost(recording.trace.events if recording else ())
        """Calls that an earlier process began and never heard of again."""
        self._refused = {
            name
            for event in (recording.resumed if recording else ())
            for name in event.extra.get("refused", ())
        }
        """Calls that were lost, charged, and found no room to be asked again, before the run was cut off once more."""
        self._held: dict[str, Op] = {}
        """Those of both that wait until they have been charged."""
        self._tools: dict[str, dict[str, Op]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.guard: GuardWatch | None = None
        self._requests: dict[str, set[str]] = {}
        """Agent -> its calls that wait for an endorsement."""

    @property
    def tool_calls(self) -> ToolCalls:
        """How tools are called here."""
        if self._tool_calls is None:
            self._tool_calls = ToolCalls(self._writer.header.trace_id, self._vault)
        return self._tool_calls

    def start_call(self, op: Op) -> None:
        """Ask an engine, or feed the recorded answer back."""
        question: Question = op.work
        agent: Agent = op.agent
        recording = self._recording
        if recording is not None and not agent.diverged:
            call = recording.calls.get(op.id)
            if (
                call is not None
                and same_question(call, question)
                and (self._strict or has_weights(call, question.engine))
            ):
                self._feed_call(op, call)
                return
            if self._strict:
                if call is not None:
                    raise TraceError(
                        f"the run does not repeat its trace: call {op.id} is asked something else than was recorded. "
                        "Something outside the trace has changed: the task, the harness, the topology or a tool."
                    )
            else:
                agent.diverged = True
        if self.live:
            if self._replicate:
                op.work = with_key(question, f"{question.request.sampling.key}/{self._replicate}")
            if op.id in self.lost or op.id in self._refused:
                self._held[op.id] = op
            else:
                self._driver.fresh(op)

    def ask_again(self, op: Op, refusal: Refusal | None) -> None:
        """A call that was lost with an earlier process: it has been charged, and is asked again if there is room."""
        if self._held.pop(op.id, None) is None:  # it is fed from a recording
            return
        if refusal is None:
            self._driver.fresh(op)
            return
        op.result = EngineError(f"asked before the run was cut off, and not again. {refusal.message}")
        self._driver.complete(op)

    def _feed_call(self, op: Op, call: Call) -> None:
        assert self._recording is not None
        if call.sampling is not None and call.sampling.key is not None:
            op.work = with_key(op.work, call.sampling.key)  # what is written again is what was drawn then
        found = self._recording.answer(op.id)
        if found is not None:
            op.result, (t, seq) = found
            self._count_call(op, reused=True)
            self._driver.recorded(op, *self._when(call.t, t, seq))
        elif not self._strict:  # its agent was cancelled meanwhile, and perhaps will not be now
            self._driver.defer(op, self._driver.now + (call.duration_s or 0.0))

    def _when(self, start: float | None, end: float, seq: int) -> tuple[float, int]:
        """A recorded operation takes as long as it took; begun when it was begun, it ends exactly when it ended."""
        return (end if start is None else self._driver.now + (end - start)), seq

    def _count_call(self, op: Op, *, reused: bool) -> None:
        bill = bill_of(op.work.prompt, op.result)
        if reused:
            self.usage.calls_reused += 1
            self.usage.tokens_reused += bill.charged
        else:
            self.usage.calls_run += 1
            self.usage.tokens_run += bill.charged
            self.usage.estimated_run += bill.charged if bill.estimated else 0

    def _count_tool(self, op: Op) -> None:
        if op.known:
            self.usage.tools_reused += 1
        else:
            self.usage.tools_run += 1

    def start_tool(self, op: Op) -> None:
        """Call a tool, or feed its recorded result back."""
        agent: Agent = op.agent
        tool: Tool = op.work[0]
        op.start = self._driver.now
        self._tools.setdefault(agent.id, {})[op.id] = op
        recording = self._recording
        if recording is not None:
            found = recording.tool(op.id)
            before = recording.events.get(op.id)
            same = (
                before is not None
                and before.content_ref == self._writer.events[-1].content_ref
                and before.tool == tool.name
            )
            if found is not None and same and (tool.pure or not agent.diverged):
                event, text, (t, seq) = found
                files = recorded(event, recording)
                self.tool_calls.folders.heard(agent.id, files)
                if event.status != "in_doubt":
                    op.result = ToolOutcome(
                        text=text,
                        ok=event.status == "ok",
                        truncated="truncated" in event.extra,
                        sandbox=event.extra.get("sandbox"),
                        files=files,
                    )
                self.usage.tools_reused += 1
                self._driver.recorded(op, *self._when(event.t, t, seq))
                return
            ended = recording.events.get(op.id + "r")
            if ended is not None and found is None and same and not agent.diverged:
                if not self._strict:  # its agent was cancelled meanwhile, and perhaps will not be now
                    self._driver.defer(op, ended.t)
                return
            # Started before a crash and never heard of again: it may or may not have acted.
            again = tool.pure or tool.idempotent or tool.contained
            op.in_doubt = self._strict and before is not None and found is None and not again
        if self.live:
            self._driver.fresh(op)

    def tool_finished(self, op: Op) -> bool:
        """A result is in: write it. True when the agent has all that it waits for and can go on."""
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
            if outcome.sandbox is not None:
                extra["sandbox"] = outcome.sandbox
        change = self._interventions.get(result_id)
        if isinstance(change, Replace):
            text, extra = change.text, {"intervention": "replace"}
        if outcome is not None and outcome.files is not None:  # whatever its agent is told, it was done
            extra = extra | told(outcome.files, self._writer)
        guard = self.guard
        left = () if guard is None else guard.left_for(agent.id, tool)
        if guard is not None and "intervention" not in extra and (shown := guard.shown(tool, text)) != text:
            extra = extra | {RAW: self._writer.text(text)}
            text = shown
        said = text
        if guard is not None and guard.handles is not None and guard.holds(tool, op.id, left):
            extra = {RAW: self._writer.text(text), **extra, HELD: [op.id, *(name for name, _ in left)]}
            said = guard.handles.keep(result_id, text)
        event = self._writer.emit(
            agent,
            "tool_result",
            id_=result_id,
            tool=tool.name,
            text=said,
            t=op.start,
            duration_s=self._driver.now - op.start,
            status=status,
            trusted=tool.trusted if guard is None else guard.guard.is_trusted(tool),
            extra=extra,
            causes=((op.id, "tool_dependency"), *left),
        )
        if guard is not None:
            guard.result(tool, text, op.id, op.work[1], ok=status == "ok")
        agent.inbox.append(Item(event.id, "causal", tool.name, f"{tool.name}: {said}", speaker="tool"))
        if not self.tools_of(agent) and agent.waits_for_tools:
            agent.waits_for_tools = False
            return True
        return False

    def hold_tool(self, op: Op) -> None:
        """An agent that comes into the run has this tool in flight."""
        self._tools.setdefault(op.agent.id, {})[op.id] = op

    def tools_of(self, agent: Agent) -> bool:
        """Whether the agent has tool calls in flight, or that wait for an endorsement."""
        return bool(self._tools.get(agent.id) or self._requests.get(agent.id))

    def wait_for_request(self, agent: Agent, request: str) -> None:
        """A call of the agent waits for an endorsement."""
        self._requests.setdefault(agent.id, set()).add(request)
        self._driver.in_flight += self.live  # nobody is stuck who waits for that

    def request_ended(self, agent: Agent, request: str) -> None:
        """It waits no more."""
        self._requests[agent.id].discard(request)
        self._driver.in_flight -= self.live

    def start_timer(self, op: Op) -> None:
        """Count an agent's seconds, to the recorded moment where there is one."""
        if self._recording is not None:
            found = self._recording.timers.get(op.id)
            if found is not None and (self._strict or not op.agent.diverged):
                self._driver.recorded(op, *found)
                return
            if self._strict and not self.live:
                return
        start = self._driver.wait_for_person if op.kind == "lapse" else self._driver.timer
        start(op, op.work)

    async def do(self, ops: Sequence[Op]) -> None:
        """Perform fresh operations (see `Driver.next`)."""
        if self._mode.forked and not self._mode.allow_impure:
            for op in ops:
                if op.kind == "tool":
                    refuse_impure(op, self.tool_calls.folders)
        if self.ahead is not None:
            self._begin(self.ahead, ops)
        if self._driver.virtual:
            await self._do_virtually(ops)
        else:
            for op in ops:
                self._start(op)

    def _begin(self, ahead: Ahead, ops: Sequence[Op]) -> None:
        """Take what an earlier process kept; write down which calls are asked, after the blocks that ask them."""
        for op in ops:
            op.result = ahead.found(op)
            op.known = op.result is not None
            if op.known and op.kind == "tool":
                self.tool_calls.folders.heard(op.agent.id, op.result.files)
        if ahead.begin(op for op in ops if not op.known):
            self._writer.commit()
            ahead.commit()

    async def _do_virtually(self, ops: Sequence[Op]) -> None:
        by_engine: dict[int, list[Op]] = {}
        engines: dict[int, Engine] = {}
        tools: list[Op] = []
        for op in ops:
            if op.known or self._remembered(op):
                continue
            if op.kind == "tool":
                tools.append(op)
            else:
                engine = op.work.engine
                engines[id(engine)] = engine
                by_engine.setdefault(id(engine), []).append(op)
        asked = [self._ask(engines[key], batch) for key, batch in by_engine.items()]
        asked += [self._invoke(op) for op in tools]
        if len(asked) == 1:  # mostly; a task for it would cost as much as all else here
            await asked[0]
        elif asked:
            await asyncio.gather(*asked)
        if self._mode.memory is not None:
            self._mode.memory.update((memory_key(op), op.result) for op in ops)
        latency = self._latency
        for op in ops:
            if op.kind == "tool":
                self._count_tool(op)
                took = latency.tool(f"{self._seed}/{op.id}")
            else:
                took = self._call_took(op)
            self._driver.schedule(op, max(self._driver.now, op.start + took))

    async def _ask(self, engine: Engine, ops: Sequence[Op]) -> None:
        """Put calls to an engine; where they are kept, one by one if it answers them so: each is durable by itself."""
        if self.ahead is None:
            await _answer(engine, ops, self._mode.together)
            for op in ops:
                self._scrub(op)
        elif not getattr(engine, "separate", False):
            await self._ask_and_keep(self.ahead, engine, ops)
        elif getattr(engine, "answer_now", None) is not None:
            for op in ops:
                await self._ask_and_keep(self.ahead, engine, [op])
        else:
            await asyncio.gather(*(self._ask_and_keep(self.ahead, engine, [op]) for op in ops))

    async def _ask_and_keep(self, ahead: Ahead, engine: Engine, ops: Sequence[Op]) -> None:
        began = time.monotonic()
        await _answer(engine, ops, self._mode.together)
        took = time.monotonic() - began
        for op in ops:
            self._scrub(op)
            ahead.came(op, took)

    def _remembered(self, op: Op) -> bool:
        """Whether this very thing was asked before, when the same fork was tried."""
        memory = self._mode.memory
        if not memory or (key := memory_key(op)) not in memory:
            return False
        op.result = memory[key]
        return True

    def _call_took(self, op: Op) -> float:
        answer: Answer | EngineError = op.result
        self._count_call(op, reused=op.known)
        if isinstance(answer, Answer) and answer.duration_s is not None:
            return answer.duration_s
        return self._latency.call(op.work.request.sampling.key, _said(answer))

    def _start(self, op: Op) -> None:
        """Real clock: begin, and arrive when done. What answers at once arrives at once."""
        if op.known:
            self._count_tool(op) if op.kind == "tool" else self._count_call(op, reused=True)
            self._driver.arrive(op)
            return
        if op.kind == "call":
            now = getattr(op.work.engine, "answer_now", None)
            if now is not None:
                op.result = now(op.work.request)
                self._scrub(op)
                self._count_call(op, reused=False)
                self._driver.arrive(op)
                return
        elif op.work[0].instant:
            self.usage.tools_run += 1
            self.tool_calls.make_now(op)
            self._driver.arrive(op)
            return
        self._driver.in_flight += 1
        op.task = asyncio.get_running_loop().create_task(self._perform(op))
        self._tasks.add(op.task)
        op.task.add_done_callback(self._tasks.discard)

    async def _perform(self, op: Op) -> None:
        try:
            if op.kind == "tool":
                self.usage.tools_run += 1
                await self._invoke(op)
            else:
                await self._ask(op.work.engine, [op])
                self._count_call(op, reused=False)
        except BatonError:  # no room to keep it ahead: its block, which is next, says so
            pass
        finally:
            self._driver.in_flight -= 1
            self._driver.arrive(op)

    async def _invoke(self, op: Op) -> None:
        if op.in_doubt:
            return
        began = time.monotonic()
        await self.tool_calls.make(op)
        if self.ahead is not None:
            self.ahead.came(op, time.monotonic() - began)

    def leave(self, agent: Agent) -> None:
        """An agent is gone for good: so is what it kept."""
        if self._tool_calls is not None:
            self._tool_calls.leave(agent.id)

    def _scrub(self, op: Op) -> None:
        """Take credentials out of what came from outside, before anybody reads it or writes it down."""
        if self._vault is not None:
            op.result = self._vault.cleaned(op.result)

    def cancel(self, agent: Agent, because: str | None = None) -> int | None:
        """Drop what an agent has in flight, because of an event. A tool that may have acted is left in doubt.

        Returns the tokens of a call that was dropped: it was asked, and whoever answers it bills it.
        """
        bill: Bill | None = None
        if agent.op is not None:
            agent.op.cancel()
            bill = self._bill_dropped(agent.op)
            call = asked(agent.op, "cancelled", self._driver.now)
            if bill is not None:
                call = structs.replace(
                    call,
                    prompt_tokens=bill.prompt,
                    completion_tokens=bill.completion,
                    estimated=bill.estimated,
                )
            self._writer.add_call(call)
            agent.op = None
        if agent.reservation is not None:
            agent.reservation.settle_call(bill.charged if bill is not None else 0)
            agent.reservation = None
        for request in self._requests.pop(agent.id, ()):
            if self.guard is not None:
                self.guard.held.pop(request).lapse.cancel()
                self._driver.in_flight -= self.live
        for op in self._tools.pop(agent.id, {}).values():
            op.cancel()
            tool: Tool = op.work[0]
            self._writer.emit(
                agent,
                "tool_result",
                id_=op.id + "r",
                tool=tool.name,
                status="cancelled" if tool.pure else "in_doubt",
                causes=((op.id, "tool_dependency"), *(((because, "causal"),) if because else ())),
            )
        return None if bill is None else bill.charged

    def _bill_dropped(self, op: Op) -> Bill | None:
        """What a dropped call cost: as recorded, as answered meanwhile, or its prompt at least. None: an old trace."""
        question: Question = op.work
        if question.prompt.charging is None:
            return None
        answer: Answer | EngineError | None = op.result
        recording = self._recording
        call = None if recording is None or op.agent.diverged else recording.calls.get(op.id)
        if recording is not None and call is not None and answer is None:
            if call.finish_reason == "cancelled" and call.prompt_tokens is None:
                answer = EngineError("it failed, and was dropped before that was heard")
            elif call.finish_reason == "cancelled":
                answer = Answer(
                    text="",
                    policy="",
                    prompt_tokens=call.prompt_tokens,
                    completion_tokens=call.completion_tokens,
                    estimated=call.estimated,
                )
            elif (found := recording.answer(op.id)) is not None:
                answer = found[0]
        if answer is None:
            answer = Answer(text="", policy="", completion_tokens=0, estimated=True)
        return bill_of(question.prompt, answer)

    async def close(self) -> None:
        """Leave nothing behind: not even what was cancelled a moment ago and has yet to notice."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._tool_calls is not None:
            self._tool_calls.close()


def asked(op: Op, finish_reason: str, now: float) -> Call:
    """The record of a call that was asked, without what was answered."""
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
        finish_reason=finish_reason,
        t=op.start,
        duration_s=now - op.start,
    )


def _said(answer: Answer | EngineError) -> int:
    """How many tokens were said, as far as the engine tells: what its latency is modelled by."""
    if isinstance(answer, EngineError):
        return 0
    return len(answer.completion_ids or ()) if answer.completion_tokens is None else answer.completion_tokens


async def _answer(engine: Engine, ops: Sequence[Op], together: Together | None = None) -> None:
    requests = [op.work.request for op in ops]
    try:
        answers = await (together.answer(engine, requests) if together else engine.answer(requests))
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
