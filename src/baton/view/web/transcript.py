"""Everything that was said in a trace, in order: what the page shows as the transcript, one page of it at a time.

An entry is an event with its words and what its model thought beside them; the first call of an agent brings the
system prompt that it was given. Thoughts are what a system recorded as such, and in Baton's own runs the lines of a
completion that none of its events stands for. What was not recorded is not there, and what was withheld says so.
"""

from __future__ import annotations

from typing import Any

import msgspec

from baton.errors import CorruptError
from baton.trace.outcome import is_estimated
from baton.trace.records import Call, Event
from baton.trace.trace import Trace
from baton.view.lanes import Lanes
from baton.view.web.detail import content

PAGE = 200
CUT_CHARACTERS = 4_000
_THOUGHTS = ("thinking", "reasoning_content", "reasoning", "thought")


class Transcript:
    """The entries of one trace, made as they are asked for."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._speaker = {
            id(event): lane.agent for lane in Lanes(trace).lanes.values() for event in lane.events
        }
        self._calls = {call.id: i for i, call in enumerate(trace.calls)}
        self._first: dict[str, int] = {}
        """Call -> the first event of it: there its thoughts and its agent's system prompt are told."""
        self._opens: set[str] = set()
        """The first calls of agents."""
        met: set[str] = set()
        for row, event in enumerate(trace.events):
            if event.call is not None and self._first.setdefault(event.call, row) == row:
                call = trace.call_by_id.get(event.call)
                if call is not None and call.agent not in met:
                    met.add(call.agent)
                    self._opens.add(call.id)
        self._spans: dict[str, list[tuple[int, int]]] = {}
        for event in trace.events:
            if event.call is not None and event.span is not None:
                self._spans.setdefault(event.call, []).append(event.span)

    def page(
        self,
        *,
        start: int = 0,
        agent: str | None = None,
        around: int | None = None,
        whole: bool = False,
        said: bool = True,
    ) -> dict[str, Any]:
        """A page of entries from a place on, or the page that an event stands on.

        `whole`: all of them, uncut; `said`: with their words, where these are not at hand otherwise.
        """
        events = self._trace.events
        rows = [i for i, event in enumerate(events) if agent is None or self._speaker[id(event)] == agent]
        if around is not None:
            before = sum(row < around for row in rows)
            start = before // PAGE * PAGE
        chosen = rows if whole else rows[start : start + PAGE]
        return {
            "start": 0 if whole else start,
            "total": len(rows),
            "entries": [self._entry(row, whole=whole, said=said) for row in chosen],
        }

    def _entry(self, row: int, *, whole: bool, said: bool) -> dict[str, Any]:
        event = self._trace.events[row]
        call = self._trace.call_by_id.get(event.call or "")
        first = call is not None and self._first[call.id] == row
        return {
            "row": row,
            "agent": self._speaker[id(event)],
            "said": self._said(event.content_ref, whole=whole) if said else None,
            "tokens": event.tokens,
            "estimated": is_estimated(self._trace, event),
            "call": self._calls.get(event.call or ""),
            "thought": self._thought(event, call if first else None),
            "system": self._system(call) if first and call is not None and call.id in self._opens else None,
            "prompt_tokens": call.prompt_tokens if first and call is not None else None,
            "completion_tokens": call.completion_tokens if first and call is not None else None,
        }

    def _said(self, ref: str | None, *, whole: bool) -> dict[str, Any] | None:
        found = content(self._trace, ref, whole=True)
        text = None if found is None else found.get("text")
        if found is not None and text is not None and not whole and len(text) > CUT_CHARACTERS:
            return found | {"text": text[:CUT_CHARACTERS], "characters": len(text)}
        return found

    def _thought(self, event: Event, call: Call | None) -> str | None:
        """What was thought beside what was said; of a call, at its first event."""
        told = [event.extra.get(word) for word in _THOUGHTS]
        nested = event.extra.get("call_extra")
        if isinstance(nested, dict):
            told += [nested.get(word) for word in _THOUGHTS]
        parts = [text for text in told if isinstance(text, str) and text.strip()]
        if call is not None and (own := self._unspoken(call)):
            parts.append(own)
        return "\n".join(dict.fromkeys(parts))[:CUT_CHARACTERS] or None

    def _unspoken(self, call: Call) -> str:
        """The parts of a completion that no event stands for."""
        text = self._text(call.completion_ref)
        spans, ends = self._spans.get(call.id), call.token_ends
        if text is None or not spans or ends is None or call.completion_ids is None:
            return ""
        if len(ends) != len(call.completion_ids):
            return ""
        covered = [False] * len(ends)
        for start, end in spans:
            for k in range(max(0, start), min(end, len(ends))):
                covered[k] = True
        left, at = [], 0
        for k, end in enumerate(ends):
            if not covered[k]:
                left.append(text[at:end])
            elif left and left[-1] != "\n":
                left.append("\n")
            at = max(at, end)
        return "\n".join(line for line in "".join(left).splitlines() if line.strip())

    def _system(self, call: Call) -> str | None:
        """The system prompt that the first call of an agent was given."""
        text = self._text(call.prompt_ref)
        try:
            entries = msgspec.json.decode(text) if text else None
        except (msgspec.DecodeError, RecursionError):
            return None
        if not isinstance(entries, list):
            return None
        said = [
            each["text"]
            for each in entries
            if isinstance(each, dict)
            and each.get("speaker") == "system"
            and isinstance(each.get("text"), str)
        ]
        return "\n\n".join(said)[: 5 * CUT_CHARACTERS] or None

    def _text(self, ref: str | None) -> str | None:
        try:
            return self._trace.text(ref)
        except CorruptError:
            return None
