"""What an event did to a team's shared memory, in a few words: for trees, bars and headlines.

A writing is a message to nobody and a reading a decision without options, so that without these words neither would
say what it is about. What a trace says there may be anything: what does not fit is said of nobody.
"""

from __future__ import annotations

from baton.trace.records import Event
from baton.view.text import shortened

_KEY = "shared_memory"  # where the runtime tells of it, in an event's extra fields
_NAME_CHARACTERS = 60


def memory_said(event: Event) -> str | None:
    """What was written or read; None: the event is about something else."""
    told = event.extra.get(_KEY)
    if not isinstance(told, dict) or not isinstance(told.get("name"), str):
        return None
    name = shortened(told["name"], _NAME_CHARACTERS)
    if event.type == "message":
        version = told.get("version")
        return f"shared memory: {name}" + (f" (version {version})" if type(version) is int else "")
    if event.type == "orchestrator_decision":
        return f"shared memory: {name}" if name else "the names in shared memory"
    return None
