"""Calls of sightings as calls of a trace: numbered in order, each prompt told as what it adds to its parent's."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from baton.connect.assembly.agent_lines import AgentLines
from baton.connect.assembly.causal import Order
from baton.connect.assembly.contents import Contents
from baton.connect.assembly.gathering import micro, seconds_of
from baton.connect.seen import SeenCall
from baton.trace.log import common_prefix
from baton.trace.records import Call, Floats, Ints, Sampling

A = TypeVar("A", Ints, Floats)


class JoinedCall(Struct):
    """One call, both ways."""

    key: str
    seen: SeenCall
    record: Call
    context: Ints | None
    """Prompt and completion, where they were recorded."""

    first: int
    """Place of the first event that it said."""
    tokens: int | None
    """What it is charged with: the counts that are known."""


class CallRecords:
    """All calls of a session, in the order of the events that they said."""

    def __init__(self, lines: AgentLines, order: Order, contents: Contents, zero: float) -> None:
        self._lines = lines
        self._contents = contents
        self._zero = zero
        self.by_key: dict[str, JoinedCall] = {}
        rank = {place: number for number, place in enumerate(order.places)}
        keys = sorted(lines.calls, key=lambda key: rank[lines.first_of_call[key]])
        self._number = {key: number for number, key in enumerate(keys)}
        latest: dict[str, JoinedCall] = {}  # agent -> its last call
        for number, key in enumerate(keys, 1):
            seen = lines.calls[key]
            said = self.by_key[key] = self._said(f"c{number}", seen, latest.get(seen.agent))
            latest[seen.agent] = said
        self.records = tuple(said.record for said in self.by_key.values())

    def _said(self, id_: str, seen: SeenCall, before: JoinedCall | None) -> JoinedCall:
        lines, contents, report = self._lines, self._contents, self._lines.report
        parent = None if seen.parent is None else self._parent(seen)
        whole = None if seen.prompt_ids is None else self._numbers(Ints, seen.prompt_ids, seen.at)
        completion = (
            None if seen.completion_ids is None else self._numbers(Ints, seen.completion_ids, seen.at)
        )
        logprobs = None if seen.logprobs is None else self._numbers(Floats, seen.logprobs, seen.at)
        if logprobs is not None and (completion is None or len(logprobs) != len(completion)):
            report.mend("log-probabilities that do not fit their tokens were left out", seen.at)
            logprobs = None
        grown = parent or before
        keep = 0
        if grown is not None and grown.context is not None and whole is not None:
            keep = common_prefix(grown.context, whole)
        named = parent if parent is not None else grown if keep else None
        person = lines.people[seen.agent]
        duration = None if seen.duration_s is None else seconds_of(seen.duration_s, report, seen.at)
        fields: dict[str, Any] = {
            "role": person.role,
            "policy": contents.name(seen.policy),
            "parent": None if named is None else named.record.id,
            "prompt_ids": None if whole is None else whole[keep:],
            "completion_ids": completion,
            "logprobs": logprobs,
            "prompt_ref": None if seen.prompt is None else self._prompt(seen.prompt),
            "completion_ref": contents.payload(seen.completion),
            "prompt_tokens": self._count(seen.prompt_tokens, seen.at),
            "completion_tokens": self._count(seen.completion_tokens, seen.at),
            "sampling": None if seen.temperature is None else _sampling(seen.temperature),
            "finish_reason": contents.name(seen.finish_reason),
            "t": None if seen.t is None else max(0.0, micro(seen.t - self._zero)),
            "duration_s": duration,
        }
        # What is at its default is not given: that takes half of the time.
        known_fields = {name: value for name, value in fields.items() if value is not None}
        record = Call(id=id_, agent=person.id, keep=keep, **known_fields)
        context = None if whole is None or completion is None else whole + completion
        known = [n for n in (record.prompt_tokens, record.completion_tokens) if n is not None]
        return JoinedCall(
            key=seen.key,
            seen=seen,
            record=record,
            context=context,
            first=lines.first_of_call[seen.key],
            tokens=sum(known) if known else None,
        )

    def _parent(self, seen: SeenCall) -> JoinedCall | None:
        parent = self.by_key.get(seen.parent or "")
        if parent is None:
            where = "comes after it" if seen.parent in self._number else "is not there"
            self._lines.report.mend(f"a call grows from one that {where}: it stands by itself", seen.at)
        return parent

    def _prompt(self, prompt: tuple[tuple[str, str], ...]) -> str | None:
        clean = self._contents.text
        messages = [{"speaker": clean(speaker), "text": clean(text)} for speaker, text in prompt]
        return self._contents.payload(msgspec.json.encode(messages).decode(), "application/json")

    def _numbers(self, kind: type[A], values: Any, at: str) -> A | None:
        if not self._contents.keep_ids:
            self._lines.report.mend("token ids are left out where secrets are redacted", at)
            return None
        try:
            made = kind(values)
        except (TypeError, ValueError, OverflowError):
            made = None
        if made is None or not _is_fit(made):
            self._lines.report.mend("token ids or log-probabilities that are none were left out", at)
            return None
        return made

    def _count(self, count: Any, at: str) -> int | None:
        if count is None:
            return None
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count < 2**53:
            self._lines.report.mend("a number of tokens that is none was left out", at)
            return None
        return count


def _is_fit(values: Ints | Floats) -> bool:
    return min(values, default=0) >= 0 if isinstance(values, Ints) else all(map(math.isfinite, values))


def _sampling(temperature: Any) -> Sampling | None:
    if not isinstance(temperature, int | float) or not 0 <= temperature < math.inf:
        return None
    return Sampling(temperature=float(temperature))
