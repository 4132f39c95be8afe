"""The strategies keep their promises; every other property test leans on them."""

from __future__ import annotations

from hypothesis import given
from strategies import arbitrary_traces, valid_traces

from baton.trace import Trace
from baton.trace.validation import validate


@given(valid_traces())
def test_valid_traces_are_valid(trace: Trace) -> None:
    assert validate(trace, "meaning") == []


@given(arbitrary_traces())
def test_arbitrary_traces_have_the_right_shape(trace: Trace) -> None:
    assert validate(trace, "shape") == []
