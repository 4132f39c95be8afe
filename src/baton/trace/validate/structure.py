"""Structure: do the records fit together as one acyclic graph with its calls?"""

from __future__ import annotations

from operator import attrgetter

import numpy as np

from baton.trace.call import Call
from baton.trace.validate.order import cycles
from baton.trace.validate.parts import KINDS, Indexes, Parts
from baton.trace.validate.problem import Found, shown

__all__ = ["check_structure"]

_SHOWN_OF_CYCLE = 12


def check_structure(parts: Parts, found: Found) -> None:
    _check_end(parts, found)
    for kind, name in (("event", "id"), ("call", "id"), ("payload", "ref")):
        _check_unique(parts, found, kind, name)
    _check_edges(parts, found)
    _check_seq_and_cycles(parts, found)
    _check_choices(parts, found)
    if parts.calls_known:
        _check_said(parts, found)
        _check_calls(parts, found)


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
        if len(parts.position) == len(records):
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
    events, seq = parts.events, parts.seq
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


def _check_said(parts: Parts, found: Found) -> None:
    for index in parts.having("span"):
        event = parts.events[index]
        if event.call is None:
            parts.report(
                found,
                "structure/span-without-call",
                "event",
                index,
                "span",
                was=shown(event.span),
                expected="a call",
            )
    for index in parts.having("call"):
        event = parts.events[index]
        at = parts.call_position.get(event.call or "")
        if at is None:
            if not parts.excuses(event.call):
                was = shown(event.call)
                parts.report(
                    found,
                    "structure/unknown-call",
                    "event",
                    index,
                    "call",
                    was=was,
                    expected="the id of a call",
                )
        elif event.span is not None:
            length = _completion_length(parts.calls[at])
            start, end = event.span
            if not 0 <= start <= end or (length is not None and end > length):
                expected = f"0 <= start <= end <= {length:,}" if length is not None else "0 <= start <= end"
                was = shown(event.span)
                parts.report(
                    found, "structure/span-outside-call", "event", index, "span", was=was, expected=expected
                )


def _completion_length(call: Call) -> int | None:
    return len(call.completion_ids) if call.completion_ids is not None else call.completion_tokens


def _prompt_length(call: Call) -> int | None:
    return call.keep + len(call.prompt_ids) if call.prompt_ids is not None else call.prompt_tokens


def _check_lengths(parts: Parts, found: Found, index: int, call: Call) -> None:
    if call.completion_ids is None:
        return
    wanted = len(call.completion_ids)
    for name, values in (("logprobs", call.logprobs), ("token_ends", call.token_ends)):
        if values is not None and len(values) != wanted:
            code = f"structure/{name.replace('_', '-')}-length"
            was, expected = f"{len(values):,} of them", f"{wanted:,}, one for each completion token"
            parts.report(found, code, "call", index, name, was=was, expected=expected)


def _check_calls(parts: Parts, found: Found) -> None:
    src, dst = [], []
    for index, call in enumerate(parts.calls):
        _check_lengths(parts, found, index, call)
        if call.parent is None:
            if call.keep > 0:
                was, expected = f"keep {call.keep:,} and no parent", "a parent to keep tokens of"
                parts.report(
                    found, "structure/keep-outside-parent", "call", index, "keep", was=was, expected=expected
                )
            continue
        at = parts.call_position.get(call.parent)
        if at is None:
            if not parts.excuses(call.parent):
                was = shown(call.parent)
                parts.report(
                    found,
                    "structure/unknown-parent",
                    "call",
                    index,
                    "parent",
                    was=was,
                    expected="the id of a call",
                )
            continue
        src.append(at)
        dst.append(index)
        prompt, completion = _prompt_length(parts.calls[at]), _completion_length(parts.calls[at])
        if prompt is not None and completion is not None and call.keep > prompt + completion:
            was, expected = (
                shown(call.keep),
                f"at most {prompt + completion:,}, its parent's prompt and completion",
            )
            parts.report(
                found, "structure/keep-outside-parent", "call", index, "keep", was=was, expected=expected
            )
    _check_call_cycles(parts, found, np.array(src, dtype=np.int64), np.array(dst, dtype=np.int64))


def _check_call_cycles(parts: Parts, found: Found, src: Indexes, dst: Indexes) -> None:
    if bool((src < dst).all()):  # every call stands after its parent, as a writer puts them
        return
    for circle in cycles(len(parts.calls), src, dst):
        ids = [parts.calls[index].id for index in circle[:_SHOWN_OF_CYCLE]]
        was, expected = " > ".join([*ids, ids[0]]), "no call to grow from itself"
        parts.report(found, "structure/call-cycle", "call", circle[0], "parent", was=was, expected=expected)
