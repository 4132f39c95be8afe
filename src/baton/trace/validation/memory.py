"""Validate a trace that is in memory."""

from __future__ import annotations

from msgspec import Struct, structs

from baton.trace.trace import End, Header, Trace
from baton.trace.validation.fields import field_faults
from baton.trace.validation.levels import check
from baton.trace.validation.parts import Parts
from baton.trace.validation.problem import Found, Level, Problem, level_named
from baton.trace.validation.shape import check_types


def validate(trace: Trace, level: Level = "meaning") -> list[Problem]:
    """Every problem of a trace, up to and including a level; at most 1,000 of each code."""
    found = Found(level_named(level))
    validate_into(found, trace)
    return found.sorted()


def validate_into(found: Found, trace: Trace) -> None:
    found.trace_id = trace.trace_id
    parts = Parts.of_trace(trace)
    if _report_mistyped(found, parts.header, "trace"):
        parts.header = None
    if _report_mistyped(found, parts.end, "end"):
        parts.end = End()
    check_types(parts, found)
    check(parts, found)


def _report_mistyped(found: Found, record: Header | End | None, name: str) -> bool:
    if record is None:
        return False
    given = {info.encode_name: getattr(record, info.name) for info in structs.fields(record)}
    # Values out of range are left to the next check, which is for all records alike.
    faults = field_faults(type(record), given, ranges_of=Struct)
    for field, (code, was, expected) in faults:
        found.add(code, record=name, field=field, found=was, expected=expected)
    return bool(faults)
