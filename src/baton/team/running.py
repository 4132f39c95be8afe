"""Running a team: from nothing, from a crash (resume), from a trace (replay). Forks are in `baton.team.forks`.

All of them are one machine fed with more or less of a recording. Its invariants:
- A block (everything between two completions) runs without a pause, so the order of completions is the only thing
  that is not decided by the program, and the trace records it.
- A block is in the journal, whole, before anything it started begins to act outside. Under a virtual clock that is a
  tool that is not pure; under a real one it is everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Literal

import msgspec

from baton.errors import BatonError, TraceError, UsageError
from baton.team.agent import Agent, Item, Role
from baton.team.aggregate import AGGREGATORS
from baton.team.budget import Budget, LedgerRules, Limits, Refusal, charging_of, limits_told
from baton.team.clock import Driver, Op
from baton.team.credentials import Vault, open_vault, refuse_in_plain_sight
from baton.team.guard.requests import lapse, requests
from baton.team.guard.watch import CallRequest
from baton.team.intervene import Intervention, Replace
from baton.team.outside import Mode
from baton.team.people import Act, Steering, act_of, carry_out, live_edits
from baton.team.recording import CHARGED, GIVEN, RAW, RESUMED, Journal, Lost, Recording, TraceWriter, moment
from baton.team.standing import standing
from baton.team.state import RunState
from baton.team.team import Assignment, Team
from baton.team.tools.tool import NO_TOOLS, Tool
from baton.team.verbs import perform, take_turn
from baton.trace.provenance import HELD
from baton.trace.records import Event, Reward
from baton.trace.trace import Header, Trace, meta_as, meta_table

_AFTER_ALL = 2**62  # in the order of events, behind every recorded one
_BEAT_SECONDS = 0.25
_LISTEN_SECONDS = 0.1


class Run:
    """The machine that moves one run's agents from one completion to the next."""

    state_class: ClassVar[type[RunState]] = RunState
    writer_class: ClassVar[type[TraceWriter]] = TraceWriter

    def __init__(
        self,
        team: Team,
        assignment: Assignment,
        header: Header,
        *,
        journal: Journal | None = None,
        recording: Recording | None = None,
        strict: bool = False,
        skip: int = 0,
        interventions: Sequence[Intervention] = (),
        budget: Budget | None = None,
        driver: Driver | None = None,
        mode: Mode | None = None,
        steering: Steering | None = None,
    ) -> None:
        mode = mode or Mode()
        self._vault = vault_of(team, assignment, header) if mode.live else None
        if mode.live:
            check_tools(team.harness.roles, team.harness.tools)
        self.driver = driver or Driver(virtual=team.clock == "virtual")
        self.writer = self.writer_class(
            header, self.driver, journal=journal, recording=recording, strict=strict, skip=skip
        )
        self.state = self.state_class(
            team,
            assignment,
            self.writer,
            interventions=interventions,
            budget=budget or Budget(team.limits),
            mode=mode,
            vault=self._vault,
            take_turn=take_turn,
            perform=perform,
        )
        if recording is not None:
            self.state.live_edits = {e: told for e, (_, told) in live_edits(recording.trace).items()}
        self.budget = self.state.budget
        self.steering = steering
        """None: nobody is heard while it runs, but through `instruct`."""
        self.driver.steered = steering is not None
        self._heard = set() if recording is None else recording.acts
        self._asked: set[str] = set()
        """Requests about which a person has been asked."""
        self._num_resumed = 0
        self.batch: list[Op] = []
        """What completes at this moment."""

    async def go(self) -> Trace:
        """Run to the end."""
        state, recording = self.state, self.writer.recording
        name = state.team.topology.root
        root = state.add_agent(name, state.harness.role(name), None)
        root.inbox.append(Item("", "causal", "", state.assignment.prompt))
        self._hand_over_given(root)
        self._set_deadline(root)
        if recording is not None:
            for event in recording.people:
                act = act_of(event, recording.text(event))
                self.driver.recorded(Op("person", event.id, None, act), *moment(event))
        self._expect_lost()
        aside = [self._count_time()]
        if self.steering is not None:
            aside.append(asyncio.get_running_loop().create_task(self._listen(self.steering)))
        finished = False
        try:
            self._settle()
            while not state.stopped:
                self.writer.commit(must=self.driver.acts or _by_a_person(self.batch))
                if self.steering is not None:
                    self._hear(self.steering)
                if state.ask_person is not None:
                    self._ask_people(state.ask_person)
                self.batch = batch = await self.driver.next(state.outside.do)
                if not batch and not self._unblock(root):
                    break
                for op in batch:
                    if not op.cancelled and not state.stopped:
                        self._complete(op)
                        self._check_time(root)
            finished = state.stopped
            if finished:
                self._finish(root)
        finally:
            for task in aside:
                if task is not None:
                    task.cancel()
            await self.driver.close()
            for agent in state.agents.values():
                if agent.coroutine is not None:
                    agent.coroutine.close()
            await state.outside.close()
        return self.writer.trace(finished=finished)

    def _hand_over_given(self, root: Agent) -> None:
        """What strangers wrote of the task, where it has such a part."""
        given = self.state.assignment.untrusted
        if given is None:
            return
        change = self.state.interventions.get(f"{GIVEN}#1")
        extra: dict[str, Any] = {"given": True}
        if isinstance(change, Replace):
            given, extra = change.text, extra | {"intervention": "replace"}
        watch = self.state.guard
        if watch is not None and watch.handles is not None:
            extra |= {HELD: [], RAW: self.writer.text(given)}
            name = watch.handles.keep(f"{GIVEN}#1", given)
            self.writer.emit_given(root, name, extra)
            root.inbox.append(Item("", "safety_flow", GIVEN, f"strangers wrote of the task: {name}"))
            return
        event = self.writer.emit_given(root, given, extra)
        root.inbox.append(Item(event.id, "safety_flow", GIVEN, given))

    def _complete(self, op: Op) -> None:
        if op.done:  # a completion that comes twice counts once
            return
        op.done = True
        if op.kind == "person":
            carry_out(self.state, op.work)
        elif op.kind == "timer":
            self._time_is_up(op)
        elif op.kind == "lapse":
            lapse(self.state, op)
        elif op.kind == "resumed":
            self._charge_lost(op)
        elif op.kind == "tool":
            if self.state.outside.tool_finished(op):
                self.state.wake(op.agent)
        else:
            self.state.wake(op.agent, op.result)
        self._settle()

    def _settle(self) -> None:
        """Run every agent that can move, until none can."""
        state = self.state
        while state.ready and not state.stopped:
            agent, value = state.ready.popleft()
            if agent.state == "dead":
                continue
            assert agent.coroutine is not None
            try:
                agent.coroutine.send(value)
            except StopIteration:
                if agent.state == "active":
                    state.give_up(agent, "its program ended without a result")
            except TraceError:
                raise
            except BatonError as error:
                state.give_up(agent, str(error))

    def _unblock(self, root: Agent) -> bool:
        """Nothing is in flight and nobody can move. False: the recording simply ends here."""
        if not self.state.outside.live and not any("deadlock" in e.extra for e in self._recorded_later()):
            return False
        waiting = sorted(a.id for a in self.state.agents.values() if a.waits_for is not None)
        self.writer.emit(root, "safety_event", status="failed", extra={"deadlock": waiting})
        self.state.give_up(root, "everyone waits for someone else")
        return True

    def _recorded_later(self) -> Sequence[Event]:
        """What the recording has beyond this point."""
        recording = self.writer.recording
        return () if recording is None else recording.trace.events[len(self.writer.events) :]

    def _expect_lost(self) -> None:
        """Calls that were on their way when the run was cut off are charged where the recording ends, as then."""
        recording, names = self.writer.recording, self.state.outside.lost
        if recording is not None:
            for event in recording.resumed:
                lost = Lost(tuple(event.extra[RESUMED]), recorded=True, named=CHARGED in event.extra)
                self.driver.recorded(Op("resumed", "", None, lost), *moment(event))
        if names:
            events = () if recording is None else recording.trace.events
            last = max((moment(event)[0] for event in events), default=0.0)
            self.driver.recorded(Op("resumed", "", None, Lost(tuple(names))), last, _AFTER_ALL)

    def _charge_lost(self, op: Op) -> None:
        """They may have been paid for: what was set aside is spent, and they are asked again if there is room."""
        state, lost = self.state, op.work
        assert isinstance(lost, Lost)
        waiting = {agent.op.id: agent for agent in state.agents.values() if agent.op is not None}
        refused: dict[str, Refusal] = {}
        charged = 0
        for name in lost.names:
            agent = waiting.get(name)
            if agent is None or agent.op is None or agent.reservation is None or name in refused:
                continue
            charged += agent.reservation.tokens
            refusal = agent.reservation.spend_again()
            if refusal is not None:
                refused[name], agent.op.spent = refusal, True
        root = state.agents[state.team.topology.root]
        self._num_resumed += 1
        causes, root.causes = root.causes, []  # of what the root does next, which this is not
        self.writer.emit(
            root,
            "safety_event",
            id_=f"{root.id}#resumed{self._num_resumed}",
            text=_told_lost(lost, refused, charged),
            status="in_doubt",
            extra={RESUMED: list(lost.names)}
            | ({"refused": list(refused)} if refused else {})
            | ({CHARGED: charged} if lost.named else {}),
        )
        root.causes = causes
        for name in dict.fromkeys(lost.names):
            agent = waiting.get(name)
            lost_again = lost.recorded and name in state.outside.lost and name not in refused
            if agent is not None and agent.op is not None and not lost_again:
                state.outside.ask_again(agent.op, refused.get(name))

    def _count_time(self) -> asyncio.Task[None] | None:
        """Where seconds of a real clock are limited, write down how many have passed: a kill gives none back."""
        state, ahead = self.state, self.state.outside.ahead
        limited = self.budget.remaining("seconds") is not None
        limited = limited or any(role.max_seconds is not None for role in state.team.topology.roles)
        if ahead is None or self.driver.virtual or not limited:
            return None
        self.driver.passed = ahead.passed

        async def beat() -> None:
            while True:
                await asyncio.sleep(_BEAT_SECONDS)
                with suppress(BatonError):  # no room for it: the next block says so
                    ahead.pass_time(self.driver.elapsed)

        return asyncio.get_running_loop().create_task(beat())

    def _set_deadline(self, root: Agent) -> None:
        seconds = self.state.budget.remaining("seconds")
        if seconds is not None:
            self.state.outside.start_timer(Op("timer", "deadline", root, seconds))

    def _check_time(self, root: Agent) -> None:
        """Stop a run that has gone on for longer than its cap; looked at after each completion."""
        ledger = self.state.ledger
        cap = None if ledger is None else ledger.caps.seconds
        if cap is not None and self.driver.now > cap and not self.state.stopped:
            self._time_is_up(Op("timer", "cap", root, cap))

    def _time_is_up(self, op: Op) -> None:
        agent: Agent = op.agent
        if agent.state != "active":
            return
        self.writer.emit(
            agent,
            "safety_event",
            status="failed",
            extra={"budget": "seconds", "limit": op.work, "timer": op.id}
            | ({"cap": True} if op.id == "cap" else {}),
        )
        self.state.cut_off(agent, f"its {op.work:g} seconds are over")

    def instruct(self, agent_id: str, text: str, at: float | None = None) -> None:
        """A person's instruction; the agent reads it at its next turn, or now if it waits."""
        self._put(Act(to=agent_id, text=text), at)

    def decide(self, request: CallRequest, *, approved: bool, text: str = "") -> None:
        """A person's decision on a call that waits for an endorsement (`baton.team.guard.requests`)."""
        do: Literal["approve", "refuse"] = "approve" if approved else "refuse"
        self._put(Act(id=f"decide:{request.id}", do=do, to=request.id, text=text))

    def _put(self, act: Act, at: float | None = None) -> None:
        op = Op("person", "", None, self._clean(act))
        if self.driver.virtual:
            self.driver.schedule(op, self.driver.now if at is None else at)
        else:
            self.driver.arrive(op)

    async def _listen(self, steering: Steering) -> None:
        """Hear what people want, and tell them how the run stands, while it waits for something else."""
        told = False
        while True:
            self._hear(steering)
            waits = self.state.paused or bool(requests(self.state))
            if told or waits:
                steering.tell(standing(self.state))
            told = waits
            with suppress(BatonError):  # no room for it: the next block says so
                self.writer.commit(must=False)  # so that who steers sees what has happened
            await asyncio.sleep(_LISTEN_SECONDS)

    def _hear(self, steering: Steering) -> None:
        for act in steering.heard():
            if act.id not in self._heard:
                self._heard.add(act.id)
                self.driver.act(Op("person", "", None, self._clean(act)))

    def _ask_people(self, ask: Callable[[CallRequest], None]) -> None:
        """Ask about calls that wait. What a recording is to tell is not asked: perhaps it has the decision."""
        recording = self.writer.recording
        known = 0 if recording is None or not self.writer.strict else len(recording.trace.events)
        if not self.state.outside.live or len(self.writer.events) < known:
            return
        new = [request for request in requests(self.state) if request.id not in self._asked]
        if new:
            self.writer.commit()
        for request in new:
            self._asked.add(request.id)
            ask(request)

    def _clean(self, act: Act) -> Act:
        """What a person says, without credentials."""
        return act if self._vault is None else msgspec.structs.replace(act, text=self._vault.scrub(act.text))

    def _finish(self, root: Agent) -> None:
        """The root has stopped: everyone leaves, and what it was worth is written."""
        state, writer = self.state, self.writer
        for child in root.children:
            state.kill(child, "cancelled" if child.state == "active" else "ok")
        state.outside.cancel(root)
        assignment, trace_id = state.assignment, writer.header.trace_id
        if assignment.verify is not None and state.answer is not None:
            value = float(assignment.verify(state.answer))
            writer.add_reward(
                Reward(family="shared", unit="team", target=trace_id, value=value, by="verifier")
            )
        if assignment.score is not None:
            for reward in assignment.score(writer.trace(finished=True)):
                writer.add_reward(reward)
        writer.end()


def _by_a_person(batch: Sequence[Op]) -> bool:
    return any(op.kind == "person" for op in batch)


def _told_lost(lost: Lost, refused: Mapping[str, Refusal], charged: int) -> str:
    again = "asked again" if not refused else f"not asked again: {', '.join(refused)}"
    amount = f" ({charged:,} tokens)" if lost.named else ""
    return (
        f"on its way when the run was cut off, and charged in full{amount}: {', '.join(lost.names)}; {again}"
    )


def check_tools(roles: Iterable[Role], tools: Mapping[str, Tool]) -> None:
    """Refuse to begin where a tool that a role has cannot keep what it promises: no call is paid for before."""
    for name in dict.fromkeys(name for role in roles for name in role.tools):
        tool = tools.get(name)
        if tool is not None and tool.check is not None:
            tool.check()


def vault_of(team: Team, assignment: Assignment, header: Header | None = None) -> Vault | None:
    """The credentials of a run, read now; refused where one is missing, or stands where it would be written down."""
    tools = team.harness.tools
    if not team.credentials.by_name and (
        tools is NO_TOOLS or not any(each.secrets for each in tools.values())
    ):
        return None
    vault = open_vault(team.credentials, team.harness.roles, team.harness.tools)
    if vault is not None:
        texts = [("the task's text", assignment.prompt)]
        texts += [(f"what role {role.name!r} is told", role.instructions) for role in team.harness.roles]
        texts += (
            [("a setting of the run", msgspec.json.encode(header).decode())] if header is not None else []
        )
        refuse_in_plain_sight(vault, texts)
    return vault


def header_of(
    team: Team,
    assignment: Assignment,
    trace_id: str | None = None,
    *,
    caps: Limits | None = None,
    **more: Any,
) -> Header:
    """Everything a later replay needs to set up the same run."""
    charging = {role.name: charging_of(team.engine(role)) for role in team.topology.roles}
    rules = LedgerRules(charging=charging, caps=caps or Limits())
    own = [name for name in team.harness.aggregators if name not in AGGREGATORS]
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
                "limits": limits_told(team.limits),
                "latency": msgspec.to_builtins(team.latency),
                "clock": team.clock,
                "seed": team.seed,
                "hold_back_tokens": team.hold_back_tokens,
                "ledger": rules.told,
                **({"aggregators": own} if own else {}),
                **({"guard": team.guard.header} if team.guard is not None else {}),
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
    budget: Budget | None = None,
    steering: Steering | None = None,
) -> Run:
    """A run that has not begun: `await run.go()`; meanwhile `run.instruct`, or whatever `steering` hears."""
    header = header_of(team, assignment, trace_id)
    return Run(team, assignment, header, journal=journal, budget=budget, steering=steering)


async def run(
    team: Team,
    assignment: Assignment,
    *,
    trace_id: str | None = None,
    journal: Journal | None = None,
    budget: Budget | None = None,
) -> Trace:
    """Run a team on an assignment. A nested team passes a child of its parent's budget."""
    return await start(team, assignment, trace_id=trace_id, journal=journal, budget=budget).go()


async def replay(trace: Trace, team: Team, assignment: Assignment) -> Trace:
    """Run a trace again from its own answers. Raises where it does not come out exactly as it was."""
    check_harness(trace, team)
    again = Run(
        team,
        assignment,
        trace.header,
        recording=Recording(trace),
        strict=True,
        interventions=interventions_of(trace),
        mode=Mode(live=False),
    )
    again.state.invalidated = invalidated_before(trace)
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
    steering: Steering | None = None,
) -> Run:
    """The rest of a run that was cut off, not begun yet."""
    check_harness(trace, team)
    again = Run(
        team,
        assignment,
        trace.header,
        journal=journal,
        recording=Recording(trace),
        strict=True,
        skip=num_records(trace),
        interventions=interventions_of(trace),
        steering=steering,
    )
    again.state.invalidated = invalidated_before(trace)
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


def num_records(trace: Trace) -> int:
    """How many records a journal of this trace holds."""
    return sum(map(len, trace.by_kind().values()))


def interventions_of(trace: Trace) -> tuple[Intervention, ...]:
    """What was already changed in a trace: in one that is itself a fork, and by people as it went on."""
    told = meta_as(trace.header, list[Intervention], "run", "interventions") or ()
    return (*told, *(change for change, _ in live_edits(trace).values()))


def invalidated_before(trace: Trace) -> dict[str, list[str]]:
    """The same, as an earlier edit wrote it down."""
    return {e.extra["edits"]: e.extra["invalidated"] for e in trace.events if "edits" in e.extra}


def check_harness(trace: Trace, team: Team) -> None:
    """Refuse a team that would show the policies of a trace something else than it did."""
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
    guarded = meta_as(trace.header, str, "run", "guard", "hash")
    now = None if team.guard is None else team.guard.hash
    if guarded != now:
        raise TraceError(
            f"trace {trace.trace_id} was made under guard {guarded or 'none'}, this team has {now or 'none'}. "
            "Another guard refuses other calls: give the same one (guard=...)."
        )
