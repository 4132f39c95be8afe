"""The window: steps that are played before their turn, by weights that their number alone decides."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from small_run import COMA, GROUP, small

from baton.compose.training import begin, check_trainable, go_on, make_trainer
from baton.errors import UsageError
from baton.learn.options import Asked, option_chances
from baton.learn.policy import Policy
from baton.learn.rollouts import RolloutGroup, Rollouts
from baton.learn.run.folder import read_lines
from baton.learn.trainer import Trainer

pytestmark = pytest.mark.usefixtures("first_weights")

TIMES = (
    "seconds",
    "rollout_seconds",
    "update_seconds",
    "tokens_per_second",
    "idle",
    "busy_seconds",
    "num_workers",
)
SMALL: dict[str, Any] = {
    "rollout__groups": 3,
    "rollout__group_size": 2,
    "eval__episodes": 2,
    "warm__steps": 20,
}


def steps_of(trainer: Trainer, steps: int) -> list[dict[str, Any]]:
    found = [trainer.step().metrics for _ in range(steps)]
    trainer.close()
    return [{key: value for key, value in line.items() if key not in TIMES} for line in found]


def versions_of(trainer: Trainer, steps: int) -> list[set[str | None]]:
    found = [{c.policy_version for t in trainer.step().traces for c in t.calls} for _ in range(steps)]
    trainer.close()
    return found


@pytest.mark.parametrize("train", ["full", "lora"])
@pytest.mark.parametrize("lag", [2, 3])
def test_a_step_is_played_by_the_weights_that_its_number_names(train: str, lag: int) -> None:
    recipe = small(**SMALL, scale__lag=lag, train__steps=5, policies__main__train=train)
    # Of step n: those after max(0, n - 1 - lag) steps.
    assert versions_of(make_trainer(recipe), 5) == [{str(max(0, n - 1 - lag))} for n in range(1, 6)]


def test_overlap_is_the_word_for_a_lag_of_one() -> None:
    first = steps_of(make_trainer(small(**SMALL, rollout__overlap=True)), 4)
    assert steps_of(make_trainer(small(**SMALL, scale__lag=1)), 4) == first
    for lag in (1, 2):
        with pytest.raises(UsageError, match=r"rollout.overlap is the word for scale.lag = 1"):
            check_trainable(small(rollout__overlap=True, scale__lag=lag))


def test_a_window_of_steps_is_under_way_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainer goes on with step 2 while step 3 is still held up: pinned weights are no reason to wait."""
    free = threading.Event()
    play = Rollouts.play

    def held(self: Rollouts, number: int, version: int) -> list[RolloutGroup]:
        if number == 3:
            assert free.wait(60)
        return play(self, number, version)

    monkeypatch.setattr(Rollouts, "play", held)
    trainer = make_trainer(small(**SMALL, scale__lag=2, train__steps=5))
    trainer.step()
    trainer.step()  # step 4 is begun with weights of now, and waits behind step 3 with them
    free.set()
    seen = [{c.policy_version for t in trainer.step().traces for c in t.calls} for _ in range(3)]
    trainer.close()
    assert seen == [{"0"}, {"1"}, {"2"}]


@pytest.mark.parametrize("more", [GROUP, COMA], ids=["group", "a critic that asks"])
def test_any_lag_gives_the_same_numbers_whatever_is_slow(more: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = small(more, **SMALL, scale__lag=2, train__steps=5)
    expected = steps_of(make_trainer(recipe), 5)
    play, update = Rollouts.play, Trainer._update

    def slow_play(self: Rollouts, number: int, version: int) -> list[RolloutGroup]:
        time.sleep(0.15 * (number % 2))
        return play(self, number, version)

    def slow_update(self: Trainer, groups: Any, number: int) -> Any:
        time.sleep(0.15 * (1 - number % 2))
        return update(self, groups, number)

    monkeypatch.setattr(Rollouts, "play", slow_play)
    monkeypatch.setattr(Trainer, "_update", slow_update)
    assert steps_of(make_trainer(recipe), 5) == expected


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in line.items() if key not in TIMES}
        for line in read_lines(folder / "metrics.jsonl")
    ]


@pytest.mark.parametrize("changes", [{"scale__lag": 3}, {"scale__lag": 2, "rollout__replay": 2}], ids=str)
def test_a_run_cut_off_in_the_middle_of_a_window_gives_the_same_numbers(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    recipe = small(**{**SMALL, **changes}, train__steps=6, train__checkpoint_every=2)
    whole = begin(recipe, "small", tmp_path / "whole")
    list(whole.steps())
    whole.close()
    cut = begin(recipe, "small", tmp_path / "cut")
    steps = cut.steps()
    for _ in range(3):
        next(steps)
    cut.close()  # the last checkpoint is of step 2, with what was played ahead of it
    again = go_on(tmp_path / "cut")
    list(again.steps())
    again.close()
    assert lines_of(tmp_path / "cut") == lines_of(tmp_path / "whole")


class ThreadedMockPlayers:
    """A mock of players past this process: each play in a thread of its own, with weights kept by version."""

    def __init__(self, recipe: Any, policies: Mapping[str, Policy], delays: Mapping[int, float]) -> None:
        # Its samplers are copies, as in one process: weights of a file lie otherwise in memory, and so sums differ.
        self._player = make_trainer(recipe)
        self._turn = threading.Lock()
        self._policies = policies
        self._delays = delays
        self._pool = ThreadPoolExecutor(4)
        self.kept: dict[int, dict[str, Any]] = {}
        self.under_way = 0
        self.most = 0

    def publish(self, version: int) -> None:
        if version not in self.kept:
            self.kept[version] = {name: (p.state_dict(), p.version) for name, p in self._policies.items()}

    def play(self, number: int, version: int) -> list[RolloutGroup]:
        time.sleep(self._delays.get(number, 0.0))
        with self._turn:
            for name, (state, at) in self.kept[version].items():
                self._player.policies[name].load_state_dict(state, at)
            return self._player.rollouts.play(number, version)

    def begin(self, number: int, version: int) -> Future[list[RolloutGroup]]:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        found = self._pool.submit(self.play, number, version)
        found.add_done_callback(lambda _: setattr(self, "under_way", self.under_way - 1))
        return found

    def figures(self, number: int) -> dict[str, Any]:
        return {"busy_seconds": 0.0, "num_workers": 4}

    def close(self) -> None:
        self._pool.shutdown()


def test_players_elsewhere_give_the_numbers_of_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = small(**SMALL, scale__lag=2, train__steps=5)
    expected = steps_of(make_trainer(recipe), 5)
    made: list[ThreadedMockPlayers] = []
    waiting: list[None] = []
    init = Rollouts.__init__

    def elsewhere(self: Rollouts, recipe: Any, stage: Any, policies: Any, *rest: Any) -> None:
        init(self, recipe, stage, policies, *rest)
        if not waiting:
            waiting.append(None)
            made.append(ThreadedMockPlayers(recipe, policies, {2: 0.2, 4: 0.1}))
            self._elsewhere = made[-1]

    monkeypatch.setattr(Rollouts, "__init__", elsewhere)
    assert steps_of(make_trainer(recipe), 5) == expected
    assert made[0].most >= 2


def test_how_old_what_is_trained_was_is_told() -> None:
    recipe = small(**SMALL, scale__lag=2, train__steps=4)
    trainer = make_trainer(recipe)
    told = []
    for n in range(1, 5):
        made = trainer.step()
        told.append(made.metrics["staleness"])
        tokens = sum(len(c.completion_ids or ()) for t in made.traces for c in t.calls)
        age = n - 1 - max(0, n - 3)
        assert told[-1] == {"mean": age, "max": age, "tokens": [[str(max(0, n - 3)), tokens]]}
        assert 0 <= made.metrics["idle"]["trainer"] <= 1
        assert 0 <= made.metrics["idle"]["players"] <= 1
    trainer.close()
    assert [each["max"] for each in told] == [0, 1, 2, 2]
    plain = make_trainer(small(**SMALL)).step().metrics
    assert not {"staleness", "idle", "discarded_tokens"} & plain.keys()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"scale__lag": 3, "rollout__staleness": 2}, "rollout.staleness is 2.*Set staleness to 3 or more"),
        ({"scale__lag": 2, "rollout__staleness": 2, "rollout__replay": 1}, "Set staleness to 3 or more"),
        (
            {"scale__lag": 1, "loss__kind": "reinforce", "loss__correction": "off"},
            "loss.correction is off.*older weights",
        ),
    ],
)
def test_windows_that_cannot_be_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        check_trainable(small(**changes))


def test_all_options_are_asked_of_the_weights_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a target is made of is the policy that is trained, though older weights played and are playing."""
    recipe = small(
        COMA.replace("weight = 5.0\n", ""), **SMALL, scale__lag=2, train__steps=4, train__options="all"
    )
    trainer = make_trainer(recipe)
    seen: list[tuple[float, ...]] = []
    expected: list[tuple[float, ...]] = []
    update = Trainer._update

    def watched(self: Trainer, groups: list[RolloutGroup], number: int) -> Any:
        policy = self.policies["main"]
        for trace in (trace for group in groups[:1] for trace in group.traces):
            for event in trace.events:
                if (asked := Asked.at(trace, event)) is not None and event.option_propensities is not None:
                    seen.append(event.option_propensities)
                    expected.append(option_chances(policy.model, policy.tokenizer, [asked])[asked])
        return update(self, groups, number)

    monkeypatch.setattr(Trainer, "_update", watched)
    for _ in range(4):
        trainer.step()
    trainer.close()
    assert seen
    for mine, plain in zip(seen, expected, strict=True):
        assert mine == pytest.approx(plain, abs=1e-5)
