"""E4, protocol overhead: tokens that serve the team's working together, of all; coordination, returns and tools apart.

What a turn wrote is split by its acts: the completion's tokens that said a spawn, a message, a wait, an aggregate or a
stop are coordination, those of a return are returns, those of a tool call are tool management. What it read is split by
its entries: what the team told it is coordination or returns, what tools answered is tool management; a prompt's
tokens are shared over its entries by their letters, over all of them where the call was charged with its whole prompt
and over the new ones where it was not. Not protocol: instructions, the task as it was set, an agent's own
notes. Where a trace does not say what a turn read and wrote, all of it counts as what the turn's event is.

Seconds are split by what a turn wrote, since that is what takes time; what tools took is their work.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, Literal

import msgspec
from msgspec import Struct

from baton.measure.figure import NotMeasured
from baton.measure.measured import MeasuredTrace
from baton.measure.metric import metric
from baton.trace.records import Call, Event

Use = Literal["coordination", "returns", "tools"]
_USES: Final[Mapping[str, Use]] = {
    "orchestrator_decision": "coordination",
    "spawn": "coordination",
    "despawn": "coordination",
    "message": "coordination",
    "aggregate": "coordination",
    "return": "returns",
    "tool_call": "tools",
}
Shares = dict[Use, float]


class _Entry(Struct, frozen=True):
    """One part of a prompt, as calls keep them."""

    speaker: str
    text: str


_ENTRIES = msgspec.json.Decoder(list[_Entry])


class _Returned:
    """What was returned to one agent, found again in the texts that tell it.

    Such a text begins with who returned and ends with what. Names and results are looked up by the lengths that there
    are, so that a lead that hears a thousand workers does not compare each text with all of them.
    """

    def __init__(self) -> None:
        self._by: dict[str, set[str]] = {}
        self._names: set[int] = set()
        self._results: dict[str, set[int]] = {}

    def add(self, who: str, what: str) -> None:
        self._by.setdefault(who, set()).add(what)
        self._names.add(len(who))
        self._results.setdefault(who, set()).add(len(what))

    def is_told_by(self, text: str) -> bool:
        for length in self._names:
            who = text[:length]
            if who in self._by and any(
                size <= len(text) and text[len(text) - size :] in self._by[who] for size in self._results[who]
            ):
                return True
        return False


class Turns:
    """The turns of one trace, and what each read and wrote for the team."""

    def __init__(self, reading: MeasuredTrace) -> None:
        self.reading = reading
        self._read: dict[str, tuple[int, dict[Use, int]] | None] = {}
        self._whole: dict[str, tuple[int, dict[Use, int]] | None] = {}
        self._written: dict[str, Shares | None] = {}
        self.events: dict[str, list[Event]] = {}
        for event in reading.events:
            if event.call is not None:
                self.events.setdefault(event.call, []).append(event)
        self.returned: dict[str, _Returned] = {}
        """Agent -> all that was returned to it."""
        for event in reading.events:
            text = reading.trace.text(event.content_ref) if event.type == "return" else None
            if text is not None and event.to is not None:
                self.returned.setdefault(event.to, _Returned()).add(event.agent, text)

    def written(self, call: Call) -> Shares | None:
        """The shares of a completion that said acts of each use; None: the trace does not say which tokens did."""
        if call.id not in self._written:  # asked for once with each of its acts
            self._written[call.id] = self._count_written(call)
        return self._written[call.id]

    def _count_written(self, call: Call) -> Shares | None:
        num = len(call.completion_ids) if call.completion_ids is not None else call.completion_tokens
        if not num or any(event.span is None for event in self.events.get(call.id, ())):
            return None
        found: dict[Use, set[int]] = {}
        for event in self.events.get(call.id, ()):
            if event.span is not None and event.type in _USES:
                # A set: acts that were said in the same words do not count them twice.
                found.setdefault(_USES[event.type], set()).update(range(*event.span))
        return {use: min(1.0, len(tokens) / num) for use, tokens in found.items()}

    def read(self, call: Call, *, whole: bool) -> Shares | None:
        """The shares of what was read in a prompt, the whole or what is new in it; None: its text is not there."""
        letters = self._whole_letters(call) if whole else self._letters(call)
        if letters is None:
            return None
        total, found = letters
        return {use: size / total for use, size in found.items()} if total else {}

    def _whole_letters(self, call: Call) -> tuple[int, dict[Use, int]] | None:
        """Letters of a whole prompt: what was new in it, and in all before it, and what was said there."""
        path = [call]
        while path[-1].id not in self._whole and path[-1].parent is not None:
            above = self.reading.trace.call_by_id.get(path[-1].parent)
            if above is None or len(path) > len(self.reading.trace.calls):
                return None
            path.append(above)
        for each in reversed(path):  # the one above is known when it is asked for
            if each.id not in self._whole:
                self._whole[each.id] = self._with_above(each)
        return self._whole[call.id]

    def _with_above(self, call: Call) -> tuple[int, dict[Use, int]] | None:
        new = self._letters(call)
        if call.parent is None or new is None:
            return new
        before = self._whole[call.parent]
        if before is None:
            return None
        said = len(self.reading.trace.text(self.reading.trace.call_by_id[call.parent].completion_ref) or "")
        uses = {use: before[1].get(use, 0) + new[1].get(use, 0) for use in before[1] | new[1]}
        return before[0] + said + new[0], uses

    def _letters(self, call: Call) -> tuple[int, dict[Use, int]] | None:
        """Letters that were new in a prompt, in all and by use."""
        if call.id not in self._read:
            self._read[call.id] = self._count_letters(call)
        return self._read[call.id]

    def _count_letters(self, call: Call) -> tuple[int, dict[Use, int]] | None:
        text = self.reading.trace.text(call.prompt_ref)
        try:
            entries = _ENTRIES.decode(text) if text else None
        except msgspec.DecodeError:
            entries = None
        if entries is None:
            return None
        found: dict[Use, int] = {}
        first = call.parent is None and call.agent == self.reading.lineage.root
        for entry in entries:
            if entry.speaker == "user" and first:
                first = False  # the task as it was set
                continue
            use = self._use(call.agent, entry)
            if use is not None:
                found[use] = found.get(use, 0) + len(entry.text)
        return sum(len(entry.text) for entry in entries), found

    def _use(self, agent: str, entry: _Entry) -> Use | None:
        if entry.speaker == "tool":
            return "tools"
        if entry.speaker != "user":
            return None
        heard = self.returned.get(agent)
        return "returns" if heard is not None and heard.is_told_by(entry.text) else "coordination"


def protocol(reading: MeasuredTrace) -> Shares:
    """Share of all tokens by use."""
    whole = reading.cost(reading.trace.events, "tokens")
    if whole <= 0:
        raise NotMeasured("the trace cost no tokens at all")
    turns = Turns(reading)
    spent: dict[Use, list[float]] = {}
    for event in reading.events:
        for use, tokens in _tokens(turns, event).items():
            spent.setdefault(use, []).append(tokens)
    return {use: math.fsum(tokens) / whole for use, tokens in spent.items()}


def _tokens(turns: Turns, event: Event) -> Shares:
    """What is charged to an event, by use. A call is charged to one of its events."""
    if not event.tokens:
        return {}
    call = turns.reading.trace.call_by_id.get(event.call or "")
    wrote = turns.written(call) if call is not None else None
    written = min(event.tokens, _completion(call)) if call is not None else 0
    saw = turns.read(call, whole=_charged_whole(call, event.tokens - written)) if call is not None else None
    if wrote is None or saw is None:
        return {_USES[event.type]: float(event.tokens)} if event.type in _USES else {}
    uses = wrote.keys() | saw.keys()
    return {use: written * wrote.get(use, 0.0) + (event.tokens - written) * saw.get(use, 0.0) for use in uses}


def _completion(call: Call) -> int:
    """Tokens of a completion, as the call was charged with them: the ids of scripted play are bytes."""
    if call.completion_tokens is not None:
        return call.completion_tokens
    return 0 if call.completion_ids is None else len(call.completion_ids)


def _charged_whole(call: Call, prompt: int) -> bool:
    """Whether a call was charged with its whole prompt, and not with what was new in it alone."""
    new = None if call.prompt_ids is None else len(call.prompt_ids)
    return call.prompt_tokens == prompt and prompt != new


@metric("protocol_tokens", "E4", bounds=(0.0, 1.0))
def protocol_tokens(reading: MeasuredTrace) -> float:
    """Protocol share in tokens: coordination, returns and tool management, written and read, of all."""
    return min(1.0, math.fsum(protocol(reading).values()))


@metric("coordination_tokens", "E4", bounds=(0.0, 1.0))
def coordination_tokens(reading: MeasuredTrace) -> float:
    """Of the protocol: spawns, delegations, messages, waits, aggregates and stops, of all tokens."""
    return protocol(reading).get("coordination", 0.0)


@metric("return_tokens", "E4", bounds=(0.0, 1.0))
def return_tokens(reading: MeasuredTrace) -> float:
    """Of the protocol: what was returned, written and read, of all tokens."""
    return protocol(reading).get("returns", 0.0)


@metric("tool_tokens", "E4", bounds=(0.0, 1.0))
def tool_tokens(reading: MeasuredTrace) -> float:
    """Of the protocol: tool management, calls written and results read, of all tokens."""
    return protocol(reading).get("tools", 0.0)


@metric("protocol_seconds", "E4", bounds=(0.0, 1.0))
def protocol_seconds(reading: MeasuredTrace) -> float:
    """Protocol share in seconds: turns by what they wrote for the team, of all durations."""
    whole = reading.cost(reading.trace.events, "seconds")
    if whole <= 0:
        raise NotMeasured("the trace cost no seconds at all")
    turns = Turns(reading)
    spent = []
    for event in reading.events:
        call = reading.trace.call_by_id.get(event.call or "")
        wrote = turns.written(call) if call is not None else None
        share = float(event.type in _USES) if wrote is None else math.fsum(wrote.values())
        spent.append((event.duration_s or 0.0) * min(1.0, share))
    return min(1.0, math.fsum(spent) / whole)
