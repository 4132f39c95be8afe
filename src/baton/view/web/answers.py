"""What the page asks for, by name: one method for each question, the same behind the server and in an export."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path
from secrets import token_urlsafe
from typing import Any, TypeVar

import msgspec

from baton import __version__
from baton.errors import BatonError, UsageError, nearest
from baton.measure.prices import price
from baton.trace.formats.decoding import no_collection
from baton.trace.notes import Notebook
from baton.trace.trace import Trace
from baton.view.headline import headline
from baton.view.index.line import Measured
from baton.view.index.matching import hits_in, matcher
from baton.view.report.run_files import run_of
from baton.view.web.attached import Attached, Change
from baton.view.web.command import Command
from baton.view.web.detail import Details, content
from baton.view.web.diff import changed_words, compare
from baton.view.web.fork_desk import ForkDesk, save_fork
from baton.view.web.noted import NoteChange, change_note, notes_of
from baton.view.web.picture import picture
from baton.view.web.places import Place, modified
from baton.view.web.run_answers import run_answer, run_stamp, trainings_answer
from baton.view.web.table_answers import TableAnswers
from baton.view.web.taint_overlay import overlay
from baton.view.web.traces import Library
from baton.view.web.transcript import Transcript

_KEPT_DETAILS = 8
_MOST_COMPARED = 20_000
Query = Mapping[str, str]
T = TypeVar("T")


class Answers:
    """Answers about the traces of a library.

    Everything is read-only but `fork`, which keeps to memory, and what a person has `note` and `act` do: they write
    beside what was given, never into it.
    """

    def __init__(self, library: Library, attached: Attached) -> None:
        self._library = library
        self._attached = attached
        library.measure_with(*measures_of(attached))
        self._made: OrderedDict[tuple[str, str, str, str], Any] = OrderedDict()
        self._pictures: dict[tuple[str, str, str], msgspec.Raw] = {}  # the last one
        self._lock = threading.Lock()
        self._desk = ForkDesk()
        self.table = TableAnswers(library)
        self.command = Command(library, attached.command)
        self._questions: dict[str, Callable[[Query], Any]] = {
            "setup": self._setup,
            "training": self._training,
            "trace": self._trace,
            "stamp": self._stamp,
            "event": lambda query: self._detail(query).event(_number(query, "at")),
            "call": lambda query: self._detail(query).call(_number(query, "at")),
            "content": lambda query: content(self._of(query), _text(query, "ref"), whole=True),
            "taint": lambda query: overlay(self._of(query), self._attached.labels),
            "ledger": lambda query: regret(self._of(query), self._attached),
            "diff": self._diff,
            "where": self._where,
            "find": self._find,
            "table": self.table.window,
            "values": self.table.values,
            "figures": self.table.figures,
            "search": self.table.search,
            "forking": lambda query: self._desk.told(_text(query, "job")),
            "words": self._words,
            "live": lambda _query: self.command.live(),
            "trainings": self._trainings,
            "standing": lambda query: self.command.standing(_text(query, "place"), _text(query, "id")),
            "notes": lambda query: notes_of(self._path(query), _text(query, "id")),
            "transcript": self._transcript,
            "headline": self._headline,
            "cost": lambda query: price(self._of(query), self._attached.prices),
        }

        self._watched: dict[str, Callable[[Query], str]] = {
            "table": self.table.stamp,
            "search": self.table.search_stamp,
            "places": lambda _query: _stamped(self._setup({})["places"]),
            "live": lambda _query: self.command.live_stamp(),
            "notes": lambda query: Notebook(self._path(query)).stamp(),
            "trainings": lambda _query: _stamped([run_stamp(each.path) for each in self._all_training()]),
            "standing": lambda query: self.command.standing_stamp(_text(query, "place"), _text(query, "id")),
            "training": lambda query: run_stamp(self._training_place(query).path),
            "trace": lambda query: self._stamp(query)["stamp"],
        }

    def stamp_of(self, name: str, query: Query) -> str:
        """Changes whenever what can be watched under this name does."""
        if name not in self._watched:
            raise UsageError(f"{name!r} cannot be watched. {nearest(name, self._watched)}")
        return self._watched[name](query)

    def get(self, name: str, query: Query) -> Any:
        """Raises `BatonError` with what is wrong."""
        if name not in self._questions:
            raise UsageError(f"there is no question {name!r}. {nearest(name, self._questions)}")
        return self._questions[name](query)

    def fork(self, query: Query, change: Change) -> dict[str, Any]:
        """Run a trace again with one change; the fork is kept beside it."""
        if self._attached.fork is None:
            raise UsageError("no runtime is attached. Type: baton view PATH --fork")
        key = _text(query, "place")
        path, trace = self._library.place(key).path, self._of(query)
        with self._desk.turn(query.get("job") or token_urlsafe(8)) as watch:
            made = self._attached.fork(path, trace, change, watch)
        self._library.add_fork(key, made.trace)
        fields = msgspec.structs.asdict(made)
        return {"id": made.trace.trace_id, **{name: fields[name] for name in fields if name != "trace"}}

    def note(self, query: Query, change: NoteChange) -> dict[str, Any]:
        """Write a note on a trace that is there, or on an event of it; the place's notes lie beside it."""
        trace = self._of(query)
        if change.event is not None and change.event not in trace.position:
            raise UsageError(f"the trace {trace.trace_id} has no event {change.event[:80]!r}.")
        return change_note(self._path(query), trace.trace_id, change)

    def act(self, name: str, query: Query) -> dict[str, Any]:
        """What else the page may have done: call a fork off, keep one on disk, label many traces."""
        if name == "label":
            return self.table.labelled(query, _text(query, "label"))
        if name == "cancel":
            return self._desk.cancel(_text(query, "job"))
        if name == "end":
            return self.command.end(_text(query, "name"))
        path = self._library.place(_text(query, "place")).path
        return {"saved": str(save_fork(path, self._library.fork(_text(query, "place"), _text(query, "id"))))}

    def _setup(self, _query: Query) -> dict[str, Any]:
        places = [
            {
                "key": place.key,
                "training": place.training,
                "modified": modified(place.path),
                "run": run_of(place.path) if place.training else None,
            }
            for place in self._library.places()
        ]
        return {
            "version": __version__,
            "places": places,
            "fork": self._attached.fork is not None,
            "steer": self.command.allowed,
        }

    def _training(self, query: Query) -> dict[str, Any]:
        return run_answer(self._training_place(query).path, query.get("stamp", ""))

    def _trainings(self, query: Query) -> dict[str, Any]:
        """All training runs, and the curves of those that are named."""
        return trainings_answer(
            [(place.key, place.path) for place in self._all_training()], query.get("runs", "")
        )

    def _all_training(self) -> list[Place]:
        return [place for place in self._library.places() if place.training]

    def _training_place(self, query: Query) -> Place:
        place = self._library.place(_text(query, "place"))
        if not place.training:
            raise UsageError(f"{place.key} is no training run.")
        return place

    def _trace(self, query: Query) -> msgspec.Raw:
        trace, stamp = self._library.trace(_text(query, "place"), _text(query, "id"))
        stamp += self._at_work(query)
        name = (_text(query, "place"), trace.trace_id, stamp)
        if name not in self._pictures:
            with no_collection():
                made = msgspec.json.encode(picture(trace) | {"stamp": stamp}, enc_hook=str)
            self._pictures = {name: msgspec.Raw(made)}
        return self._pictures[name]

    def _stamp(self, query: Query) -> dict[str, Any]:
        stamp = self._library.stamp(_text(query, "place"), _text(query, "id"))
        return {"stamp": stamp + self._at_work(query)}

    def _at_work(self, query: Query) -> str:
        """A run that dies writes nothing more, and is yet another than one that is at work."""
        return " at work" if self.command.is_at_work(_text(query, "place"), _text(query, "id")) else ""

    def _diff(self, query: Query) -> dict[str, Any]:
        other, _ = self._library.trace(_text(query, "place2"), _text(query, "id2"))
        before = self._of(query)
        found = compare(before, other)
        ledgers = [regret(before, self._attached), regret(other, self._attached)]
        if all("parts" in ledger for ledger in ledgers):  # a return holds luck; regret does not
            sums = [sum(ledger["parts"].values()) for ledger in ledgers]
            rows = [("regret", "regret", sums), ("luck", "luck", [ledger["luck"] for ledger in ledgers])]
            found["deltas"] += [{"what": what, "kind": kind, "values": pair} for what, kind, pair in rows]
        return found

    def _find(self, query: Query) -> dict[str, Any]:
        """Where words stand in what was said in one trace."""
        return {"hits": hits_in(self._of(query), matcher(_text(query, "words")))}

    def _headline(self, query: Query) -> dict[str, Any]:
        trace = self._of(query)
        return told(trace, self._attached, working=bool(self._at_work(query)))

    def _where(self, query: Query) -> dict[str, Any]:
        return {"places": self._library.places_with(_text(query, "id"))}

    def _words(self, query: Query) -> dict[str, Any]:
        """How what one event said became what another says."""
        other, _ = self._library.trace(_text(query, "place2"), _text(query, "id2"))
        texts = [_said(trace, _number(query, at)) for trace, at in ((self._of(query), "at"), (other, "at2"))]
        return {"words": changed_words(*texts)}

    def _path(self, query: Query) -> Path:
        return self._library.place(_text(query, "place")).path

    def _of(self, query: Query) -> Trace:
        return self._library.trace(_text(query, "place"), _text(query, "id"))[0]

    def _transcript(self, query: Query) -> dict[str, Any]:
        around = _number(query, "around") if "around" in query else None
        start = _number(query, "start") if "start" in query else 0
        return self._of_trace(query, Transcript).page(start=start, agent=query.get("agent"), around=around)

    def _detail(self, query: Query) -> Details:
        return self._of_trace(query, lambda trace: Details(trace, self._attached))

    def _of_trace(self, query: Query, make: Callable[[Trace], T]) -> T:
        """What was made of a trace, of those looked at last."""
        trace, stamp = self._library.trace(_text(query, "place"), _text(query, "id"))
        kind = "transcript" if make is Transcript else "details"
        name = (_text(query, "place"), trace.trace_id, stamp, kind)
        with self._lock:
            found = self._made.pop(name, None)
            self._made[name] = found = make(trace) if found is None else found
            while len(self._made) > _KEPT_DETAILS:
                self._made.popitem(last=False)
        return found


def measures_of(attached: Attached) -> tuple[Measured | None, Measured | None, str]:
    """What measures the regret and the price of a trace for its line in the table, and a name for both."""
    ledger, prices = attached.ledger, attached.prices
    lost = None if ledger is None else lambda trace: sum(ledger(trace).parts.values())
    cost = (lambda trace: price(trace, prices).cost.total) if prices.models else None
    return lost, cost, f"{ledger is not None} {_stamped(prices)}"


def regret(trace: Trace, attached: Attached) -> dict[str, Any]:
    """The regret ledger with its losses by row, or why there is none."""
    if attached.ledger is None:
        return {"why_not": "No solver is attached."}
    try:
        found = attached.ledger(trace)
    except BatonError as error:
        return {"why_not": str(error)}
    ledger = msgspec.to_builtins(found)
    for loss in ledger["losses"]:
        loss["row"] = trace.position.get(loss["event"])
    return dict(ledger)


def _stamped(content: Any) -> str:
    return blake2b(msgspec.json.encode(content), digest_size=8).hexdigest()


def told(trace: Trace, attached: Attached, *, working: bool = False) -> dict[str, Any]:
    """The headline of a trace, its pieces with the rows of the events that they are about."""
    losses = [(loss["event"], loss["regret"]) for loss in regret(trace, attached).get("losses", ())]
    said = headline(trace, prices=attached.prices, labels=attached.labels, losses=losses, working=working)
    rows = trace.position
    return {
        "sentences": [
            {
                "about": one.about,
                "pieces": [
                    [piece.text, None if piece.event is None else rows.get(piece.event)]
                    for piece in one.pieces
                ],
            }
            for one in said
        ]
    }


def _said(trace: Trace, row: int) -> str:
    if row >= len(trace.events):
        raise UsageError(f"the trace has no event {row}.")
    try:
        text = trace.text(trace.events[row].content_ref)
    except BatonError:  # a payload that cannot be read
        text = None
    return (text or "")[:_MOST_COMPARED]


def _text(query: Query, name: str) -> str:
    if name not in query:
        raise UsageError(f"the question needs {name!r}.")
    return query[name]


def _number(query: Query, name: str) -> int:
    text = _text(query, name)
    if not (text.isascii() and text.isdigit() and len(text) < 12):
        raise UsageError(f"{name} is {text[:40]!r}; expected a whole number.")
    return int(text)
