"""OTLP files as a source: spans gathered by trace, each trace told once all of it was read.

A span's agent is known by spans above it, which are written later: so the spans of a file are held until its end.
Memory grows with the file, and never faster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from baton.connect.import_report import ImportReport
from baton.connect.readers.otlp.files import files_of, is_otlp, read_spans
from baton.connect.readers.otlp.span import LogRecord, OtelSpan
from baton.connect.readers.otlp.telling import sightings_of
from baton.connect.seen import Seen


class OtlpSource:
    """OpenTelemetry spans with the GenAI, OpenInference or OpenLLMetry conventions."""

    kind = "otlp"
    about = (
        "OpenTelemetry spans: the collector's JSON Lines, protobuf, an SDK's console output, Phoenix's rows"
    )
    endings = (".json", ".jsonl", ".pb", ".eval")

    def recognises(self, place: Path) -> bool:
        return is_otlp(place)

    def read(self, place: Path, report: ImportReport) -> Iterator[Seen]:
        traces = Traces()
        for path in files_of(place):
            traces.add(read_spans(path, report), report)
        for trace_id in list(traces.spans):
            yield from sightings_of(trace_id, traces.take(trace_id, report), report)


class Traces:
    """Spans by trace, with the log records that belong to them."""

    def __init__(self) -> None:
        self.spans: dict[str, list[OtelSpan]] = {}
        self._logs: dict[str, list[LogRecord]] = {}

    def add(self, found: Iterable[OtelSpan | LogRecord], report: ImportReport) -> set[str]:
        """Returns the traces that they belong to."""
        touched: set[str] = set()
        nameless: list[OtelSpan] = []
        for one in found:
            if isinstance(one, LogRecord):
                self._logs.setdefault(one.trace_id, []).append(one)
                touched.add(one.trace_id)
            elif not one.span_id:
                report.skip("a span without an id", one.at)
            elif one.attributes.get("logfire.span_type") == "pending_span":
                report.skip("a span that was announced and had not ended", one.at)
            elif one.trace_id:
                self.spans.setdefault(one.trace_id, []).append(one)
                touched.add(one.trace_id)
            else:
                nameless.append(one)
        for trace_id, spans in _by_root(nameless).items():
            self.spans.setdefault(trace_id, []).extend(spans)
            touched.add(trace_id)
        return touched

    def held(self, trace_id: str) -> list[OtelSpan]:
        """The spans of a trace with their log records as events."""
        spans = self.spans.get(trace_id, [])
        logs = self._logs.pop(trace_id, [])
        if logs:
            by_id = {span.span_id: span for span in spans}
            left = []
            for record in sorted(logs, key=lambda record: record.event.time_ns):
                if (span := by_id.get(record.span_id)) is None:
                    left.append(record)
                elif record.event not in span.events:
                    span.events.append(record.event)
            if left:
                self._logs[trace_id] = left
        return spans

    def take(self, trace_id: str, report: ImportReport) -> list[OtelSpan]:
        """The same, and nothing of it is held any more."""
        spans = self.held(trace_id)
        for record in self._logs.pop(trace_id, []):
            report.skip("a log record whose span never came", record.at)
        self.spans.pop(trace_id, None)
        return spans


def _by_root(spans: list[OtelSpan]) -> dict[str, list[OtelSpan]]:
    """Spans that name no trace, by the outermost span above each: some files keep only parents."""
    parents = {span.span_id: span.parent_id for span in spans}
    found: dict[str, list[OtelSpan]] = {}
    for span in spans:
        root, steps = span.span_id, 0
        while (above := parents.get(root)) is not None and steps < len(spans):
            root, steps = above, steps + 1
        span.trace_id = root
        found.setdefault(root, []).append(span)
    return found
