"""Who took part in a session: every agent, who started it by which call, and how it is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct, field

from baton.connect.readers.claude_code.entries import Meta, SpawnInput
from baton.connect.readers.claude_code.index import MAIN, ClaudeSpawn, SessionIndex

_BY_PROMPT = "its transcript opens with the prompt of this call, and no entry names it"
_NO_CALL = "its transcript lies among the session's agents and no call of the session starts it"
_WARMING = "Warmup"
"""What the program says to agents that it starts by itself, to have them ready: they are nobody's children."""
LEAD = frozenset({"team-lead", "lead", "leader", "main", "parent"})


class SessionAgent(Struct, kw_only=True):
    """One agent of the session."""

    key: str
    name: str | None
    words: str | None = None
    """What the call that started it says it is for."""
    role: str | None = None
    parent: str | None = None
    spawn: str | None = None
    """The tool call that started it; None: none is known."""
    born: float = 0.0
    why: str | None = None


class People(Struct):
    """The agents of a session, parents before children."""

    agents: dict[str, SessionAgent] = field(default_factory=dict)
    started: dict[str, str] = field(default_factory=dict)
    """Tool call -> the agent it started."""
    resumed: dict[str, str] = field(default_factory=dict)
    """Tool call -> the agent it sent back to work."""
    names: dict[str, str] = field(default_factory=dict)
    """What agents call each other -> key."""

    def find(self, name: str | None) -> str | None:
        """The agent of that name; None: nobody is called so."""
        if not name:
            return None
        found = self.names.get(name) or self.names.get(name.partition("@")[0])
        return found or (MAIN if name.partition("@")[0] in LEAD else None)


def people_of(index: SessionIndex, metas: dict[str, Meta], opening: Callable[[str], str | None]) -> People:
    """Join calls, transcripts and notes. `opening` gives the first words of an agent's transcript."""
    people = People()
    people.agents[MAIN] = SessionAgent(key=MAIN, name=MAIN)
    by_meta = {meta.toolUseId: agent for agent, meta in metas.items() if meta.toolUseId}
    calls = sorted(index.spawns.values(), key=lambda spawn: (spawn.t, spawn.call))
    free = {agent for agent in index.first if agent != MAIN}
    open_calls: list[ClaudeSpawn] = []
    for spawn in calls:
        call = spawn.call
        child = index.children.get(call) or by_meta.get(call) or index.named.get(call)
        if spawn.asked.resume:
            people.resumed[call] = spawn.asked.resume
            free.discard(spawn.asked.resume)
        elif child:
            _start(people, spawn, child, metas)
            free.discard(child)
        elif call not in index.refused:
            open_calls.append(spawn)
    for call, child in index.children.items():  # other tools start agents too: a skill of its own, a workflow
        if call not in index.spawns and call not in index.sent and child in free:
            meta = metas.get(child, Meta())
            by = meta.parentAgentId or MAIN
            _start(people, ClaudeSpawn(call, by, index.first[child], _asked(meta)), child, metas)
            free.discard(child)
    _by_prompt(people, open_calls, free, index, opening)
    for agent in sorted(free, key=lambda agent: (index.first[agent], agent)):
        meta = metas.get(agent, Meta())
        known = (agent in metas or agent in index.listed) and opening(agent) != _WARMING
        people.agents[agent] = SessionAgent(
            key=agent, name=meta.name, words=meta.description, role=meta.agentType,
            parent=(meta.parentAgentId or MAIN) if known else None, born=index.first[agent],
            why=_NO_CALL if known else None,
        )  # fmt: skip
        people.names.setdefault(agent, agent)
    return people


def _by_prompt(
    people: People,
    calls: list[ClaudeSpawn],
    free: set[str],
    index: SessionIndex,
    opening: Callable[[str], str | None],
) -> None:
    """Calls that no entry joins to a transcript: the words that both have do, first call to first transcript."""
    waiting: dict[str, list[str]] = {}
    if calls:
        for agent in sorted(free, key=lambda agent: (index.first[agent], agent)):
            words = index.roots.get(agent) or opening(agent)
            if words:
                waiting.setdefault(words.strip(), []).append(agent)
    for spawn in calls:
        same = waiting.get((spawn.asked.prompt or "").strip())
        if same:
            agent = same.pop(0)
            _start(people, spawn, agent, {}, why=_BY_PROMPT)
            free.discard(agent)
        else:  # known by its call alone
            _start(people, spawn, f"agent:{spawn.call}", {})


def _asked(meta: Meta) -> SpawnInput:
    return SpawnInput(name=meta.name, description=meta.description, subagent_type=meta.agentType)


def _start(
    people: People, spawn: ClaudeSpawn, child: str, metas: dict[str, Meta], why: str | None = None
) -> None:
    asked, meta = spawn.asked, metas.get(child, Meta())
    role = asked.subagent_type or meta.agentType
    people.started[spawn.call] = child
    if child not in people.agents:
        people.agents[child] = SessionAgent(
            key=child, name=asked.name or meta.name, words=asked.description or meta.description, role=role,
            parent=spawn.by, spawn=spawn.call, born=spawn.t, why=why,
        )  # fmt: skip
    people.names.setdefault(child, child)
    if asked.name:
        people.names.setdefault(asked.name, child)


def parents_first(people: People) -> Iterator[SessionAgent]:
    """Every agent after the one that started it; circles and missing parents are cut at the main agent."""
    below: dict[str | None, list[SessionAgent]] = {}
    for person in people.agents.values():
        if person.parent is not None and (person.parent not in people.agents or person.parent == person.key):
            person.parent = MAIN if MAIN in people.agents else None
        below.setdefault(person.parent, []).append(person)
    told: set[str] = set()
    waiting = list(below.get(None, ()))
    for person in waiting:
        told.add(person.key)
        yield person
        waiting.extend(sorted(below.get(person.key, ()), key=lambda child: (child.born, child.key)))
    for person in people.agents.values():
        if person.key not in told:
            person.parent = MAIN
            yield person
