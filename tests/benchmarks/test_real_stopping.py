"""Learned stopping against fixed rounds: scripts counted in a model's tokens, and the rule read off traces."""

from __future__ import annotations

import asyncio
import importlib
import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("reasoning_gym", reason="needs the extra `reasoning`")
pytest.importorskip("torch", reason="needs the extra `torch`")

from baton.compose.stage_from_recipe import make_stage
from baton.engine.scripted import ScriptedEngine
from baton.engine.torch import TorchEngine
from baton.learn.models.tiny import Tiny, make_tiny
from baton.learn.recipe import load
from baton.learn.stage import Episode, Stage
from baton.team.protocol import Engine, Request
from baton.trace.trace import Trace
from baton.trace.validation import validate

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
COUNT = 60


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("real_tasks.stopping")


@pytest.fixture(scope="module")
def stage() -> Stage:
    return make_stage(load("reasoning-stop", ["team.max_tokens=100000"]))


@pytest.fixture(scope="module")
def model() -> TorchEngine:
    made, tokenizer = make_tiny(["Who? spawn worker: stop none"], Tiny(width=16, layers=1, heads=2), seed=0)
    return TorchEngine(made, tokenizer, name="tiny")


def played(stage: Stage, engines: dict[str, Engine], count: int = COUNT) -> list[Trace]:
    episodes = [Episode(name=str(n), instance=n, seed=n, split="test") for n in range(count)]
    return asyncio.run(stage.play(engines, episodes))


def led(stage: Stage, play: str) -> dict[str, Engine]:
    return dict.fromkeys(stage.roles, stage.script(play))


def test_a_script_costs_what_a_model_would(stopping: Any, stage: Stage, model: TorchEngine) -> None:
    engines = {"orchestrator": model, "worker": stage.script("search")}
    [trace] = played(stage, stopping.with_leader(stage, engines, "fixed-2"), 1)
    assert not validate(trace)
    mine = [call for call in trace.calls if call.role == "orchestrator"]
    assert len(mine) == 3
    for call in mine:
        said = trace.text(call.completion_ref)
        assert said is not None
        ids = list(call.completion_ids or ())
        assert ids == [*model.tokenizer.encode(said), model.tokenizer.eos_token_id]
        assert call.completion_tokens == len(ids)
    # Each context goes on where the last one ended, as a model's would.
    whole = trace.prompt_ids(mine[-1])
    assert whole is not None
    assert call.prompt_tokens == len(whole)
    text = model.tokenizer.decode(list(whole))
    assert text.count("<end>") == 2
    assert "returned: " in text


def test_words_longer_than_the_models_limit_are_said(stopping: Any, model: TorchEngine) -> None:
    stage = make_stage(load("reasoning-stop"))  # 64 tokens, which a script takes for characters
    engines = {"orchestrator": model, "worker": make_stage(load("reasoning-stop")).script("search")}
    [trace] = played(stage, stopping.with_leader(stage, engines, "fixed-3"), 1)
    assert sum(event.type == "spawn" for event in trace.events) == 3


@pytest.mark.parametrize(
    ("play", "stops", "goes_on"), [("found", 1.0, 1.0), ("fixed-1", 1.0, 0.0), ("fixed-3", 0.0, 1.0)]
)
def test_the_rule_of_scripts(stopping: Any, stage: Stage, play: str, stops: float, goes_on: float) -> None:
    rule = stopping.stopping_rule(played(stage, led(stage, play)), 1)
    assert (rule["stops_when_found"].value, rule["goes_on_when_not"].value) == (stops, goes_on)
    assert rule["unheard"].value == 0.0


def test_the_rule_of_the_start_is_a_coins_toss(stopping: Any, stage: Stage) -> None:
    rule = stopping.stopping_rule(played(stage, led(stage, "search"), 200), 1)
    for key in ("stops_when_found", "goes_on_when_not"):
        assert abs(rule[key].value - 0.5) < 4 * math.sqrt(0.25 / rule[key].n)


def test_tries_of_one_instance_count_once(stopping: Any, stage: Stage) -> None:
    [trace] = played(stage, led(stage, "found"), 1)
    rule = stopping.stopping_rule([trace] * 6, 3)
    assert {figure.n for figure in rule.values()} <= {0, 2}


def test_answers_out_of_the_blue_show(stopping: Any, stage: Stage) -> None:
    def guesses(request: Request) -> str:
        return "stop Ada" if len(request.entries) > 2 else "spawn worker: Who?\nwait"

    engines = {"orchestrator": ScriptedEngine("guesses", guesses), "worker": stage.script("search")}
    rule = stopping.stopping_rule(played(stage, engines, 4), 1)
    assert rule["unheard"].value == 1.0
    assert rule["goes_on_when_not"].value == 0.0
    assert rule["stops_when_found"].value is None


def test_a_worker_that_gives_up_is_not_heard(stopping: Any, stage: Stage) -> None:
    mute = ScriptedEngine("mute", lambda request: "well")
    found = played(stage, {"orchestrator": stage.script("found"), "worker": mute}, 4)
    rule = stopping.stopping_rule(found, 1)
    assert rule["goes_on_when_not"].value == 1.0
    assert rule["stops_when_found"].value is None
