"""Policies that do not answer: all calls failed, some did, a model broke, a server is not there."""

from __future__ import annotations

import asyncio
import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from small_run import TINY, small, team

from baton.compose.stage_from_recipe import make_stage
from baton.compose.training import begin, make_trainer
from baton.engine.scripted import ScriptedEngine
from baton.errors import UsageError
from baton.learn.recipe import Recipe
from baton.learn.rollouts import lockstep
from baton.learn.run.evaluate import summary
from baton.learn.stage import Episode, Stage, Unanswered
from baton.learn.watch import Watch, sizes
from baton.team.protocol import MODEL_FAILED, Answer, EngineError, Request
from baton.trace.trace import Trace


def broken(_: Request) -> str:
    raise RuntimeError("out of order")


def frozen(model: str, **changes: Any) -> Recipe:
    """A manager that learns, and workers that are elsewhere."""
    worker = f'[policies.worker]\nroles = ["worker"]\ntrain = "frozen"\nmodel = "{model}"\n'
    return team(f"[policies.main]\n{TINY}{worker}", **changes)


class Failing(ScriptedEngine):
    """Plays well, but for calls that fail."""

    def __init__(self, stage: Stage, fails: list[bool], error: str = "lost") -> None:
        super().__init__("reference", lambda _: "")
        self._inner = stage.script("reference")
        self._fails, self._error, self._asked = fails, error, count()

    async def answer(self, requests: object) -> list[Answer | EngineError]:
        answers = await self._inner.answer(requests)  # type: ignore[arg-type]  # a sequence of requests
        return [
            EngineError(self._error) if self._fails[next(self._asked) % len(self._fails)] else each
            for each in answers
        ]


def played(fails: list[bool], error: str = "lost") -> list[Trace]:
    stage = make_stage(frozen("openai:foo@http://127.0.0.1:9/v1", team__max_tokens=1000))
    engines = lockstep({"main": stage.script("reference"), "worker": Failing(stage, fails, error)})
    roles = {role: engines["worker" if role == "worker" else "main"] for role in stage.roles}
    episodes = [Episode(name=str(n), instance=n, seed=n) for n in range(4)]
    return asyncio.run(stage.play(roles, episodes))


def test_a_policy_that_answers_nothing_ends_the_round() -> None:
    with pytest.raises(Unanswered) as raised:
        played([True], "no route\nto it")
    said = str(raised.value)
    assert said.startswith("policy 'worker' (openai:foo@http://127.0.0.1:9/v1) answered none of ")
    assert "The first error: no route. " in said
    assert "baton train --resume" in said


def test_a_model_that_broke_ends_it_though_others_answered() -> None:
    with pytest.raises(Unanswered, match=r"the model failed: out of memory\. There is too little memory"):
        played([True, False, False], f"{MODEL_FAILED}: out of memory")


def test_some_failed_calls_are_counted_and_said_once() -> None:
    traces = played([True, False, False])
    failed = sum(call.finish_reason == "error" for trace in traces for call in trace.calls)
    assert failed > 0
    assert sizes(traces)["failed"] == failed / 4
    assert summary(None, "team", 1, traces, [0.0] * 4)["failed"] == failed / 4
    watch, metrics = Watch(small()), {"return": {"mean": 0.0}}
    (warned,) = watch.observe(metrics, traces)
    assert warned.monitor == "failed-calls"
    assert f"{failed} of " in warned.message
    assert "role worker" in warned.message
    assert "The first error: lost. " in warned.message
    assert "rollout.groups" in warned.message
    assert not watch.observe(metrics, traces), "it has been said"
    whole = played([False])
    assert not watch.observe(metrics, whole)
    assert sizes(whole)["failed"] == 0


def test_a_server_that_is_not_there_is_said_before_anything_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baton.learn.models.start.warm_start", lambda *_, **__: pytest.fail("too late"))
    with pytest.raises(
        UsageError, match=r"policies\.worker.*cannot be reached.*--set policies\.worker\.model="
    ):
        make_trainer(frozen("openai:foo@http://127.0.0.1:9/v1"))


def test_a_run_that_cannot_begin_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(Unanswered, match=r"policy 'worker' \(scripted:test_answered:broken\)"):
        begin(frozen("scripted:test_answered:broken"), "team", tmp_path / "run")
    told = json.loads((tmp_path / "run" / "run.json").read_text())
    assert told["status"] == "stopped"
    assert "out of order" in told["why"]
