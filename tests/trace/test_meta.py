"""What a header's meta holds: as Baton wrote it, as somebody else did, or damaged."""

from __future__ import annotations

from typing import Any

import pytest

from baton.errors import TraceError
from baton.trace import Header, Trace, validate
from baton.trace.trace import meta_as, meta_table


def header(**meta: Any) -> Header:
    return Header(trace_id="t", task_id="k", meta=meta)


@pytest.mark.parametrize("odd", [5, "x", [], None, True])
def test_a_table_that_is_none_is_empty(odd: Any) -> None:
    assert meta_table(header(run=odd), "run") == {}
    assert meta_table(header(run=odd), "run", "task") == {}
    assert meta_table(header(run={"task": odd}), "run", "task") == {}
    assert meta_as(header(run=odd), int, "run", "seed") is None


def test_what_is_there_is_given() -> None:
    made = header(run={"task": {"task": "sum"}, "seed": 3})
    assert meta_table(made, "run", "task") == {"task": "sum"}
    assert meta_as(made, int, "run", "seed") == 3
    assert meta_as(made, dict[str, str], "run", "task") == {"task": "sum"}
    assert meta_as(made, int, "run", "absent") is None


def test_another_type_names_its_place_and_what_to_type() -> None:
    with pytest.raises(TraceError, match=r"trace t: meta\.run\.seed .*Expected `int`.*baton validate FILE"):
        meta_as(header(run={"seed": "x"}), int, "run", "seed")


@pytest.mark.parametrize(
    ("meta", "place"),
    [
        ({"run": 5}, "run: 5"),
        ({"train": "x"}, "train: 'x'"),
        ({"run": {"settings": "x"}}, "run.settings: 'x'"),
        ({"run": {"limits": []}}, "run.limits: []"),
    ],
)
def test_validation_reports_what_is_no_object(meta: dict[str, Any], place: str) -> None:
    (problem,) = validate(Trace(header=header(**meta)), "shape")
    assert (problem.code, problem.field, problem.found) == ("shape/wrong-type", "meta", place)


def test_others_may_keep_what_they_like() -> None:
    assert validate(Trace(header=header(seed=3, instance=[1], recipe="x")), "shape") == []
