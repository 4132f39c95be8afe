"""The wide job of result 19: what it is worth exactly is what its traces come to, and what each recipe trains by."""

from __future__ import annotations

import asyncio
import math
import sys
from pathlib import Path

import numpy as np
import pytest

PLACE = str(Path(__file__).parents[2] / "benchmarks" / "learning")
sys.path.insert(0, PLACE)

from kimi_team import ARMS, LEAD, WORKER, Learner, gradient, recipe_of  # noqa: E402
from wide_job import RIGHT, WideJob, amount, earned, figures, job_of  # noqa: E402
from wide_job_value import NAMES, Values, skill  # noqa: E402

from baton.compose.stage_from_recipe import make_stage  # noqa: E402
from baton.learn.stage import Episode  # noqa: E402


def learner_of(arm: str, *, frozen: int = 2, joint: int = 1) -> Learner:
    return Learner(recipe_of(arm, 12, frozen, joint), job_of(12), 1, {LEAD: 1.0, WORKER: 3.0})


@pytest.mark.parametrize("brief", [False, True])
def test_expected_is_the_mean_of_what_is_played(brief: bool) -> None:
    recipe = recipe_of("GRPO", 12, 2, 1)
    learner = Learner(recipe, job_of(12, brief=brief), 1, {LEAD: 1.0, WORKER: 3.0})
    task = WideJob(learner.job)
    stage = make_stage(learner.recipe, task=task, topology=task.topology())
    episodes = [Episode(name=f"e{k}", instance=k, seed=k) for k in range(100)]
    traces = asyncio.run(stage.play(learner.tables, episodes))
    found = [figures(learner.job, trace) for trace in traces]
    rows = np.array(
        [
            [learner.job.is_done(each.done), each.steps, each.agents, each.finished, each.critical]
            for each in found
        ],
        dtype=float,
    )
    expected = Values(learner.job, skill(learner.job, learner.knack())).of(learner.chances())
    error = rows.std(axis=0, ddof=1) / math.sqrt(len(rows))
    for name, mean, off, said in zip(NAMES, rows.mean(axis=0), error, expected, strict=True):
        assert abs(mean - said) < 4 * off, name
    assert traces[0].rewards[0].value == pytest.approx(earned(learner.job, found[0]))


def test_a_wave_by_hand() -> None:
    job = job_of(12)
    values = Values(job, 0.5)
    assert values.finishes(1) == pytest.approx(1 - 0.5**job.patience)
    # 30 items by eight in sixes: five have six each, three see that there is nothing.
    after, added = values.wave(30, 8, 6)
    assert sum(after.values()) == pytest.approx(1.0)
    assert after[30 - 5 * 6] == pytest.approx(values.finishes(6) ** 5)
    assert dict(zip(NAMES, added, strict=True))["agents"] == 8
    steps = 5 * sum(1 - stopped for stopped in values._stopped(6)) + 3
    assert added[1] == pytest.approx(steps)


def test_the_best_plan_is_wide_and_narrows_when_workers_have_learned() -> None:
    job = job_of(100)
    frozen, learned = Values(job, 0.2012), Values(job, job.chance)
    assert frozen.best()[1] == (42, 6)
    assert learned.best()[1] == (25, 10)
    assert max(frozen.by_width().values()) < frozen.best()[0]
    alone = frozen.by_width()[1]
    assert alone < 0 < frozen.by_width()[42]


@pytest.mark.parametrize("arm", ARMS)
def test_the_workers_learn_in_the_second_phase_alone(arm: str) -> None:
    learner = learner_of(arm, frozen=1)
    before = learner.knack()[RIGHT]
    lead = learner.tables[LEAD].version
    learner.step()
    assert learner.phase == "orchestrator"
    assert learner.knack()[RIGHT] == before
    assert learner.tables[LEAD].version > lead
    learner.step()
    assert learner.phase == "joint"
    assert learner.knack()[RIGHT] != before


def test_which_rewards_an_arm_is_paid() -> None:
    weights = {arm: learner_of(arm).scoring.weights() for arm in ARMS}
    assert weights["GRPO"] == weights["decision credit"] == {}
    assert weights["PARL"] == weights["PARL, not annealed"]
    assert weights["PARL"] == pytest.approx({"success": 1.0, "parallel": 0.3, "finish_rate": 0.2})
    annealed, constant = learner_of("PARL"), learner_of("PARL, not annealed")
    for each in (annealed, constant):
        each.step()
    assert annealed.scoring.weights()["parallel"] == 0.0  # half way through a phase of two steps
    assert constant.scoring.weights()["parallel"] == pytest.approx(0.3)


def test_a_gradient_is_credit_by_what_was_chosen() -> None:
    learner = learner_of("GRPO")
    traces = learner._play()
    assert gradient(traces, LEAD)
    assert all(not any(row.values()) for row in gradient(traces, LEAD).values())  # nobody was credited


def test_on_a_larger_job_what_was_learned_is_kept() -> None:
    learner = learner_of("GRPO")
    learner.tables[LEAD].update({(LEAD, "wave 1: most left"): {"spawn 5": 9.0}}, 1.0)
    learner.tables[LEAD].update({(LEAD, "wave 1: most left, 12 workers"): {"share 6": 7.0}}, 1.0)
    wider = learner.go_on(job_of(24), recipe_of("GRPO", 24, 1, 2))
    row = wider.tables[LEAD].logits(LEAD, "wave 1: most left")
    assert [row["spawn 17"], row["spawn 24"]] == pytest.approx([row["spawn 5"]] * 2)
    assert wider.tables[LEAD].logits(LEAD, "wave 1: most left, 24 workers")["share 6"] == pytest.approx(7.0)
    wider.step()
    assert wider.phase == "joint"


def test_words_for_amounts() -> None:
    assert [amount(share) for share in (0.0, 0.1, 0.4, 1.0)] == ["nothing", "little", "some", "most"]
