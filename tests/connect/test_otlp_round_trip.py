"""A trace written as OTLP and read back tells of the same spawns, returns, tools, messages and tokens."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.strategies import valid_traces

from baton.connect.assemble import assemble
from baton.connect.import_report import ImportReport
from baton.connect.readers.otlp.json_spans import decode_json, spans_of
from baton.connect.readers.otlp.protobuf import decode_traces
from baton.connect.readers.otlp.span import OtelSpan
from baton.connect.readers.otlp.telling import sightings_of
from baton.connect.writers.otlp import json_request, protobuf_request
from baton.connect.writers.otlp_spans import spans_of_trace
from baton.trace.records import Event
from baton.trace.trace import Trace
from baton.trace.validation.checks import validate

_COMPARED = ("spawn", "return", "tool_call", "tool_result", "message", "aggregate")


def told_by(spans: list[OtelSpan]) -> Trace:
    report = ImportReport()
    (trace,) = assemble(sightings_of(spans[0].trace_id, spans, report), report, kind="otlp")
    return trace


def facts(trace: Trace) -> Counter[tuple[Any, ...]]:
    """Who did what to whom, with what words; written out here, not asked of the code under test."""

    def fact(event: Event) -> tuple[Any, ...]:
        text = trace.text(event.content_ref)
        return event.agent, event.type, event.to, event.tool, text, event.status

    # An aggregate that the joiner concludes is its own doing, and says so.
    return Counter(
        fact(e) for e in trace.events if e.type in _COMPARED and not (e.type == "aggregate" and e.inferred)
    )


def tokens(trace: Trace) -> int:
    return sum(event.tokens or 0 for event in trace.events)


def words(trace: Trace) -> Counter[tuple[str, str | None]]:
    """What every call said."""
    return Counter((call.agent, trace.text(call.completion_ref)) for call in trace.calls)


@given(valid_traces(), st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_a_trace_survives_otlp_in_either_encoding_and_any_order(trace: Trace, random: Any) -> None:
    spans = spans_of_trace(trace, started=1.7e9)
    by_protobuf = decode_traces(protobuf_request(spans))
    by_json = list(spans_of(decode_json(msgspec.json.encode(json_request(spans))), ""))
    for span in (*by_protobuf, *by_json):
        span.at = ""
    assert by_protobuf == by_json
    random.shuffle(by_protobuf)
    again = told_by([*by_protobuf, *by_protobuf[: len(by_protobuf) // 2]])
    assert facts(again) == facts(trace)
    assert tokens(again) == tokens(trace)
    assert words(again) == words(trace)
    assert validate(again) == []
