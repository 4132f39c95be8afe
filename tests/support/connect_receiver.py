"""A real `baton receive` and a real OTLP exporter, for the tests of systems that speak OpenTelemetry."""

from __future__ import annotations

import os
import re
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
def started(out: Path) -> Iterator[str]:
    """A receiver that is a process of its own; its address."""
    command = [sys.executable, "-m", "baton", "receive", "--out", str(out), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[1].rstrip(",")
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
        assert process.returncode == 0


@contextmanager
def receiving(out: Path) -> Iterator[Any]:
    """A tracer provider whose spans go there, in batches."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    with started(out) as endpoint:
        provider = TracerProvider()
        provider.add_span_processor(
            BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint), max_export_batch_size=4)
        )
        yield provider
        provider.shutdown()


def page_is_true(page: str, folder: Path) -> None:
    """The program that a page prints runs, and then `baton show` prints what the page says, but for times."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "connect" / page).read_text("utf-8")
    program, shown = (
        re.findall(rf"^```{kind}\n(.*?)^```", text, re.M | re.S)[-1] for kind in ("python", "text")
    )
    (folder / "program.py").write_text(program)
    out = folder / "runs" / "mine"
    with started(out) as endpoint:
        environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint.removesuffix("/v1/traces")}
        subprocess.run([sys.executable, "program.py"], cwd=folder, env=environment, check=True, timeout=100)
    command = [sys.executable, "-m", "baton", "show", str(out)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert _plain(told) == _plain(shown)


def _plain(text: str) -> list[str]:
    """Without what a clock says, nor the trace's id, nor the figures made of times."""
    lines = re.sub(r"\d+\.\d+m?s|otlp-\w+", "_", text).rstrip().splitlines()
    return [re.sub(r" +", " ", line) for line in lines if "parallelism" not in line]


def received(out: Path) -> dict[str, Trace]:
    """The traces of a receiver by their task; all are valid."""
    traces = {trace.header.task_id: trace for trace in read_all(out)}
    for trace in traces.values():
        assert baton.validate(trace) == []
    return traces


def tokens(trace: Trace) -> int:
    """All that was charged."""
    return sum(event.tokens or 0 for event in trace.events)
