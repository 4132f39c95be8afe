"""A JSON schema that asks what the survey's asks, for where the survey's own file is not at hand."""

from __future__ import annotations

from typing import Any

from baton.trace.vocabulary import EDGE_TYPES, EVENT_TYPES, TOPOLOGIES

__all__ = ["schema_from_vocabulary"]


def schema_from_vocabulary() -> dict[str, Any]:
    """What the survey's schema asks of events and edges, where its file is not at hand."""
    text = {"type": "string", "minLength": 1}
    closed = {"type": "object", "additionalProperties": {"type": "number"}}
    event: dict[str, Any] = {
        name: {"type": "string"} for name in ("role", "from", "to", "tool", "content_ref")
    }
    event |= {
        "id": text,
        "agent": text,
        "t": {"type": "number", "minimum": 0},
        "trusted": {"type": "boolean"},
    }
    event["type"] = {"type": "string", "enum": list(EVENT_TYPES)}
    edge = {"src": text, "dst": text, "type": {"type": "string", "enum": list(EDGE_TYPES)}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "required": ["trace_id", "task_id", "events", "edges", "rewards", "costs"],
        "additionalProperties": False,
        "properties": {
            "trace_id": text,
            "task_id": text,
            "system": {"type": "string"},
            "topology": {"type": "string", "enum": list(TOPOLOGIES)},
            "events": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/event"}},
            "edges": {"type": "array", "items": {"$ref": "#/$defs/edge"}},
            "rewards": closed,
            "costs": closed,
            "metrics": closed,
        },
        "$defs": {
            "event": {"type": "object", "required": ["id", "t", "type", "agent"], "properties": event},
            "edge": {
                "type": "object", "required": list(edge), "additionalProperties": False, "properties": edge
            },
        },
    }  # fmt: skip
