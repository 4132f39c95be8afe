"""Against implementations that others wrote: shapiq, scipy, TRL's trainers."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from credit_teams import group_of
from scipy import signal, stats

from baton.credit import ESTIMATORS
from baton.credit.estimator import t_95
from baton.credit.estimators.gae import advantages
from baton.credit.estimators.shapley_values import closed_part, exact, interaction, sampled, symmetric
from baton.credit.estimators.spawn_effect import effect_of
from baton.games.library import make_game

TOTALS = [0.0, 1.0, 1.0, 0.25]


@pytest.fixture(scope="module")
def shapiq() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what it imports
        return pytest.importorskip("shapiq", reason="shapiq is in the extra `dev`")


def library_values(shapiq: Any, worths: list[float], n: int, index: str = "SV", order: int = 1) -> Any:
    """shapiq's exact values of a game given by its worths, by bit mask."""

    def game(coalitions: Any) -> Any:
        masks = np.atleast_2d(coalitions).astype(np.int64) @ (1 << np.arange(n))
        return np.asarray(worths)[masks]

    return shapiq.ExactComputer(game, n_players=n)(index, order).get_n_order_values(order)


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_shapley_is_shapiqs(shapiq: Any, n: int) -> None:
    worths = np.random.default_rng(n).normal(size=1 << n).tolist()
    assert exact(worths.__getitem__, [-1] * n).values == pytest.approx(library_values(shapiq, worths, n))


def test_permission_is_shapiqs_value_of_the_restricted_game(shapiq: Any) -> None:
    draw = np.random.default_rng(3)
    for n in (3, 6, 8):
        parents = [-1] + [int(draw.integers(-1, i)) for i in range(1, n)]
        worths = draw.normal(size=1 << n).tolist()
        restricted = [worths[closed_part(parents, mask)] for mask in range(1 << n)]
        assert exact(worths.__getitem__, parents).values == pytest.approx(
            library_values(shapiq, restricted, n)
        )


def test_interaction_is_shapiqs(shapiq: Any) -> None:
    n = 6
    worths = np.random.default_rng(7).normal(size=1 << n).tolist()
    pairs = library_values(shapiq, worths, n, "SII", 2)
    for i in range(n):
        for j in range(i + 1, n):
            assert interaction(worths.__getitem__, n, i, j) == pytest.approx(pairs[i, j])


def test_counts_and_samples_agree_with_shapiq_on_gloves(shapiq: Any) -> None:
    game: Any = make_game("gloves", {"left": 4, "right": 3})
    truth = library_values(shapiq, [game.worth(mask) for mask in range(1 << 7)], 7)
    assert symmetric(game.worth, [0] * 4 + [1] * 3).values == pytest.approx(truth)
    found = sampled(game.worth, [-1] * 7, max_evaluations=120, seed=1)
    assert found.stderr is not None
    assert all(abs(v - t) < 5 * e for v, t, e in zip(found.values, truth, found.stderr, strict=True))


def test_ranks_are_scipys_normal_scores() -> None:
    totals = [0.3, 0.1, 0.3, 2.0, -1.0]
    scores = stats.norm.ppf((stats.rankdata(totals) - 0.5) / len(totals))
    assert [mine[0].value for mine in ESTIMATORS["rank"](group_of(totals))] == pytest.approx(scores)


def test_standard_errors_are_scipys() -> None:
    terms = np.random.default_rng(0).normal(size=30)
    assert effect_of(terms).stderr == pytest.approx(stats.sem(terms))
    (credit,), *_ = ESTIMATORS["leave-one-out"](group_of(TOTALS))
    others = TOTALS[1:]
    half = stats.t.ppf(0.975, len(others) - 1) * stats.sem(others)  # 95 % for the mean of the others
    assert credit.stderr == pytest.approx(half / stats.norm.ppf(0.975), rel=1e-3)


@pytest.mark.parametrize("df", [1, 2, 3, 4, 5, 6, 8, 15, 40, 300])
def test_students_quantile_is_scipys(df: int) -> None:
    assert t_95(df) == pytest.approx(stats.t.ppf(0.975, df), abs=0.005)


def test_generalised_advantages_are_a_filter_of_the_residuals() -> None:
    draw = np.random.default_rng(2)
    rewards, values = draw.normal(size=12), draw.normal(size=12)
    gamma, lambda_ = 0.97, 0.9
    deltas = rewards + gamma * np.append(values[1:], 0.0) - values
    found = signal.lfilter([1.0], [1.0, -gamma * lambda_], deltas[::-1])[::-1]
    assert advantages(rewards.tolist(), values.tolist(), gamma, lambda_) == pytest.approx(found)


@pytest.mark.skipif(find_spec("trl") is None, reason="trl is in the extra `bench`")
def test_group_advantages_are_trls(tmp_path: Path) -> None:
    """GRPO, GRPO without scaling (Dr. GRPO) and RLOO, as their trainers log them after one real step."""
    script = Path(__file__).parents[1] / "support" / "trl_advantages.py"
    done = subprocess.run(
        [sys.executable, script, json.dumps(TOTALS), tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    theirs = json.loads(done.stdout.splitlines()[-1])
    assert set(theirs) == {"group", "mean", "leave-one-out"}
    for name, values in theirs.items():
        ours = [mine[0].value for mine in ESTIMATORS[name](group_of(TOTALS))]
        assert ours == pytest.approx(values, rel=1e-6), name
