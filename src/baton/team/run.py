"""A run: the machine that moves agents from one completion to the next and writes the trace.

Invariants:
- A block (everything between two completions) runs without a pause, so the order of completions
  is the only thing that is not decided by the program, and the trace records it.
- A block is in the journal, whole, before anything it started begins to act outside. Under a virtual
  clock that is a tool that is not pure; under a real one it is everything.
- Ids do not depend on the order: the k-th event of an agent is `agent#k`, its k-th call `agent:k`,
  the k-th worker it spawned `workerk` (`agent.workerk` below the root).
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any

from baton.errors import BatonError, TraceError
from baton.team.agent import Agent, CarryOut, Item, Program, Waiting, act
from baton.team.budget import Ledger, Refusal
from baton.team.clock import Driver, Op, Resting
from baton.team.intervene import BarAgent, Drop, Force, Intervention, MuteAgent, OnEvent, Replace
from baton.team.outside import Outside
from baton.team.protocol import Entry
from baton.team.recording import Recording, moment, replicates_of
from baton.team.team import Assignment, Team
from baton.team.turn import ask, take_turn
from baton.team.verbs import perform
from baton.team.writer import Journal, Said, Scribe
from baton.trace.records import Event, Reward
from baton.trace.trace import Header, Trace
from baton.trace.vocabulary import Decision, EdgeType, Status


class Run(Scribe):
    """One run of a team on one assignment."""

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
        ledger: Ledger | None = None,
        outside: Outside | None = None,
        driver: Driver | None = None,
    ) -> None:
        driver = driver or Driver(virtual=team.clock == "virtual")
        super().__init__(header, driver, journal=journal, recording=recording, strict=strict, skip=skip)
        self.team = team
        self.harness = team.harness
        self.assignment = assignment
        self.interventions = {i.at: i for i in interventions if isinstance(i, OnEvent)}
        self.invalidated: dict[str, list[str]] = {}
        """Edited event -> the recorded events that followed from it."""
        self.barred = {i.agent for i in interventions if isinstance(i, BarAgent)}
        self.muted = {i.agent for i in interventions if isinstance(i, MuteAgent)}
        self.replicate = "/".join(map(str, replicates_of(header)))
        """Names the random stream of what is run anew; empty: that of a run that is no fork, or is drawn like one."""
        self.ledger = ledger or Ledger(team.limits)
        self.outside = outside or Outside()
        self.agents: dict[str, Agent] = {}
        self.active: set[str] = set()
        self._waiters: dict[str, list[Agent]] = {}
        self.answer: str | None = None
        self.stopped = False
        self._ready: deque[tuple[Agent, Any]] = deque()

    # -- the loop -------------------------------------------------------------------------------

    async def go(self) -> Trace:
        """Run to the end."""
        root = self.add_agent(self.team.topology.root, self.harness.role(self.team.topology.root), None)
        root.inbox.append(Item("", "causal", "", self.assignment.prompt))
        self._set_deadline(root)
        if self.recording is not None:
            for event in self.recording.people:
                said = self.recording.text(event)
                self.driver.recorded(Op("person", event.id, None, (event.to, said)), *moment(event))
        self._settle()
        finished = False
        try:
            while not self.stopped:
                self.commit(must=self.driver.acts)
                batch = await self.driver.next(lambda ops: self.outside.do(self, ops))
                if not batch and not self._unblock(root):
                    break
                for op in batch:
                    if not op.cancelled and not self.stopped:
                        self._complete(op)
            finished = self.stopped
            if finished:
                self._finish(root)
        finally:
            await self.outside.close(self)
        return self.trace(finished=finished)

    def _complete(self, op: Op) -> None:
        if op.done:  # a completion that comes twice counts once
            return
        op.done = True
        if op.kind == "person":
            self._person(op)
        elif op.kind == "timer":
            self._time_is_up(op)
        elif op.kind == "tool":
            self.outside.tool_finished(self, op)
        else:
            self.wake(op.agent, op.result)
        self._settle()

    def _settle(self) -> None:
        """Run every agent that can move, until none can."""
        while self._ready and not self.stopped:
            agent, value = self._ready.popleft()
            if agent.state == "dead":
                continue
            assert agent.coroutine is not None
            try:
                agent.coroutine.send(value)
            except StopIteration:
                if agent.state == "active":
                    self.give_up(agent, "its program ended without a result")
            except TraceError:
                raise
            except BatonError as error:
                self.give_up(agent, str(error))

    def wake(self, agent: Agent, value: Any = None) -> None:
        agent.op = None
        self._ready.append((agent, value))

    def _unblock(self, root: Agent) -> bool:
        """Nothing is in flight and nobody can move. False: the recording simply ends here."""
        if not self.outside.live and not any("deadlock" in e.extra for e in self.recorded_later()):
            return False
        waiting = sorted(a.id for a in self.agents.values() if a.waits_for is not None)
        self.emit(root, "safety_event", status="failed", extra={"deadlock": waiting})
        self.give_up(root, "everyone waits for someone else")
        return True

    def recorded_later(self) -> Sequence[Event]:
        """What the recording has beyond this point."""
        return () if self.recording is None else self.recording.trace.events[len(self.events) :]

    # -- agents ---------------------------------------------------------------------------------

    def add_agent(self, id_: str, role: Any, parent: Agent | None) -> Agent:
        agent = Agent(self, id_, role, parent)
        self.agents[id_] = agent
        self.active.add(id_)
        if not (parent is not None and role.inherit):
            agent.inbox.append(Item("", "causal", "", self.harness.system(id_, role), "system"))
        agent.coroutine = self._program(agent)
        self.start_timer(agent)
        self.wake(agent)
        return agent

    def _program(self, agent: Agent) -> Coroutine[Any, Any, None]:
        program: Program = self.team.topology.programs.get(agent.role.name, act)
        return program(agent)

    def begin_again(self, agent: Agent) -> None:
        """A program that ended with its task starts anew for the next one; one that rests goes on."""
        if agent.coroutine is None or inspect.getcoroutinestate(agent.coroutine) == inspect.CORO_CLOSED:
            agent.coroutine = self._program(agent)

    def start_timer(self, agent: Agent) -> None:
        if agent.role.max_seconds is not None:
            op = Op("timer", f"{agent.id}~{agent.num_events}", agent, agent.role.max_seconds)
            agent.timer = op
            self.outside.start_timer(self, op)

    def deliver(self, to: Agent, item: Item) -> None:
        """Put something in an inbox; wake its owner if that is what it waited for."""
        to.inbox.append(item)
        if item.result is not None:
            to.results[item.sender] = (item.event, item.result)
        waiting = to.waits_for
        if waiting is not None and waiting.mode == "any" and item.sender in waiting.names:
            self._go_on(to)

    def _go_on(self, agent: Agent) -> None:
        """A wait is over. What the agent will read is settled now, not when it gets to it."""
        agent.waits_for = None
        agent.cut = len(agent.inbox)
        self.wake(agent)

    async def wait(self, agent: Agent, names: tuple[str, ...], mode: str) -> None:
        wanted = frozenset(names or (child.id for child in agent.children if child.state == "active"))
        come = mode == "any" and any(item.sender in wanted for item in agent.inbox[agent.acknowledged :])
        left = set() if come else {name for name in wanted if name in self.active}
        if left:
            agent.waits_for = Waiting(wanted, mode, left)
            for name in left:
                self._waiters.setdefault(name, []).append(agent)
            await Resting()
        agent.acknowledge()

    async def next_task(self) -> None:
        """An idle agent rests until someone delegates to it."""
        await Resting()

    async def turn(self, agent: Agent, carry_out: CarryOut | None = None) -> None:
        await take_turn(self, agent, carry_out)

    async def ask(self, agent: Agent, entries: Sequence[Entry]) -> tuple[str, Said] | None:
        """One call outside the turns: (its text, what said it)."""
        asked = await ask(self, agent, entries)
        return None if asked is None else (asked[0].text, asked[1])

    async def perform(self, agent: Agent, action: Any, said: Said | None) -> bool:
        return await perform(self, agent, action, said)

    def hand_over(self, agent: Agent, item: Item) -> None:
        """An agent's task is over: whatever it started goes too, its result goes up, who waits for it goes on."""
        for child in agent.children:
            self.kill(child, "cancelled" if child.state == "active" else "ok")
        agent.state = "idle"
        assert agent.parent is not None
        self.deliver(agent.parent, item)
        self._leave(agent)

    def kill(self, agent: Agent, status: Status, because: str | None = None) -> None:
        """Take an agent and everything below it out of the run, because of an event (its spawner's last)."""
        if agent.state == "dead":
            return
        assert agent.parent is not None
        because = because or agent.parent.last_event
        for child in agent.children:
            self.kill(child, "cancelled" if child.state == "active" else "ok", because)
        self.outside.cancel(self, agent, because)
        agent.state = "dead"
        # Whether it was idle or cut off depends on how far it had got.
        why = (agent.last_event, because)
        causes: list[tuple[str, EdgeType]] = [
            (event, "causal") for event in dict.fromkeys(why) if event and event != agent.parent.last_event
        ]
        agent.died = self.emit(agent.parent, "despawn", to=agent.id, status=status, causes=causes).id
        self._leave(agent)

    def _leave(self, agent: Agent) -> None:
        self.active.discard(agent.id)
        if agent.timer is not None:
            agent.timer.cancel()
            agent.timer = None
        if agent.slot is not None:
            agent.slot.release()
            agent.slot = None
        for waiter in self._waiters.pop(agent.id, ()):
            waiting = waiter.waits_for
            if waiting is not None and agent.id in waiting.left:
                waiting.left.discard(agent.id)
                if waiter is not agent.parent and (agent.died or agent.last_event):
                    waiter.causes.append((agent.died or agent.last_event or "", "causal"))
                if not waiting.left:
                    self._go_on(waiter)

    def give_up(self, agent: Agent, reason: str) -> None:
        """Make an agent finish: a return, or at the root a stop, that nobody chose."""
        if agent.state != "active" or self.stopped:
            return
        if agent.parent is None:
            self.emit(
                agent,
                "orchestrator_decision",
                decision="stop",
                text=agent.answered,
                status="forced",
                extra={"why": reason},
            )
            self.answer, self.stopped = agent.answered, True
            return
        had = "" if agent.id in self.muted else agent.answered
        event = self.emit(
            agent,
            "return",
            from_=agent.id,
            to=agent.parent.id,
            text=had,
            status="forced",
            extra={"why": reason},
        )
        text = f"{agent.id} gave up: {reason}." + (f" It had: {had}" if had else "")
        self.hand_over(agent, Item(event.id, "return", agent.id, text, result=had))

    # -- time and people ------------------------------------------------------------------------

    def _set_deadline(self, root: Agent) -> None:
        seconds = self.ledger.remaining("seconds")
        if seconds is not None:
            self.outside.start_timer(self, Op("timer", "deadline", root, seconds))

    def _time_is_up(self, op: Op) -> None:
        agent: Agent = op.agent
        if agent.state != "active":
            return
        self.emit(
            agent,
            "safety_event",
            status="failed",
            extra={"budget": "seconds", "limit": op.work, "timer": op.id},
        )
        self.outside.cancel(self, agent)
        agent.waits_for, agent.waits_for_tools = None, False
        if (
            agent.coroutine is not None
        ):  # it was in the middle of something; a new task starts its program anew
            agent.coroutine.close()
            agent.coroutine = self._program(agent)
        self.give_up(agent, f"its {op.work:g} seconds are over")

    def instruct(self, agent_id: str, text: str, at: float | None = None) -> None:
        """A person's instruction; the agent reads it at its next turn, or now if it waits."""
        op = Op("person", "", None, (agent_id, text))
        if self.driver.virtual:
            self.driver.schedule(op, self.driver.now if at is None else at)
        else:
            self.driver.arrive(op)

    def _person(self, op: Op) -> None:
        agent_id, text = op.work
        event = self.emit_by("human", "human_intervention", to=agent_id, text=text)
        agent = self.agents.get(agent_id)
        if agent is None or agent.state == "dead":
            return
        agent.inbox.append(Item(event.id, "causal", "human", f"instruction: {text}"))
        if agent.waits_for is not None:
            self._go_on(agent)

    def person_edits(self, agent: Agent, change: Replace | Drop | Force) -> None:
        """Write that a person changed the agent's next event, and what that made void."""
        extra = {"edits": change.at, "invalidated": self.invalidated.get(change.at, [])}
        text = change.text if isinstance(change, Replace) else str(change.__struct_config__.tag)
        event = self.emit_by(change.by or "human", "human_intervention", to=agent.id, text=text, extra=extra)
        agent.causes.append((event.id, "causal"))

    def sampling_key(self, id_: str) -> str:
        return f"{self.team.seed}/{id_}"

    # -- the end --------------------------------------------------------------------------------

    def _finish(self, root: Agent) -> None:
        for child in root.children:
            self.kill(child, "cancelled" if child.state == "active" else "ok")
        self.outside.cancel(self, root)
        if self.assignment.verify is not None and self.answer is not None:
            value = float(self.assignment.verify(self.answer))
            trace_id = self.header.trace_id
            self.add_reward(Reward(family="shared", unit="team", target=trace_id, value=value, by="verifier"))
        if self.assignment.score is not None:
            for reward in self.assignment.score(self.trace(finished=True)):
                self.add_reward(reward)
        self.end()

    def refuse(
        self, agent: Agent, refusal: Refusal, *, decision: Decision, said: Said | None, what: str
    ) -> None:
        """Write that the budget said no, and tell the agent."""
        self.emit(
            agent,
            "safety_event",
            decision=decision,
            said=said,
            status="failed",
            extra={
                "budget": refusal.resource,
                "limit": refusal.limit,
                "used": refusal.used,
                "asked": refusal.asked,
            },
        )
        agent.note(f"error: {what} was refused. {refusal.message}")
