"""What strangers' words may have touched, as rows of the picture: what the taint overlay draws."""

from __future__ import annotations

from typing import Any

import msgspec

from baton.measure.figure import Figure
from baton.measure.measured import MeasuredTrace
from baton.measure.safety.blast import blast
from baton.measure.safety.taint import taint
from baton.trace.provenance import Labels
from baton.trace.trace import Trace


def overlay(trace: Trace, labels: Labels) -> dict[str, Any]:
    """Events by row, agents by name, and how far it got. Raises `TraceError` on a trace without a graph."""
    reading = MeasuredTrace(trace)
    found = taint(reading, labels)
    radius = blast(reading, found)
    rows = {
        name: [trace.position[event] for event in getattr(found, name)]
        for name in ("sources", "data", "control", "consequential", "violations", "endorsed")
    }
    return {
        **rows,
        "agents": found.agents,
        "cut": [trace.position[event] for event in radius.cut],
        "figures": {
            "tainted agents": radius.tainted_agents,
            "share of agents": _figure(radius.agent_share),
            "share of tokens": _figure(radius.cost_tokens),
            "longest tainted path": radius.longest_path,
            "tainted consequential calls": _figure(radius.consequential_calls),
            "events to guard": _figure(radius.min_cut),
        },
        "num_unlabelled_results": found.num_unlabelled_results,
        "num_results": sum(event.type == "tool_result" for event in trace.events),
        "labelled_calls": found.num_labelled_calls,
    }


def _figure(figure: Figure) -> Any:
    return msgspec.to_builtins({"value": figure.value, "why_not": figure.why_not})
