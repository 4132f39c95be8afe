"""Reading many records fast and into little memory.

Fresh records are no garbage, so the cycle collector rests while they are made. Decoding makes a new string each
time a name occurs: a million events name a thousand agents and each event's id returns in its edges, so one string
object per distinct name is most of what keeps a trace small.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from msgspec.structs import force_setattr

from baton.trace.records import Call, Charge, Credit, Edge, Event, Payload, Reward
from baton.trace.trace import End, Header, Record

_SHARED: dict[type, tuple[str, ...]] = {
    Call: (
        "id", "agent", "role", "policy", "policy_version", "harness", "parent",
        "prompt_ref", "completion_ref", "finish_reason",
    ),
    Payload: ("ref", "media_type", "codec"),
    Reward: ("target", "name", "by"),
    Credit: ("target", "estimator"),
    Charge: ("channel", "target", "by"),
    Header: (),
    End: (),
}  # fmt: skip


@contextmanager
def no_collection() -> Iterator[None]:
    """The cycle collector rests; at a million records it would take half of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def share_strings(records: Iterable[Record | Header | End], pool: dict[Any, Any]) -> None:
    """Replace every name in freshly decoded records by the first equal one in `pool`.

    Only for records nobody else holds yet: it changes frozen records in place, though never their value.
    """
    put = pool.setdefault
    for record in records:
        # Events and edges are most of any trace, so they are spelled out.
        if type(record) is Event:
            _share_event(record, pool)
        elif type(record) is Edge:
            force_setattr(record, "src", put(record.src, record.src))
            force_setattr(record, "dst", put(record.dst, record.dst))
            if (why := record.why) is not None:
                force_setattr(record, "why", put(why, why))
        else:
            for name in _SHARED[type(record)]:
                value = getattr(record, name)
                if value is not None:
                    force_setattr(record, name, put(value, value))


def _share_event(event: Event, pool: dict[Any, Any]) -> None:
    put = pool.setdefault
    put(event.id, event.id)
    force_setattr(event, "agent", put(event.agent, event.agent))
    if (role := event.role) is not None:
        force_setattr(event, "role", put(role, role))
    if (from_ := event.from_) is not None:
        force_setattr(event, "from_", put(from_, from_))
    if (to := event.to) is not None:
        force_setattr(event, "to", put(to, to))
    if (tool := event.tool) is not None:
        force_setattr(event, "tool", put(tool, tool))
    if (ref := event.content_ref) is not None:
        force_setattr(event, "content_ref", put(ref, ref))
    if (call := event.call) is not None:
        force_setattr(event, "call", put(call, call))
    if (why := event.why) is not None:
        force_setattr(event, "why", put(why, why))
    if (options := event.options) is not None:
        force_setattr(event, "options", put(options, options))
