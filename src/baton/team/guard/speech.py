"""What an agent hands up or answers under a guard: names for a reader's words, and an answer in words it may use.

It needs nothing of a run but what writes its trace: an agent that is made to finish is judged as one that chose to.
"""

from __future__ import annotations

from typing import Any

import msgspec

from baton.team.agent import Agent
from baton.team.guard.watch import GuardWatch
from baton.team.recording import RAW, TraceWriter
from baton.trace.provenance import FILLED, HELD
from baton.trace.quotes import QUOTES


def may_return(writer: TraceWriter, watch: GuardWatch, me: Agent, text: str) -> tuple[str, dict[str, Any]]:
    """What is handed up of a return: of a reader's, names alone."""
    if watch.handles is None or not watch.is_reader(me.role.name):
        return text, {}
    names = watch.handles.returned(me.id, me.next_event_id(), text)
    return names, {HELD: [], RAW: writer.text(text)}


def may_say(writer: TraceWriter, watch: GuardWatch, me: Agent, answer: str) -> tuple[str, dict[str, Any]]:
    """What of an answer is said in the team's own words, and what its event says of the rest."""
    found = watch.judge_answer(me.id, me.role.name, me.causes, answer)
    kept = [] if watch.handles is None else watch.handles.names_in(answer)
    if found is None or found.text == answer:
        return answer, {}
    extra: dict[str, Any] = {"guard": watch.guard.hash, RAW: writer.text(answer)}
    if found.quotes:
        extra[QUOTES] = writer.text(msgspec.json.encode(found.quotes).decode(), "application/json")
    if found.num_left_out:
        extra["left_out"] = found.num_left_out
    if kept:
        extra[FILLED] = kept
    return found.text, extra
