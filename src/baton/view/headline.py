"""What a trace comes to, in a few sentences: why it ended, what it took and cost, what mattered most, what went wrong.

One function for the page and for `baton show`. A sentence is made of pieces, some of which name an event, so that the
page can lead there. What was not measured has no sentence: nothing is said of the cost where nobody counted.
Source: the failure modes are MAST's (arXiv 2503.13657) as far as rules decide them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from baton.errors import TraceError
from baton.measure.measured import MeasuredTrace
from baton.measure.metrics.mast import failures
from baton.measure.prices import PriceTable, price
from baton.measure.safety.taint import taint
from baton.trace.graph.timing import critical_path
from baton.trace.outcome import estimated_tokens, final_event, stops
from baton.trace.provenance import Labels
from baton.trace.records import Credit, Event
from baton.trace.trace import Trace, meta_table
from baton.trace.vocabulary import DECISIONS
from baton.view.shared_memory import memory_said
from baton.view.terminal.endings import why_ended
from baton.view.text import count, duration, money, number, printable, shortened

_ACTS_OF_THEIR_OWN = frozenset({"stop", "aggregate", "continue", "wait"})
"""Decisions that are carried out by being taken; a spawn that was decided is an event of its own."""
_MOST_EVENTS = 50_000
"""In longer traces, what takes a look at every pair of events is left to `baton measure`."""
_NAMED = 3
_NAME_CHARACTERS = 40


class Piece(Struct, frozen=True):
    """Some words, and the event that they are about."""

    text: str
    event: str | None = None


class Sentence(Struct, frozen=True):
    """One thing that is to be said of a trace."""

    about: str
    """ended or now, fork, time, cost, worth or wrong."""
    pieces: tuple[Piece, ...]

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


def headline(
    trace: Trace,
    *,
    prices: PriceTable | None = None,
    labels: Labels | None = None,
    losses: Sequence[tuple[str, float]] = (),
    working: bool = False,
) -> list[Sentence]:
    """What is to be said of a trace; why it ended, or how far it has come, is first and always there.

    `losses`: event -> regret, where somebody solved the game that was played. `working`: its run goes on now.
    """
    said = [Sentence("now" if working and not trace.finished else "ended", _ended(trace, working))]
    if changed := _changed(trace):
        said.append(Sentence("fork", tuple(changed)))
    parts: tuple[tuple[str, Callable[[], list[Piece]]], ...] = (
        ("time", lambda: _time(trace)),
        ("cost", lambda: _cost(trace, prices)),
        ("worth", lambda: _worth(trace, losses)),
        ("wrong", lambda: _wrong(trace, labels)),
    )
    for about, part in parts:
        try:
            pieces = part()
        except TraceError:  # a trace whose graph is broken: the rest can still be said
            continue
        if pieces:
            said.append(Sentence(about, tuple(pieces)))
    return said


def _ended(trace: Trace, working: bool) -> tuple[Piece, ...]:
    try:
        event = final_event(trace) if trace.finished else max(trace.events, key=lambda e: e.seq, default=None)
    except TraceError:
        event = None
    return (Piece(why_ended(trace, working=working), None if event is None else event.id),)


def _changed(trace: Trace) -> list[Piece]:
    """Of a fork: what it was made of, and which event was changed."""
    origin = trace.header.meta.get("forked_from")
    if not isinstance(origin, str):
        return []
    given = meta_table(trace.header, "run").get("interventions")
    places = [each.get("at") for each in given if isinstance(each, dict)] if isinstance(given, list) else []
    events = [trace.event(name) for name in places if isinstance(name, str) and name in trace.position]
    made = Piece(f"forked from {shortened(origin, 2 * _NAME_CHARACTERS)}")
    return [made, Piece(", changed at "), _link(events[0])] if events else [made]


def _time(trace: Trace) -> list[Piece]:
    """Who holds most of the critical path, and its longest event."""
    from baton.trace.graph.arrays import Graph

    found = critical_path(Graph.of(trace))
    if found is None or not found[1] > 0:
        return []
    rows, length = found
    events = [trace.events[row] for row in rows]
    own: dict[str, float] = {}
    for event in events:
        own[event.agent] = own.get(event.agent, 0.0) + (event.duration_s or 0.0)
    agent = max(own, key=lambda name: own[name])
    longest = max(events, key=lambda event: event.duration_s or 0.0)
    took = f"{_name(agent)} took {duration(min(own[agent], length))} of the {duration(length)} that nothing shortens"
    return [
        Piece(took + "; longest: "),
        _link(longest),
        Piece(f" ({duration(longest.duration_s or 0.0)})"),
    ]


def _cost(trace: Trace, prices: PriceTable | None) -> list[Piece]:
    """What it cost in money where that is known, and the event that cost most."""
    bill = price(trace, prices or PriceTable())
    spoken = [event for event in trace.events if event.tokens]
    if bill.known is not None and bill.dearest is not None:
        about = "~" if bill.estimated else ""
        whole = (
            f"{about}{money(bill.cost.total, bill.currency)} in all"
            if bill.cost.total is not None
            else f"at least {about}{money(bill.known, bill.currency)} ({bill.why_not})"
        )
        dearest = next((event for event in trace.events if event.call == bill.dearest), None)
        return [
            Piece(printable(whole)),
            *([Piece(", most in "), _link(dearest)] if dearest is not None else []),
        ]
    if not spoken:
        return []
    total = sum(event.tokens or 0 for event in spoken)
    dearest = max(spoken, key=lambda event: event.tokens or 0)
    spent = f"{number(dearest.tokens or 0)} of {'~' if estimated_tokens(trace) else ''}{number(total)} tokens"
    return [_link(dearest), Piece(f" cost most: {spent}")]


def _worth(trace: Trace, losses: Sequence[tuple[str, float]]) -> list[Piece]:
    """The choice that lost most against the best one, else the event with the largest credit."""
    lost = [(name, regret) for name, regret in losses if regret > 0 and name in trace.position]
    if lost:
        name, regret = max(lost, key=lambda pair: pair[1])
        return [_link(trace.event(name)), Piece(f" lost most against the best choice: {number(regret)}")]
    credits = sorted(_credited(trace), key=lambda pair: -abs(pair[1].value))
    if not credits or not credits[0][1].value:
        return []
    event, credit = credits[0]
    way = "earned" if credit.value > 0 else "lost"
    return [
        _link(event),
        Piece(f" {way} most: {credit.value:+.3g} by {shortened(credit.estimator, _NAME_CHARACTERS)}"),
    ]


def _credited(trace: Trace) -> Iterator[tuple[Event, Credit]]:
    """Credits on one event each; what a role, an agent or the team earned is nobody's event."""
    by_call: dict[str, Event] = {}
    for event in trace.events:
        if event.call is not None:
            by_call.setdefault(event.call, event)
    for credit in trace.credits:
        if credit.unit in ("orchestrator", "message", "tool_call"):
            name = credit.target if credit.target in trace.position else credit.target.rpartition(">")[0]
            if name in trace.position:
                yield trace.event(name), credit
        elif credit.unit == "turn" and credit.target in by_call:
            yield by_call[credit.target], credit


def _wrong(trace: Trace, labels: Labels | None) -> list[Piece]:
    """What failed, which of MAST's failure modes show, and where taint led to an act."""
    found: list[list[Piece]] = []
    bad = [event for event in trace.events if event.status in ("failed", "invalid", "in_doubt")]
    if bad:  # what a person decided about is in doubt no more: a refusal counts itself
        named = (event.extra.get("request") for event in trace.events)
        decided = {name for name in named if isinstance(name, str)}
        bad = [event for event in bad if event.status != "in_doubt" or event.id not in decided]
    if bad:
        found.append([Piece(f"{count(len(bad), 'event')} not ok, first "), _link(bad[0])])
    if len(trace.events) <= _MOST_EVENTS:
        reading = MeasuredTrace(trace)
        violations = taint(reading, labels).violations
        if violations:
            acted = count(len(violations), "consequential call")
            found.append([Piece(f"{acted} under taint, first "), _link(trace.event(violations[0]))])
        for finding in failures(reading):
            if finding.fired and finding.mode != "no_verification":  # most teams have no verifier: no news
                where = [name for name in finding.events if name in trace.position]
                told = f"{finding.mode.replace('_', ' ')} ({finding.code})"
                found.append(
                    [Piece(f"{told}, at "), _link(trace.event(where[0]))] if where else [Piece(told)]
                )
    shown = found[:_NAMED]
    if len(found) > _NAMED:
        shown.append([Piece(f"{len(found) - _NAMED} more")])
    return [piece for k, part in enumerate(shown) for piece in ([Piece("; ")] if k else []) + part]


def _link(event: Event) -> Piece:
    return Piece(shortened(f"{event.agent}’s {titled(event)}", 2 * _NAME_CHARACTERS), event.id)


def titled(event: Event) -> str:
    """An event in a few words. A decision is named by what was chosen, and not by what was asked."""
    memory = memory_said(event)
    if memory is not None:
        return f"{'write to' if event.type == 'message' else 'read'} {memory}"
    if event.type == "orchestrator_decision":
        chosen = _chosen_option(event)
        if chosen is None:
            own = event.decision in _ACTS_OF_THEIR_OWN and (event.decision != "stop" or stops(event))
            return event.decision if own else f"{event.decision} decision".removeprefix("none ")
        verb = chosen.partition(" ")[0]
        if event.decision in ("none", verb):
            return chosen
        return f"{event.decision}{'?' if verb in DECISIONS else ':'} {chosen}"
    what = event.tool or (f"→ {event.to}" if event.to else "")
    return f"{event.type.replace('_', ' ')} {what}".rstrip()


def _chosen_option(event: Event) -> str | None:
    """What was chosen among the options of an event; None: there were none, or it is not told."""
    if event.options is None or event.choice is None or not 0 <= event.choice < len(event.options):
        return None
    return event.options[event.choice]


def _name(agent: str) -> str:
    return shortened(agent, _NAME_CHARACTERS)
