"""Calls of sightings as calls of a trace: numbered in order, each prompt told as what it adds to its parent's."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from baton.connect.assembly.agent_lines import AgentLines
from baton.connect.assembly.causal import Order
from baton.connect.assembly.contents import Contents
from baton.connect.assembly.gathering import micro, seconds_of
from baton.connect.seen import SeenCall
from baton.trace.log import common_prefix
from baton.trace.records import Call, Floats, Ints, Sampling
from baton.trace.vocabulary import Status

A = TypeVar("A", Ints, Floats)


class JoinedCall(Struct):
    """One call, both ways."""

    record: Call
    first: int
    """Place of the first event that it said."""
    tokens: int | None
    """What it is charged with: the counts that are known."""
    status: Status | None
    extra: dict[str, Any]
    context: Ints | None = None
    """Prompt and completion, where they were recorded."""


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
            seen = lines.calls.pop(key)  # its words are let go of as they are kept
            said = self.by_key[key] = self._said(f"c{number}", seen, latest.get(seen.agent))
            latest[seen.agent] = said
        self.records = tuple(said.record for said in self.by_key.values())

    def _said(self, id_: str, seen: SeenCall, before: JoinedCall | None) -> JoinedCall:
        lines, contents = self._lines, self._contents
        person = lines.people[seen.agent]
        t = None if seen.t is None else max(0.0, micro(seen.t - self._zero))
        duration = None if seen.duration_s is None else seconds_of(seen.duration_s, lines.report, seen.at)
        asked = None if seen.prompt_tokens is None else self._count(seen.prompt_tokens, seen.at)
        answered = None if seen.completion_tokens is None else self._count(seen.completion_tokens, seen.at)
        more, context = self._rest(seen, before)
        words = contents.payload(seen.completion)
        record = Call(
            id=id_, agent=person.id, policy=contents.name(seen.policy), completion_ref=words, prompt_tokens=asked,
            completion_tokens=answered, t=t, duration_s=duration,
        )  # fmt: skip
        if person.role is not None:
            more["role"] = person.role
        if more:
            record = replace(record, **more)
        tokens = answered if asked is None else asked if answered is None else asked + answered
        return JoinedCall(record, lines.first_of_call[seen.key], tokens, seen.status, seen.extra, context)

    def _rest(self, seen: SeenCall, before: JoinedCall | None) -> tuple[dict[str, Any], Ints | None]:
        """What few calls have, by field; and prompt and completion where they were recorded."""
        contents, more = self._contents, dict[str, Any]()
        parent = None if seen.parent is None else self._parent(seen)
        if parent is not None:
            more["parent"] = parent.record.id
        if seen.prompt is not None:
            more["prompt_ref"] = self._prompt(seen.prompt)
        if seen.temperature is not None or seen.sampling is not None:
            more["sampling"] = seen.sampling or _sampling(seen.temperature)
        if seen.policy_version is not None:
            more["policy_version"] = contents.name(seen.policy_version)
        if seen.estimated:
            more["estimated"] = True
        if seen.finish_reason is not None:
            more["finish_reason"] = contents.name(seen.finish_reason)
        if seen.prompt_ids is None and seen.completion_ids is None and seen.logprobs is None:
            return more, None
        return more, self._ids(seen, parent if seen.keep else parent or before, more)

    def _ids(self, seen: SeenCall, grown: JoinedCall | None, more: dict[str, Any]) -> Ints | None:
        """Token ids into `more`, the prompt's from where it leaves what it grew from; all of them are given back."""
        whole = None if seen.prompt_ids is None else self._numbers(Ints, seen.prompt_ids, seen.at)
        completion = (
            None if seen.completion_ids is None else self._numbers(Ints, seen.completion_ids, seen.at)
        )
        logprobs = None if seen.logprobs is None else self._numbers(Floats, seen.logprobs, seen.at)
        if logprobs is not None and (completion is None or len(logprobs) != len(completion)):
            self._lines.report.mend("log-probabilities that do not fit their tokens were left out", seen.at)
            logprobs = None
        more["completion_ids"], more["logprobs"] = completion, logprobs
        if seen.token_ends is not None and completion is not None and len(seen.token_ends) == len(completion):
            more["token_ends"] = self._numbers(Ints, seen.token_ends, seen.at)
        if seen.keep:
            self._keep(seen, grown, whole, more)
            return None
        if grown is not None and grown.context is not None and whole is not None:
            keep = common_prefix(grown.context, whole)
            if keep:
                more["keep"], more["parent"] = keep, grown.record.id
                more["prompt_ids"] = whole[keep:]
        if whole is not None:
            more.setdefault("prompt_ids", whole)
        return None if whole is None or completion is None else whole + completion

    def _keep(
        self, seen: SeenCall, grown: JoinedCall | None, rest: Ints | None, more: dict[str, Any]
    ) -> None:
        """A prompt that is told as what it adds to another needs that one."""
        if grown is None or seen.parent is None or grown.record.prompt_ids is None:
            self._lines.report.mend(
                "token ids that go on from a call that is not there were left out", seen.at
            )
        else:
            more["keep"], more["parent"], more["prompt_ids"] = seen.keep, grown.record.id, rest

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
