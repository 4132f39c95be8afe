"""The orchestration trace: events, calls, payloads, graph, validation, formats, store. Knows nobody."""

from baton.trace.formats import read, read_all, write
from baton.trace.graph.arrays import Graph
from baton.trace.recorder import Recorder
from baton.trace.records import Call, Charge, Credit, Edge, Event, Floats, Ints, Payload, Reward, Sampling
from baton.trace.trace import End, Header, Record, Trace
from baton.trace.validation import Problem, validate

__all__ = [
    "Call",
    "Charge",
    "Credit",
    "Edge",
    "End",
    "Event",
    "Floats",
    "Graph",
    "Header",
    "Ints",
    "Payload",
    "Problem",
    "Record",
    "Recorder",
    "Reward",
    "Sampling",
    "Trace",
    "read",
    "read_all",
    "validate",
    "write",
]
