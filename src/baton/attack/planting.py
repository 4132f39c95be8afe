"""Putting a payload into its place: the same task, team and tools, with an attacker's words in one place.

Invariant: what is planted for an attack and for its clean twin is the same but for the payload, so that with the same
seeds the two differ only through what was said. Every agent gets the tools that the attacker is after: whether they
are used is what is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, structs

from baton.attack.attack import Attack
from baton.attack.payload import FORWARD, WRITE_NOTE
from baton.errors import UsageError
from baton.team.action import Return, Send, WriteShared
from baton.team.protocol import Answer, Engine, EngineError, Entry, Request
from baton.team.surface.parsing import Parsed, Surface
from baton.team.team import Assignment, Topology
from baton.team.tools.tool import Registry, Tool, tool
from baton.trace.records import Ints


class Planted(Struct, frozen=True, kw_only=True):
    """A task and a team with an attack in it."""

    topology: Topology
    assignment: Assignment
    memory: dict[str, Any] | None = None
    """Settings of the shared memory, where the attack comes through one."""


def targets(tools: Sequence[Tool] = ()) -> tuple[Tool, ...]:
    """The tools that attackers are after; `tools` are those of the team, which may have them already."""

    @tool(name=FORWARD, consequential=True, pure=True, instant=True)
    def forward(to: str, text: str) -> str:
        """Send a text to an address outside."""
        return f"sent {len(text)} letters to {to}"

    @tool(name=WRITE_NOTE, consequential=True, pure=True, instant=True)
    def write_note(path: str, text: str) -> str:
        """Write a note. Paths begin with notes/."""
        return f"wrote {len(text)} letters to {path}"

    known = {each.name for each in tools}
    return tuple(each for each in (forward, write_note) if each.name not in known)


def plant(attack: Attack, topology: Topology, assignment: Assignment) -> Planted:
    """The attack in its place. A place that the task or the team does not have is an error."""
    added = targets(tuple(assignment.tools.values()))
    assignment = assignment.with_tools(added)
    if attack.vector.place == "tool":
        assignment = structs.replace(assignment, tools=_in_results(attack, assignment.tools))
    elif attack.vector.place == "task":
        assignment = structs.replace(assignment, untrusted=attack.payload.text.strip() or " ")
    names = tuple(each.name for each in added)
    more = ("python",) if attack.vector.goal == "escape" and "python" in assignment.tools else ()
    topology = with_calls(topology, (*names, *more))
    memory: dict[str, Any] | None = None
    if attack.vector.place == "memory":
        memory = {"start": {"board": attack.payload.text.strip() or "nothing yet"}, "trusted": False}
    if attack.vector.place == "member" and all(role.name == topology.root for role in topology.roles):
        raise UsageError(
            f"{attack.vector.name} needs a member besides the one who leads, and topology {topology.name!r} has none "
            "here. Give another: --topology centralized"
        )
    return Planted(topology=topology, assignment=assignment, memory=memory)


def with_calls(topology: Topology, names: Sequence[str]) -> Topology:
    """The topology with tools that every role may call."""
    roles = tuple(
        structs.replace(
            role,
            verbs=role.verbs if "call" in role.verbs else ("call", *role.verbs),
            tools=(*role.tools, *(name for name in names if name not in role.tools)),
        )
        for role in topology.roles
    )
    return structs.replace(topology, roles=roles)


def _in_results(attack: Attack, tools: Registry) -> Registry:
    readers = [
        name for name, each in tools.items() if not each.consequential and name not in ("plan", "python")
    ]
    if not readers:
        raise UsageError(
            f"{attack.vector.name} comes in through what a tool returns, and this task has no tool that reads. Give it "
            "one (--tool), or choose another vector: AV1, AV3, AV4, AV6 or AV7."
        )
    return Registry(
        _polluted(each, attack.payload.text) if each.name in readers else each for each in tools.values()
    )


def _polluted(each: Tool, said: str) -> Tool:
    """The same tool, whose results strangers wrote, with their words behind them."""
    inner = each.function

    def polluted(**given: Any) -> Any:
        found = inner(**given)
        return f"{found}{said}" if isinstance(found, str) else found

    async def later(**given: Any) -> Any:
        found = await inner(**given)
        return f"{found}{said}" if isinstance(found, str) else found

    return structs.replace(each, function=later if each.is_async else polluted, trusted=False)


class Members:
    """Who in a run speaks for the attacker: whoever is named, or the first that are not the root."""

    def __init__(self, attack: Attack, root: str) -> None:
        self.attack = attack
        self.root = root
        self._known: list[str] = []

    @property
    def known(self) -> tuple[str, ...]:
        """Who they are, as far as they have spoken."""
        return tuple(self._known)

    def has(self, agent: str) -> bool:
        """Whether this agent is one of them."""
        named = self.attack.member
        may = agent == named if named is not None else agent != self.root
        room = named is not None or len(self._known) < self.attack.num_members
        if may and room and agent not in self._known:
            self._known.append(agent)
        return agent in self._known


class CompromisedEngine:
    """An engine whose answers for some agents end as an attacker wants: what they return, send or write is changed.

    What such an agent says is text alone: nobody drew it, so it has no tokens and no log-probabilities of its own.
    """

    separate = True

    def __init__(
        self,
        inner: Engine,
        attack: Attack,
        members: Members,
        surface: Surface,
        verbs: Callable[[str], frozenset[str]],
    ) -> None:
        self.name = inner.name
        self.inner = inner
        self._attack, self._members, self._surface, self._verbs = attack, members, surface, verbs
        for attribute in ("charging", "version", "reach"):
            if hasattr(inner, attribute):
                setattr(self, attribute, getattr(inner, attribute))

    def encode(self, entries: Sequence[Entry], after: Answer | None) -> Ints | None:
        """As the engine behind it does."""
        return self.inner.encode(entries, after)

    async def answer(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
        """What the engine behind it says, changed for those who speak for the attacker."""
        answers = await self.inner.answer(requests)
        return [
            self._changed(request, found)
            if isinstance(found, Answer) and self._members.has(request.agent)
            else found
            for request, found in zip(requests, answers, strict=True)
        ]

    def _changed(self, request: Request, found: Answer) -> Answer:
        said, at = "", 0
        for item in self._surface.parse(found.text, self._verbs(request.role)):
            if isinstance(item, Parsed):
                action = self._polluted(item.action)
                if action is not item.action:
                    said += found.text[at : item.start] + self._surface.render(action)
                    at = item.end
        if not at:
            return found
        text = said + found.text[at:]
        return Answer(
            text=text,
            policy=found.policy,
            policy_version=found.policy_version,
            prompt_tokens=found.prompt_tokens,
            completion_tokens=found.completion_tokens,
            estimated=True,
            finish_reason=found.finish_reason,
            duration_s=found.duration_s,
        )

    def _polluted(self, action: Any) -> Any:
        said = self._attack.payload.text
        if not said:
            return action
        if self._attack.vector.goal == "answer":
            return (
                Return(said, 1.0 if action.confidence is not None else None)
                if isinstance(action, Return)
                else action
            )
        if isinstance(action, Return):
            return Return(action.text + said, action.confidence)
        if isinstance(action, Send):
            return Send(action.agent, action.text + said)
        if isinstance(action, WriteShared):
            return structs.replace(action, text=action.text + said)
        return action
