"""An agent: its context, its inbox, and the verbs, as a topology's program sees them.

A program is a coroutine `async def program(me: Agent)`. It awaits only what `me` offers, so that
every step of it is in the trace and can be replayed. Most roles need none of their own: `act`
lets the policy choose every action.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct, field

from baton.team.action import (
    Action,
    Aggregate,
    Cancel,
    Delegate,
    ReadShared,
    Return,
    Send,
    Spawn,
    Stop,
    Wait,
    WriteShared,
)
from baton.team.budget import Bill, estimate_entries
from baton.team.clock import Op
from baton.team.protocol import Answer, Engine, Entry
from baton.trace.records import Ints, Sampling
from baton.trace.vocabulary import EdgeType

_encode = msgspec.json.Encoder().encode


class Role(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an agent of this role is told, may do, and sees."""

    name: str
    instructions: str = ""
    verbs: tuple[str, ...] = ("call", "return")
    spawns: tuple[str, ...] = ()
    """Roles it may spawn."""
    tools: tuple[str, ...] = ()
    aggregators: tuple[str, ...] = ()
    """Methods it may aggregate with; empty: all."""
    policy: str | None = None
    """Name of the engine that answers for it; None: the role's own name, else the team's default."""
    sampling: Sampling = field(default_factory=lambda: Sampling(max_tokens=512))
    max_turns: int = 100
    """Turns for one task; then it is made to return (or, at the root, to stop)."""
    max_invalid: int = 3
    """Unparseable or forbidden answers in a row before it is made to return."""
    max_failures: int = 2
    """Engine failures in a row, likewise."""
    max_seconds: float | None = None
    """Time for one task, likewise."""
    inherit: bool = False
    """Start from the spawner's whole context instead of an empty one (a branch, as in context folding)."""
    returns: Literal["summary", "transcript"] = "summary"
    """What the spawner sees of a finished branch: the returned text alone, or all that was said."""
    confidence: bool = False
    """Asked to say how sure it is of what it returns. Anybody may; one who is asked is told how."""
    memory: Literal["all", "latest"] = "all"
    """latest: each turn reads the system entry and the last thing it was told, where that says all that matters (a
    game's state). After an answer that was not valid it reads the same again."""


class Context:
    """An agent's context: entries and, for engines with a tokenizer, the ids they became.

    It is only ever appended to, so a step costs what it adds, at any length of history; or, for roles that remember
    only the latest (`Role.memory`), begun anew at each turn.
    """

    __slots__ = ("after", "entries", "ids", "keep", "latest", "parent_call", "settled", "size", "system")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.ids: array[int] | None = array("i")
        self.after: Answer | None = None
        self.parent_call: str | None = None
        self.keep = 0
        """Length in ids of the parent call's prompt + completion."""
        self.system: list[Entry] = []
        self.latest: list[Entry] = []
        self.size = 0
        """About how many tokens it has: as they were counted at the last call, and an estimate of what came since."""
        self.settled = 0
        """The same at the last call."""

    def renewed(self, entries: Sequence[Entry], *, again: bool) -> list[Entry]:
        """Begin anew: what is left to read is the system entry and the last of the new ones, or the same `again`."""
        if not self.latest:
            self.system = [entry for entry in entries if entry.speaker == "system"]
        if not again:
            self.latest = list(entries[-1:])
        self.entries = []
        self.ids, self.after, self.parent_call, self.keep = array("i"), None, None, 0
        self.size = self.settled = 0
        return [*self.system, *self.latest]

    def branch(self, *, same_engine: bool) -> Context:
        """A copy that grows apart (a child that inherits). Another engine has ids of its own for it."""
        copy = Context()
        copy.entries = list(self.entries)
        copy.size = copy.settled = self.size
        if same_engine:
            copy.ids = None if self.ids is None else self.ids[:]
            copy.after, copy.parent_call, copy.keep = self.after, self.parent_call, self.keep
        return copy

    def read(self, entries: Sequence[Entry], engine: Engine) -> tuple[Ints | None, bytes]:
        """Append what the agent reads before its next call: (new ids, the same as text)."""
        self.entries.extend(entries)
        self.size += estimate_entries(entries)
        if self.parent_call is None:  # no call of this engine has seen any of it: all of it is new
            entries = self.entries
        ids = engine.encode(entries, self.after)
        if ids is None or self.ids is None:
            self.ids = ids = None
        else:
            self.ids.extend(ids)
        return ids, _encode([{"speaker": e.speaker, "text": e.text} for e in entries])

    def forget(self, num_entries: int) -> list[Entry]:
        """Take back what was read for a call that failed: it will be read again."""
        entries = self.entries[-num_entries:] if num_entries else []
        del self.entries[len(self.entries) - num_entries :]
        if self.ids is not None:
            del self.ids[self.keep :]
        self.size = self.settled
        return entries

    def say(self, answer: Answer, call_id: str, bill: Bill) -> None:
        """Append what the agent said."""
        said = Entry("assistant", answer.text)
        self.entries.append(said)
        if bill.estimated or bill.prompt is None:
            self.size += estimate_entries((said,))
        else:
            self.size = bill.prompt + bill.completion
        self.settled = self.size
        if self.ids is not None:
            if answer.completion_ids is None:
                self.ids = None
            else:
                self.ids.extend(answer.completion_ids)
        self.after, self.parent_call = answer, call_id
        self.keep = 0 if self.ids is None else len(self.ids)


Program = Callable[["Agent"], Coroutine[Op, Any, None]]
CarryOut = Callable[["Agent", Action, Any, dict[str, Any]], Coroutine[Op, Any, None]]
"""What an action does, in a program's own way: it writes its event (with what said it, a `baton.team.recording.Said`,
and the extra given), or raises Forbidden."""


class AgentRun(Protocol):
    """The run that an agent is in, as far as agents and programs see it (see `baton.team.state.RunState`)."""

    team: Any
    harness: Any
    assignment: Any
    writer: Any
    """These four are made of roles and agents, so their types are defined above this module."""
    replicate: str
    stopped: bool
    take_turn: Callable[..., Coroutine[Any, Any, None]]
    perform: Callable[..., Coroutine[Any, Any, bool]]

    def wake(self, agent: Agent, value: Any = None) -> None: ...
    def give_up(self, agent: Agent, reason: str) -> None: ...
    async def wait(self, agent: Agent, names: tuple[str, ...], mode: str, *, chosen: bool = True) -> None: ...
    async def next_task(self) -> None: ...


class Item(Struct, frozen=True, gc=False):
    """Something that came into an agent's inbox and that it reads at its next turn."""

    event: str
    edge: EdgeType
    sender: str
    text: str
    """As the agent will read it."""
    speaker: Literal["system", "user", "tool"] = "user"
    result: str | None = None
    """What the sender returned, where this ends its task."""
    confidence: float | None = None
    """How sure it said it is."""


def returned(
    event: str, agent: str, result: str, confidence: float | None = None, told: str | None = None
) -> Item:
    """What an agent's return brings to whoever gave it the task. `told`: what is read in place of the result."""
    sure = "" if confidence is None else f" (confidence {confidence:g})"
    text = f"{agent} returned: {result if told is None else told}{sure}"
    return Item(event, "return", agent, text, result=result, confidence=confidence)


class Waiting(Struct):
    """Whom an agent waits for, and who of them is still at work."""

    names: frozenset[str]
    mode: str
    left: set[str]
    """Those that are still at work."""
    chosen: bool = True
    """Whether its policy chose to wait, and not its program."""


class Agent:
    """One member of a running team."""

    __slots__ = (
        "acknowledged", "answered", "born", "causes", "children", "chosen", "confidence", "context", "coroutine", "cut",
        "depth", "died", "diverged", "effective", "failures", "id", "inbox", "invalid", "last_event", "num_calls",
        "num_children", "num_events", "op", "parent", "refused", "reservation", "results", "role", "run", "shown",
        "slot", "state", "timer", "turns", "unread", "vain", "waits_for", "waits_for_tools",
    )  # fmt: skip

    def __init__(self, run: AgentRun, id_: str, role: Role, parent: Agent | None) -> None:
        self.run = run
        self.id = id_
        self.role = role
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.context = Context()
        if parent is not None and role.inherit:
            same = run.team.engine(role) is run.team.engine(parent.role)
            self.context = parent.context.branch(same_engine=same)
        self.inbox: list[Item] = []
        self.acknowledged = 0
        """How much of the inbox has been acted on already (a program's wait), though no policy has read it."""
        self.cut: int | None = None
        """How much of the inbox the next turn reads; fixed at the moment a wait is satisfied."""
        self.state: Literal["active", "idle", "dead"] = "active"
        self.born: str | None = None
        """The event that spawned it."""
        self.died: str | None = None
        """The event by which it left the run."""
        self.children: list[Agent] = []
        self.coroutine: Coroutine[Op, Any, None] | None = None
        self.num_events = 0
        self.num_calls = 0
        self.num_children: dict[str, int] = {}
        self.last_event: str | None = None
        self.causes: list[tuple[str, EdgeType]] = []
        """What the next event depends on besides the agent's own last one."""
        self.results: dict[str, tuple[str, str]] = {}
        """Who returned what to this agent: sender -> (event, text), the latest of each."""
        self.confidence: dict[str, float] = {}
        """How sure of it those said to be who said so."""
        self.waits_for: Waiting | None = None
        self.waits_for_tools = False
        self.reservation: Any = None
        """Budget held for the call in flight."""
        self.op: Op | None = None
        self.timer: Op | None = None
        self.slot: Any = None
        self.turns = 0
        self.unread: list[Entry] = []
        """What a failed call was to read."""
        self.invalid = 0
        self.refused = self.effective = False
        """Whether the budget refused something at its last turn, and whether anything but a wait took effect."""
        self.vain = 0
        """Turns in a row at which the budget refused all that it did."""
        self.failures = 0
        self.diverged = False
        self.chosen: str | None = None
        """The command it gave at its last turn, where it gave one that was open to it."""
        self.shown: tuple[Any, ...] = ()
        """What it read last in the shared memory (`baton.team.shared_memory.Written`)."""
        self.answered = ""
        """The latest thing that could serve as an answer, should it have to stop."""

    async def turn(self, carry_out: CarryOut | None = None) -> None:
        """Ask the policy once and carry out what it says: by the verbs, or as the program has it."""
        await self.run.take_turn(self.run, self, carry_out)

    async def spawn(self, role: str, task: str) -> str | None:
        """The new agent's id; None when the budget refuses."""
        before = len(self.children)
        await self.run.perform(self.run, self, Spawn(role, task), None)
        return self.children[-1].id if len(self.children) > before else None

    async def delegate(self, agent: str, task: str) -> None:
        """Give a further task to an agent that has returned."""
        await self.run.perform(self.run, self, Delegate(agent, task), None)

    async def send(self, agent: str, text: str) -> None:
        """Send text to another agent."""
        await self.run.perform(self.run, self, Send(agent, text), None)

    async def wait(self, agents: Sequence[str] = (), mode: Literal["all", "any"] = "all") -> None:
        """Until they have returned. What they returned is in `results`, and in the inbox."""
        await self.run.perform(self.run, self, Wait(tuple(agents), mode), None)

    async def cancel(self, agents: Sequence[str]) -> None:
        """Stop agents, with everything they spawned."""
        await self.run.perform(self.run, self, Cancel(tuple(agents)), None)

    async def aggregate(self, method: str, sources: Sequence[str] = ()) -> str:
        """The fused text, which also stands in `answered`."""
        await self.run.perform(self.run, self, Aggregate(method, tuple(sources)), None)
        return self.answered

    async def returns(self, text: str) -> None:
        """Hand a result to whoever gave the task."""
        await self.run.perform(self.run, self, Return(text), None)

    async def stop(self, answer: str) -> None:
        """End the whole run with an answer."""
        await self.run.perform(self.run, self, Stop(answer), None)

    async def write(self, name: str, text: str) -> None:
        """Write under a name in the team's shared memory."""
        await self.run.perform(self.run, self, WriteShared(name, text), None)

    async def read(self, name: str = "") -> tuple[Any, ...]:
        """What stands under a name in the team's shared memory (`Written`), the latest last."""
        self.shown = ()
        await self.run.perform(self.run, self, ReadShared(name), None)
        return self.shown

    def note(self, text: str) -> None:
        """Something to read at the next turn that comes from the harness, not from an agent."""
        item = Item("", "causal", "", text)
        if self.cut is None:
            self.inbox.append(item)
        else:  # read with what a wait brought, before what came after it
            self.inbox.insert(self.cut, item)
            self.cut += 1

    def done(self) -> bool:
        """Nothing left to do: returned, stopped or cancelled."""
        return self.state != "active" or self.run.stopped

    def next_event_id(self) -> str:
        return f"{self.id}#{self.num_events + 1}"

    def acknowledge(self) -> int:
        """The next event depends on what has come in. Returns how much that is."""
        count = len(self.inbox) if self.cut is None else self.cut
        for item in self.inbox[self.acknowledged : count]:
            if item.event:
                self.causes.append((item.event, item.edge))
        self.acknowledged = max(self.acknowledged, count)
        return count

    @property
    def asked(self) -> str:
        """What it was asked last, of what it has yet to read: not what strangers wrote of the task."""
        return next((item.text for item in reversed(self.inbox) if item.edge != "safety_flow"), "")

    def drain(self) -> list[Entry]:
        """Take what the next turn reads."""
        count = self.acknowledge()
        taken, self.inbox, self.cut = self.inbox[:count], self.inbox[count:], None
        self.acknowledged -= count
        unread, self.unread = self.unread, []
        return [*unread, *(Entry(item.speaker, item.text) for item in taken)]


async def act(me: Agent) -> None:
    """The default program: the policy decides, turn by turn, until the task is done; then the next task."""
    while True:
        while not me.done():
            await me.turn()
        if me.state == "dead" or me.run.stopped:
            return
        await me.run.next_task()
