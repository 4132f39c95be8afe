"""What of received spans may be kept: without secrets, or without anything that was said.

Requests are decoded and their spans rewritten before they are written down, so that what may not be kept never reaches
the disk. Without payloads a span keeps its numbers and what names things (agents, tools, models, ids): it is then as if
the program had kept content off its spans.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

import msgspec
from msgspec.structs import replace

from baton.connect.import_report import ImportReport
from baton.connect.readers.otlp.conventions import graph_node, was_sent
from baton.connect.readers.otlp.span import LogRecord, OtelSpan, SpanEvent
from baton.connect.redaction import Redaction
from baton.connect.writers.otlp import json_event, json_pairs, json_request

_NAMING = frozenset({
    "agent.name", "agent_name", "embedding.model_name", "error.type", "event.name", "exception.type",
    "gcp.vertex.agent.session_id", "gen_ai.agent.id", "gen_ai.agent.name", "gen_ai.conversation.id",
    "gen_ai.data_source.id", "gen_ai.evaluation.name", "gen_ai.operation.name", "gen_ai.provider.name",
    "gen_ai.request.model", "gen_ai.response.finish_reasons", "gen_ai.response.id", "gen_ai.response.model",
    "gen_ai.system", "gen_ai.tool.call.id", "gen_ai.tool.name", "gen_ai.tool.status", "gen_ai.workflow.name",
    "graph.node.id", "graph.node.parent_id", "llm.finish_reason", "llm.model_name", "llm.request.type",
    "logfire.span_type", "openinference.span.kind", "service.name", "session.id", "tool.id", "tool.name",
    "tool_call.id", "traceloop.entity.name", "traceloop.span.kind", "workflow.id", "workflow.name",
})  # fmt: skip
_EVENTS = frozenset({"exception", "gen_ai.evaluation.result"})
_NAMING_OF_OURS = "baton."


class KeptContent:
    """Rewrites what was decoded, before anybody keeps it."""

    def __init__(self, *, redact: Iterable[str] | None = None, payloads: bool = True) -> None:
        """As of `import_traces`: `redact` takes secrets out and what matches its patterns."""
        self._redact = None if redact is None else Redaction(redact)
        self._payloads = payloads
        self.rewrites = self._redact is not None or not payloads
        """Whether anything is rewritten at all."""

    def kept(self, found: Iterable[OtelSpan | LogRecord], report: ImportReport) -> list[OtelSpan | LogRecord]:
        if not self.rewrites:
            return list(found)
        resources: dict[int, dict[str, Any]] = {}
        return [
            self._span(one, report, resources)
            if isinstance(one, OtelSpan)
            else replace(one, event=self._event(one.event, report))
            for one in found
            if isinstance(one, OtelSpan) or self._may_stay(one.event)
        ]

    def _may_stay(self, event: SpanEvent) -> bool:
        """Events are where some programs put what was said; scores are none of it."""
        return self._payloads or event.name in _EVENTS

    def _span(self, span: OtelSpan, report: ImportReport, resources: dict[int, dict[str, Any]]) -> OtelSpan:
        shared = resources.get(id(span.resource))
        if shared is None:
            shared = resources[id(span.resource)] = self._attributes(span.resource, report)
        attributes = self._attributes(span.attributes, report)
        if (
            not self._payloads and (node := graph_node(span)) is not None
        ):  # LangGraph's frame, of its metadata
            pushed = {"langgraph_triggers": ["__pregel_push"]} if was_sent(span) else {}
            attributes["metadata"] = msgspec.json.encode({"langgraph_node": node, **pushed}).decode()
        return replace(
            span,
            name=self._text(span.name, report),
            message=self._text(span.message, report) if self._payloads else "",
            attributes=attributes,
            events=[self._event(event, report) for event in span.events if self._may_stay(event)],
            resource=shared,
            scope=self._text(span.scope, report),
        )

    def _event(self, event: SpanEvent, report: ImportReport) -> SpanEvent:
        return replace(
            event,
            name=self._text(event.name, report),
            attributes=self._attributes(event.attributes, report),
        )

    def _attributes(self, given: dict[str, Any], report: ImportReport) -> dict[str, Any]:
        if not self._payloads:
            given = {
                key: value
                for key, value in given.items()
                if isinstance(value, bool | int | float) or key in _NAMING or key.startswith(_NAMING_OF_OURS)
            }
        if self._redact is None:
            return given
        return {self._text(key, report): self._value(key, value, report) for key, value in given.items()}

    def _value(self, key: str, value: Any, report: ImportReport) -> Any:
        if self._redact is None:
            return value
        if isinstance(value, str):
            return self._redact.under(key, value, report)
        if isinstance(value, dict):
            return {
                self._text(str(inner), report): self._value(str(inner), each, report)
                for inner, each in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._value(key, each, report) for each in value]
        return value

    def _text(self, text: str, report: ImportReport) -> str:
        return text if self._redact is None else self._redact(text, report)


def request_of(found: list[OtelSpan | LogRecord]) -> bytes:
    """A request in OTLP's JSON that says the same."""
    spans = [one for one in found if isinstance(one, OtelSpan)]
    groups = groupby(spans, key=lambda span: (id(span.resource), span.scope))
    resource_spans = [group for _, own in groups for group in json_request(list(own))["resourceSpans"]]
    records = [
        {
            "traceId": one.trace_id,
            "spanId": one.span_id,
            "eventName": one.event.name,
            **json_event(one.event),
        }
        for one in found
        if isinstance(one, LogRecord)
    ]
    resource_logs = [{"resource": {"attributes": json_pairs({})}, "scopeLogs": [{"logRecords": records}]}]
    request = {
        **({"resourceSpans": resource_spans} if spans else {}),
        **({"resourceLogs": resource_logs} if records else {}),
    }
    return msgspec.json.encode(request)
