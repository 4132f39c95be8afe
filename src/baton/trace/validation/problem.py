"""Problems: what validation says is wrong with a trace, where, and under which stable code.

A code never changes its meaning once released; docs/validation.md lists them all.
"""

from __future__ import annotations

from typing import Any, Literal, cast, get_args

from msgspec import Struct, field

from baton.errors import UsageError, nearest

Level = Literal["shape", "structure", "meaning"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""Each level includes the ones before it."""

CODES: dict[str, str] = {
    "shape/not-json": "a record is not valid JSON",
    "shape/not-an-object": "a record is JSON but not an object",
    "shape/unknown-kind": "a record has no known kind",
    "shape/no-header": "records stand before any trace header",
    "shape/missing-field": "a required field is absent",
    "shape/unknown-field": "a field has a name that the record does not have",
    "shape/wrong-type": "a field holds another type of value",
    "shape/unknown-value": "a field holds a word that is not in its list",
    "shape/not-finite": "a number is NaN or infinite",
    "shape/negative": "a time, duration, count or token is below zero",
    "shape/too-large": "an integer does not fit its field",
    "shape/empty": "an id or name has length 0",
    "structure/unfinished": "the trace has no end record",
    "structure/counts": "the end record counts other records than the file holds",
    "structure/checksum": "the end record's checksum is of other records than the file holds",
    "structure/after-end": "a record stands after its trace's end record",
    "structure/no-events": "a finished trace has no event",
    "structure/duplicate-trace": "two traces in one file have the same id",
    "structure/duplicate-event": "two events have the same id",
    "structure/duplicate-call": "two calls have the same id",
    "structure/duplicate-payload": "a payload is stored twice",
    "structure/unknown-event": "an edge names an event that is not there",
    "structure/cycle": "events depend on each other in a circle",
    "structure/duplicate-seq": "two events have the same seq",
    "structure/seq-against-edge": "an edge goes from a higher seq to a lower one",
    "structure/partial-seq": "some events have a seq and some do not",
    "structure/unknown-call": "an event names a call that is not there",
    "structure/span-without-call": "an event has a span but names no call",
    "structure/span-outside-call": "a span is not inside its call's completion",
    "structure/unknown-parent": "a call grows from a call that is not there",
    "structure/call-cycle": "calls grow from each other in a circle",
    "structure/keep-outside-parent": "a call keeps more tokens than its parent has",
    "structure/logprobs-length": "a call has not one log-probability per completion token",
    "structure/token-ends-length": "a call has not one text offset per completion token",
    "structure/versions": "a call's weight versions do not follow each other through its completion",
    "structure/choice-outside-options": "the choice is not one of the options",
    "structure/propensities-length": "there is not one propensity per option",
    "meaning/spawn-without-child": "a spawn does not say whom it made",
    "meaning/spawned-twice": "an agent is spawned while it is alive",
    "meaning/despawn-of-nobody": "a despawn of an agent that is not alive",
    "meaning/acts-before-spawn": "an agent acts before it is spawned",
    "meaning/acts-after-despawn": "an agent acts after it is despawned",
    "meaning/acts-after-stop": "an agent acts after it, or who it was spawned by, stopped",
    "meaning/return-to-stranger": "a return goes to somebody who did not spawn the agent",
    "meaning/result-without-call": "a tool_result answers no tool_call of its tool",
    "meaning/answered-twice": "a tool_call has more than one tool_result",
    "meaning/unmarked-forced-stop": "a stop that nobody chose is not marked forced",
    "meaning/propensity-range": "a propensity is not a probability",
    "meaning/propensity-mismatch": "the propensity is not the chosen option's",
    "meaning/propensities-sum": "the options' propensities add up to more than 1",
    "meaning/cost-mismatch": "a cost is not the sum of its parts",
    "meaning/wall-clock-short": "the trace took less time than its last event",
    "meaning/payload-mismatch": "a payload is not what its address says",
    "meaning/unknown-target": "a reward, credit or charge lands on something that is not in the trace",
}

_KEPT_PER_CODE = 1000  # so that a hostile file cannot fill memory with reports about it
_SHOWN_CHARS = 120


class Problem(Struct, frozen=True, kw_only=True):
    """One thing wrong at one place."""

    code: str
    level: Level
    message: str
    """What the code means."""
    trace_id: str | None
    record: str
    """Kind and id of the record at fault: `event e7`, `edge e1 > e2`, `call c3`, `end`."""
    event_id: str | None
    """The event's id, where the record is an event."""
    position: int | None
    """Line number in JSON Lines (from 1); index into its list (from 0) elsewhere."""
    field: str | None
    found: str
    expected: str


class ValidationReport(Struct, frozen=True, kw_only=True):
    """All that validation has to say about one file."""

    path: str
    level: Level
    positions: Literal["line", "index"] = "index"
    """What `Problem.position` counts in this file."""
    num_traces: int = 0
    num_events: int = 0
    problems: list[Problem] = field(default_factory=list)
    """In order of code level, then position; at most 1,000 of each code."""
    counts: dict[str, int] = field(default_factory=dict)
    """Every problem found, by code, including those past the first 1,000."""
    unreadable: str | None = None
    """Why the file, or its rest, cannot be read at all."""

    @property
    def valid(self) -> bool:
        return self.unreadable is None and not self.counts

    @property
    def num_problems(self) -> int:
        return sum(self.counts.values())


class Found:
    """Collects problems up to a level; keeps the first 1,000 of each code and counts the rest."""

    def __init__(self, level: Level) -> None:
        self.levels = LEVELS[: LEVELS.index(level) + 1]
        self.problems: list[Problem] = []
        self.counts: dict[str, int] = {}
        self.trace_id: str | None = None

    def add(
        self,
        code: str,
        record: str,
        was: str,
        expected: str,
        *,
        event_id: str | None = None,
        position: int | None = None,
        field: str | None = None,
    ) -> None:
        """Report one problem; one of a level that was not asked for is left out."""
        level = cast("Level", code.partition("/")[0])
        if level not in self.levels:
            return
        count = self.counts.get(code, 0) + 1
        self.counts[code] = count
        if count > _KEPT_PER_CODE:
            return
        problem = Problem(
            code=code,
            level=level,
            message=CODES[code],
            trace_id=self.trace_id and clip(self.trace_id),
            record=clip(record),
            event_id=event_id and clip(event_id),
            position=position,
            field=field and clip(field),
            found=clip(was),
            expected=expected,
        )
        self.problems.append(problem)

    def is_full(self, code: str) -> bool:
        """Whether further problems of this code are only counted."""
        return self.counts.get(code, 0) >= _KEPT_PER_CODE

    def sorted(self) -> list[Problem]:
        """By level; within one, in the order of finding (trace by trace)."""
        return sorted(self.problems, key=lambda problem: LEVELS.index(problem.level))


def clip(text: str) -> str:
    """Short enough to print, whatever a file holds."""
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"


def shown(value: Any) -> str:
    """A value as a problem shows it: JSON's words for JSON's values, never long."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return repr(value[:_SHOWN_CHARS])
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, dict | list | tuple) and len(value) > 8:
        return f"{type(value).__name__} of {len(value):,}"
    return clip(repr(value))


def level_named(name: str) -> Level:
    if name not in LEVELS:
        raise UsageError(f"there is no validation level {name!r}. {nearest(name, LEVELS)}")
    return name
