"""Who acts in which span: agents with one identity each, and how each of their runs came about.

An agent's run is a spawn where the nearest agent above is another one, or where a tool stands between; it is a handover
where an agent beside it passed control by a tool that names it; otherwise nobody in the trace began it. Under one
spawn, one conversation or one frame an agent keeps its identity; two uses of an agent as a tool are two agents, unless
the second goes on in the conversation of the first.
"""

from __future__ import annotations

from msgspec import Struct

from baton.connect.readers.otlp.conventions import (
    Kind,
    agent_identity,
    agent_name,
    conversation,
    handed_to,
    hands_over,
    is_ours,
    named_agent,
    task_of,
    workflow_name,
)
from baton.connect.readers.otlp.messages import Message, talk_of
from baton.connect.readers.otlp.tree import SpanNode, SpanTree

NO_AGENT = "no span names an agent: the outermost one stands for it"
NO_PARENT = "its parent span never came, and no attribute names the agent"
BY_NAME = "its agent's span never came: an attribute names the agent"
GOES_ON = "its prompt goes on from its earlier run"
FOLLOWED = "it ran next in the same frame, and no span says who passed control"

_SHORTEST_GROWN = 2  # a question and its answer: what goes on has a further one


class Actor(Struct):
    """One agent."""

    key: str
    name: str | None
    role: str | None = None
    parent: str | None = None
    why: str | None = None
    at: str = ""


class InvokedAgent(Struct):
    """One stretch of an agent's work: from its span's start to its end."""

    node: SpanNode
    actor: Actor
    how: str
    """spawn, again (a task for an agent that is there), handover, or root."""
    by: Actor | None = None
    """Who spawned it or handed over to it."""
    tool: SpanNode | None = None
    """The tool that is the delegation or the handover."""
    why: str | None = None
    ends: str = "return"
    """return, handover (another goes on in its place), stop, pause (the same root is asked again later), or open."""
    to: Actor | None = None
    """Who gets what it returns."""


class SpanTeam:
    """The actors of a trace and their runs."""

    def __init__(self, tree: SpanTree) -> None:
        self.actors: dict[str, Actor] = {}
        self.runs: dict[str, InvokedAgent] = {}
        """Id of an agent's span -> its run."""
        self._in_scope: dict[str, list[InvokedAgent]] = {}
        self._delegated: dict[tuple[str, str | None], list[InvokedAgent]] = {}
        self._talks: dict[tuple[str, str, str], InvokedAgent] = {}
        """(spawner, agent, conversation) -> the first run in it."""
        self._named: dict[str, Actor] = {}
        self._handovers: dict[tuple[str, str], list[SpanNode]] = {}
        for node in tree.nodes:
            if node.merged is None and node.kind is Kind.TOOL and (target := handed_to(node.span)):
                scope = _scope(node.above(Kind.AGENT) or node)
                self._handovers.setdefault((scope, _plain(target)), []).append(node)
        for node in tree.nodes:
            if node.kind is Kind.WORKFLOW and node.merged is None:
                self._work(node)
            elif node.kind is Kind.AGENT and node.merged is None:
                self._begin(node)
        for node in tree.nodes:
            self._place(node)
        self._end_runs()

    def _work(self, node: SpanNode) -> None:
        """A workflow leads those that run in it."""
        by = self._above(node)
        actor = self._actor(node.key, workflow_name(node.span), node, role="workflow", parent=by)
        self._add(InvokedAgent(node=node, actor=actor, how="root" if by is None else "spawn", by=by, to=by))

    def _begin(self, node: SpanNode) -> None:
        by = self._above(node)
        scope = _scope(node)
        name = agent_name(node.span)
        tool = _tool_above(node)
        before = self._in_scope.get(scope, [])
        passed = self._passed(node, scope, name)
        if passed is not None:
            self._hand_over(node, passed, before)
            return
        delegated = tool is not None or (by is not None and by.role != "workflow")
        same = self._same(node, self._of_spawner(by, name) if delegated else before, delegated)
        if same is not None:
            run = InvokedAgent(
                node=node, actor=same.actor, how="root" if by is None else "again", by=by, tool=tool, to=by
            )
            run.why = GOES_ON if delegated and conversation(node.span) is None else None
        else:
            role = node.span.attributes.get("baton.agent.role")
            actor = self._actor(node.key, name, node, role=role, parent=by, why=node.why)
            run = InvokedAgent(
                node=node, actor=actor, how="root" if by is None else "spawn", by=by, tool=tool, to=by
            )
            run.why = node.why
        last = before[-1] if before else None
        if run.how == "root" and _in_frame(node) and last is not None and _followed(last, run):
            last.ends, run.how, run.by, run.why = "handover", "handover", last.actor, FOLLOWED
            run.tool = _passing(last.node)
            if run.tool is not None:
                run.tool.spawns.append(node)
        self._add(run)
        if tool is not None:
            tool.spawns.append(node)

    def _passed(self, node: SpanNode, scope: str, name: str | None) -> SpanNode | None:
        """The tool by which control came here: the latest before it that names it and has not been followed."""
        own = node.above(Kind.AGENT)
        inside = "" if own is None else _scope(own)
        for place in (scope, inside):
            tools = self._handovers.get((place, _plain(name or "")), [])
            open_ = [tool for tool in tools if not tool.spawns and tool.start <= node.start]
            if open_:
                open_[-1].spawns.append(node)
                return open_[-1]
        return None

    def _hand_over(self, node: SpanNode, tool: SpanNode, before: list[InvokedAgent]) -> None:
        giver = tool.above(Kind.AGENT)
        given = None if giver is None else self.runs.get(giver.key)
        scope = _scope(node if giver is None else giver)
        known = [run for run in self._in_scope.get(scope, before) if _same_agent(run.node, node)]
        actor = known[0].actor if known else self._actor(node.key, agent_name(node.span), node)
        run = InvokedAgent(
            node=node, actor=actor, how="handover", by=None if given is None else given.actor, tool=tool
        )
        if given is not None:
            given.ends, run.to = "handover", given.to
        self._add(run, scope)

    def _same(self, node: SpanNode, earlier: list[InvokedAgent], delegated: bool) -> InvokedAgent | None:
        """An earlier run of the very same agent. One that works for another begins anew, unless it goes on."""
        if not delegated:
            return next((run for run in earlier if _same_agent(run.node, node)), None)
        own = conversation(node.span)
        if own is not None:
            by = self._above(node)
            known = None if by is None else self._talks.get((by.key, agent_identity(node.span), own))
            return None if _shares_conversation(node, own) else known
        told = _first_prompt(node)
        if len(told) <= _SHORTEST_GROWN:
            return None
        for run in earlier:
            if run.node.end <= node.start and _same_agent(run.node, node) and _grows(run.node, told):
                return run
        return None

    def _of_spawner(self, by: Actor | None, name: str | None) -> list[InvokedAgent]:
        return [] if by is None else self._delegated.get((by.key, name), [])

    def _place(self, node: SpanNode) -> None:
        """Who acts in a span that is no agent's."""
        if node.actor is not None or node.merged is not None:
            return
        above = node.above(Kind.AGENT, Kind.WORKFLOW)
        if above is not None and above.actor is not None:
            node.actor = above.actor
        elif node.kind in (Kind.MODEL, Kind.TOOL, Kind.GUARD, Kind.DECISION, Kind.EVENT):
            node.actor = self._stand_in(node).key

    def _stand_in(self, node: SpanNode) -> Actor:
        """Somebody for what happens outside every agent's span."""
        top = node.top()
        name = named_agent(node.span)
        if name is not None:
            known = self._named.get(name)
            why = None if is_ours(node.span) else BY_NAME
            return known or self._actor(f"{top.missing or ''}/{name}", name, node, why=why)
        if top.missing is not None:
            return self._actor(top.missing, None, node, why=NO_PARENT)
        if top.kind in (Kind.MODEL, Kind.TOOL):
            service = top.span.resource.get("service.name")
            return self._actor("", str(service or "agent"), node, why=NO_AGENT)
        return self._actor(top.key, top.span.name, top, why=NO_AGENT)

    def _actor(
        self, key: str, name: str | None, node: SpanNode, *, role: str | None = None, parent: Actor | None = None,
        why: str | None = None,
    ) -> Actor:  # fmt: skip
        made = Actor(
            key=key,
            name=name,
            role=role,
            parent=None if parent is None else parent.key,
            why=why,
            at=node.span.at,
        )
        return self.actors.setdefault(key, made)

    def _add(self, run: InvokedAgent, scope: str | None = None) -> None:
        self.runs[run.node.key] = run
        if run.actor.name is not None:
            self._named.setdefault(run.actor.name, run.actor)
        if run.by is not None and run.how != "handover":
            self._delegated.setdefault((run.by.key, run.actor.name), []).append(run)
            if (own := conversation(run.node.span)) is not None:
                self._talks.setdefault((run.by.key, agent_identity(run.node.span), own), run)
        run.node.actor = run.actor.key
        self._in_scope.setdefault(_scope(run.node) if scope is None else scope, []).append(run)

    def _above(self, node: SpanNode) -> Actor | None:
        above = node.above(Kind.AGENT, Kind.WORKFLOW)
        return None if above is None or above.actor is None else self.actors[above.actor]

    def _end_runs(self) -> None:
        """The last run of a root gives the answer; in earlier ones it was asked something else."""
        last: dict[str, InvokedAgent] = {}
        for run in self.runs.values():
            if run.node.span.attributes.get("baton.agent.ended") is False:
                run.ends = "open"
            elif run.to is None and run.ends == "return":
                before = last.get(run.actor.key)
                if before is not None:
                    before.ends = "pause"
                last[run.actor.key] = run
                run.ends = "stop"


def _scope(node: SpanNode) -> str:
    """Where an agent's name means one agent: one use of a tool, one run of another agent, one frame, the trace."""
    above = node.above(Kind.AGENT, Kind.WORKFLOW, Kind.TEAM, Kind.TOOL)
    return "" if above is None else above.key


def _in_frame(node: SpanNode) -> bool:
    above = node.above(Kind.AGENT, Kind.WORKFLOW, Kind.TEAM, Kind.TOOL)
    return above is not None and above.kind is Kind.TEAM


def _tool_above(node: SpanNode) -> SpanNode | None:
    """The tool that runs this agent for another: nothing that acts stands between."""
    above = node.above(Kind.AGENT, Kind.WORKFLOW, Kind.TOOL)
    return above if above is not None and above.kind is Kind.TOOL else None


def _passing(node: SpanNode) -> SpanNode | None:
    """The tool by which an agent passed control, where it does not say to whom."""
    tools = [child for child in node.children if child.kind is Kind.TOOL and hands_over(child.span)]
    return tools[-1] if tools and not tools[-1].spawns else None


def _followed(last: InvokedAgent, run: InvokedAgent) -> bool:
    return last.actor is not run.actor and last.node.end <= run.node.start and last.ends != "handover"


def _same_agent(one: SpanNode, other: SpanNode) -> bool:
    if one.alone or other.alone:
        return False
    return agent_identity(one.span) == agent_identity(other.span)


def _shares_conversation(node: SpanNode, own: str) -> bool:
    """Whether the spawner's conversation has the same id: then it is the program's and says nothing of this agent."""
    above = node.above(Kind.AGENT)
    return above is not None and conversation(above.span) == own


def _grows(earlier: SpanNode, told: list[Message]) -> bool:
    """Whether a prompt begins with what an earlier run was told, and goes on after what that one said."""
    first = _first_prompt(earlier)
    return bool(first) and len(told) > len(first) + 1 and told[: len(first)] == first


def _first_prompt(node: SpanNode) -> list[Message]:
    waiting = list(reversed(node.children))
    while waiting:
        child = waiting.pop()
        if child.kind is Kind.MODEL:
            return talk_of(child.span).told
        if child.kind not in (Kind.AGENT, Kind.TOOL):
            waiting += reversed(child.children)
    return []


def _plain(name: str) -> str:
    """Tools spell agents' names in their own way."""
    return "".join(c if c.isalnum() else "_" for c in name.lower())


def task_of_trace(team: SpanTeam, nodes: list[SpanNode]) -> str | None:
    """What was asked first: by a frame, of a run, or else in the first prompt of all."""
    for run in team.runs.values():  # a workflow may not say it; then whoever it asks first was asked it
        frame = run.node.above(Kind.TEAM)
        asked = None if frame is None else task_of(frame.span)
        if asked or (asked := task_of(run.node.span)):
            return asked
    first = next((node for node in nodes if node.kind is Kind.MODEL), None)
    told = [] if first is None else talk_of(first.span).told
    return next((message.text for message in told if message.role == "user"), None)
