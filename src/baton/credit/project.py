"""From credit on any unit down to token advantages, through the spans of events.

token ⊂ tool call | message | decision ⊂ turn ⊂ agent ⊂ role ⊂ team. A credit reaches the completion tokens
of its unit: an event's are its span with the reasoning that led up to it (from the end of the span before;
the last event of a call also takes what follows), or with `decision_only` the span alone.

What is not trained: tokens of an event that nobody chose (forced by a budget, put there by an
intervention) are left out of every unit, so a forced stop is never trained as chosen; so are calls without
recorded tokens. What was invalid, failed or cancelled later was said by the policy, and its tokens count.

Invariant: with `spread="sum"` the tokens a credit reaches sum to its value; one that reaches none is lost
(`tokens_of` tells). Two estimators that cover the same event are an error (see `partition`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from baton.credit.core.covering import check_disjoint
from baton.credit.core.layers import by_level
from baton.credit.estimator import CreditError
from baton.errors import UsageError, nearest
from baton.trace.acts import agents, chosen
from baton.trace.records import Credit, Event, Floats
from baton.trace.trace import Trace

Spread = Literal["mean", "sum"]
Tokens = dict[str, NDArray[np.intp]]
"""Call -> places in its completion."""


def project(
    trace: Trace,
    credits: Iterable[Credit],
    *,
    spread: Spread = "mean",
    decision_only: bool = False,
    layered: bool = False,
) -> dict[str, Floats]:
    """Per-token advantages of every call with recorded tokens.

    `spread="mean"`: every token of a unit carries its credit, as policy gradients use it. `"sum"`: they share it
    equally. Credits on one token add up. `decision_only`: credit on a decision, message or tool call stays on
    the tokens that said it, off the reasoning around them. `layered`: what layers are left with
    (`baton.credit.core.layers`); a token that a finer one reaches is not reached by a coarser one.
    """
    if spread not in ("mean", "sum"):
        raise UsageError(
            f"spread is {spread!r}; expected 'mean' (each token carries it) or 'sum' (they share it)."
        )
    every = list(credits)
    levels = by_level(every) if layered else [every]
    for level in levels:
        check_disjoint(trace, level)
    reach = _Reach(trace, decision_only)
    found = {call: np.zeros(size) for call, size in reach.sizes.items()}
    if not found:
        raise CreditError(
            f"trace {trace.trace_id} records no completion tokens, so credit cannot reach any. "
            "Use an engine that gives token ids (table, torch)."
        )
    taken = {call: np.zeros(size, dtype=np.bool_) for call, size in reach.sizes.items()}
    for level in levels:
        reached = []
        for credit in level:
            tokens = {call: places[~taken[call][places]] for call, places in reach.of(credit).items()}
            count = sum(map(len, tokens.values()))
            value = credit.value / count if spread == "sum" and count else credit.value
            for call, places in tokens.items():
                found[call][places] += value
            reached.append(tokens)
        for tokens in reached:
            for call, places in tokens.items():
                taken[call][places] = True
    return {call: Floats.from_buffer(values) for call, values in found.items()}


def tokens_of(trace: Trace, credit: Credit, *, decision_only: bool = False) -> dict[str, list[int]]:
    """The completion tokens a credit reaches, by call. Empty: no policy said this."""
    found = _Reach(trace, decision_only).of(credit)
    return {call: places.tolist() for call, places in found.items()}


def trained_tokens(trace: Trace) -> dict[str, NDArray[np.bool_]]:
    """For each call with recorded tokens, which of its completion's tokens credit may reach: not those nobody chose."""
    reach = _Reach(trace, decision_only=False)
    return {call: reach.trained(call) for call in reach.sizes}


class _Reach:
    """Which tokens belong to which unit of one trace."""

    def __init__(self, trace: Trace, decision_only: bool) -> None:
        self.trace = trace
        self.decision_only = decision_only
        self.sizes = {
            call.id: len(call.completion_ids) for call in trace.calls if call.completion_ids is not None
        }
        self.said: dict[str, list[Event]] = {}
        for event in trace.events:
            if event.call in self.sizes:
                self.said.setdefault(event.call, []).append(event)
        self._kept: dict[str, NDArray[np.bool_]] = {}
        self._segments: dict[str, dict[tuple[int, int], tuple[int, int]]] = {}

    @cached_property
    def _calls_by_agent(self) -> Mapping[str, list[str]]:
        found: dict[str, list[str]] = {agent: [] for agent in agents(self.trace)}
        for call in self.trace.calls:
            found.setdefault(call.agent, [])
            if call.id in self.sizes:
                found[call.agent].append(call.id)
        return found

    @cached_property
    def _calls_by_role(self) -> Mapping[str, list[str]]:
        found: dict[str, list[str]] = {}
        roles = agents(self.trace)
        for agent, calls in self._calls_by_agent.items():
            found.setdefault(roles.get(agent) or "", []).extend(calls)
        return found

    def of(self, credit: Credit) -> Tokens:
        target = credit.target
        if credit.unit == "team":
            if target != self.trace.trace_id:
                raise CreditError(
                    f"a credit on team {target!r} is not for trace {self.trace.trace_id}. "
                    "Give each trace its own credits."
                )
            return self._whole(self.sizes)
        if credit.unit == "role":
            _check_known(self._calls_by_role, target, "role")
            return self._whole(self._calls_by_role[target])
        if credit.unit == "agent":
            _check_known(self._calls_by_agent, target, "agent")
            return self._whole(self._calls_by_agent[target])
        if credit.unit == "turn":
            _check_known(self.trace.call_by_id, target, "call")
            return self._whole([target])
        if credit.unit == "token":
            return self._one(target)
        whole = target in self.trace.position or ">" not in target
        event = self.trace.event(target if whole else target.rpartition(">")[0])
        if not chosen(event) or event.call not in self.sizes:
            return {}
        places = np.arange(*self._segment(event, self.decision_only))
        places = places[self.trained(event.call)[places]]
        return {event.call: places} if len(places) else {}

    def _whole(self, calls: Iterable[str]) -> Tokens:
        found = {call: np.flatnonzero(self.trained(call)) for call in calls if call in self.sizes}
        return {call: places for call, places in found.items() if len(places)}

    def trained(self, call: str) -> NDArray[np.bool_]:
        """For each token of a completion, whether it is none of an event that nobody chose."""
        if call not in self._kept:
            keep = np.ones(self.sizes[call], bool)
            for event in self.said.get(call, ()):
                if not chosen(event):
                    start, end = self._segment(event, False)
                    keep[start:end] = False
            self._kept[call] = keep
        return self._kept[call]

    def _one(self, target: str) -> Tokens:
        call, _, index = target.rpartition(":")
        if call not in self.sizes or not index.isdecimal() or int(index) >= self.sizes[call]:
            raise CreditError(f"there is no token {target!r}; expected CALL:INDEX into a completion, from 0.")
        place = int(index)
        return {call: np.array([place])} if self.trained(call)[place] else {}

    def _segment(self, event: Event, decision_only: bool) -> tuple[int, int]:
        call = event.call or ""
        size = self.sizes[call]
        if event.span is None:
            if decision_only:
                raise CreditError(
                    f"event {event.id}: which tokens of call {call} said it was not recorded, so the decision cannot "
                    "be told from the reasoning. Record spans, or leave decision_only off."
                )
            return 0, size
        if decision_only:
            return event.span[0], min(event.span[1], size)
        return self._with_reasoning(call)[event.span]

    def _with_reasoning(self, call: str) -> dict[tuple[int, int], tuple[int, int]]:
        """Span -> the tokens from the end of the one before to its own end, or the completion's after the last."""
        if call not in self._segments:
            spans = sorted({event.span for event in self.said[call] if event.span is not None})
            found, before = {}, 0
            for start, end in spans:
                found[start, end] = (min(before, start), min(end, self.sizes[call]))
                before = max(before, end)
            found[spans[-1]] = (found[spans[-1]][0], self.sizes[call])
            self._segments[call] = found
        return self._segments[call]


def _check_known(found: Collection[str], name: str, what: str) -> None:
    if name not in found:
        raise CreditError(f"there is no {what} {name!r} in the trace. {nearest(name, found)}")
