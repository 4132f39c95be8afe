"""The spans of one OTel trace as a tree: who stands above whom, in which order, and what each of them is.

Invariant: nothing here depends on the order in which spans arrived. A span whose parent never came is a root that
remembers the name of what it misses; a child whose clock is behind its parent's is moved, with all below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from baton.connect.import_report import ImportReport
from baton.connect.readers.otlp.conventions import (
    Kind,
    agent_identity,
    agent_name,
    graph_node,
    is_unnamed_frame,
    kind_of,
    tool_name,
    usage,
    was_sent,
    workflow_name,
)
from baton.connect.readers.otlp.span import OtelSpan

_ACTS = (Kind.AGENT, Kind.WORKFLOW, Kind.MODEL, Kind.TOOL)


class SpanNode:
    """A span in its place."""

    __slots__ = (
        "actor",
        "alone",
        "children",
        "depth",
        "end",
        "key",
        "kind",
        "merged",
        "missing",
        "parent",
        "span",
        "spawns",
        "start",
        "why",
    )  # fmt: skip

    def __init__(self, span: OtelSpan, kind: Kind) -> None:
        self.span = span
        self.key = span.span_id
        self.kind = kind
        self.parent: SpanNode | None = None
        self.children: list[SpanNode] = []
        self.depth = 0
        self.start = span.start_ns
        self.end = max(span.end_ns, span.start_ns)
        self.missing: str | None = None
        """Id of the parent that never came."""
        self.merged: SpanNode | None = None
        """The node that tells of the same thing, where two instrumentations saw it."""
        self.actor: str | None = None
        """Key of whoever acts in it; of an agent's span, that agent."""
        self.spawns: list[SpanNode] = []
        """Of a tool: the agents that it ran."""
        self.alone = False
        """Whether it is nobody else's run, whatever its name."""
        self.why: str | None = None
        """Why it was taken for an agent, where no convention says so."""

    def above(self, *kinds: Kind) -> SpanNode | None:
        """The nearest node above of these kinds; what tells of the same thing as another is passed."""
        node = self.parent
        while node is not None and (node.merged is not None or node.kind not in kinds):
            node = node.parent
        return node

    def top(self) -> SpanNode:
        node = self
        while node.parent is not None:
            node = node.parent
        return node


class SpanTree:
    """All nodes of one trace, by start."""

    def __init__(self, spans: Sequence[OtelSpan], report: ImportReport) -> None:
        self.by_id: dict[str, SpanNode] = {}
        for span in spans:
            known = self.by_id.get(span.span_id)
            if known is None:
                self.by_id[span.span_id] = SpanNode(span, kind_of(span))
            else:
                report.join("a span that came again")
                _add(known.span, span)
                known.kind = kind_of(known.span)
        self.timed = any(span.start_ns for span in spans)
        for node in self.by_id.values():
            above = node.span.parent_id
            parent = None if above is None or above == node.key else self.by_id.get(above)
            if parent is not None and not _is_below(parent, node):
                node.parent = parent
                parent.children.append(node)
            elif above is not None:
                node.missing = above
        if not self.timed:
            _number(spans, self.by_id)
        self.nodes = self._in_order()
        self._look_closer(report)

    def _in_order(self) -> list[SpanNode]:
        """Parents before children, by start; clocks that are behind are put right on the way."""
        roots = [(node, 0) for node in self.by_id.values() if node.parent is None]
        found: list[SpanNode] = []
        while roots:
            node, shift = roots.pop()
            node.start += shift
            node.end += shift
            found.append(node)
            for child in node.children:
                child.depth = node.depth + 1
                behind = max(0, node.start - (child.start + shift)) if child.start else 0
                if not child.start:
                    child.start = child.end = node.start - shift
                roots.append((child, shift + behind))
        found.sort(key=order_of)
        for node in found:
            node.children.sort(key=order_of)
        return found

    def _look_closer(self, report: ImportReport) -> None:
        """What only a span's neighbours tell: frames that look like agents, steps that are agents, what came twice."""
        for node in reversed(self.nodes):
            if (node.kind is Kind.AGENT and is_unnamed_frame(node.span) and _frames_named(node)) or (
                node.kind is Kind.WORKFLOW and _frames_its_namesake(node)
            ):
                node.kind = Kind.TEAM
        for node in self.nodes:
            if node.kind is Kind.CHAIN:
                _look_for_graph(node)
            if node.kind in _ACTS:
                node.merged = _same_thing(node)
                if node.merged is not None:
                    report.join(f"a {node.kind.name.lower()} that two instrumentations saw")


def order_of(node: SpanNode) -> tuple[int, int, int, str]:
    """By start; what is asked before what is done, where a clock is too coarse to tell."""
    return node.start, node.depth, 0 if node.kind is Kind.MODEL else 1, node.key


def _is_below(node: SpanNode, other: SpanNode) -> bool:
    """Whether `node` stands somewhere below `other`: then `other` cannot be its child."""
    above: SpanNode | None = node
    while above is not None:
        if above is other:
            return True
        above = above.parent
    return False


def _add(known: OtelSpan, again: OtelSpan) -> None:
    """What the later one knows and the earlier did not."""
    for name, value in again.attributes.items():
        known.attributes.setdefault(name, value)
    seen = {(event.name, event.time_ns, str(event.attributes)) for event in known.events}
    known.events += (e for e in again.events if (e.name, e.time_ns, str(e.attributes)) not in seen)
    known.links += (link for link in again.links if link not in known.links)
    known.start_ns = known.start_ns or again.start_ns
    known.end_ns = max(known.end_ns, again.end_ns)
    known.parent_id = known.parent_id or again.parent_id
    known.failed = known.failed or again.failed


def _number(spans: Iterable[OtelSpan], by_id: dict[str, SpanNode]) -> None:
    """Without any times the order in the file has to do: spans are written when they end."""
    for place, span in enumerate(spans):
        node: SpanNode | None = by_id[span.span_id]
        if node is not None and not node.end:
            node.end = 2 * place + 2
            node.start = node.start or 2 * place + 1
            while node is not None and node.parent is not None:
                above = node.parent
                if above.start and above.start <= node.start:
                    break
                above.start = node.start
                node = above


def _frames_named(node: SpanNode) -> bool:
    """Whether an agent with a name of its own runs in it, before any tool."""
    waiting = list(node.children)
    while waiting:
        child = waiting.pop()
        if child.kind is Kind.AGENT and not is_unnamed_frame(child.span):
            return True
        if child.kind is Kind.CHAIN or child.kind is Kind.NONE:
            waiting += child.children
    return False


def _frames_its_namesake(node: SpanNode) -> bool:
    """ADK's runner makes a workflow around an agent, under the agent's name; that is nobody else."""
    waiting = list(node.children)
    while waiting:
        child = waiting.pop()
        if child.kind is Kind.AGENT and agent_name(child.span) == workflow_name(node.span):
            return True
        if child.kind in (Kind.CHAIN, Kind.NONE):
            waiting += child.children
    return False


def _look_for_graph(node: SpanNode) -> None:
    """LangGraph's spans are all chains. A Send's task that asks a model, and a graph inside a node, are agents."""
    place = graph_node(node.span)
    if place is None:
        if any(graph_node(child.span) is not None for child in node.children):
            node.kind = Kind.WORKFLOW
        return
    if place == node.span.name:
        if was_sent(node.span) and place != "tools" and _asks(node):
            node.kind, node.alone = Kind.AGENT, True
            node.why = "a task that was sent to a node, which asks a model; every node is a chain span"
        return
    inner = {graph_node(child.span) for child in node.children} - {None, place}
    if inner:
        node.kind = Kind.AGENT
        node.why = "a graph inside a node; every node is a chain span"


def _asks(node: SpanNode) -> bool:
    return any(child.kind is Kind.MODEL for child in _below(node))


def _same_thing(node: SpanNode) -> SpanNode | None:
    """The node above that tells of the same call, tool use or run, seen by another instrumentation."""
    above = node.above(*_ACTS)
    if above is None or above.kind is not node.kind:
        return None
    if node.kind is Kind.MODEL:
        inner = [one for one in _below(above) if one.kind is Kind.MODEL]
        if len(inner) > 1 and usage(above.span) == (None, None):
            above.kind = Kind.NONE  # it frames several answers and is none itself
            return None
        return above
    if node.kind is Kind.TOOL:
        same = tool_name(above.span) == tool_name(node.span) and not _differ(
            above, node, "gen_ai.tool.call.id"
        )
        return above if same else None
    if node.kind is Kind.AGENT:
        return above if agent_identity(above.span) == agent_identity(node.span) else None
    return None


def _differ(one: SpanNode, other: SpanNode, name: str) -> bool:
    a, b = one.span.attributes.get(name), other.span.attributes.get(name)
    return a is not None and b is not None and a != b


def _below(node: SpanNode) -> Iterable[SpanNode]:
    waiting = list(node.children)
    while waiting:
        child = waiting.pop()
        yield child
        waiting += child.children
