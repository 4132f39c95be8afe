"""Runs a program with OpenTelemetry around it, as `opentelemetry-instrument` does: nothing in the program changes.

Spans go where OTEL_EXPORTER_OTLP_TRACES_ENDPOINT says; HTTP clients put a traceparent into what they send.
"""

import contextlib
import importlib
import runpy
import sys

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor


def try_to(module: str, name: str) -> None:
    """Instrument what is installed."""
    with contextlib.suppress(ImportError, AttributeError):
        getattr(importlib.import_module(module), name)().instrument()


provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
try_to("opentelemetry.instrumentation.httpx", "HTTPXClientInstrumentor")
try_to("opentelemetry.instrumentation.httpx", "HTTPX2ClientInstrumentor")
try_to("openinference.instrumentation.openai_agents", "OpenAIAgentsInstrumentor")
try_to("openinference.instrumentation.smolagents", "SmolagentsInstrumentor")
try_to("openinference.instrumentation.langchain", "LangChainInstrumentor")
try_to("agent_framework.observability", "enable_instrumentation")
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    provider.shutdown()
