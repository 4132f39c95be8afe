"""The state of a run: who is in it, what each waits for, what it may spend, and what follows when one comes or goes.

This is what agents, verbs and programs see of a run; `baton.team.running` moves it from one completion to the next.

Ids do not depend on the order of completions: the k-th event of an agent is `agent#k`, its k-th call `agent:k`, the
k-th worker it spawned `workerk` (`agent.workerk` below the root).
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import structs

from baton.team.agent import Agent, Item, Program, Role, Waiting, act, returned
from baton.team.budget import (
    MAX_TOKENS,
    Bill,
    Budget,
    LedgerRules,
    PromptCharge,
    Refusal,
    Reservation,
    bill_of,
    estimate_tokens,
)
from baton.team.clock import Driver, Op, Resting
from baton.team.credentials import Vault
from baton.team.guard.speech import may_return, may_say
from baton.team.guard.watch import CallRequest, GuardWatch
from baton.team.intervene import BarAgent, Drop, Force, Intervention, MuteAgent, OnEvent, OnlyAgents, Replace
from baton.team.outside import Mode, Outside, asked
from baton.team.protocol import Answer, EngineError, Entry, Request
from baton.team.question import Question
from baton.team.recording import Said, TraceWriter, replicates_of
from baton.team.shared_memory import Shelf
from baton.team.team import Assignment, Team
from baton.trace.records import Call, Ints
from baton.trace.trace import meta_as
from baton.trace.vocabulary import Decision, EdgeType, Status

_OLD_OVERHEAD = 8  # tokens that traces up to 0.2 add to an entry, where only the text is known


class RunState:
    """One run of a team on one assignment, between two completions."""

    def __init__(
        self,
        team: Team,
        assignment: Assignment,
        writer: TraceWriter,
        *,
        interventions: Sequence[Intervention],
        budget: Budget,
        mode: Mode,
        vault: Vault | None,
        take_turn: Callable[..., Coroutine[Any, Any, None]],
        perform: Callable[..., Coroutine[Any, Any, bool]],
    ) -> None:
        self.team = team
        self.harness = team.harness
        self.assignment = assignment
        self.writer = writer
        self.driver: Driver = writer.driver
        self.budget = budget
        self.ledger = meta_as(writer.header, LedgerRules, "run", "ledger")
        """None: a trace of 0.2 or older, whose calls are charged as they were then."""
        self._schema_tokens: dict[str, int] = {}
        self.take_turn = take_turn
        """How an agent takes its turn, and how it does a thing: these build on the state, so they are handed to it."""
        self.perform = perform
        self.interventions: dict[str, OnEvent] = {i.at: i for i in interventions if isinstance(i, OnEvent)}
        self.invalidated: dict[str, list[str]] = {}
        """Edited event -> the recorded events that followed from it."""
        self._barred = {i.agent for i in interventions if isinstance(i, BarAgent)}
        self._only = [frozenset(i.agents) for i in interventions if isinstance(i, OnlyAgents)]
        self.muted = {i.agent for i in interventions if isinstance(i, MuteAgent)}
        self.replicate = "/".join(map(str, replicates_of(writer.header)))
        """Names the random stream of what is run anew; empty: that of a run that is no fork, or is drawn like one."""
        self.outside = Outside(
            writer,
            latency=team.latency,
            seed=team.seed,
            replicate=self.replicate,
            interventions=self.interventions,
            mode=mode,
            counted=budget.remaining("calls") is not None or budget.remaining("tokens") is not None,
            vault=vault,
        )
        memory = team.harness.shared_memory
        self.shelf = None if memory is None else Shelf(memory)
        """None: the team has no shared memory."""
        self.agents: dict[str, Agent] = {}
        self.active: set[str] = set()
        self.answer: str | None = None
        self.stopped = False
        self.paused = False
        """Whether a person holds everything back."""
        self.live_edits: dict[str, dict[str, str]] = {}
        """Events of `interventions` that a person edited while the run went on -> what is told of the act."""
        self.ready: deque[tuple[Agent, Any]] = deque()
        """Agents that can move, and what they are told."""
        self._waiters: dict[str, list[Agent]] = {}
        self.guard: GuardWatch | None = None
        """Whoever follows where words come from, and may refuse calls; None: nobody does."""
        self.ask_person: Callable[[CallRequest], None] | None = None
        """Told of each call that waits for an endorsement; None: nobody is, and who may decide looks for himself."""
        if team.guard is not None:
            told = [role.instructions for role in team.topology.roles]
            watch = GuardWatch(team.guard, is_agent=self.agents.__contains__, told=told)
            watch.believe(assignment.prompt)
            self.guard = writer.watch = self.outside.guard = watch

    def is_barred(self, id_: str) -> bool:
        """Whether something that is different in this fork keeps an agent of this name from being spawned."""
        return id_ in self._barred or any(id_ not in only for only in self._only)

    def is_anybody_left(self, prefix: str, used: Mapping[str, int]) -> bool:
        """Whether an agent whose children's names begin so, and that used so many of each role's, may spawn more."""
        if not self._only:
            return True
        left = frozenset.intersection(*self._only) - self._barred
        names = (name.removeprefix(prefix) for name in left if name.startswith(prefix))
        return any(
            rest.removeprefix(role).isdigit() and int(rest.removeprefix(role)) > number
            for rest in names
            for role, number in used.items()
            if rest.startswith(role)
        )

    def add_agent(self, id_: str, role: Role, parent: Agent | None) -> Agent:
        """A new member, told its role, with its program ready to begin."""
        agent = Agent(self, id_, role, parent)
        self.agents[id_] = agent
        self.active.add(id_)
        if not (parent is not None and role.inherit):
            agent.inbox.append(Item("", "causal", "", self.harness.system(id_, role), "system"))
        agent.coroutine = self.program(agent)
        self.start_timer(agent)
        self.wake(agent)
        return agent

    def program(self, agent: Agent) -> Coroutine[Any, Any, None]:
        """What an agent of this role does from the beginning."""
        program: Program = self.team.topology.programs.get(agent.role.name, act)
        return program(agent)

    def begin_again(self, agent: Agent) -> None:
        """A program that ended with its task starts anew for the next one; one that rests goes on."""
        if agent.coroutine is None or inspect.getcoroutinestate(agent.coroutine) == inspect.CORO_CLOSED:
            agent.coroutine = self.program(agent)

    def start_timer(self, agent: Agent) -> None:
        """Begin to count the seconds that its role gives an agent for a task."""
        if agent.role.max_seconds is not None:
            op = Op("timer", f"{agent.id}~{agent.num_events}", agent, agent.role.max_seconds)
            agent.timer = op
            self.outside.start_timer(op)

    def deliver(self, to: Agent, item: Item) -> None:
        """Put something in an inbox; wake its owner if that is what it waited for."""
        to.inbox.append(item)
        if item.result is not None:
            to.results[item.sender] = (item.event, item.result)
            to.confidence.pop(item.sender, None)
            if item.confidence is not None:
                to.confidence[item.sender] = item.confidence
        waiting = to.waits_for
        if waiting is not None and waiting.mode == "any" and item.sender in waiting.names:
            self.go_on(to)

    def go_on(self, agent: Agent) -> None:
        """A wait is over. What the agent will read is settled now, not when it gets to it."""
        agent.waits_for = None
        agent.cut = len(agent.inbox)
        self.wake(agent)

    async def wait(self, agent: Agent, names: tuple[str, ...], mode: str, *, chosen: bool = True) -> None:
        wanted = frozenset(names or (child.id for child in agent.children if child.state == "active"))
        come = mode == "any" and any(item.sender in wanted for item in agent.inbox[agent.acknowledged :])
        left = set() if come else {name for name in wanted if name in self.active}
        if left:
            agent.waits_for = Waiting(wanted, mode, left, chosen)
            for name in left:
                self._waiters.setdefault(name, []).append(agent)
            await Resting()
        agent.acknowledge()

    async def next_task(self) -> None:
        """An idle agent rests until someone delegates to it."""
        await Resting()

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
        lost = self.outside.cancel(agent, because)
        agent.state = "dead"
        self.outside.leave(agent)
        # Whether it was idle or cut off depends on how far it had got.
        why = (agent.last_event, because)
        causes: list[tuple[str, EdgeType]] = [
            (event, "causal") for event in dict.fromkeys(why) if event and event != agent.parent.last_event
        ]
        agent.died = self.writer.emit(
            agent.parent, "despawn", to=agent.id, status=status, causes=causes, tokens=lost
        ).id
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
                    self.go_on(waiter)

    def give_up(self, agent: Agent, reason: str, *, lost: int | None = None) -> None:
        """Make an agent finish: a return, or at the root a stop, that nobody chose. `lost`: a dropped call's tokens."""
        if agent.state != "active" or self.stopped:
            return
        if agent.parent is None:
            answer, judged = agent.answered, dict[str, Any]()
            if self.guard is not None:
                answer, judged = may_say(self.writer, self.guard, agent, answer)
            self.writer.emit(
                agent,
                "orchestrator_decision",
                decision="stop",
                text=answer,
                status="forced",
                extra={"why": reason, **judged},
                tokens=lost,
            )
            self.answer, self.stopped = answer, True
            return
        had = "" if agent.id in self.muted else agent.answered
        names, kept = had, dict[str, Any]()
        if self.guard is not None:
            names, kept = may_return(self.writer, self.guard, agent, had)
        event = self.writer.emit(
            agent,
            "return",
            from_=agent.id,
            to=agent.parent.id,
            text=names,
            status="forced",
            extra={"why": reason, **kept},
            tokens=lost,
        )
        if kept:  # whether a reader gave up depends on what it read
            self.hand_over(agent, returned(event.id, agent.id, names))
            return
        text = f"{agent.id} gave up: {reason}." + (f" It had: {had}" if had else "")
        self.hand_over(agent, Item(event.id, "return", agent.id, text, result=had))

    def cut_off(self, agent: Agent, reason: str) -> None:
        """End an agent's task in the middle of whatever it does; what it has so far goes up."""
        lost = self.outside.cancel(agent)
        agent.waits_for, agent.waits_for_tools = None, False
        if agent.coroutine is not None:
            agent.coroutine.close()  # it was in the middle of something; a new task starts its program anew
            agent.coroutine = self.program(agent)
        self.give_up(agent, reason, lost=lost)

    def person_edits(
        self, agent: Agent, change: Replace | Drop | Force, *, why_not: str | None = None
    ) -> None:
        """Write that a person changed the agent's next event, and what that made void; or why it was left as it is."""
        extra: dict[str, Any] = {"edits": change.at, "invalidated": self.invalidated.get(change.at, [])}
        if change.at in self.live_edits:
            extra |= self.live_edits[change.at]
        if why_not is not None:
            extra["why"] = why_not
        text = change.text if isinstance(change, Replace) else str(change.__struct_config__.tag)
        event = self.writer.emit_by(
            change.by or "human",
            "human_intervention",
            to=agent.id,
            text=text,
            extra=extra,
            status="ok" if why_not is None else "invalid",
        )
        agent.causes.append((event.id, "causal"))

    def sampling_key(self, id_: str) -> str:
        """The key of the random stream behind a call or a tool's duration."""
        return f"{self.team.seed}/{id_}"

    def capped(self, resource: str, asked: int = 1) -> Refusal | None:
        """Why one of the run's caps does not allow any more of a resource. What is only reserved does not count."""
        cap = None if self.ledger is None else getattr(self.ledger.caps, resource)
        used = self.budget.used(resource)
        return None if cap is None or used + asked <= cap else Refusal(resource, cap, used, 0, asked, True)

    def refuse(
        self, agent: Agent, refusal: Refusal, *, decision: Decision, said: Said | None, what: str
    ) -> None:
        """Write that the budget said no, and tell the agent."""
        self.writer.emit(
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
                **({"cap": True} if refusal.cap else {}),
            },
        )
        agent.refused = True
        agent.note(f"error: {what} was refused. {refusal.message}")

    def wake(self, agent: Agent, value: Any = None) -> None:
        """Let an agent go on, with what it waited for, when its turn in the block comes."""
        agent.op = None
        self.ready.append((agent, value))

    async def ask(self, me: Agent, entries: Sequence[Entry]) -> tuple[Answer, Said] | None:
        """One call. None: the budget or the engine refused, and that has been dealt with."""
        engine = self.team.engine(me.role)
        context = me.context
        if me.role.memory == "latest":
            entries = context.renewed(entries, again=bool(me.invalid))
        parent, keep = context.parent_call, context.keep
        if not context.entries:
            context.size = context.settled = self._tokens_of_schemas(me.role)
        ids, text = context.read(entries, engine)
        prompt = self._prompt_charge(me, ids, len(text) + _OLD_OVERHEAD * len(entries))
        reserved = self._reserve(me, prompt.expected)
        if isinstance(reserved, Refusal):
            me.unread = context.forget(len(entries))
            self.refuse(me, reserved, decision="none", said=None, what="another turn")
            self.give_up(me, f"the team's {reserved.resource} are used up")
            return None
        max_tokens, reservation = reserved
        me.num_calls += 1
        call_id = f"{me.id}:{me.num_calls}"
        sampling = structs.replace(me.role.sampling, max_tokens=max_tokens, key=self.sampling_key(call_id))
        assignment = self.assignment
        question = Question(
            engine=engine,
            request=Request(
                call=call_id,
                agent=me.id,
                role=me.role.name,
                entries=context.entries,
                prompt_ids=context.ids,
                sampling=sampling,
                options=assignment.options(me) if assignment.options else None,
                state=assignment.state(me) if assignment.state else None,
                tools=self.harness.schemas[me.role.name],
            ),
            ids=ids,
            prompt_ref=self.writer.text(text.decode()) or "",
            parent=parent,
            keep=keep,
            harness=self.harness.hash,
            prompt=structs.replace(prompt, max_tokens=max_tokens),
        )
        op = Op("call", call_id, me, question)
        op.start = self.driver.now
        me.op, me.reservation = op, reservation
        self.outside.start_call(op)
        answer: Answer | EngineError = await op
        me.reservation = None
        bill = bill_of(question.prompt, answer)
        reservation.settle() if op.spent else reservation.settle_call(bill.charged)
        if isinstance(answer, EngineError):
            me.unread = context.forget(len(entries))
            self._failed(me, op, answer, bill)
            return None
        me.failures = 0
        context.say(answer, call_id, bill)
        self.writer.add_call(self._record(op, answer, bill))
        said = Said(
            call=call_id,
            start=op.start,
            duration_s=self.driver.now - op.start,
            options=question.request.options,
            tokens=bill.charged,
            seed_key=op.work.request.sampling.key,  # with the replicate that drew it, of a fork
        )
        return answer, said

    def _prompt_charge(self, me: Agent, ids: Ints | None, old_size: int) -> PromptCharge:
        """What is known of the next call's cost."""
        context = me.context
        whole = context.size if context.ids is None else len(context.ids)
        way = None if self.ledger is None else self.ledger.charging.get(me.role.name, "billed")
        if way == "estimated":
            whole = context.size
        return PromptCharge(
            charging=way,
            new=old_size if ids is None else len(ids),
            whole=whole,
            counted=context.ids is not None,
        )

    def _tokens_of_schemas(self, role: Role) -> int:
        """An estimate of what a role's tool schemas add to its prompts."""
        if role.name not in self._schema_tokens:
            schemas = self.harness.schemas[role.name]
            text = msgspec.json.encode(schemas).decode() if schemas else ""
            self._schema_tokens[role.name] = estimate_tokens(text)
        return self._schema_tokens[role.name]

    def _reserve(self, me: Agent, new_tokens: int) -> Refusal | tuple[int, Reservation]:
        """Room for this call in the budget: (tokens it may say, the reservation)."""
        if (refusal := self.capped("tokens")) is not None:
            return refusal
        wanted = me.role.sampling.max_tokens or MAX_TOKENS
        left = self.budget.remaining("tokens")
        if left is not None:
            if me.parent is not None:
                left -= self.team.hold_back_tokens
            wanted = max(1, min(wanted, int(left) - new_tokens))
            if new_tokens + wanted > left:
                ledger = self.budget
                limit = ledger.limits.tokens or 0
                return Refusal(
                    "tokens", limit, ledger.used("tokens"), ledger.reserved("tokens"), new_tokens + wanted
                )
        reservation = self.budget.reserve_call(new_tokens + wanted)
        return reservation if isinstance(reservation, Refusal) else (wanted, reservation)

    def _failed(self, me: Agent, op: Op, error: EngineError, bill: Bill) -> None:
        """The engine could not answer: written down, and tried again a few times."""
        self.writer.add_call(
            structs.replace(
                asked(op, "error", self.driver.now),
                prompt_tokens=error.prompt_tokens,
                completion_tokens=error.completion_tokens,
            )
        )
        said = Said(
            call=op.id, start=op.start, duration_s=self.driver.now - op.start, tokens=bill.charged or None
        )
        self.writer.emit(me, "orchestrator_decision", text=str(error), said=said, status="failed")
        me.failures += 1
        if me.failures > me.role.max_failures:
            self.give_up(me, f"its engine failed {me.failures} times in a row: {error}")

    def _record(self, op: Op, answer: Answer, bill: Bill) -> Call:
        return structs.replace(
            asked(op, answer.finish_reason, self.driver.now),
            policy=answer.policy,
            policy_version=answer.policy_version,
            versions=answer.versions,
            completion_ids=answer.completion_ids,
            logprobs=answer.logprobs,
            token_ends=answer.token_ends,
            completion_ref=self.writer.text(answer.text),
            prompt_tokens=bill.prompt,
            completion_tokens=bill.completion,
            estimated=bill.estimated,
        )
