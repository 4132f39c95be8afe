"""E4: overhead, error amplification; the published numbers that recompute, and the one that does not."""

from __future__ import annotations

import numpy as np
import pytest
from planted import is_right, team_of

from baton.measure.measured import MeasuredTrace
from baton.measure.metrics.amplification import (
    all_must_be_right,
    amplification_slope,
    majority_of_three,
    naive_ratio,
    propagation,
    transmission,
    transmission_at,
    verified,
)
from baton.measure.metrics.overhead import (
    coordination_efficiency,
    overhead,
    overhead_of,
)
from baton.trace.gold import Gold
from baton.trace.trace import Trace

# arXiv 2512.08296: system -> turns, success, overhead in %, efficiency, error amplification.
PUBLISHED = {
    "single": (7.2, 0.466, 0, 0.466, None),
    "independent": (11.4, 0.370, 58, 0.234, 17.2),
    "decentralized": (26.1, 0.477, 263, 0.132, 7.8),
    "centralized": (27.7, 0.463, 285, 0.120, 4.4),
    "hybrid": (44.3, 0.452, 515, 0.074, 5.1),
}
TURNS, SUCCESS = PUBLISHED["single"][:2]


@pytest.mark.parametrize("system", PUBLISHED)
def test_published_overhead_and_efficiency_recompute(system: str) -> None:
    turns, success, percent, efficiency, _ = PUBLISHED[system]
    assert 100 * overhead_of(turns, TURNS) == pytest.approx(percent, abs=0.51)  # 262.5 was rounded up
    # The table's turns and success are rounded themselves: the hybrid's 0.074 is 0.0735 from what is printed.
    assert coordination_efficiency(success, turns, TURNS) == pytest.approx(efficiency, abs=6e-4)


@pytest.mark.parametrize("system", [name for name in PUBLISHED if name != "single"])
def test_published_error_amplification_does_not_recompute(system: str) -> None:
    _, success, _, _, amplification = PUBLISHED[system]
    relative_failure = (1 - success) / (1 - SUCCESS)
    known = {"independent": 1.18, "decentralized": 0.98, "centralized": 1.01, "hybrid": 1.03}
    assert relative_failure == pytest.approx(known[system], abs=5e-3)
    assert amplification is not None
    assert amplification > 4 * relative_failure


def test_overhead_per_resource() -> None:
    team = [team_of(workers=3, tokens=10, trace_id=f"t{k}") for k in range(3)]
    single = [team_of(workers=0, tokens=10, trace_id=f"s{k}") for k in range(3)]
    # Calls: lead twice and three workers, against two; tokens as many times ten.
    assert overhead(team, single, "calls").value == pytest.approx(1.5)
    assert overhead(team, single, "turns").value == pytest.approx(1.5)
    assert overhead(team, single, "seconds").value == pytest.approx(0.0)
    assert overhead(team, single, "tool_calls").value is None
    assert overhead(team, [], "calls").value is None
    assert overhead(team, team, "tokens").value == 0


def test_transmission() -> None:
    assert transmission(0, 100, 100, 100).value == 1.0
    assert transmission(10, 100, 10, 100).value == 0.0
    assert transmission(20, 100, 60, 100).value == pytest.approx(0.5)
    found = transmission(20, 100, 60, 100)
    assert (found.low or 0.0) < 0.5 < (found.high or 0.0)
    assert transmission(5, 5, 5, 5).why_not == "the team fails without the error too, every time"
    assert transmission(0, 0, 1, 1).value is None


def test_transmission_by_replay() -> None:
    right, wrong = (team_of(answer, gold=Gold(verify=is_right("42"))) for answer in ("42", "13"))
    found = transmission_at([right, right], ["e2", "e3"], "13", lambda *_: wrong.trace)
    assert found.value == 1.0
    same = transmission_at([right], ["e2"], "13", lambda trace, *_: trace, replicates=4)
    assert (same.value, same.n) == (0.0, 2)


@pytest.mark.parametrize("replicates", [1, 10])
def test_a_trace_counts_once_however_often_it_is_run_again(replicates: int) -> None:
    """Half of the traces always sink: ten of them are ten draws, and their replicates tell nothing more."""
    gold = Gold(verify=is_right("42"))
    sunk, afloat = (team_of(answer, gold=gold).trace for answer in ("13", "42"))
    readings = [team_of("42", gold=gold, trace_id=f"t{k}") for k in range(10)]

    def rerun(trace: Trace, *_: object) -> Trace:
        return sunk if int(trace.trace_id[1:]) < 5 else afloat

    expected = transmission(0, 10, 5, 10)
    assert transmission_at(readings, ["e2"] * 10, "13", rerun, replicates=replicates) == expected
    # Nor is a trace drawn anew for each event of it that is tried.
    twice = transmission_at([*readings, *readings], ["e2"] * 10 + ["e3"] * 10, "13", rerun)
    assert twice == expected


CURVES = {
    "all of 5": (lambda eps: all_must_be_right(eps, 5), lambda wrong: wrong[:, :5].any(axis=1)),
    "majority of 3": (majority_of_three, lambda wrong: wrong[:, :3].sum(axis=1) >= 2),
    "verifier": (lambda eps: verified(eps, 0.75), lambda wrong: wrong[:, 0] & wrong[:, 5]),
}


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("eps", [0.02, 0.1, 0.3])
def test_amplification_slope_has_its_closed_form(name: str, eps: float) -> None:
    curve, team = CURVES[name]
    step = 1e-3
    exact = amplification_slope([(e, curve(e)[0] * 10**6, 10**6) for e in (eps - step, eps + step)])
    assert exact.value == pytest.approx(curve(eps)[1], rel=1e-3)
    # And teams that err at that rate, drawn: the interval covers it.
    rng = np.random.default_rng(7)
    n = 200_000

    def failures(rate: float) -> int:
        wrong = rng.random((n, 6)) < np.array([rate] * 5 + [0.25])  # the last column: the verifier misses it
        return int(team(wrong).sum())

    drawn = amplification_slope([(rate, failures(rate), n) for rate in (eps * 0.8, eps * 1.2)])
    assert (drawn.low or 0.0) <= curve(eps)[1] <= (drawn.high or 0.0)


def test_slopes_at_small_rates() -> None:
    assert all_must_be_right(1e-6, 7)[1] == pytest.approx(7, rel=1e-4)
    assert majority_of_three(1e-6)[1] == pytest.approx(0, abs=1e-4)
    assert amplification_slope([(0.1, 3, 10)]).value is None


def test_propagation() -> None:
    assert propagation([{"a", "b", "c"}], [{"a"}]).value == 2
    assert propagation([{"a"}], [{"a"}]).value == 0
    assert propagation([{"a", "b"}, {"c"}], [{"a"}, {"c"}]).value == 0.5
    assert propagation([set()], [set()]).why_not == "no error was put in"


def scored(values: list[float], name: str) -> list[MeasuredTrace]:
    return [team_of(success=value, trace_id=f"{name}{k}") for k, value in enumerate(values)]


def test_naive_ratio() -> None:
    found = naive_ratio(scored([0.0, 1.0, 1.0, 1.0], "t"), scored([0.0, 0.0, 1.0, 1.0], "s"))
    assert found.value == 0.5
    assert (found.low or 0.0) < 0.5 < (found.high or 0.0)
    assert "never fails" in (naive_ratio(scored([0.0], "t"), scored([1.0], "s")).why_not or "")
    assert "no verified outcome" in (naive_ratio([team_of()], scored([1.0], "s")).why_not or "")
