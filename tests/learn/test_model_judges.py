"""Models as judges in training: asked at every step, recorded, and the saved traces give the same rewards."""

from __future__ import annotations

import pytest
from small_run import small

from baton.compose.training import make_trainer
from baton.compose.trust import check_recipe
from baton.errors import BatonError, UsageError
from baton.learn.judging import check_judges
from baton.reward import load_reward_recipe
from baton.reward.rules.debate import JudgePanel
from baton.trace.outcome import final_event

RULES = [{"rule": "judge_panel", "of": "answer", "how": "mean"}]
SCRIPT = "scripted:judge_scripts:by_letters"


def test_judges_are_asked_and_what_they_said_stays_on_the_traces() -> None:
    pytest.importorskip("torch")
    recipe = small(
        reward={"rules": RULES, "judges": {"a judge": SCRIPT, "mute": "scripted:judge_scripts:speechless"}},
        rollout={"groups": 2, "group_size": 2},
        warm__steps=10,
    )
    step = make_trainer(recipe).step()
    assert len(step.traces) == 4
    assert step.metrics["unjudged"] == 4  # all that the speechless one was asked
    for trace in step.traces:
        final = final_event(trace)
        assert final is not None
        said = trace.text(final.content_ref) or ""
        expected = sum(map(ord, said)) % 11 / 10
        (verdict,) = [r for r in trace.rewards if r.name == "verdict"]
        assert verdict.value == pytest.approx(expected)
        assert (verdict.by or "").startswith("a judge # ")
        (paid,) = [r for r in trace.rewards if r.name == "judge_panel"]
        assert paid.value == pytest.approx(expected)
        (again,) = JudgePanel(of="answer", how="mean").score(trace)  # from the records alone
        assert again.value == paid.value


def test_where_no_judge_answers_the_run_says_so() -> None:
    pytest.importorskip("torch")
    recipe = small(
        reward={"rules": RULES, "judges": {"mute": "scripted:judge_scripts:speechless"}},
        rollout={"groups": 1, "group_size": 2},
        warm__steps=2,
    )
    with pytest.raises(BatonError, match="needs a judge"):
        make_trainer(recipe).step()


def test_estimators_that_run_traces_again_are_refused() -> None:
    recipe = small(reward={"rules": RULES, "judges": {"j": SCRIPT}}, credit=[{"estimator": "spawn-fork"}])
    with pytest.raises(UsageError, match="would not judge"):
        check_judges(recipe)
    check_judges(small(reward={"rules": RULES, "judges": {"j": SCRIPT}}))


def test_a_strangers_recipe_asks_no_server_without_leave() -> None:
    recipe = small(reward={"rules": RULES, "judges": {"j": "openai:m@http://example.invalid/v1"}})
    with pytest.raises(UsageError, match="--trust"):
        check_recipe(recipe, "the recipe")
    assert load_reward_recipe("debate-as-reward").rules  # the shipped one that wants judges
