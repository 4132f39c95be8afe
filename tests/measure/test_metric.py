"""Metrics of one's own: by name or module:attr, beside those of the survey."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from planted import team_of

from baton import registry
from baton.cli import main
from baton.errors import TraceError, UsageError
from baton.measure.measured import MeasuredTrace
from baton.measure.metric import METRICS, Metric, find_metric, metric
from baton.testing import CheckFailed, check_metric

GOLDEN = Path(__file__).parents[1] / "golden" / "v1" / "centralized.jsonl"


def num_events(measured: MeasuredTrace) -> float:
    """Events of the trace."""
    return float(len(measured.events))


def first_in_file(measured: MeasuredTrace) -> float:
    """Place of the event that the file holds first."""
    return float(measured.trace.events[0].seq)


def test_every_shipped_metric_resolves_and_says_what_it_computes() -> None:
    assert set(registry.names("metric")) >= set(METRICS)
    for name in METRICS:
        assert find_metric(name).formula


def test_an_own_metric_is_printed_beside_the_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    name = "my_metric:messages_per_agent"
    assert main(["measure", str(GOLDEN), "--metric", name]) == 0
    printed = capsys.readouterr().out
    assert "Metrics asked for" in printed
    assert "messages per agent (messages)" in printed
    assert main(["measure", str(GOLDEN), "--metric", name, "--metric", "span", "--json"]) == 0
    own = json.loads(capsys.readouterr().out)["own"]
    assert list(own) == ["messages_per_agent", "span"]
    assert main(["measure", str(GOLDEN), "--metric", "spam"]) == 2
    assert "Did you mean 'span'" in capsys.readouterr().err


def test_a_function_is_a_metric_and_an_own_one_is_not_listed() -> None:
    made = metric("events", "own", source="a paper")(num_events)
    assert "events" not in METRICS
    assert made(team_of("x")).value
    check_metric(made)
    check_metric(num_events)
    registry.register("metric", "just-a-number")(3)
    with pytest.raises(UsageError, match="is a int; expected a Metric"):
        find_metric("just-a-number")


def test_what_is_wrong_with_a_metric_is_said() -> None:
    with pytest.raises(CheckFailed, match="another order in the file"):
        check_metric(first_in_file)
    with pytest.raises(CheckFailed, match="expected a number from 0 to 1"):
        check_metric(Metric(name="events", family="own", bounds=(0, 1), of=num_events))
    with pytest.raises(CheckFailed, match="no docstring"):
        check_metric(lambda measured: 0.0)

    def never(measured: MeasuredTrace) -> float:
        """Nothing."""
        raise TraceError("it says nothing")

    with pytest.raises(CheckFailed, match="none of the traces"):
        check_metric(never)
