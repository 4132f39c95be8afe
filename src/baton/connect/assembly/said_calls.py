"""Calls of sightings as calls of a trace: numbered in order, each prompt told as what it adds to its parent's."""

from __future__ import annotations

import math
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr

from baton.connect.assembly.agent_lines import AgentLines
from baton.connect.assembly.causal import Order
from baton.connect.assembly.contents import Contents
from baton.connect.assembly.gathering import seconds_of
from baton.connect.seen import SeenCall
from baton.trace.log import common_prefix
from baton.trace.records import Call, Floats, Ints, Sampling
from baton.trace.vocabulary import Status

A = TypeVar("A", Ints, Floats)
_MOST_TOKENS = 2**53


class JoinedCall(Struct, gc=False):
    """One call, both ways."""

    id: str
    first: int
    """Place of the first event that it said."""
    tokens: int | None
    """What it is charged with: the counts that are known."""
    duration_s: float | None
    status: Status | None
    extra: dict[str, Any]
    has_ids: bool
    """Whether the ids of its prompt were recorded."""
    context: Ints | None = None
    """Prompt and completion, where they were recorded."""


class CallRecords:
    """All calls of a session, in the order of the events that they said."""

    def __init__(self, lines: AgentLines, order: Order, contents: Contents, zero: float) -> None:
        self._lines = lines
        self._contents = contents
        self._zero = zero
        self.by_key: dict[str, JoinedCall] = {}
        self.records: tuple[Call, ...] = self._all(order)

    def _all(self, order: Order) -> tuple[Call, ...]:
        lines, contents, zero, by_key = self._lines, self._contents, self._zero, self.by_key
        people, first, payload = lines.people, lines.first_of_call, contents.payload
        said = {place: key for key, place in first.items()}
        keys = [said[place] for place in order.places if place in said]
        self._number = {key: number for number, key in enumerate(keys)}
        latest: dict[str, JoinedCall] = {}  # agent -> its last call
        records: list[Call] = []
        for number, key in enumerate(keys, 1):
            seen = lines.calls.pop(key)  # its words are let go of as they are kept
            agent, t, duration = seen.agent, seen.t, seen.duration_s
            person, id_ = people[agent], f"c{number}"
            asked, answered = seen.prompt_tokens, seen.completion_tokens
            if duration is not None:
                duration = seconds_of(duration, lines.report, seen.at)
            if asked is not None and (type(asked) is not int or not 0 <= asked < _MOST_TOKENS):
                asked = self._count(asked, seen.at)
            if answered is not None and (type(answered) is not int or not 0 <= answered < _MOST_TOKENS):
                answered = self._count(answered, seen.at)
            more, context = self._rest(seen, latest.get(agent))
            record = Call(
                id=id_, agent=person.id, role=person.role, policy=contents.name(seen.policy),
                completion_ref=payload(seen.completion), prompt_tokens=asked, completion_tokens=answered,
                t=None if t is None else int((t - zero) * 1e6 + 0.5) / 1e6 if t > zero else 0.0, duration_s=duration,
            )  # fmt: skip
            for name, value in more.items():  # nobody else has it yet, and to make it twice takes longer
                force_setattr(record, name, value)
            records.append(record)
            tokens = answered if asked is None else asked if answered is None else asked + answered
            latest[agent] = by_key[key] = JoinedCall(
                id_, first[key], tokens, duration, seen.status, seen.extra,
                more.get("prompt_ids") is not None, context,
            )  # fmt: skip
        return tuple(records)

    def _rest(self, seen: SeenCall, before: JoinedCall | None) -> tuple[dict[str, Any], Ints | None]:
        """What few calls have, by field; and prompt and completion where they were recorded."""
        contents = self._contents
        more: dict[str, Any] = {}
        parent = None if seen.parent is None else self._parent(seen)
        if parent is not None:
            more["parent"] = parent.id
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
        if seen.versions and completion is not None and seen.versions[-1].end == len(completion):
            more["versions"] = seen.versions
        if seen.keep:
            self._keep(seen, grown, whole, more)
            return None
        if grown is not None and grown.context is not None and whole is not None:
            keep = common_prefix(grown.context, whole)
            if keep:
                more["keep"], more["parent"] = keep, grown.id
                more["prompt_ids"] = whole[keep:]
        if whole is not None:
            more.setdefault("prompt_ids", whole)
        return None if whole is None or completion is None else whole + completion

    def _keep(
        self, seen: SeenCall, grown: JoinedCall | None, rest: Ints | None, more: dict[str, Any]
    ) -> None:
        """A prompt that is told as what it adds to another needs that one."""
        if grown is None or seen.parent is None or not grown.has_ids:
            self._lines.report.mend(
                "token ids that go on from a call that is not there were left out", seen.at
            )
        else:
            more["keep"], more["parent"], more["prompt_ids"] = seen.keep, grown.id, rest

    def _parent(self, seen: SeenCall) -> JoinedCall | None:
        parent = self.by_key.get(seen.parent or "")
        if parent is None:
            where = "comes after it" if seen.parent in self._number else "is not there"
            self._lines.report.mend(f"a call grows from one that {where}: it stands by itself", seen.at)
        return parent

    def _prompt(self, prompt: tuple[tuple[str, str], ...]) -> str | None:
        clean = self._contents.text
        return self._contents.json(
            [{"speaker": clean(speaker), "text": clean(text)} for speaker, text in prompt]
        )

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
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count < _MOST_TOKENS:
            self._lines.report.mend("a number of tokens that is none was left out", at)
            return None
        return count


def _is_fit(values: Ints | Floats) -> bool:
    return min(values, default=0) >= 0 if isinstance(values, Ints) else all(map(math.isfinite, values))


def _sampling(temperature: Any) -> Sampling | None:
    if not isinstance(temperature, int | float) or not 0 <= temperature < math.inf:
        return None
    return Sampling(temperature=float(temperature))
