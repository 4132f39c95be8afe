"""A trace as a readable tree: agents as they were spawned, their events in order under each.

The page is a list of lines, each a list of (text, style) parts, so that a terminal can colour it
and a pipe can have it plain. A long trace is folded: every agent shows at most so many of its first
and last events, the largest number for which the page fits, and each fold says what it left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

from msgspec import Struct

from baton.errors import CorruptError, UsageError
from baton.measure.metrics.scale import seconds_of
from baton.trace.outcome import is_estimated
from baton.trace.records import Call, Event, is_content_address
from baton.trace.trace import Trace
from baton.view.lanes import Lane, Lanes
from baton.view.shared_memory import memory_said
from baton.view.terminal.endings import reason_of
from baton.view.terminal.fitting import Line
from baton.view.terminal.prompts import call_rows
from baton.view.text import count, duration, moment, nearest_name, number, printable, shortened, tokens_said

T = TypeVar("T")
_PAGE_LINES = 160
_NAME_WIDTH = 60  # whoever writes a longer name does not get the whole screen for it
_WHY_WIDTH = 120
_DEEPEST = 40  # a branch indents by three columns
# (events an agent shows, levels of agents), from all to next to nothing.
_FOLDS = [(n, _DEEPEST) for n in (10**9, 60, 30, 16, 10, 6)] + [(6, n) for n in (6, 4, 3, 2, 1, 0)]


class Options(Struct, frozen=True, kw_only=True):
    """What of a trace to show."""

    agent: str | None = None
    """Only this agent and those below it."""
    depth: int | None = None
    """Levels of agents below the roots; None: as many as fit."""
    width: int = 110
    """Columns; text is cut to it, nothing else is."""
    fold: bool = True
    text: bool = False
    """The whole text of every event, not only its beginning."""
    prompts: bool = False
    """What every call was asked and answered, above the first event that came of it."""


class Page(Struct, frozen=True, kw_only=True):
    """The lines of one trace as a tree, and what was left out of them."""

    lines: list[Line]
    num_events: int
    num_left_out: int
    """Events that were folded away."""


class _TooLong(Exception):
    pass


def page(trace: Trace, options: Options) -> Page:
    """The tree of a trace."""
    lanes = Lanes(trace)
    roots = lanes.roots
    if options.agent is not None:
        if options.agent not in lanes.lanes:
            hint = nearest_name(options.agent, lanes.lanes)
            raise UsageError(f"there is no agent {options.agent!r} in this trace. {hint}")
        roots = [lanes.lanes[options.agent]]
    folds = _FOLDS if options.fold else [(10**9, _DEEPEST)]
    if options.depth is not None:
        folds = [(most, options.depth) for most in sorted({most for most, _ in folds}, reverse=True)]
    for most, depth in folds:
        room = _PAGE_LINES if options.fold and (most, depth) != folds[-1] else None
        writer = _Writer(trace, lanes, options, most, depth, room)
        try:
            writer.agents(roots)
            break
        except _TooLong:
            continue
    total = sum(root.total_events for root in roots)
    return Page(lines=writer.lines, num_events=total, num_left_out=total - writer.num_shown)


class _Writer:
    def __init__(
        self, trace: Trace, lanes: Lanes, options: Options, most: int, depth: int, room: int | None
    ) -> None:
        self.lines: list[Line] = []
        self.num_shown = 0
        self._trace = trace
        self._lanes = lanes
        self._options = options
        self._most = most
        self._depth = depth
        self._room = room
        self._timed = seconds_of(trace) is not None
        self._asked = _first_events(trace) if options.prompts else {}
        self._id_width = min(12, max((len(event.id) for event in trace.events[-1:]), default=2))

    def agents(self, roots: Sequence[Lane]) -> None:
        """Each root with its tree; if there are too many, the first and the last of them."""
        head, hidden, tail = _cut(roots, self._most)
        for lane in head:
            self._agent(lane, "", "", 0)
        if hidden:
            self._add("", [(f"… {_sum(hidden)} left out", "dim italic")])
        for lane in tail:
            self._agent(lane, "", "", 0)

    def _agent(self, lane: Lane, first: str, rest: str, level: int) -> None:
        self._add(first, self._agent_line(lane))
        nodes = self._nodes(lane, level)
        for index, node in enumerate(nodes):
            last = index == len(nodes) - 1
            here, below = rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  ")
            if isinstance(node, Lane):
                self._agent(node, here, below, level + 1)
            elif isinstance(node, Event):
                self.num_shown += 1
                for call in self._asked.get(node.id, ()):
                    for row, style in call_rows(self._trace, call):
                        self._add(rest + "│  ", [(row, style)])
                text = self._text(node) if self._options.text else None
                self._add(here, self._event_line(node, self._options.width - len(here), snippet=text is None))
                for row in (text or "").splitlines():
                    self._add(below + "     ", [(printable(row), "")])
            else:
                self._add(here, [(node, "dim italic")])

    def _nodes(self, lane: Lane, level: int) -> list[Event | Lane | str]:
        """What hangs under an agent: events, agents after the event that spawned them, folds."""
        head, hidden, tail = _cut(lane.events, self._most)
        deeper = level < self._depth
        nodes: list[Event | Lane | str] = []
        for part in (head, tail):
            if part is tail and hidden:
                nodes.append(self._fold(hidden))
            for event in part:
                nodes.append(event)
                if deeper and (child := self._lanes.born(event)):
                    nodes.append(child)
        below = [child for event in (*head, *tail) if (child := self._lanes.born(event))]
        if below and not deeper:
            nodes.append(f"… {_sum(below)} below left out")
        return nodes

    def _add(self, prefix: str, parts: Line) -> None:
        if self._room is not None and len(self.lines) >= self._room:
            raise _TooLong
        self.lines.append([(prefix, "dim"), *parts] if prefix else parts)

    def _agent_line(self, lane: Lane) -> Line:
        line: Line = [(shortened(lane.agent, _NAME_WIDTH), "bold cyan")]
        if lane.role:
            line.append((f" ({shortened(lane.role, _NAME_WIDTH)})", "cyan"))
        facts = [f"{moment(lane.start)}–{moment(lane.end)}"] if self._timed else []
        facts.append(count(len(lane.events), "event"))
        if lane.tokens is not None:
            estimated = any(is_estimated(self._trace, event) for event in lane.events)
            facts.append(f"{tokens_said(lane.tokens, estimated)} tokens")
        line.append(("  " + "  ".join(facts), "dim"))
        if lane.ending:
            line.append((f"  {lane.ending}", "red" if lane.ending == "cancelled" else "dim"))
        return line

    def _fold(self, events: Sequence[Event]) -> str:
        kinds = Counter[str](event.type for event in events)
        kinds.update(event.status for event in events if event.status != "ok")
        kinds_said = ", ".join(f"{n:,} {kind}" for kind, n in kinds.most_common())
        text = f"… {count(len(events), 'event')} left out: {kinds_said}"
        below = [child for event in events if (child := self._lanes.born(event))]
        return f"{text}; below them {_sum(below)}" if below else text

    def _event_line(self, event: Event, room: int, *, snippet: bool) -> Line:
        line: Line = [
            (f"{shortened(event.id, _NAME_WIDTH):<{self._id_width}} ", "dim"),
            (f"{moment(event.t):>6} " if self._timed else "", "dim"),
            (event.type, _STYLES.get(event.type, "")),
        ]
        if event.type == "orchestrator_decision" and event.decision != "none":
            line.append((f" {event.decision}", "bold yellow"))
        if event.tool:
            line.append((f" {shortened(event.tool, _NAME_WIDTH)}", "magenta"))
        if event.to:
            line.append((f" → {shortened(event.to, _NAME_WIDTH)}", "cyan"))
        if (memory := memory_said(event)) is not None:
            line.append((f" {'→' if event.type == 'message' else 'reads'} {memory}", "cyan"))
        after = self._after(event)
        taken = sum(len(text) for text, _ in (*line, *after))
        said = self._said(event, max(16, room - taken - 3)) if snippet else None
        return [*line, *([(f" {said}", "")] if said else []), *after]

    def _after(self, event: Event) -> Line:
        """What follows the text: the decision, the costs, the marks."""
        line: Line = []
        words: list[str] = []
        if event.decision not in ("none", _IMPLIED.get(event.type)) and event.type != "orchestrator_decision":
            words.append(event.decision)
        if event.propensity is not None:
            words.append(f"p={event.propensity:.3g}")
        if isinstance(sure := event.extra.get("confidence"), int | float):
            words.append(f"confidence {sure:.3g}")
        if isinstance(level := event.extra.get("sandbox"), str):
            words.append(f"sandbox {shortened(level, _NAME_WIDTH)}")
        if event.type == "human_intervention":
            told = (event.extra.get("do"), event.extra.get("by"))
            words += [shortened(word, _NAME_WIDTH) for word in told if isinstance(word, str)]
        if event.options is not None:
            words.append(f"of {len(event.options)}")
        if words:
            line.append((f" [{' '.join(words)}]", "yellow"))
        if event.tokens is not None:
            line.append((f" {tokens_said(event.tokens, is_estimated(self._trace, event))} tok", "dim"))
        if event.duration_s is not None:
            line.append((f" took {duration(event.duration_s)}", "dim"))
        if event.status != "ok":
            why = reason_of(event)
            said = "" if why is None else f": {shortened(why, _WHY_WIDTH)}"
            line.append((f" {event.status.upper()}{said}", "bold red"))
        if event.trusted is False:
            line.append((" untrusted", "red"))
        if event.inferred:
            line.append(
                (f" inferred{'' if event.why is None else f': {shortened(event.why, _WHY_WIDTH)}'}", "dim")
            )
        return line

    def _said(self, event: Event, room: int) -> str | None:
        ref = event.content_ref
        if ref is None:
            return None
        payload = self._trace.payloads.get(ref)
        if payload is None:
            return "(content not here)" if is_content_address(ref) else f"<{shortened(ref, room - 2)}>"
        try:
            text = payload.text()
        except CorruptError:
            return "(altered content)"
        if text is None:
            return f"({number(payload.size)} bytes withheld)"
        if payload.media_type == "application/json":
            return shortened(text, room)
        return f'"{shortened(text, room - 2)}"'

    def _text(self, event: Event) -> str | None:
        try:
            return self._trace.text(event.content_ref)
        except CorruptError:
            return None


def _first_events(trace: Trace) -> dict[str, list[Call]]:
    """Event -> the calls whose first effect it is. A call of which nothing came is put to its agent's last event."""
    first: dict[str, str] = {}
    for event in trace.events:
        if event.call is not None:
            first.setdefault(event.call, event.id)
    of_agent: dict[str, str] = {event.agent: event.id for event in trace.events}
    found: dict[str, list[Call]] = {}
    for call in trace.calls:
        if place := first.get(call.id) or of_agent.get(call.agent):
            found.setdefault(place, []).append(call)
    return found


_STYLES = {
    "orchestrator_decision": "bold yellow",
    "spawn": "bold green",
    "despawn": "dim",
    "message": "bold blue",
    "return": "bold green",
    "aggregate": "bold yellow",
    "human_intervention": "bold red",
    "safety_event": "bold red",
}
_IMPLIED = {"spawn": "spawn", "message": "communicate", "aggregate": "aggregate"}


def _cut(items: Sequence[T], most: int) -> tuple[Sequence[T], Sequence[T], Sequence[T]]:
    """First, hidden, last. Never hides a single item: the fold would take its line."""
    if len(items) <= most + 1:
        return items, (), ()
    tail = max(1, most // 3)
    return items[: most - tail], items[most - tail : len(items) - tail], items[len(items) - tail :]


def _sum(lanes: Sequence[Lane]) -> str:
    agents = sum(lane.total_agents for lane in lanes)
    return f"{count(agents, 'agent')} with {count(sum(lane.total_events for lane in lanes), 'event')}"
