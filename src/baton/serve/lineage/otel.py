"""Who asks, by OpenTelemetry: a request's traceparent names a span, and the spans above it name the agent.

The spans are those that the session's program sent to the endpoint. Agents that only stand in for spans which never
came, or for a program that names none, are no word on who asked: there the prompts speak.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from baton.connect.import_report import ImportReport
from baton.connect.readers.otlp.conventions import tool_call_id
from baton.connect.readers.otlp.reader import Traces
from baton.connect.readers.otlp.team import BY_NAME, NO_AGENT, NO_PARENT, SpanTeam
from baton.connect.readers.otlp.tree import SpanNode, SpanTree
from baton.connect.receive import Refused, decoded
from baton.serve.exchange import Exchange
from baton.serve.journal import SpansLine
from baton.serve.lineage.headers import Named

BY_SPANS = "traceparent"
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_STAND_INS = (NO_PARENT, BY_NAME, NO_AGENT)


def named_by_spans(
    exchanges: Sequence[Exchange], lines: Iterable[SpansLine], report: ImportReport
) -> dict[int, Named]:
    """Place of an exchange, by arrival -> the agent that its spans name."""
    parents = {}
    for place, exchange in enumerate(sorted(exchanges, key=lambda one: one.number)):
        given = _TRACEPARENT.fullmatch(exchange.headers.get("traceparent", "").strip().lower())
        if given is not None:
            parents[place] = (given[1], given[2])
    if not parents:
        return {}
    traces = _read(lines, report)
    wanted = {trace for trace, _ in parents.values()} & traces.spans.keys()
    teams = {trace: _TraceAgents(trace, traces, report) for trace in wanted}
    named = {place: teams[trace].asker(span) for place, (trace, span) in parents.items() if trace in teams}
    found = {place: one for place, one in named.items() if one is not None}
    asks = {one.agent for one in found.values()}
    above: dict[str, str | None] = {}
    for team in teams.values():
        above |= team.parents()
    return {place: _below_who_asks(one, asks, above) for place, one in found.items()}


def _below_who_asks(one: Named, asks: set[str], above: dict[str, str | None]) -> Named:
    """A workflow that asks nothing is the program's: its agents are those of whoever asks above it."""
    parent = one.parent
    while parent is not None and parent not in asks:
        parent = above.get(parent)
    return one if parent == one.parent else replace(one, parent=parent)


def _read(lines: Iterable[SpansLine], report: ImportReport) -> Traces:
    traces = Traces()
    for line in lines:
        try:
            traces.add(decoded(line.signal, line.body, is_json=line.is_json), report)
        except Refused as error:
            report.skip(error.why)
    return traces


class _TraceAgents:
    """The agents of one OTel trace."""

    def __init__(self, trace: str, traces: Traces, report: ImportReport) -> None:
        self._trace = trace
        self._tree = SpanTree(traces.held(trace), report)
        self._team = SpanTeam(self._tree)
        self._first = {run.actor.key: run for run in reversed(self._team.runs.values())}

    def asker(self, span: str) -> Named | None:
        """Whoever acts in a span, by the nearest one above it in which somebody does."""
        node: SpanNode | None = self._tree.by_id.get(span)
        while node is not None and node.actor is None:
            node = node.parent
        actor = None if node is None or node.actor is None else self._team.actors[node.actor]
        if actor is None or actor.why in _STAND_INS:
            return None
        run = self._first.get(actor.key)
        hands = run is not None and run.how == "handover" and run.by is not None
        use = None if run is None or run.tool is None else tool_call_id(run.tool.span)
        return Named(
            agent=self._key(actor.key), parent=None if actor.parent is None else self._key(actor.parent),
            name=actor.name, role=actor.role, by=BY_SPANS, use=use,
            given_by=self._key(run.by.key) if hands and run is not None and run.by is not None else None,
        )  # fmt: skip

    def _key(self, actor: str) -> str:
        return f"{self._trace[:8]}/{actor}"

    def parents(self) -> dict[str, str | None]:
        """Agent -> its parent, also of those that ask nothing themselves."""
        return {
            self._key(key): None if actor.parent is None else self._key(actor.parent)
            for key, actor in self._team.actors.items()
        }
