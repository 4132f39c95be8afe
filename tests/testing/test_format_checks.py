"""Conformance of trace formats: all of Baton's keep their contract, and ones that do not are caught."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from msgspec import structs

from baton.testing import CheckFailed, check_format
from baton.trace import Trace
from baton.trace.formats import Format, encode
from baton.trace.formats.jsonl import read_jsonl
from baton.trace.formats.shipped import FORMATS

COUNTER = itertools.count()


@pytest.mark.parametrize("name", FORMATS)
def test_formats_that_ship_conform(name: str) -> None:
    check_format(FORMATS[name])


def lines(traces: Iterable[Trace]) -> Iterator[bytes]:
    return encode(traces, "jsonl")


def crash(traces: Iterable[Trace]) -> Iterator[bytes]:
    raise KeyError(next(iter(traces)).trace_id)


def counted(traces: Iterable[Trace]) -> Iterator[bytes]:
    yield str(next(COUNTER)).encode()


def forgets(path: Path) -> Iterator[Trace]:
    return (structs.replace(trace, events=trace.events[1:]) for trace in read_jsonl(path))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"encode": crash}, "Refuse it with a BatonError"),
        ({"encode": counted}, "other bytes"),
        ({"encode": lines, "read_all": forgets, "is_lossless": True}, "not read back equal"),
        ({"encode": lines, "read_all": read_jsonl, "recognises": lambda head: False}, "recognises"),
        ({"encode": lambda traces: [b"x"], "read_all": read_jsonl}, "cannot be read"),
        ({"encode": lines, "is_lossless": True}, "no read_all"),
        ({"encode": lines, "endings": ("csv",)}, "no dot"),
        ({}, "neither"),
    ],
)
def test_formats_that_do_not_are_caught(changes: dict[str, object], told: str) -> None:
    with pytest.raises(CheckFailed, match=told):
        check_format(Format(name="mine", about="for a test", **changes))  # type: ignore[arg-type]
