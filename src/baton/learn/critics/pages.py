"""A trace as a critic reads it: rows of ids, and the spots in them where a value is asked.

central   everything every agent read and said so far, turn after turn in causal order, then what the next agent
          reads before it chooses
local     what one agent saw: the prompt of its call

A spot is (call, n): before the n-th token of its completion, or after all of them. Before the first token nothing is
chosen yet, so the value there is V; after the last it is the value of having said that, which is Q.

Invariant: a spot sees only what happened before it. Rows are bounded: of what is longer, the latest is kept (at least
half of the bound, so that neighbouring turns still share what they read).
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Collection, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from msgspec import Struct

from baton.credit.core.acts import turns
from baton.credit.estimator import CreditError
from baton.forest.rows import Ids, Row
from baton.trace.acts import Turn
from baton.trace.records import Call
from baton.trace.trace import Trace

View = Literal["central", "local"]


class Spot(NamedTuple):
    """Where a value is asked."""

    call: str
    num_said: int


class CriticPage(Struct, frozen=True, kw_only=True):
    """A row of ids, and which token stands last before each spot."""

    ids: Ids
    spots: dict[Spot, int]


class TraceReader:
    """Renders traces with one tokenizer; `own` are the policies whose recorded ids are already its own."""

    def __init__(self, tokenizer: Any, own: Collection[str], view: View, latest: int) -> None:
        self.tokenizer = tokenizer
        self.own = own
        self.view = view
        self.latest = latest
        self._encoded: dict[str, list[int]] = {}

    def pages(self, trace: Trace, *, tokens: bool = False) -> list[CriticPage]:
        """All turns of a trace. `tokens`: with a spot before each completion token."""
        calls = [trace.call_by_id[turn.call] for turn in turns(trace) if turn.call in trace.call_by_id]
        if self.view == "central":
            return self._central(trace, calls, tokens)
        return [self._local(trace, call, tokens) for call in calls]

    def said(self, text: str) -> list[int]:
        """An answer, ended as a model ends it."""
        return [*self._encode(text), self.tokenizer.eos_token_id]

    def _local(self, trace: Trace, call: Call, tokens: bool) -> CriticPage:
        prompt = trace.prompt_ids(call) if call.policy in self.own else None
        read = self._encode(_context(trace, call)) if prompt is None else list(prompt)
        spoken = self._spoken(trace, call)
        read = read[-max(1, self.latest - len(spoken)) :]
        return CriticPage(
            ids=np.array([*read, *spoken], np.int32), spots=_spots(call, len(read), spoken, tokens)
        )

    def _central(self, trace: Trace, calls: Sequence[Call], tokens: bool) -> list[CriticPage]:
        pages: list[CriticPage] = []
        ids: list[int] = []
        spots: dict[Spot, int] = {}
        for call in calls:
            read, spoken = self._new(trace, call), self._spoken(trace, call)
            read = read[-max(1, self.latest - len(spoken)) :]
            if ids and len(ids) + len(read) + len(spoken) > self.latest:
                pages.append(CriticPage(ids=np.array(ids, np.int32), spots=spots))
                room = max(0, min(self.latest // 2, self.latest - len(read) - len(spoken)))
                ids, spots = ids[len(ids) - room :], {}
            ids += read
            spots |= _spots(call, len(ids), spoken, tokens)
            ids += spoken
        if ids:
            pages.append(CriticPage(ids=np.array(ids, np.int32), spots=spots))
        return pages

    def _new(self, trace: Trace, call: Call) -> list[int]:
        """What an agent reads that it had not read at its call before."""
        if call.policy in self.own and call.prompt_ids is not None:
            return list(call.prompt_ids)
        return self._encode(_entries(trace, call))

    def _spoken(self, trace: Trace, call: Call) -> list[int]:
        if call.policy in self.own and call.completion_ids is not None:
            return list(call.completion_ids)
        return self.said(trace.text(call.completion_ref) or "")

    def _encode(self, text: str) -> list[int]:
        if text not in self._encoded:
            # Never empty: a spot stands behind a token.
            self._encoded[text] = list(self.tokenizer.encode(text or "\n", add_special_tokens=False))
        return self._encoded[text]


class Places:
    """Where to ask about prefixes of one trace."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._by_agent: dict[str | None, list[Turn]] = {None: turns(trace)}
        for turn in self._by_agent[None]:
            self._by_agent.setdefault(turn.agent, []).append(turn)

    def spot(self, num_events: int, agent: str | None = None) -> Spot:
        """Before the choice that follows so many events, or else after the latest turn among them."""
        mine = self._by_agent.get(agent)
        if mine is None:
            raise CreditError(
                f"trace {self._trace.trace_id}: agent {agent!r} made no call, so it saw nothing."
            )
        at = bisect_left(mine, num_events, key=lambda turn: turn.start)
        if at == 0 or (at < len(mine) and mine[at].start == num_events):
            return Spot(mine[at].call, 0)
        return Spot(mine[at - 1].call, -1)


def row_at(ids: Ids, places: Sequence[int] | Ids) -> Row:
    """A row that the prefix forest can compute; nothing in it is trained as a policy's."""
    size = len(places)
    zeros = np.zeros(size)
    return Row(
        ids=ids, places=np.array(places, np.int32), advantages=zeros, sampler=zeros, weights=np.ones(size)
    )


def _spots(call: Call, start: int, spoken: Sequence[int], tokens: bool) -> dict[Spot, int]:
    found = {Spot(call.id, n): start + n - 1 for n in (range(len(spoken)) if tokens else (0,))}
    return found | {Spot(call.id, -1): start + len(spoken) - 1}


def _entries(trace: Trace, call: Call) -> str:
    text = trace.text(call.prompt_ref)
    if text is None:
        raise CreditError(
            f"call {call.id} of {trace.trace_id} has neither ids nor text for a critic to read."
        )
    return "\n".join(entry["text"] for entry in json.loads(text))


def _context(trace: Trace, call: Call) -> str:
    """The whole conversation of a call as text."""
    parts: list[str] = []
    current: Call | None = call
    while current is not None:
        if current is not call:
            parts.append(trace.text(current.completion_ref) or "")
        parts.append(_entries(trace, current))
        current = trace.call_by_id.get(current.parent or "")
    return "\n".join(reversed(parts))
