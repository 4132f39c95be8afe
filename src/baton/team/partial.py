"""Forks that begin where something changes: agents that a change does not reach are not run again.

They stand by (`baton.team.bystanders`). What they did is copied from the trace, block by block, at the moments it
happened; what they said to an agent that is run reaches it as before. An agent is run when something new reaches it.

Invariant: the trace is the one that running everybody again from the beginning gives. Everything that a bystander
depends on (each edge into its events, each thing said to it, whether those it spoke to are still there) must come
about exactly as it was recorded, at the same time; where it does not, `Touched` says whom to run besides, and the fork
is made again. What engines and tools answered meanwhile is kept (`Mode.memory`), so nothing is asked twice.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

from msgspec import structs

from baton.team.agent import Agent, Item, Role, returned
from baton.team.budget import Refusal, Reservation, charge_again
from baton.team.bystanders import Plan
from baton.team.clock import Op
from baton.team.protocol import Request
from baton.team.question import Question
from baton.team.recording import TraceWriter
from baton.team.running import Run
from baton.team.state import RunState
from baton.trace.records import Call, Event
from baton.trace.vocabulary import Status


class Touched(BaseException):
    """Something new reached bystanders, who have to be run. No agents: everybody has to."""

    def __init__(self, agents: Iterable[str] = ()) -> None:
        super().__init__("touched")
        self.agents = frozenset(agents)


class _Members(dict[str, Agent]):
    """The agents of a run. To look for a bystander that is not on top of its branch touches it."""

    def __init__(self, hidden: set[str]) -> None:
        super().__init__()
        self._hidden = hidden

    def get(self, name: str, default: Any = None) -> Any:
        if name in self._hidden:
            raise Touched([name])
        return super().get(name, default)


class PartialWriter(TraceWriter):
    """Knows which events were not copied."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.own: dict[str, Event] = {}

    def _write(self, event: Event) -> None:
        self.own[event.id] = event
        super()._write(event)


class PartialState(RunState):
    """A run's state in which some agents only stand for what they did."""

    plan: Plan
    stubs: dict[str, Agent]
    """Bystanders on top of their branches."""
    tops: dict[int, Agent]
    """The same by their number."""
    known_same: set[int]
    """Events that were found to have come about as they were."""
    novel: bool
    """Whether somebody is there whom the recorded run did not have."""
    at: int
    """Events before this one have been copied, or left out for good."""

    def stand_by(self, plan: Plan) -> None:
        """Say who is not run, before anything begins."""
        blocks = plan.blocks
        self.plan, self.stubs, self.novel, self.at = plan, {}, False, 0
        self.tops, self.known_same = {}, set()
        hidden = {name for i, name in enumerate(blocks.agents) if plan.unit[i] >= 0 and plan.unit[i] != i}
        self.agents = _Members(hidden)

    def same(self, event: int) -> bool:
        """Whether a recorded event that was not copied came about as it was, when it was."""
        writer: Any = self.writer
        before = self.plan.blocks.trace.events[event]
        now = writer.own.get(before.id)
        return now is not None and structs.replace(before, seq=now.seq, seed_key=now.seed_key) == now

    def _expect(self, agent: Agent) -> None:
        """What was just written was said to a bystander: as recorded, or it is touched."""
        last = self.writer.events[-1]
        index = self.plan.blocks.trace.position.get(last.id)
        if index is None or last.to != agent.id or not self.same(index):
            raise Touched([agent.id])

    def add_agent(self, id_: str, role: Role, parent: Agent | None) -> Agent:
        """A new member, or one that stands by from the beginning."""
        index = self.plan.blocks.index.get(id_)
        if index is None or self.plan.run[index]:
            self.novel = self.novel or index is None
            return super().add_agent(id_, role, parent)
        agent = Agent(self, id_, role, parent)
        self._expect(agent)
        self.agents[id_] = self.stubs[id_] = self.tops[index] = agent
        self.active.add(id_)
        return agent

    def deliver(self, to: Agent, item: Item) -> None:
        """Put something in an inbox, or see that a bystander's got what it had."""
        if to.id in self.stubs:
            self._expect(to)
        else:
            super().deliver(to, item)

    def wake(self, agent: Agent, value: Any = None) -> None:
        """Let an agent go on; bystanders go on by themselves."""
        if agent.id in self.stubs:
            self._expect(agent)
        else:
            super().wake(agent, value)

    def begin_again(self, agent: Agent) -> None:
        """Nothing, for bystanders."""
        if agent.id not in self.stubs:
            super().begin_again(agent)

    def kill(self, agent: Agent, status: Status, because: str | None = None) -> None:
        """Take an agent and all below it out of the run: of a bystander, those who are there by now."""
        if agent.id in self.stubs and agent.state != "dead":
            self._embody(agent)
        super().kill(agent, status, because)

    def _reserve(self, me: Agent, new_tokens: int) -> Refusal | tuple[int, Reservation]:
        found = super()._reserve(me, new_tokens)
        wanted = me.role.sampling.max_tokens
        if isinstance(found, Refusal) or (wanted is not None and found[0] < wanted):
            raise Touched  # a budget that runs short ties everybody to everybody
        return found

    def refuse(self, *_: Any, **__: Any) -> None:
        """A budget that runs short ties everybody to everybody."""
        raise Touched

    def is_there(self, index: int) -> bool:
        """Whether the branch of a bystander was spawned and is still in the run."""
        top = self.tops.get(int(self.plan.unit[index]))
        return top is not None and top.state != "dead"

    def are_quiet(self, messages: Iterable[int]) -> bool:
        """Whether messages only lie in inboxes: nobody waits for them."""
        for message in messages:
            said = self.plan.blocks.trace.events[message]
            receiver = self.agents.get(said.to or "")
            if receiver is None or receiver.state == "dead":
                return False
            waiting = receiver.waits_for
            if waiting is not None and waiting.mode == "any" and said.agent in waiting.names:
                return False
        return True

    def hear(self, event: int) -> None:
        """What a bystander said to an agent that is run."""
        said = self.plan.blocks.trace.events[event]
        text = self.plan.blocks.text(event)
        receiver = self.agents.get(said.to or "")
        if receiver is None or receiver.state == "dead":
            raise Touched([said.agent])
        if said.type == "message":
            super().deliver(receiver, Item(said.id, "message", said.agent, f"{said.agent}: {text}"))
            return
        agent = self.stubs[said.agent]
        item = returned(said.id, agent.id, text, said.extra.get("confidence"))
        if said.status == "forced":
            told = f"{agent.id} gave up: {said.extra['why']}." + (f" It had: {text}" if text else "")
            item = Item(said.id, "return", agent.id, told, result=text)
        agent.state = "idle"
        self._progress(agent)
        super().deliver(receiver, item)
        self._leave(agent)

    def _progress(self, top: Agent) -> None:
        """How far a bystander has got, whose last event was no tool's result."""
        blocks = self.plan.blocks
        mine = blocks.events_of[blocks.index[top.id]]
        for i in range(bisect_left(mine, self.at) - 1, -1, -1):
            if self.plan.inside[mine[i]]:
                _happened(top, blocks.trace.events[mine[i]])
                return

    def _embody(self, top: Agent) -> None:
        """Bring a branch to where it is now, so that it can leave: who is there, and what each has in flight."""
        blocks, plan = self.plan.blocks, self.plan
        trace = blocks.trace
        unit = blocks.index[top.id]
        if top.state == "idle" and all(
            plan.inside[blocks.killed[i]] and blocks.killed[i] < self.at
            for i in plan.members[unit]
            if i != unit
        ):
            self._progress(top)  # those below it have left before
            return
        people = {unit: top}
        running: dict[str, tuple[int, Event]] = {}
        mine = plan.events_of(unit)
        for i in mine[: bisect_left(mine, self.at)]:
            event, me = trace.events[i], int(blocks.agent_of[i])
            _happened(people[me], event)
            to = int(blocks.to[i])
            if blocks.spawns[i]:
                child = Agent(self, event.to or "", self.harness.role(blocks.role[to]), people[me])
                child.born = event.id
                people[me].children.append(child)
                people[to] = child
            elif event.type == "despawn":
                people[to].state, people[to].died = "dead", event.id
            elif event.type == "return" and blocks.told[i] and me != unit:
                people[me].state = "idle"
            elif event.decision == "delegate" and blocks.told[i]:
                people[to].state = "active"
            elif event.type == "tool_call" and event.status == "ok":
                running[event.id] = (me, event)
            elif event.type == "tool_result":
                running.pop(event.id.removesuffix("r"), None)
        for index, agent in people.items():
            if agent.state == "active":
                self._in_flight(index, agent)
        for index, event in running.values():
            if people[index].state != "dead":
                op = Op("tool", event.id, people[index], (self.harness.tools[event.tool or ""], {}))
                self.outside.hold_tool(op)

    def _in_flight(self, index: int, agent: Agent) -> None:
        """The call that an agent waits for, if it does."""
        blocks, now = self.plan.blocks, self.driver.now
        calls = blocks.calls_of.get(index, [])
        asked = [call for call in calls if call.t is not None and call.t <= now]
        if not asked:
            return
        call = asked[-1]
        first = blocks.recording.said_by.get(call.id)
        if first is not None:
            place = blocks.trace.position[first.id]
            if self.plan.inside[place] and place < self.at:
                return
        if call.t == now or any(child.state != "dead" for child in agent.children):
            raise Touched([agent.id])  # whether it had been asked yet, and what it had read, is not recorded
        for said in self.plan.said_to.get(index, ()):
            if blocks.trace.events[said].t < (call.t or 0.0) and not self.same(said):
                raise Touched([agent.id])
        if first is not None:
            self.outside.usage.calls_reused += 1
            self.outside.usage.tokens_reused += first.tokens or 0
        agent.op = Op("call", call.id, agent, self._question(agent, call), start=call.t or 0.0)
        if call.prompt_ref is not None:
            self.writer.payloads[call.prompt_ref] = blocks.trace.payloads[call.prompt_ref]

    def _question(self, agent: Agent, call: Call) -> Question:
        assert call.sampling is not None
        request = Request(
            call=call.id,
            agent=agent.id,
            role=agent.role.name,
            entries=(),
            prompt_ids=None,
            sampling=call.sampling,
        )
        return Question(
            engine=self.team.engine(agent.role),
            request=request,
            ids=call.prompt_ids,
            prompt_ref=call.prompt_ref or "",
            parent=call.parent,
            keep=call.keep,
            harness=call.harness or "",
            prompt=charge_again(call, self.ledger),
        )


def _happened(agent: Agent, event: Event) -> None:
    agent.last_event = event.id
    number = event.id.rpartition("#")[2]
    if not number.endswith("r"):  # a tool's result is named after its call
        agent.num_events = int(number)


class PartialRun(Run):
    """A run in which bystanders are copied."""

    state_class = PartialState
    writer_class = PartialWriter

    def stand_by(self, plan: Plan) -> None:
        """Say who is not run, before it begins."""
        self.plan = plan
        self._next = 0
        self._state.stand_by(plan)
        blocks = plan.blocks
        for flight in blocks.cut_off:
            if not plan.run[flight.agent] and not plan.inside[flight.event]:
                self.driver.last(Op("bystander", "", None, flight.agent), flight.t)
        self._expect_next()

    @property
    def num_own(self) -> int:
        """Events that were not copied."""
        assert isinstance(self.writer, PartialWriter)
        return len(self.writer.own)

    @property
    def _state(self) -> PartialState:
        assert isinstance(self.state, PartialState)
        return self.state

    def _expect_next(self) -> None:
        if self._next < len(self.plan.copied):
            block = self.plan.copied[self._next]
            start = int(self.plan.blocks.start[block])
            self.driver.recorded(Op("bystander", "", None, None), self.plan.blocks.t[block], start + 1)

    def _complete(self, op: Op) -> None:
        if op.kind != "bystander":
            super()._complete(op)
        elif op.work is None:
            self._copy()
            self._settle()
        elif self._state.is_there(op.work):  # it was cut off at this moment, and now it is not
            raise Touched([self.plan.blocks.agents[op.work]])

    def _unblock(self, root: Agent) -> bool:
        if self.plan.copied:
            raise Touched
        return super()._unblock(root)

    def _copy(self) -> None:
        """The next block of bystanders, and those after it that come before anything else."""
        plan, state = self.plan, self._state
        limit = self.driver.idle_until()
        stop = len(plan.copied) if limit is None else bisect_left(plan.times, limit, self._next)
        stop = stop if len(self.batch) == 1 else 0
        while True:
            block = plan.copied[self._next]
            end = self._stretch(stop)
            if end > self._next:
                self._copy_stretch(block, plan.copied[end - 1])
                self._next = end
            else:
                self._next += 1
                if state.is_there(int(plan.blocks.opener[block])):
                    self._copy_block(block)
                else:
                    self._leave_out(block)
            # What is told at a moment is told then: such a block waits for its turn.
            if self._next >= stop or plan.copied[self._next] in plan.met or state.ready:
                break
        self._expect_next()

    def _stretch(self, stop: int) -> int:
        """How far whole blocks can be copied at once, from the next one on."""
        plan, state = self.plan, self._state
        copied, met, needs, whole = plan.copied, plan.met, plan.needs, plan.whole
        at = self._next
        tops = state.tops
        before = copied[at] - 1
        while at < stop:
            block = copied[at]
            if block != before + 1 or block not in whole:
                break
            if block in met and not (block in plan.told_only and state.are_quiet(plan.told_run[block])):
                break
            top = tops.get(plan.block_unit[block])
            if top is None or top.state == "dead":
                break
            if block in needs:
                self._check_needs(block)
            before = block
            at += 1
        return at

    def _copy_stretch(self, first: int, last: int) -> None:
        blocks, writer, usage = self.plan.blocks, self.writer, self._state.outside.usage
        counted = blocks.run_up
        assert counted is not None
        start, end = int(blocks.start[first]), int(blocks.start[last + 1])
        self._copy_events(start, end)
        writer.calls.extend(counted.calls[counted.num_calls[first] : counted.num_calls[last + 1]])
        writer.payloads.update(counted.payloads[counted.num_payloads[first] : counted.num_payloads[last + 1]])
        usage.calls_reused += counted.calls_fed[last + 1] - counted.calls_fed[first]
        usage.tokens_reused += counted.tokens_fed[last + 1] - counted.tokens_fed[first]
        usage.tools_reused += counted.tools_fed[last + 1] - counted.tools_fed[first]
        self._state.at = end
        told = self.plan.told
        for event in told[bisect_left(told, start) : bisect_left(told, end)]:
            self._state.hear(event)

    def _copy_events(self, start: int, end: int) -> None:
        blocks, writer = self.plan.blocks, self.writer
        events = blocks.trace.events[start:end]
        shift = len(writer.events) - start
        writer.events.extend(
            events if not shift else [structs.replace(event, seq=event.seq + shift) for event in events]
        )
        writer.edges.extend(blocks.trace.edges[blocks.edge_start[start] : blocks.edge_start[end]])

    def _leave_out(self, block: int) -> None:
        """Its branch is not in the run. Those of other branches that it had to do with are touched."""
        plan, blocks = self.plan, self.plan.blocks
        others = {int(blocks.agent_of[blocks.dst[edge]]) for edge in plan.leads_to.get(block, ())}
        others |= {int(blocks.to[event]) for event in plan.told_apart.get(block, ())}
        if block in plan.joint:
            others |= set(blocks.agent_of[blocks.start[block] : plan.end[block]].tolist())
        there = [blocks.agents[agent] for agent in others if self._state.is_there(agent)]
        if there:
            raise Touched(there)
        self._state.at = plan.end[block]

    def _copy_block(self, block: int) -> None:
        plan, blocks, writer, state = self.plan, self.plan.blocks, self.writer, self._state
        self._check_needs(block)
        if block in plan.met:
            self._check(block)
        start, end = int(blocks.start[block]), plan.end[block]
        self._copy_events(start, end)
        for call in blocks.calls[block]:
            agent = blocks.index[call.agent]
            if plan.run[agent] or (
                call.finish_reason == "cancelled" and not plan.inside[blocks.killed[agent]]
            ):
                continue
            writer.calls.append(call)
            if end < blocks.start[block + 1]:
                self._add_texts((call.prompt_ref, call.completion_ref))
        if end == blocks.start[block + 1]:
            writer.payloads.update(blocks.payloads[block])
        else:
            self._add_texts(event.content_ref for event in blocks.trace.events[start:end])
        usage = state.outside.usage
        calls, tokens = blocks.reused[block]
        usage.calls_reused += calls
        usage.tokens_reused += tokens
        usage.tools_reused += int(blocks.fed_tools[start:end].sum()) if blocks.has_tools else 0
        state.at = end
        for event in plan.told_run.get(block, ()):
            state.hear(event)

    def _add_texts(self, refs: Iterable[str | None]) -> None:
        known = self.plan.blocks.trace.payloads
        self.writer.payloads.update((ref, known[ref]) for ref in refs if ref is not None)

    def _check_needs(self, block: int) -> None:
        """What is not copied of that which the block depends on is as it was."""
        state = self._state
        for needed, agent in self.plan.needs.get(block, ()):
            if needed not in state.known_same:
                if not state.same(needed):
                    raise Touched([self.plan.blocks.agents[agent]])
                state.known_same.add(needed)

    def _check(self, block: int) -> None:
        """Those whom the block has to do with are there, or whoever depends on them is touched."""
        plan, blocks, state = self.plan, self.plan.blocks, self._state
        for event in plan.told_apart.get(block, ()):
            if not state.is_there(int(blocks.to[event])):
                raise Touched([blocks.agents[blocks.agent_of[event]]])
        acting = blocks.agent_of[blocks.start[block] : plan.end[block]]
        if state.novel and blocks.invalid[blocks.start[block] : plan.end[block]].any():
            raise Touched(blocks.agents[i] for i in acting.tolist())
        if block in plan.joint and not all(map(state.is_there, acting.tolist())):
            raise Touched(blocks.agents[i] for i in acting.tolist() if state.is_there(i))
