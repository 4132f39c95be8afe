"""Structure: do the records fit together as one acyclic graph with its calls?

Lengths that a trace does not know (token ids not recorded, nothing billed) are not checked.
"""

from __future__ import annotations

from itertools import chain
from operator import attrgetter

import numpy as np

from baton.trace.formats.jsonl import encode_record, line_crc, sealed
from baton.trace.graph.order import cycles
from baton.trace.records import Call
from baton.trace.trace import End, Header
from baton.trace.validation.parts import KINDS, Indexes, Parts
from baton.trace.validation.problem import shown

_SHOWN_OF_CYCLE = 12


def check_structure(parts: Parts) -> None:
    _check_end(parts)
    for kind, name in (("event", "id"), ("call", "id"), ("payload", "ref")):
        _check_unique(parts, kind, name)
    _check_edges(parts)
    _check_seq_and_cycles(parts)
    _check_choices(parts)
    if parts.calls_known:
        _check_said(parts)
        _check_grown(parts)


def _check_end(parts: Parts) -> None:
    add = parts.found.add
    if parts.end is None:
        code, expected = "structure/unfinished", "a last record of kind 'end'"
        add(code, "trace", "none", expected, position=parts.header_line)
        return
    if not parts.events and not parts.num_broken.get("event") and not parts.lost:
        add("structure/no-events", "trace", "0", "at least 1", position=parts.header_line)
    if not parts.end.counts or parts.lost:
        return
    held = {kind: len(parts.of(kind)) + parts.num_broken.get(kind, 0) for kind in KINDS.values()}
    for kind in sorted(held.keys() | parts.end.counts.keys()):
        there, said = held.get(kind, 0), parts.end.counts.get(kind, 0)
        if said != there:
            was, expected = f"{there:,} in the file", f"{said:,}, as counted when it was written"
            add("structure/counts", "end", was, expected, position=parts.end_line, field=f"counts.{kind}")
            return  # a checksum cannot be right then, either
    if parts.header is not None and not parts.num_broken:
        _check_crc(parts, parts.header, parts.end)


def _check_crc(parts: Parts, header: Header, end: End) -> None:
    if end.crc is None or sealed(parts.crc, end) == end.crc:
        return
    records = (header, *chain.from_iterable(parts.of(kind) for kind in KINDS.values()))
    if sealed(sum(line_crc(encode_record(record)) for record in records), end) != end.crc:
        was, expected = "another checksum", f"{end.crc}, as it was when it was written"
        parts.found.add("structure/checksum", "end", was, expected, position=parts.end_line, field="crc")


def _check_unique(parts: Parts, kind: str, name: str) -> None:
    records = parts.of(kind)
    if kind == "event":
        if parts.ids_are_unique:
            return
    elif len(set(map(attrgetter(name), records))) == len(records):
        return
    first: dict[str, int] = {}
    for index, record in enumerate(records):
        id_ = getattr(record, name)
        before = first.setdefault(id_, index)
        if before != index:
            expected = f"an id of its own; it is the one of position {parts.place(kind, before)}"
            parts.report(f"structure/duplicate-{kind}", kind, index, name, shown(id_), expected)


def _check_edges(parts: Parts) -> None:
    for name, ends in (("src", parts.src), ("dst", parts.dst)):
        for index in np.flatnonzero(ends < 0).tolist():
            id_ = getattr(parts.edges[index], name)
            if not parts.excuses(id_):
                parts.report("structure/unknown-event", "edge", index, name, shown(id_), "the id of an event")


def _check_seq_and_cycles(parts: Parts) -> None:
    seq = parts.seq
    if parts.some_seq_given:
        index = parts.column("seq").index(None)
        parts.report("structure/partial-seq", "event", index, "seq", "none", "a seq, as other events have")
    unique = not parts.seq_given or _seq_is_unique(parts)
    edge = np.flatnonzero((parts.src >= 0) & (parts.dst >= 0))
    src, dst = parts.src[edge], parts.dst[edge]
    against = seq[src] >= seq[dst]
    if not against.any() and unique:
        return
    circle_of = _report_cycles(parts, "event", src, dst)
    if not parts.seq_given:
        return
    for index in edge[against].tolist():
        a, b = int(parts.src[index]), int(parts.dst[index])
        # Within a circle some edge has to go down; an equal seq is reported as such.
        if seq[a] == seq[b] or (a in circle_of and circle_of[a] == circle_of.get(b)):
            continue
        was, expected = f"seq {seq[a]} > {seq[b]}", "a higher seq at dst than at src"
        parts.report("structure/seq-against-edge", "edge", index, None, was, expected)


_IN_CIRCLES = {
    "event": ("structure/cycle", None, "no event to depend on itself"),
    "call": ("structure/call-cycle", "parent", "no call to grow from itself"),
}


def _report_cycles(parts: Parts, kind: str, src: Indexes, dst: Indexes) -> dict[int, int]:
    """Report every circle of events or calls; returns the number of the circle that each is in."""
    code, field, expected = _IN_CIRCLES[kind]
    records = parts.of(kind)
    circle_of: dict[int, int] = {}
    for number, circle in enumerate(cycles(len(records), src, dst)):
        circle_of.update(dict.fromkeys(circle, number))
        ids = [records[index].id for index in circle[:_SHOWN_OF_CYCLE]]
        more = [f"… {len(circle) - len(ids):,} more …"] if len(circle) > len(ids) else []
        parts.report(code, kind, circle[0], field, " > ".join([*ids, *more, ids[0]]), expected)
    return circle_of


def _seq_is_unique(parts: Parts) -> bool:
    seq = parts.seq
    if bool((np.diff(seq) > 0).all()):
        return True
    order = np.argsort(seq, kind="stable")
    same = np.flatnonzero(np.diff(seq[order]) == 0)
    for at in same.tolist():
        before, index = int(order[at]), int(order[at + 1])
        expected = f"a seq of its own; event {parts.events[before].id} has this one"
        parts.report("structure/duplicate-seq", "event", index, "seq", str(seq[index]), expected)
    return not len(same)


def _check_choices(parts: Parts) -> None:
    for index in parts.having("choice"):
        event = parts.events[index]
        num_options = len(event.options or ())
        if event.choice is not None and not 0 <= event.choice < num_options:
            code, was = "structure/choice-outside-options", shown(event.choice)
            expected = f"an index into {num_options} options" if num_options else "options to choose from"
            parts.report(code, "event", index, "choice", was, expected)
    for index in parts.having("option_propensities"):
        event = parts.events[index]
        given, num_options = len(event.option_propensities or ()), len(event.options or ())
        if given != num_options:
            code, was = "structure/propensities-length", f"{given} propensities"
            expected = f"{num_options}, one for each option"
            parts.report(code, "event", index, "option_propensities", was, expected)


def _check_said(parts: Parts) -> None:
    """What events say about the calls that said them."""
    for index in parts.having("span"):
        event = parts.events[index]
        if event.call is None:
            parts.report("structure/span-without-call", "event", index, "span", shown(event.span), "a call")
    for index in parts.having("call"):
        event = parts.events[index]
        at = parts.call_position.get(event.call or "")
        if at is None:
            _report_no_call(parts, "structure/unknown-call", "event", index, "call", event.call)
        elif event.span is not None:
            length = _completion_length(parts.calls[at])
            start, end = event.span
            if not 0 <= start <= end or (length is not None and end > length):
                expected = "0 <= start <= end" + (f" <= {length:,}" if length is not None else "")
                was = shown(event.span)
                parts.report("structure/span-outside-call", "event", index, "span", was, expected)


def _report_no_call(parts: Parts, code: str, kind: str, index: int, field: str, id_: str | None) -> None:
    if not parts.excuses(id_):
        parts.report(code, kind, index, field, shown(id_), "the id of a call")


def _completion_length(call: Call) -> int | None:
    return len(call.completion_ids) if call.completion_ids is not None else call.completion_tokens


def _prompt_length(call: Call) -> int | None:
    return call.keep + len(call.prompt_ids) if call.prompt_ids is not None else call.prompt_tokens


def _check_lengths(parts: Parts, index: int, call: Call) -> None:
    if call.completion_ids is None:
        return
    wanted = len(call.completion_ids)
    for name, values in (("logprobs", call.logprobs), ("token_ends", call.token_ends)):
        if values is not None and len(values) != wanted:
            code = f"structure/{name.replace('_', '-')}-length"
            was, expected = f"{len(values):,} of them", f"{wanted:,}, one for each completion token"
            parts.report(code, "call", index, name, was, expected)


def _check_versions(parts: Parts, index: int, call: Call) -> None:
    """Stretches follow each other to the last token, and the first is of the version that the call says."""
    if call.versions is None:
        return
    was, at = "" if call.versions else "none", 0
    for span in call.versions:
        if span.end <= at:
            was = was or f"{span.end:,} after {at:,}"
        at = max(at, span.end)
    size = None if call.completion_ids is None else len(call.completion_ids)
    if not was and size is not None and at != size:
        was = f"they end at token {at:,}"
    if not was and call.policy_version is not None and call.versions[0].version != call.policy_version:
        was = f"they begin with {call.versions[0].version!r}"
    if was:
        expected = f"ends that rise to {'the last token' if size is None else f'{size:,}'}, the first of policy_version"
        parts.report("structure/versions", "call", index, "versions", was, expected)


def _check_grown(parts: Parts) -> None:
    """What calls say about the calls that they grow from."""
    src, dst = [], []
    too_much = "structure/keep-outside-parent"
    for index, call in enumerate(parts.calls):
        _check_lengths(parts, index, call)
        _check_versions(parts, index, call)
        if call.parent is None:
            if call.keep > 0:
                was, expected = f"keep {call.keep:,} and no parent", "a parent to keep tokens of"
                parts.report(too_much, "call", index, "keep", was, expected)
            continue
        at = parts.call_position.get(call.parent)
        if at is None:
            _report_no_call(parts, "structure/unknown-parent", "call", index, "parent", call.parent)
            continue
        src.append(at)
        dst.append(index)
        prompt, completion = _prompt_length(parts.calls[at]), _completion_length(parts.calls[at])
        if prompt is not None and completion is not None and call.keep > prompt + completion:
            expected = f"at most {prompt + completion:,}, its parent's prompt and completion"
            parts.report(too_much, "call", index, "keep", shown(call.keep), expected)
    if any(map(int.__ge__, src, dst)):  # else every call stands after its parent, as a writer puts them
        _report_cycles(parts, "call", np.array(src, dtype=np.int64), np.array(dst, dtype=np.int64))
