"""Monitors that act: stop, lower, off, roll-back; told in metrics and on traces, resumed, refused where they cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from baton import registry
from baton.compose.training import begin, check_trainable, go_on, make_trainer
from baton.errors import UsageError
from baton.learn.acting import StoppedByMonitor
from baton.learn.recipe import Recipe, load
from baton.learn.run.folder import read_lines
from baton.learn.run.session import Session
from baton.learn.watch import Warned
from baton.trace.formats import read_all
from baton.trace.trace import Trace


@registry.register("monitor", "third-step")
def third_step(metrics: Mapping[str, Any], traces: Sequence[Trace]) -> list[Warned]:
    """Warns once, whatever happens."""
    return [Warned(monitor="third-step", message="It is the third.")] if metrics["step"] == 3 else []


SMALL = (
    "policies.main.tiny.width=32", "policies.main.tiny.layers=1", "policies.main.tiny.heads=2",
    "policies.main.tiny.vocabulary=300", "warm.episodes=200", "warm.steps=80",
    "warm.learning_rate=0.01", "rollout.groups=4", "eval.episodes=4",
    "train.steps=5", "train.checkpoint_every=1", 'train.monitors=["third-step"]',
)  # fmt: skip


def acting(act: str, *more: str) -> Recipe:
    terms = '{"of": {"rule": "success"}}, {"of": {"rule": "cost"}, "weight": -0.001}'
    rules = f'reward.rules=[{{"rule": "hybrid", "terms": [{terms}]}}]'
    return load("stop", [*SMALL, rules, f"acts=[{act}]", *more])


def ran(recipe: Recipe, out: Path) -> Session:
    session = begin(recipe, "stop", out)
    try:
        list(session.steps())
    finally:
        session.close()
    return session


def lines(out: Path) -> list[dict[str, Any]]:
    return read_lines(out / "metrics.jsonl")


def test_stop_ends_the_run_and_says_why(tmp_path: Path, first_weights: None) -> None:
    with pytest.raises(
        StoppedByMonitor, match=r"monitor third-step stopped the run after step 3: It is the third"
    ):
        ran(acting('{"monitor": "third-step", "do": "stop"}'), tmp_path / "run")
    assert [line["step"] for line in lines(tmp_path / "run")] == [1, 2, 3]
    assert lines(tmp_path / "run")[-1]["acts"] == [{"monitor": "third-step", "do": "stop"}]
    kept = [trace.header.meta["train"] for trace in read_all(tmp_path / "run")]
    told = [train.get("acts") for train in kept if train["step"] == 3]
    assert [{"monitor": "third-step", "do": "stop"}] in told
    again = go_on(tmp_path / "run")  # the person has looked
    list(again.steps())
    again.close()
    assert [line["step"] for line in lines(tmp_path / "run")] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(("do", "left"), [("lower", -0.0005), ("off", 0.0)])
def test_a_term_weighs_less_from_the_next_step_on(
    do: str, left: float, tmp_path: Path, first_weights: None
) -> None:
    ran(acting(f'{{"monitor": "third-step", "do": "{do}", "what": "cost"}}'), tmp_path / "run")
    weights = [line["weights"]["cost"] for line in lines(tmp_path / "run")]
    assert weights == pytest.approx([-0.001] * 3 + [left] * 2)
    assert lines(tmp_path / "run")[2]["acts"][0]["what"] == "cost"


def test_a_rate_is_lowered_and_stays_so_when_resumed(tmp_path: Path, first_weights: None) -> None:
    act = '{"monitor": "third-step", "do": "lower", "what": "train.learning_rate", "by": 0.25}'
    recipe = acting(act)
    whole = ran(recipe, tmp_path / "whole")
    part = begin(recipe, "stop", tmp_path / "part")
    list(islice(part.steps(), 4))
    part.close()
    again = go_on(tmp_path / "part")
    list(again.steps())
    again.close()
    for session in (whole, again):
        (group,) = session.trainer.policies["main"].optimizer.param_groups  # type: ignore[union-attr]
        assert group["lr"] == pytest.approx(0.25 * recipe.train.learning_rate)
    last = [lines(tmp_path / name)[-1] for name in ("whole", "part")]
    for key in ("return", "loss", "moved", "weights"):
        assert last[0][key] == last[1][key]


def test_a_roll_back_has_the_weights_of_then(tmp_path: Path, first_weights: None) -> None:
    import torch

    from baton.learn.run.checkpoint import weights_of

    recipe = acting('{"monitor": "third-step", "do": "roll-back", "steps": 2}', "train.steps=3")
    session = ran(recipe, tmp_path / "run")
    (act,) = lines(tmp_path / "run")[-1]["acts"]
    assert act == {
        "monitor": "third-step",
        "do": "roll-back",
        "to": 1,
        "what": "train.learning_rate",
        "left": 0.5,
    }
    then = weights_of(tmp_path / "run" / "checkpoints" / "step-00001", "main")
    now = session.trainer.policies["main"].state_dict()
    assert all(torch.equal(then[name], now[name]) for name in then)
    assert session.trainer.step_number == 3, "numbers go on"
    assert session.trainer.policies["main"].version == 4, "no other weights go by its version"


def test_a_roll_back_has_the_price_of_then(tmp_path: Path, first_weights: None) -> None:
    spent = '{"cost": "spending", "limit": 0, "rate": 0.001, "most": 1000, "settings": {"of": "calls"}}'
    act = '{"monitor": "third-step", "do": "roll-back", "steps": 2}'
    changes = ("train.steps=4", f"constraints=[{spent}]", "critic.backup=policy")
    session = ran(acting(act, *changes), tmp_path / "run")
    charged = [line["constraints"]["spending"] for line in lines(tmp_path / "run")]
    prices = [each["price"] for each in charged]
    assert prices[0] == 0
    assert 0 < prices[1] < prices[2]
    assert prices[3] == prices[1], "the price after the first step, which the weights are of"
    assert session.trainer.constraints is not None
    paid = prices[1] + 0.001 * charged[3]["mean"]
    assert session.trainer.constraints.duals[0].price == pytest.approx(paid)


def test_without_acts_nothing_of_them_is_there(first_weights: None) -> None:
    trainer = make_trainer(load("stop", SMALL))
    assert trainer.rate_factor == 1.0
    assert "acts" not in trainer.step().metrics


@pytest.mark.parametrize(
    ("act", "said"),
    [
        ('{"monitor": "judge-drft", "do": "stop"}', "Did you mean 'judge-drift'"),
        ('{"monitor": "judge-drift", "do": "lower"}', "The terms are: success, cost"),
        ('{"monitor": "judge-drift", "do": "lower", "what": "sucess"}', "Did you mean 'success'"),
        ('{"monitor": "judge-drift", "do": "off", "what": "train.learning_rate"}', 'Write do = "stop"'),
        ('{"monitor": "judge-drift", "do": "stop", "what": "success"}', "has no `what`"),
        ('{"monitor": "judge-drift", "do": "halt"}', "stop"),
        ('{"monitor": "judge-drift", "do": "lower", "what": "success", "by": 2}', "by"),
    ],
)
def test_refused(act: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_trainable(acting(act))


def test_played_ahead_there_is_no_way_back() -> None:
    with pytest.raises(UsageError, match="no rollouts that were played ahead"):
        check_trainable(acting('{"monitor": "judge-drift", "do": "roll-back"}', "scale.lag=1"))
