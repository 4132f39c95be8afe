"""The benchmark of credit: its truths are true, and its targets are met where a normal run can tell."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

import credit
from baton.credit import ESTIMATORS
from baton.credit.estimators.shapley_values import exact, sampled
from credit_bench.coalitions import Hundred
from credit_bench.figures import score, spearman
from credit_bench.helpers import helper_figures
from credit_bench.ladder import diffusion
from credit_bench.messages import message_figures
from credit_bench.relay import relay_figures
from credit_bench.replay_cost import cost_targets, replay_targets
from credit_bench.spawning import spawn_figures
from credit_bench.stopping import stop_figures
from credit_bench.stopping_teams import stop_team_figures
from credit_bench.sweep import sweep
from credit_bench.tools import tool_figures
from credit_bench.voters import voter_figures


def test_spearman_is_scipys() -> None:
    draw = np.random.default_rng(0)
    for _ in range(20):
        one, two = draw.integers(0, 6, 30), draw.normal(size=30)
        assert spearman(one, two) == pytest.approx(stats.spearmanr(one, two).statistic)
    assert spearman([1, 1], [1, 2]) is None


def test_figures_of_a_known_estimator() -> None:
    draw = np.random.default_rng(0)
    truth = draw.normal(size=5000)
    found = score(
        "g", "u", "e", truth + draw.normal(0.2, 0.5, 5000), truth, unbiased=False, stderr=0.5, tokens=4.0
    )
    assert found.bias == pytest.approx(0.2, abs=0.03)
    assert found.bias_z is not None
    assert found.bias_z > 10
    assert found.rmse == pytest.approx(0.539, abs=0.02)
    assert found.rmse_per_token == pytest.approx(2 * found.rmse)
    assert found.coverage == pytest.approx(0.93, abs=0.02)
    assert score("g", "u", "e", [0.0, 1.0], [1.0, 1.0], unbiased=True).sign == 0.75


def test_truth_of_a_hundred_agents_and_the_budget() -> None:
    small = Hundred()
    small.parents, small.n = [*small.parents[:10], 1, 1, 2], 13
    small.chances = np.concatenate([small.chances[:10], [0.3, 0.2, 0.4]])
    small._fail = (1 - small.chances).tolist()
    assert small.permission() == pytest.approx(exact(small.worth, small.parents).values)
    game = Hundred()
    everyone = game.worth((1 << 100) - 1)
    for value, truth in (("permission", game.permission()), ("precedence", game.precedence(50_000))):
        assert truth.sum() == pytest.approx(everyone)
        found = sampled(game.worth, game.parents, value=value, max_evaluations=2000, seed=1)
        assert found.num_evaluations <= 2000
        assert np.linalg.norm(np.array(found.values) - truth) < 0.05 * np.linalg.norm(truth)
        assert abs(found.residual) < 1e-9


def test_targets_of_spawn_stop_and_ladder() -> None:
    for targets in (spawn_figures(10_000)[1], stop_figures()[1], diffusion(500)[1]):
        for target in targets:
            assert target.met, target


def test_messages_are_unbiased_where_they_claim_to_be() -> None:
    figures, targets = message_figures(2000)
    assert all(target.met for target in targets)
    by_name = {figure.estimator: figure for figure in figures}
    for figure in figures:
        if figure.unbiased:
            assert figure.bias_z is not None
            assert abs(figure.bias_z) < 3.5, figure
    assert by_name["causal replay, 4 x 4"].rmse < 0.6 * by_name["the same without common numbers"].rmse
    assert by_name["causal replay, 4 x 4"].rmse < by_name["uniform"].rmse


def test_causal_replay_costs_a_fraction() -> None:
    for target in replay_targets():
        assert target.met, target


def test_credit_by_forks_is_paid_for_within_its_budget() -> None:
    """Tokens are asserted; processor time is for the benchmark to tell."""
    found = cost_targets(sizes=(30,))
    tokens = [target.value for target in found if "tokens over" in target.what]
    assert len(tokens) == 2
    assert all(0 < value <= 3.5 for value in tokens)  # 3, and at most one draw of coalitions above it
    assert len(found) == 6


def test_sweep_runs_what_applies_and_says_why_not() -> None:
    figures, reasons = sweep(2, 4)
    names = {figure.estimator for figure in figures}
    assert {"group", "leave-one-out", "spawn-fork", "spawn-doubly-robust", "coma, exact critic"} <= names
    assert next(f for f in figures if f.estimator.startswith("coma")).rmse == pytest.approx(0.0, abs=1e-12)
    assert reasons
    assert all(reasons.values())


def test_figures_of_teams_say_what_they_cost() -> None:
    figures = [
        *relay_figures(8),
        *voter_figures(30),
        *helper_figures(200),
        *tool_figures(40),
        *stop_team_figures(1, 20),
    ]
    by_name = {figure.estimator: figure for figure in figures if figure.game != "spawn-bandit, teams"}
    for figure in by_name.values():
        runs = "runtime" in ESTIMATORS[figure.listed or ""].needs
        assert (figure.rmse_per_token is not None) == (runs or figure.listed == "difference"), figure
    assert by_name["telescope, exact critic"].rmse < 1e-12
    assert by_name["coma, exact critic"].rmse < 1e-12
    assert (by_name["stop-value, 20 rollouts"].spearman or 0) > 0.6
    assert by_name["spawn-combined, half of them forked"].rmse < by_name["spawn-fork"].rmse


def test_voters_are_judged_by_the_expected_game() -> None:
    """Shapley of one rollout's luck averages to that of the expected game; so does the difference."""
    for figure in voter_figures(240):
        assert figure.bias_z is not None
        assert abs(figure.bias_z) < 3.5, figure
        assert (figure.coverage or 0) > 0.8


@pytest.mark.slow
def test_bench_as_typed(capsys: pytest.CaptureFixture[str]) -> None:
    code = credit.main(["--json"])
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert [target["what"] for target in told["targets"] if not target["met"]] == []
    assert code == 0
    assert all(f["num_samples"] >= 10_000 for f in told["figures"] if "Shapley" in f["estimator"])
    assert "credit, 1 of" in err
    assert credit.main(["--quick"]) == 0
    assert "| game | unit | estimator |" in capsys.readouterr().out
