"""A recorded run cut into its blocks, as arrays: who acted in which block, for whom, and after what.

A block is everything between two completions. It begins with the first event that a call's answer or a tool's result
led to, and lasts up to the next one. This is what a fork copies of agents it does not touch (`baton.team.bystanders`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import accumulate
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from baton.team.budget import MAX_TOKENS, LedgerRules, Limits
from baton.team.question import has_weights
from baton.team.recording import FILES, RESUMED, Recording, moment
from baton.team.team import Assignment, Team
from baton.trace.records import Call, Event, Payload
from baton.trace.trace import Trace, meta_as

Indices = NDArray[np.int64]
Flags = NDArray[np.bool_]
_NAMES = re.compile(r"[\w.\-]*\w")


class Flight(Struct, frozen=True):
    """A call or a tool that was cut off: by its agent's leaving, at this event and time."""

    agent: int
    event: int
    t: float


class RunUp:
    """Calls, texts and what was fed back, counted from the beginning: stretches of blocks are copied at once."""

    def __init__(self, blocks: Blocks) -> None:
        self.calls = [call for each in blocks.calls for call in each]
        self.payloads = [pair for each in blocks.payloads for pair in each]
        self.num_calls = _summed(map(len, blocks.calls))
        self.num_payloads = _summed(map(len, blocks.payloads))
        self.calls_fed = _summed(calls for calls, _ in blocks.reused)
        self.tokens_fed = _summed(tokens for _, tokens in blocks.reused)
        tools = _summed(map(int, blocks.fed_tools))
        self.tools_fed = [tools[start] for start in blocks.start.tolist()]


def _summed(counts: Iterable[int]) -> list[int]:
    return [0, *accumulate(counts)]


class Blocks:
    """The blocks of a finished run. Make it by `blocks_of`, which says whether a trace can be cut up exactly."""

    def __init__(self, trace: Trace, recording: Recording) -> None:
        self.trace = trace
        self.recording = recording
        events = trace.events
        self.n = len(events)
        self.agents: list[str] = list(dict.fromkeys([events[0].agent, *_agents(trace)]))
        self.index: dict[str, int] = {agent: i for i, agent in enumerate(self.agents)}
        self.role: list[str] = [""] * len(self.agents)
        self.parent: Indices = np.full(len(self.agents), -1)
        self.spawned: Indices = np.full(len(self.agents), -1)
        self.killed: Indices = np.full(len(self.agents), -1)
        """Agent -> the event that spawned it, and the one by which it left."""
        self.agent_of: Indices = np.array([self.index[event.agent] for event in events])
        self.to: Indices = np.array([self.index.get(event.to or "", -1) for event in events])
        self.by_kill: Flags = np.array([_by_kill(event) for event in events])
        """What an agent's leaving wrote in its name."""
        self.told: Flags = np.array([_told(event) for event in events]) & (self.to >= 0)
        """Messages and returns that arrived."""
        self.returns: Flags = np.array([event.type == "return" for event in events])
        self._texts: dict[int, str] = {}
        self.spawns: Flags = np.array([event.type == "spawn" and event.status == "ok" for event in events])
        self.invalid: Flags = np.array([event.status == "invalid" for event in events])
        opens = [0, *(i for i, event in enumerate(events) if i and self._opens(event))]
        self.start: Indices = np.array([*opens, self.n])
        """Block -> its first event; one more, for the end of the last."""
        self.t: list[float] = [moment(events[i])[0] for i in opens]
        self.block_of: Indices = np.repeat(np.arange(len(opens)), np.diff(self.start))
        self.opener: Indices = self.agent_of[self.start[:-1]]
        self.src: Indices = np.array([trace.position.get(e.src, -1) for e in trace.edges], dtype=np.int64)
        self.dst: Indices = np.array([trace.position.get(e.dst, -1) for e in trace.edges], dtype=np.int64)
        self.edge_start: list[int] = np.searchsorted(self.dst, np.arange(self.n + 1)).tolist()
        self.calls: list[list[Call]] = [[] for _ in opens]
        self.reused: list[tuple[int, int]] = [(0, 0)] * len(opens)
        """Block -> the answered call that opened it, as (1, its tokens)."""
        self.fed_tools: Flags = np.array([recording.tool(e.id) is not None for e in events])
        self.has_tools = bool(self.fed_tools.any())
        self.calls_of: dict[int, list[Call]] = {}
        self.cut_off: list[Flight] = []
        self.entangled: set[int] = set()
        """Agents whose acts concern everybody (a stop), or hang on whether others than theirs are at work (a wait)."""
        self.events_of: list[list[int]] = [[] for _ in self.agents]
        for i, agent in enumerate(self.agent_of.tolist()):
            self.events_of[agent].append(i)
        self.payloads: list[list[tuple[str, Payload]]] = [[] for _ in opens]
        self.run_up: RunUp | None = None

    def text(self, event: int) -> str:
        """What an event said."""
        found = self._texts.get(event)
        if found is None:
            found = self._texts[event] = self.trace.text(self.trace.events[event].content_ref) or ""
        return found

    def _opens(self, event: Event) -> bool:
        if event.type == "tool_result":
            return event.duration_s is not None
        return event.call is not None and self.recording.said_by[event.call] is event

    def fill(self) -> bool:
        """Put calls, texts and who spawned whom in their places. False: something has no place."""
        trace = self.trace
        for i, event in enumerate(trace.events):
            if self.spawns[i]:
                child = self.to[i]
                self.parent[child], self.spawned[child] = self.agent_of[i], i
                self.role[child] = event.role or ""
            elif event.type == "despawn":
                self.killed[self.to[i]] = i
            elif event.type == "tool_result" and event.duration_s is None:
                self.cut_off.append(Flight(int(self.agent_of[i]), i, event.t))
            if event.decision == "stop":
                self.entangled.add(int(self.agent_of[i]))
            if event.decision == "wait" and event.call is not None:
                self._note_wait(i, event.call)
        if (self.spawned[1:] < 0).any():
            return False
        place = {t: b for b, t in enumerate(self.t)}
        for call in trace.calls:
            if not self._put(call, place):
                return False
        for b in range(len(self.t)):
            refs = [event.content_ref for event in trace.events[self.start[b] : self.start[b + 1]]]
            for call in self.calls[b]:
                refs += [call.prompt_ref, call.completion_ref]
            wanted = [ref for ref in refs if ref is not None]
            if any(ref not in trace.payloads or trace.payloads[ref].data is None for ref in wanted):
                return False
            self.payloads[b] = [(ref, trace.payloads[ref]) for ref in wanted]
        self.run_up = RunUp(self)
        return True

    def _note_wait(self, index: int, call: str) -> None:
        said = self.trace.text(self.trace.call_by_id[call].completion_ref) or ""
        waiter = self.trace.events[index].agent
        for word in set(_NAMES.findall(said)):
            named = self.index.get(word)
            if named is not None and self.agents[self.parent[named]] != waiter:
                self.entangled.add(int(self.agent_of[index]))

    def _put(self, call: Call, place: dict[float, int]) -> bool:
        agent = self.index.get(call.agent)
        if agent is None or call.sampling is None or call.t is None:
            return False
        self.calls_of.setdefault(agent, []).append(call)
        first = self.recording.said_by.get(call.id)
        if first is not None:
            block = int(self.block_of[self.trace.position[first.id]])
            self.reused[block] = (1, first.tokens or 0)
        else:
            if call.finish_reason != "cancelled" or call.duration_s is None:
                return False
            ended = call.t + call.duration_s
            block = place.get(ended, -1)
            if block < 0 or (agent and self.killed[agent] < 0):
                return False
            self.cut_off.append(Flight(agent, int(self.killed[agent]), ended))
        self.calls[block].append(call)
        return True


def _agents(trace: Trace) -> list[str]:
    return [name for e in trace.events for name in (e.agent, e.to if e.type == "spawn" else None) if name]


def _by_kill(event: Event) -> bool:
    return event.type == "despawn" or (event.type == "tool_result" and event.duration_s is None)


def _told(event: Event) -> bool:
    return event.type in ("message", "return") and event.status in ("ok", "forced")


def blocks_of(trace: Trace, team: Team, assignment: Assignment) -> Blocks | None:
    """The blocks of a trace; None where copying one agent's part of it might not be exact.

    That is so where agents depend on each other in ways that no edge tells: budgets that bound, time limits, contexts
    that are inherited, options that a task reads off the run, guards; and where two things happened at one moment.
    """
    roles = team.harness.roles
    plain = all(not role.inherit and role.returns == "summary" and role.max_seconds is None for role in roles)
    if not (plain and trace.finished and trace.events) or assignment.options or assignment.state:
        return None
    if (
        team.harness.shared_memory is not None
    ):  # what was not written yet is read as well, and no edge tells that
        return None
    if team.guard is not None or assignment.untrusted is not None:
        return None
    if any(event.seq != i for i, event in enumerate(trace.events, 1)) or any(map(_special, trace.events)):
        return None
    if not all(_usual(call, team) for call in trace.calls):
        return None
    try:
        blocks = Blocks(trace, Recording(trace))
    except KeyError:  # an event of someone who was never spawned
        return None
    ordered = all(a < b for a, b in zip(blocks.t, blocks.t[1:], strict=False))
    edges = bool((blocks.src >= 0).all() and (np.diff(blocks.dst) >= 0).all() and (blocks.dst >= 0).all())
    return blocks if ordered and edges and blocks.fill() else None


def _special(event: Event) -> bool:
    return (
        event.type == "human_intervention"
        or "timer" in event.extra
        or "budget" in event.extra
        or "deadlock" in event.extra
        or RESUMED in event.extra
        or FILES in event.extra
    )


def _usual(call: Call, team: Team) -> bool:
    """Whether the engine would be fed this answer, and no budget cut it short."""
    role = team.harness.role_by_name.get(call.role or "")
    if role is None or call.sampling is None or call.harness != team.harness.hash:
        return False
    if call.sampling.max_tokens != (role.sampling.max_tokens or MAX_TOKENS):
        return False
    return role.memory == "all" and has_weights(call, team.engine(role))


def held_by(blocks: Blocks, agents: Flags, team: Team) -> Limits:
    """At the most that these agents take at once of what a team may take."""
    calls = [call for i, mine in blocks.calls_of.items() if agents[i] for call in mine]
    count = int(agents.sum())
    tools = sum(event.type == "tool_call" for event in blocks.trace.events)
    limits = team.limits
    tokens = team.hold_back_tokens
    rules = meta_as(blocks.trace.header, LedgerRules, "run", "ledger")
    for call in calls:
        new = len(call.prompt_ids) if call.prompt_ids is not None else _read_bytes(blocks, call)
        if rules is not None and rules.charging.get(call.role or "") != "kept":
            new += (
                call.prompt_tokens or 0
            )  # not less than was reserved: the prompt, counted or estimated anew
        tokens += new + (call.sampling.max_tokens or 0 if call.sampling else 0)

    def less(limit: int | None, by: int) -> int | None:
        return None if limit is None else max(0, limit - by)

    return Limits(
        agents=less(limits.agents, count),
        depth=limits.depth,
        concurrent=less(limits.concurrent, count),
        tokens=less(limits.tokens, tokens),
        calls=less(limits.calls, len(calls)),
        tool_calls=less(limits.tool_calls, tools),
        seconds=limits.seconds,
    )


def _read_bytes(blocks: Blocks, call: Call) -> int:
    """Not less than what a budget counts of the new part of a prompt whose engine has no tokenizer."""
    payload: Any = blocks.trace.payloads.get(call.prompt_ref or "")
    return 0 if payload is None else 2 * int(payload.size) + 1024


def near_caps(trace: Trace) -> bool:
    """Whether a fork might reach a cap of the run, for which everybody's spending counts."""
    found: bool | None = vars(trace).get("near_caps")
    if found is None:  # kept where a trace keeps its other indexes
        found = vars(trace)["near_caps"] = _near_caps(trace)
    return found


def _near_caps(trace: Trace) -> bool:
    rules = meta_as(trace.header, LedgerRules, "run", "ledger")
    if rules is None:
        return False
    spent = {
        "agents": sum(event.type == "spawn" for event in trace.events),
        "tokens": sum(event.tokens or 0 for event in trace.events),
        "seconds": trace.costs.get("wall_clock_s", 0.0),
    }
    caps = {name: getattr(rules.caps, name) for name in spent}
    return any(cap is not None and 2 * spent[name] > cap for name, cap in caps.items())
