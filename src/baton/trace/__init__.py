"""The orchestration trace: events, calls, payloads, graph, validation, formats, store. Knows nobody."""

from baton.trace.call import Call, Sampling
from baton.trace.event import Edge, Event
from baton.trace.numbers import Floats, Ints
from baton.trace.payload import Payload
from baton.trace.record import Credit, Reward
from baton.trace.recorder import Recorder
from baton.trace.trace import End, Header, Record, Trace

__all__ = [
    "Call",
    "Credit",
    "Edge",
    "End",
    "Event",
    "Floats",
    "Header",
    "Ints",
    "Payload",
    "Record",
    "Recorder",
    "Reward",
    "Sampling",
    "Trace",
]
