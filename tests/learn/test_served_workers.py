"""Rollout workers that ask the servers the trainer pushes to. These are mocks; vLLM's is tests/engine/vllm_real."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from served_mock import serving
from small_run import BASE, COMA, GROUP
from thread_seats import ThreadSeats, workers_as_threads

from baton.compose.training import check_trainable, make_trainer
from baton.errors import BatonError, UsageError
from baton.learn.recipe import Recipe, parse
from baton.learn.trainer import Trainer
from baton.trace.trace import Trace

pytestmark = pytest.mark.usefixtures("first_weights")
QUICK = ["train.steps=3", "rollout.groups=3", "rollout.group_size=2", "eval.episodes=2", "train.loggers=[]",
         "warm.steps=20", "warm.episodes=40", "team.max_tokens=12"]  # fmt: skip


def recipe(more: str = GROUP, engine: str = "vllm:local", **changes: Any) -> Recipe:
    listed = [f"{path.replace('__', '.')}={json.dumps(value)}" for path, value in changes.items()]
    return parse(BASE + more, "served", [*QUICK, f'policies.main.engine="{engine}"', *listed])


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[ThreadSeats]]:
    return workers_as_threads(monkeypatch)


Played = tuple[list[list[Any]], dict[str, torch.Tensor], list[Any]]


def steps(trainer: Trainer, before: Callable[[int], None] = lambda _: None) -> Played:
    """What was drawn in each of three steps, the weights after them, and their metrics."""
    try:
        found = []
        for number in (1, 2, 3):
            before(number)
            found.append(trainer.step())
        drawn = [[drawn_in(trace) for trace in each.traces] for each in found]
        return drawn, trainer.policies["main"].state_dict(), [each.metrics for each in found]
    finally:
        trainer.close()


def drawn_in(trace: Trace) -> Any:
    return trace.trace_id, [
        (call.policy_version, list(call.completion_ids or ()), list(call.logprobs or ()))
        for call in trace.calls
    ]


def check_alike(found: Played, expected: Played) -> None:
    """The same draws by the same versions; what is scored by a server and not here is rounded otherwise."""
    assert found[0] == expected[0]
    for name, tensor in expected[1].items():
        assert float((found[1][name] - tensor).abs().max()) < 1e-5


@pytest.mark.parametrize(("train", "lag"), [("lora", 0), ("lora", 2), ("full", 0)])
@pytest.mark.parametrize("credit", [GROUP, COMA], ids=["group", "coma"])
def test_workers_draw_from_the_server_what_this_process_would_have_drawn(
    monkeypatch: pytest.MonkeyPatch,
    threads: Callable[..., list[ThreadSeats]],
    train: str,
    lag: int,
    credit: str,
) -> None:
    alike: dict[str, Any] = {"policies__main__train": train, "scale__lag": lag}
    with serving(monkeypatch):
        expected = steps(make_trainer(recipe(credit, **alike)))
    threads()
    with serving(monkeypatch) as servers:
        found = steps(make_trainer(recipe(credit, scale__rollout_workers=2, **alike)))
        assert len(servers[0].adapters) <= lag + 2
    check_alike(found, expected)
    assert {version for _, calls in found[0][2] for version, _, _ in calls} == {str(max(0, 2 - lag))}
    assert found[2][2]["num_workers"] == 2
    assert found[2][2]["push_gap"]["main"] < 1e-4


@pytest.mark.parametrize(("train", "lag"), [("lora", 1), ("full", 0)])
def test_a_server_that_dies_while_workers_play_changes_no_draw(
    monkeypatch: pytest.MonkeyPatch, threads: Callable[..., list[ThreadSeats]], train: str, lag: int
) -> None:
    alike: dict[str, Any] = {"policies__main__train": train, "scale__lag": lag}
    with serving(monkeypatch):
        expected = steps(make_trainer(recipe(**alike)))
    made = threads(deaths=0.3, seed=4)
    with serving(monkeypatch) as servers:
        plan = recipe(scale__rollout_workers=2, scale__restarts=50, **alike)
        killers: list[threading.Timer] = []

        def kill(number: int) -> None:
            if number > 1:
                servers[0].token_seconds = 0.01
                killers.append(threading.Timer(0.2, servers[0].die))
                killers[-1].start()

        found = steps(make_trainer(plan), kill)
        for each in killers:
            each.join()
    check_alike(found, expected)
    assert any(each.died for each in made)


def test_a_server_that_comes_back_with_other_weights_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, threads: Callable[..., list[ThreadSeats]]
) -> None:
    threads()
    with serving(monkeypatch) as servers:
        trainer = make_trainer(
            recipe(policies__main__train="lora", scale__rollout_workers=2, policies__main__rank=4)
        )
        try:
            for _ in range(2):
                trainer.step()
            servers[0].faults["keep old"] = 1000
            servers[0].token_seconds = 0.02
            threading.Timer(0.3, servers[0].die).start()
            with pytest.raises(BatonError, match=r"cannot be started again|could not be pushed") as told:
                trainer.step()
        finally:
            trainer.close()
    assert "\n" not in str(told.value)


def test_a_server_that_is_gone_is_one_line(
    monkeypatch: pytest.MonkeyPatch, threads: Callable[..., list[ThreadSeats]]
) -> None:
    threads()
    with serving(monkeypatch) as servers:
        trainer = make_trainer(recipe(scale__rollout_workers=2))
        try:
            trainer.step()
            host: Any = trainer.policies["main"].engine.host  # type: ignore[attr-defined]
            host._start_again, host.seconds = None, 0.0  # somebody else's
            servers[0].token_seconds = 0.02
            threading.Timer(0.2, servers[0].die).start()
            with pytest.raises(BatonError) as told:
                _ = [trainer.step() for _ in range(2)]
        finally:
            trainer.close()
    assert "\n" not in str(told.value)
    assert "127.0.0.1" in str(told.value)


def test_a_server_that_cannot_be_started_again_is_one_line_and_not_tried_for_ever(
    monkeypatch: pytest.MonkeyPatch, threads: Callable[..., list[ThreadSeats]]
) -> None:
    threads()
    tries: list[float] = []

    def start_again() -> bool:
        if not servers[0].closed:
            return False
        tries.append(time.monotonic())
        raise UsageError("the port is taken.")

    with serving(monkeypatch) as servers:
        trainer = make_trainer(recipe(scale__rollout_workers=2))
        try:
            trainer.step()
            host: Any = trainer.policies["main"].engine.host  # type: ignore[attr-defined]
            host._start_again = start_again
            servers[0].token_seconds = 0.02
            threading.Timer(0.2, servers[0].die).start()
            with pytest.raises(BatonError, match="the port is taken") as told:
                _ = [trainer.step() for _ in range(2)]
            time.sleep(1.5)
        finally:
            trainer.close()
    assert "\n" not in str(told.value)
    assert len(tries) <= 2


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"scale__lag": 1}, "one version of full weights at a time"),
        ({"scale__lag": 1, "scale__updates": "in-flight"}, "one version of full weights at a time"),
        ({"scale__workers": "ray", "scale__address": "10.0.0.1:6379"}, "may be on others"),
        ({"team__temperature": 0.5}, "at temperature 1 alone"),
    ],
)
def test_what_workers_cannot_ask_of_a_server_is_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told) as refused:
        check_trainable(recipe(scale__rollout_workers=2, **changes))
    assert "\n" not in str(refused.value)
