"""The orchestration trace: events, calls, payloads, graph, validation, formats, store. Knows nobody."""

from baton.trace.call import Call, Sampling
from baton.trace.event import Edge, Event
from baton.trace.formats import read, read_all, write
from baton.trace.graph import Graph
from baton.trace.numbers import Floats, Ints
from baton.trace.payload import Payload
from baton.trace.record import Credit, Reward
from baton.trace.recorder import Recorder
from baton.trace.trace import End, Header, Record, Trace
from baton.trace.validate import Problem, validate

__all__ = [
    "Call",
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
