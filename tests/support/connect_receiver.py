"""A real `baton receive` and a real OTLP exporter, for the tests of systems that speak OpenTelemetry."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import baton
from baton.trace.formats import read_all
from baton.trace.trace import Trace

os.environ.pop("OTEL_SDK_DISABLED", None)  # spans are what these tests are about; they go to this machine


@contextmanager
def receiving(out: Path) -> Iterator[Any]:
    """A tracer provider whose spans go, in batches, to a receiver that is a process of its own."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    command = [sys.executable, "-m", "baton", "receive", "--out", str(out), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        endpoint = process.stdout.readline().split()[1].rstrip(",")
        provider = TracerProvider()
        exporter = OTLPSpanExporter(endpoint=endpoint)
        provider.add_span_processor(BatchSpanProcessor(exporter, max_export_batch_size=4))
        try:
            yield provider
            provider.shutdown()
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
        assert process.returncode == 0


def received(out: Path) -> dict[str, Trace]:
    """The traces of a receiver by their task; all are valid."""
    traces = {trace.header.task_id: trace for trace in read_all(out)}
    for trace in traces.values():
        assert baton.validate(trace) == []
    return traces


def tokens(trace: Trace) -> int:
    """All that was charged."""
    return sum(event.tokens or 0 for event in trace.events)
