"""One event or one call with everything that is known of it: loaded when somebody looks, never before.

Content comes from models, tools and the web. Here it is text in JSON; the page inserts it as text.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import msgspec

from baton.errors import BatonError, CorruptError, UsageError
from baton.trace.records import Call, Floats, is_content_address
from baton.trace.trace import Trace
from baton.view.web.attached import Attached
from baton.view.web.worth import Records

CUT_CHARACTERS = 20_000
"""Longer text is cut, and says so; the page asks for the rest on demand."""


def content(trace: Trace, ref: str | None, *, whole: bool = False) -> dict[str, Any] | None:
    """The text behind an address, or why there is none. None: nothing was said."""
    if ref is None:
        return None
    payload = trace.payloads.get(ref)
    if payload is None:
        why = "The content is not in this file." if is_content_address(ref) else "Kept by another system."
        return {"ref": ref, "why_not": why}
    about: dict[str, Any] = {"ref": ref, "media_type": payload.media_type, "size": payload.size}
    try:
        text = payload.text()
    except CorruptError as error:
        return about | {"why_not": str(error)}
    if text is None:
        return about | {"why_not": "The content was withheld."}
    if not whole and len(text) > CUT_CHARACTERS:
        return about | {"text": text[:CUT_CHARACTERS], "characters": len(text)}
    return about | {"text": text}


class Details:
    """What hangs on each event and call of one trace."""

    def __init__(self, trace: Trace, attached: Attached, *, whole: bool = False) -> None:
        self._trace = trace
        self._attached = attached
        self._whole = whole
        self._advantages: dict[tuple[str, str], dict[str, Floats] | str] = {}

    def event(self, index: int) -> dict[str, Any]:
        """All fields of an event, its content, its edges and what it is said to be worth."""
        event = _at(self._trace.events, index, "event")
        names = dict.fromkeys(("orchestrator", "message", "tool_call"), event.id)
        names |= {"agent": event.agent, **({"turn": event.call} if event.call else {})}
        return {
            "fields": msgspec.to_builtins(event),
            "content": content(self._trace, event.content_ref, whole=self._whole),
            "into": self._into.get(index, []),
            "out": self._out.get(index, []),
            "worth": self._records.of(names),
        }

    def call(self, index: int) -> dict[str, Any]:
        """A call: its own part of the prompt, the completion cut into tokens, and their advantages."""
        trace = self._trace
        call = _at(trace.calls, index, "call")
        completion = content(trace, call.completion_ref, whole=True)
        bare = msgspec.structs.replace(
            call, prompt_ids=None, completion_ids=None, logprobs=None, token_ends=None
        )
        return {
            "fields": msgspec.to_builtins(bare),
            "parent": self._numbers.get(call.parent or ""),
            "prompt": content(trace, call.prompt_ref, whole=self._whole),
            "completion": content(trace, call.completion_ref, whole=self._whole),
            "tokens": _tokens(call, completion.get("text") if completion else None),
            "logprobs": None if call.logprobs is None else call.logprobs.tolist(),
            "spans": self._spans.get(call.id, []),
            "advantages": [self._advantage(call, *each) for each in self._credited],
            "worth": self._records.of({"turn": call.id}),
        }

    def _advantage(self, call: Call, unit: str, estimator: str) -> dict[str, Any]:
        """The advantage of each completion token by one credit, or why there is none."""
        one: dict[str, Any] = {"unit": unit, "name": estimator, "values": None}
        if self._attached.advantages is None:
            return one
        found = self._advantages.get((unit, estimator))
        if found is None:
            try:
                found = self._attached.advantages(self._trace, unit, estimator)
            except BatonError as error:
                found = str(error)
            self._advantages[unit, estimator] = found
        if isinstance(found, str):
            return one | {"why_not": found}
        values = found.get(call.id)
        return one | {"values": None if values is None else values.tolist()}

    @cached_property
    def _credited(self) -> list[tuple[str, str]]:
        return list(dict.fromkeys((credit.unit, credit.estimator) for credit in self._trace.credits))

    @cached_property
    def _records(self) -> Records:
        return Records(self._trace)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {call.id: i for i, call in enumerate(self._trace.calls)}

    @cached_property
    def _into(self) -> dict[int, list[tuple[int, str, str | bool]]]:
        return self._grouped(by_source=False)

    @cached_property
    def _out(self) -> dict[int, list[tuple[int, str, str | bool]]]:
        return self._grouped(by_source=True)

    def _grouped(self, *, by_source: bool) -> dict[int, list[tuple[int, str, str | bool]]]:
        position = self._trace.position
        groups: dict[int, list[tuple[int, str, str | bool]]] = {}
        for edge in self._trace.edges:
            src, dst = position.get(edge.src), position.get(edge.dst)
            if src is not None and dst is not None:
                here, there = (src, dst) if by_source else (dst, src)
                groups.setdefault(here, []).append((there, edge.type, edge.why or edge.inferred))
        return groups

    @cached_property
    def _spans(self) -> dict[str, list[tuple[int, int, int]]]:
        spans: dict[str, list[tuple[int, int, int]]] = {}
        for i, event in enumerate(self._trace.events):
            if event.call is not None and event.span is not None:
                spans.setdefault(event.call, []).append((*event.span, i))
        return spans


def _tokens(call: Call, text: str | None) -> list[str] | None:
    """The completion in pieces, one for each token; None where that is not known."""
    if call.completion_ids is None:
        return None
    if text is None:
        return [str(number) for number in call.completion_ids]
    if call.token_ends is None or len(call.token_ends) != len(call.completion_ids):
        return None
    pieces, start = [], 0
    for end in call.token_ends:
        pieces.append(text[start:end])
        start = max(start, end)
    return pieces


def _at(records: tuple[Any, ...], index: int, what: str) -> Any:
    if not 0 <= index < len(records):
        raise UsageError(f"there is no {what} {index}; this trace has {len(records):,}.")
    return records[index]
