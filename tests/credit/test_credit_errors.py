"""Standard errors: every estimator has one where the group tells, None where one sample cannot, and they are right."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from credit_teams import group_of, make_trace
from scipy import stats
from test_saved_credit import GIVEN, OURS, rollouts

from baton.credit import ESTIMATORS
from baton.credit.core.baseline import pooled, seen
from baton.credit.estimator import Prefix
from baton.credit.estimators.gae import Chain, with_errors
from baton.credit.estimators.group import Ema, aligned
from baton.credit.estimators.stop_value import backward, bootstrap_errors
from baton.trace import Credit, Reward


def widening(df: int) -> float:
    return float(stats.t.ppf(0.975, df) / stats.norm.ppf(0.975))


def of_one_draw(values: list[float], place: int) -> float:
    """The spread of the others, for as few as they are."""
    others = values[:place] + values[place + 1 :]
    return float(np.std(others, ddof=1)) * widening(len(others) - 1)


def errors_of(name: str, group: Any, **settings: Any) -> list[float | None]:
    return [credit.stderr for mine in ESTIMATORS[name](group, **settings) for credit in mine]


@pytest.mark.parametrize("name", sorted(OURS))
def test_every_estimator_has_errors_over_a_group(name: str) -> None:
    group = rollouts()
    if name == "siblings":  # each side of a choice has to be there twice
        group.append(make_trace("e", 0.75, workers=1, said=["y"]))
    found = errors_of(name, group, **GIVEN.get(name, {}))
    assert any(error is not None and error > 0 for error in found), name


ALONE = ("difference", "maporl", "qmix", "reinforce-cost", "role-ema", "vdn", "coma", "telescope")


@pytest.mark.parametrize("name", ALONE)
def test_one_sample_has_none_and_the_docstring_says_so(name: str) -> None:
    one = rollouts()[:1]
    if name == "coma":  # this rollout has one decision with options
        assert sum(event.options is not None for event in one[0].events) == 1
    assert set(errors_of(name, one, **GIVEN.get(name, {}))) == {None}
    assert "None" in (ESTIMATORS[name].function.__doc__ or "")


def test_a_spread_that_was_not_seen_is_not_known() -> None:
    assert seen([1.0]) is None
    assert seen([0.3, 0.3, 0.3]) is None
    assert seen([0.0, 2.0]) == pytest.approx(math.sqrt(2))
    draws = [("a", 0.0), ("b", 1.0), ("a", 2.0), ("a", 5.0), ("b", 1.0), ("b", 7.0)]
    wide = widening(1)  # two others are one degree of freedom
    expected = [3 * wide / math.sqrt(2), 6 * wide / math.sqrt(2), 5 * wide / math.sqrt(2)]
    assert pooled(draws) == pytest.approx(
        [expected[0], expected[1], expected[2], 2 * wide / math.sqrt(2), expected[1], None]
    )


def test_mixing_errors_go_through_the_slope() -> None:
    totals = [0.0, 1.0, 4.0]
    group = group_of(totals)
    spreads = [of_one_draw(totals, place) for place in range(3)]
    assert errors_of("vdn", group, q=lambda *_: 0.5) == pytest.approx(np.repeat(spreads, 3), rel=1e-3)
    weigh = {"q": lambda *_: 0.5, "mix": lambda _: lambda values: 3 * values[0] + math.fsum(values[1:])}
    assert errors_of("qmix", group, **weigh)[:2] == pytest.approx([3 * spreads[0], spreads[0]], rel=1e-3)


def test_difference_error_is_that_of_one_draw() -> None:
    totals = [0.0, 1.0, 1.0, 0.5]
    found = errors_of("difference", group_of(totals), without=lambda *_: 0.25)
    agents = len(found) // len(totals)
    spreads = [of_one_draw(totals, place) for place in range(4)]
    assert found == pytest.approx(np.repeat(spreads, agents), rel=1e-3)


def test_running_mean_is_as_far_off_as_the_group_says() -> None:
    totals = [1.0, 2.0, 3.0]
    ema = Ema(values={"orchestrator": 1.5, "searcher": 2.0})
    (credit, *_), *_ = ESTIMATORS["role-ema"](group_of(totals), ema=ema)
    assert credit.target == "orchestrator"
    assert credit.stderr is not None
    half, spread = credit.stderr * stats.norm.ppf(0.975), widening(2) / math.sqrt(3)
    stands = stats.norm(0.5, spread)  # where the running mean may be from what the group is a draw of
    assert stands.cdf(half) - stands.cdf(-half) == pytest.approx(0.95, abs=1e-3)


def test_chain_errors_are_the_deviation_of_the_advantages() -> None:
    """A random walk under its exact critic: what is stated is what the draws do."""
    draw = np.random.default_rng(0)
    steps, gamma, lambda_ = 4, 0.9, 0.8
    chains = []
    for _ in range(4000):
        noise = draw.normal(size=steps) * (1.0, 2.0, 0.5, 1.0)
        chains.append(
            Chain([str(t) for t in range(steps)], list(range(steps)), noise.tolist(), [0.0] * steps)
        )
    judged = with_errors(chains, gamma, lambda_)
    for t in range(steps):
        actual = np.std([mine[str(t)].value for mine in judged])
        assert judged[0][str(t)].stderr == pytest.approx(actual, rel=0.05)
    (alone,) = with_errors([Chain(["a"], [0], [1.0], [0.5])], gamma, lambda_)
    assert alone["a"] == (0.5, None)


@pytest.mark.parametrize("compare", ["likeness", "prefix"])
def test_telescope_without_a_critic_states_the_deviation_of_a_split(compare: str) -> None:
    """Rollouts part at w1's word: x is worth 1/2 more. The stated variance is that of the credit over groups."""
    draw = np.random.default_rng(1)
    off, stated = [], []
    for _ in range(400):
        words = ["x", *draw.choice(["x", "y"], 7)] if compare == "likeness" else ["x"] * 4 + ["y"] * 4
        if set(words) == {"x"}:
            continue
        totals = [0.5 * (w == "x") + float(draw.normal(0, 0.2)) for w in words]
        group = [
            make_trace(f"t{i}", total, workers=1, said=[w])
            for i, (total, w) in enumerate(zip(totals, words, strict=True))
        ]
        credit = ESTIMATORS["telescope"](group, unit="message", compare=compare)[0][0]
        off.append(credit.value - 0.25)
        assert credit.stderr is not None
        stated.append(credit.stderr**2)
    assert np.mean(off) == pytest.approx(0.0, abs=0.02)
    wide = widening(6) if compare == "likeness" else 1.0
    assert math.sqrt(np.mean(stated)) == pytest.approx(math.sqrt(np.mean(np.square(off))) * wide, rel=0.15)
    spawned = ESTIMATORS["telescope"](group, unit="orchestrator", compare=compare)[0][0]
    assert (spawned.value, spawned.stderr) == (0.0, None)  # nobody did anything else there


def test_telescope_with_a_critic_doubts_it_by_its_residuals() -> None:
    group = group_of([0.0, 1.0, 1.0, 0.0])
    exact = ESTIMATORS["telescope"](group, value=lambda prefix: 0.5)[0]
    far = ESTIMATORS["telescope"](group, value=lambda prefix: 3.0)[0]
    assert exact[0].stderr == pytest.approx(math.sqrt(2 * 0.25 / 4))
    assert far[0].stderr is not None
    assert exact[0].stderr is not None
    assert far[0].stderr > 4 * exact[0].stderr


def test_a_critic_is_asked_once_for_a_prefix() -> None:
    asked: list[tuple[str, int]] = []

    def value(prefix: Prefix) -> float:
        asked.append((prefix.trace.trace_id, prefix.num_events))
        return 0.5

    ESTIMATORS["telescope"](group_of([0.0, 1.0]), value=value)
    assert len(asked) == len(set(asked))


def test_coma_doubts_options_that_were_never_taken() -> None:
    """Two options at 3/4 and 1/4; 'spawn' was always taken, so 'stop' is known to s alone."""
    group = group_of([0.0, 1.0, 1.0, 0.0], workers=1)
    found = ESTIMATORS["coma"](group, q=lambda prefix, option: 0.5)[0]
    scale = math.sqrt(4 * 0.5**2 / 3) * widening(
        3
    )  # four residuals of one half, one of them spent on the option
    expected = [scale * math.sqrt(0.25**2 / 4 + 0.25**2)]
    assert [credit.stderr for credit in found] == pytest.approx(expected, rel=2e-3)
    bare = [make_trace(f"t{i}", None) for i in range(3)]
    assert set(errors_of("coma", bare, q=lambda prefix, option: 0.5)) == {None}


def test_maporl_and_reinforce_cost_compare_the_same_place() -> None:
    def scored(name: str, value: float) -> list[Reward]:
        return [Reward(family="process", unit="turn", target="w1:1", value=value)]

    group = [make_trace(f"t{i}", x, more_rewards=scored(f"t{i}", x)) for i, x in enumerate((0.0, 1.0, 0.5))]
    by_turn: dict[str, Credit] = {c.target: c for c in ESTIMATORS["maporl"](group)[0]}
    assert by_turn["w1:1"].stderr is not None
    assert by_turn["w2:2"].stderr is None  # no rewards there or later: always the same
    last = ESTIMATORS["reinforce-cost"](group)[0][-1]
    assert last.stderr == pytest.approx(of_one_draw([0.0, 1.0, 0.5], 0), rel=1e-3)


def test_bootstrap_of_stop_values_is_their_deviation() -> None:
    def sampled(seed: int) -> tuple[Any, Any]:
        draw = np.random.default_rng(seed)
        x = draw.normal(size=(60, 3, 1))
        s = np.stack([np.zeros(60), draw.normal(size=60), x[:, 0, 0] + draw.normal(size=60)], axis=1)
        x[0, 0, 0] = 0.5
        s[0, 0] = 0.0
        return s, x

    actual = [backward(*sampled(seed)).difference[0, 0] for seed in range(150)]
    stated = [bootstrap_errors(*sampled(seed))[0, 0] for seed in range(12)]
    assert np.mean(stated) == pytest.approx(np.std(actual), rel=0.35)
    assert np.isnan(bootstrap_errors(*sampled(0))[:, -1]).all()
    unknown = bootstrap_errors(*sampled(0), score_known=False)
    assert np.isfinite(unknown[:, 0]).all()


@pytest.mark.parametrize("unit", ["agent", "role"])
@pytest.mark.parametrize(("workers", "d"), [(1, 1), (1, 8), (3, 3), (3, 2), (3, 7)])
def test_a_roles_baseline_is_known_from_as_many_rollouts_as_there_are(
    unit: str, workers: int, d: int
) -> None:
    """Agents of a rollout share its return and copies are no draws: four rollouts are four, whatever d."""
    totals = [0.0, 1.0, 4.0, 3.0]
    scale = np.std(np.repeat(totals, d), ddof=1)
    found = ESTIMATORS["role-group"](group_of(totals, workers=workers), unit=unit, d=d, eps=0.0)
    for place, mine in enumerate(found):
        others = totals[:place] + totals[place + 1 :]
        expected = widening(2) * float(stats.sem(others)) * 3 / 4 / scale
        copies = iter(aligned(workers, d))
        for credit in mine:
            if credit.target.startswith("w"):
                assert credit.stderr == pytest.approx(expected * next(copies), rel=1e-3)
            elif credit.target == "searcher":
                assert credit.stderr == pytest.approx(expected, rel=1e-3)


def test_agents_of_one_rollout_do_not_tell_how_well_their_baseline_is_known() -> None:
    [mine] = ESTIMATORS["role-group"](group_of([1.0], workers=3))
    assert {credit.stderr for credit in mine} == {None}
