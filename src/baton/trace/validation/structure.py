"""Structure: do the records fit together as one acyclic graph with its calls?"""

from __future__ import annotations

from operator import attrgetter

import numpy as np

from baton.trace.validation.calls import check_calls
from baton.trace.validation.order import cycles
from baton.trace.validation.parts import KINDS, Indexes, Parts
from baton.trace.validation.problem import Found, shown

_SHOWN_OF_CYCLE = 12


def check_structure(parts: Parts, found: Found) -> None:
    _check_end(parts, found)
    for kind, name in (("event", "id"), ("call", "id"), ("payload", "ref")):
        _check_unique(parts, found, kind, name)
    _check_edges(parts, found)
    _check_seq_and_cycles(parts, found)
    _check_choices(parts, found)
    if parts.calls_known:
        check_calls(parts, found)


def _check_end(parts: Parts, found: Found) -> None:
    if parts.end is None:
        expected = "a last record of kind 'end'"
        found.add(
            "structure/unfinished",
            record="trace",
            position=parts.header_line,
            found="none",
            expected=expected,
        )
        return
    if not parts.events and not parts.num_broken.get("event") and not parts.lost:
        found.add(
            "structure/no-events",
            record="trace",
            position=parts.header_line,
            found="0",
            expected="at least 1",
        )
    if not parts.end.counts or parts.lost:
        return
    held = {kind: len(parts.of(kind)) + parts.num_broken.get(kind, 0) for kind in KINDS.values()}
    for kind in sorted(held.keys() | parts.end.counts.keys()):
        if parts.end.counts.get(kind, 0) != held.get(kind, 0):
            found.add(
                "structure/counts",
                record="end",
                position=parts.end_line,
                field=f"counts.{kind}",
                found=f"{held.get(kind, 0):,} in the file",
                expected=f"{parts.end.counts.get(kind, 0):,}, as counted when it was written",
            )


def _check_unique(parts: Parts, found: Found, kind: str, name: str) -> None:
    records = parts.of(kind)
    if kind == "event":
        if parts.ids_are_unique:
            return
    elif len(set(map(attrgetter(name), records))) == len(records):
        return
    first: dict[str, int] = {}
    for index, record in enumerate(records):
        before = first.setdefault(getattr(record, name), index)
        if before != index:
            where = parts.place(kind, before)
            expected = f"an id of its own; it is the one of position {where}"
            parts.report(
                found,
                f"structure/duplicate-{kind}",
                kind,
                index,
                name,
                was=shown(getattr(record, name)),
                expected=expected,
            )


def _check_edges(parts: Parts, found: Found) -> None:
    for name, ends in (("src", parts.src), ("dst", parts.dst)):
        for index in np.flatnonzero(ends < 0).tolist():
            id_ = getattr(parts.edges[index], name)
            if not parts.excuses(id_):
                parts.report(
                    found,
                    "structure/unknown-event",
                    "edge",
                    index,
                    name,
                    was=shown(id_),
                    expected="the id of an event",
                )


def _check_seq_and_cycles(parts: Parts, found: Found) -> None:
    seq = parts.seq
    if parts.some_seq_given:
        index = parts.column("seq").index(None)
        parts.report(
            found,
            "structure/partial-seq",
            "event",
            index,
            "seq",
            was="none",
            expected="a seq, as other events have",
        )
    unique = not parts.seq_given or _seq_is_unique(parts, found)
    edge = np.flatnonzero((parts.src >= 0) & (parts.dst >= 0))
    src, dst = parts.src[edge], parts.dst[edge]
    against = seq[src] >= seq[dst]
    if not against.any() and unique:
        return
    circle_of = _report_cycles(parts, found, src, dst)
    if not parts.seq_given:
        return
    for index in edge[against].tolist():
        a, b = int(parts.src[index]), int(parts.dst[index])
        # Within a circle some edge has to go down; an equal seq is reported as such.
        if seq[a] == seq[b] or (a in circle_of and circle_of[a] == circle_of.get(b)):
            continue
        parts.report(
            found,
            "structure/seq-against-edge",
            "edge",
            index,
            None,
            was=f"seq {seq[a]} > {seq[b]}",
            expected="a higher seq at dst than at src",
        )


def _report_cycles(parts: Parts, found: Found, src: Indexes, dst: Indexes) -> dict[int, int]:
    """Report every circle; returns the number of the circle that an event is in."""
    events = parts.events
    circle_of: dict[int, int] = {}
    for number, circle in enumerate(cycles(len(events), src, dst)):
        circle_of.update(dict.fromkeys(circle, number))
        ids = [events[index].id for index in circle[:_SHOWN_OF_CYCLE]]
        more = [f"… {len(circle) - len(ids):,} more …"] if len(circle) > len(ids) else []
        parts.report(
            found,
            "structure/cycle",
            "event",
            circle[0],
            None,
            was=" > ".join([*ids, *more, ids[0]]),
            expected="no event to depend on itself",
        )
    return circle_of


def _seq_is_unique(parts: Parts, found: Found) -> bool:
    seq = parts.seq
    if bool((np.diff(seq) > 0).all()):
        return True
    order = np.argsort(seq, kind="stable")
    same = np.flatnonzero(np.diff(seq[order]) == 0)
    for at in same.tolist():
        before, index = int(order[at]), int(order[at + 1])
        expected = f"a seq of its own; event {parts.events[before].id} has this one"
        parts.report(
            found, "structure/duplicate-seq", "event", index, "seq", was=str(seq[index]), expected=expected
        )
    return not len(same)


def _check_choices(parts: Parts, found: Found) -> None:
    for index in parts.having("choice"):
        event = parts.events[index]
        num_options = len(event.options) if event.options is not None else 0
        if event.choice is not None and not 0 <= event.choice < num_options:
            expected = f"an index into {num_options} options" if num_options else "options to choose from"
            parts.report(
                found,
                "structure/choice-outside-options",
                "event",
                index,
                "choice",
                was=shown(event.choice),
                expected=expected,
            )
    for index in parts.having("option_propensities"):
        event = parts.events[index]
        given, num_options = len(event.option_propensities or ()), len(event.options or ())
        if given != num_options:
            parts.report(
                found,
                "structure/propensities-length",
                "event",
                index,
                "option_propensities",
                was=f"{given} propensities",
                expected=f"{num_options}, one for each option",
            )
