"""Rollout workers that ask vLLM itself, while their server and one of them are killed."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from small_run import BASE, GROUP
from vllm_server import kill_server, only_with_vllm, remembered_servers

from baton.compose.training import make_trainer
from baton.learn.recipe import Recipe, parse

pytestmark = pytest.mark.slow
LARGER = BASE.replace("width = 32, layers = 1, heads = 2", "width = 64, layers = 2, heads = 2")
STEPS = 3


def recipe(log: Path, **changes: Any) -> Recipe:
    engine = f"vllm:local?python={only_with_vllm()}&log={log}"
    given = {"policies.main.train": "lora", "policies.main.engine": engine, "scale.lag": 1} | changes
    listed = [f"{path}={json.dumps(value)}" for path, value in given.items()]
    return parse(
        LARGER + GROUP, "real", ["rollout.groups=4", f"train.steps={STEPS}", "train.loggers=[]", *listed]
    )


def drawn(plan: Recipe, harm: Any = None) -> tuple[list[Any], list[dict[str, Any]]]:
    """What is drawn in each step, and the steps' metrics."""
    trainer = make_trainer(plan)
    found, told = [], []
    try:
        for number in range(1, STEPS + 1):
            if harm is not None:
                harm(number, trainer.rollouts._elsewhere)
            step = trainer.step()
            told.append(step.metrics)
            found.append(
                {
                    trace.trace_id: [
                        (call.policy_version, list(call.completion_ids or ())) for call in trace.calls
                    ]
                    for trace in step.traces
                }
            )
    finally:
        trainer.close()
    return found, told


def test_workers_draw_the_same_from_vllm_while_it_and_one_of_them_are_killed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    servers = remembered_servers(monkeypatch)
    expected, _ = drawn(recipe(tmp_path / "one.log"))

    def harm(number: int, players: Any) -> None:
        """Of step 2 both processes die in the middle, of which step 3 is played ahead."""
        if number == 2:
            threading.Timer(0.2, lambda: kill_server(servers[-1])).start()
            threading.Timer(0.4, lambda: os.kill(players._places[0].seat.pid, signal.SIGKILL)).start()

    began = time.monotonic()
    found, told = drawn(recipe(tmp_path / "two.log", **{"scale.rollout_workers": 2}), harm)
    same = [
        [mine[name] == theirs[name] for name in theirs] for mine, theirs in zip(found, expected, strict=True)
    ]
    print(f"{time.monotonic() - began:.0f} s; drawn alike: {[f'{sum(each)}/{len(each)}' for each in same]}")
    assert all(all(each) for each in same)
    assert sum(each["worker_deaths"] for each in told) >= 1
    assert all(each["push_gap"]["main"] < 2e-5 for each in told)
    assert servers[-1].starts >= 2


@pytest.mark.parametrize("train", ["lora", "full"])
def test_weights_in_shards_go_to_vllm_and_workers_play_with_them(tmp_path: Path, train: str) -> None:
    more = {
        "policies.main.train": train,
        "scale.lag": 0,
        "scale.trainer_processes": 2,
        "scale.rollout_workers": 2,
    }
    found, told = drawn(recipe(tmp_path / "shards.log", **more))
    gaps = [each["push_gap"]["main"] for each in told]
    print(f"{train}: gaps of pushes from two shards {gaps}")
    assert all(gap < 2e-5 for gap in gaps)
    versions = [{version for calls in step.values() for version, _ in calls} for step in found]
    assert versions == [{"0"}, {"1"}, {"2"}]
