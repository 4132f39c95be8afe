"""The loop: which weights play what, which tokens are trained, and what is never trained."""

from __future__ import annotations

import threading
import time
from itertools import cycle
from typing import Any

import numpy as np
import pytest
import torch
from msgspec import structs
from small_run import GROUP, small

from baton.compose.training import make_trainer
from baton.errors import UsageError
from baton.forest.rows import Row
from baton.games.game import CHOICES, Choice
from baton.learn import lora
from baton.learn.recipe import RolloutPart
from baton.learn.rollouts import RolloutGroup, Rollouts
from baton.learn.trainer import Trainer
from baton.trace.outcome import cut_off
from baton.trace.records import Credit
from baton.trace.trace import Trace

pytestmark = pytest.mark.usefixtures("first_weights")


def numbers(trainer: Trainer, steps: int) -> list[tuple[Any, ...]]:
    found = []
    for _ in range(steps):
        metrics = trainer.step().metrics
        found.append((metrics["return"]["mean"], metrics["loss"], metrics["grad_norm"]))
    trainer.close()
    return found


def versions(trace: Trace) -> set[str | None]:
    return {call.policy_version for call in trace.calls}


def played(trainer: Trainer) -> list[Trace]:
    return [trace for group in trainer.rollouts.take(1) for trace in group.traces]


# -- which weights play ----------------------------------------------------------------------------


def test_on_policy_every_step_is_played_by_the_weights_before_it() -> None:
    trainer = make_trainer(small())
    for number in range(3):
        assert {v for trace in trainer.step().traces for v in versions(trace)} == {str(number)}


@pytest.mark.parametrize("train", ["full", "lora"])
def test_overlap_plays_with_the_weights_of_one_step_before(
    train: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    play = Rollouts.play

    def watched(self: Rollouts, number: int, version: int) -> list[RolloutGroup]:
        threads.append(threading.current_thread().name)
        return play(self, number, version)

    monkeypatch.setattr(Rollouts, "play", watched)
    trainer = make_trainer(small(rollout__overlap=True, policies__main__train=train))
    seen = [{v for trace in trainer.step().traces for v in versions(trace)} for _ in range(4)]
    assert seen == [{"0"}, {"0"}, {"1"}, {"2"}]
    assert threads[0] == "MainThread"
    assert all(name.startswith("baton-rollouts") for name in threads[1:])
    assert len(threads) == 4, "the last step plays nothing ahead"
    trainer.close()


@pytest.mark.parametrize("train", ["full", "lora"])
def test_overlap_gives_the_same_numbers_whatever_is_slow(train: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = small(rollout__overlap=True, loss__kind="reinforce", policies__main__train=train)
    expected = numbers(make_trainer(recipe), 3)
    play, update = Rollouts.play, Trainer._update

    def slow_play(self: Rollouts, number: int, version: int) -> list[RolloutGroup]:
        time.sleep(0.3)
        return play(self, number, version)

    def slow_update(self: Trainer, groups: Any, number: int) -> Any:
        time.sleep(0.3)
        return update(self, groups, number)

    with monkeypatch.context() as patch:
        patch.setattr(Rollouts, "play", slow_play)
        assert numbers(make_trainer(recipe), 3) == expected
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_update", slow_update)
        assert numbers(make_trainer(recipe), 3) == expected


def test_a_copy_that_samples_has_the_adapters_first_weights() -> None:
    """And those of every step after."""
    recipe = small(rollout__overlap=True, policies__main__train="lora")
    ahead, plain = (
        make_trainer(recipe),
        make_trainer(structs.replace(recipe, rollout=RolloutPart(groups=4, group_size=4))),
    )
    traces = [trainer.step().traces for trainer in (ahead, plain)]
    assert [t.calls[0].logprobs for t in traces[0]] == [t.calls[0].logprobs for t in traces[1]]
    policy = ahead.policies["main"]
    ahead.close()
    assert policy.sampler.base is not policy.model
    ahead.rollouts.publish()
    there, here = lora.adapter_state_dict(policy.sampler.base, "main"), policy.state_dict()
    assert all(torch.equal(there[key], here[key]) for key in here)


def test_stale_rollouts_are_corrected_for(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer(small(rollout__overlap=True, loss__kind="reinforce"))
    weighed: list[float | None] = []
    backward = trainer.gradients["main"].backward

    def watched(rows: list[Row], *, version: str) -> Any:
        report = backward(rows, version=version)
        weighed.append(report.means["correction"])
        return report

    monkeypatch.setattr(trainer.gradients["main"], "backward", watched)
    numbers(trainer, 3)
    assert weighed[0] == 1.0
    assert all(weight != 1.0 for weight in weighed[1:])


def test_a_second_pass_over_the_same_rollouts_is_corrected_for(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer(small(train__epochs=2, loss__kind="reinforce"))
    asked: list[str] = []
    backward = trainer.gradients["main"].backward

    def watched(rows: list[Row], *, version: str) -> Any:
        asked.append(version)
        return backward(rows, version=version)

    monkeypatch.setattr(trainer.gradients["main"], "backward", watched)
    numbers(trainer, 2)
    assert asked == ["0", "0+1", "1", "1+1"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"rollout__overlap": True, "rollout__staleness": 0}, "one step old"),
        ({"rollout__replay": 1, "rollout__staleness": 0}, "leaves none"),
        ({"rollout__replay": 1, "rollout__overlap": True, "rollout__staleness": 1}, "staleness to 2"),
    ],
)
def test_bounds_that_leave_nothing_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        make_trainer(small(**changes))


@pytest.mark.parametrize(
    "change",
    ["train__steps=0", "train__learning_rate=-1", "train__learning_rate=1e30", "rollout__groups=0",
     "rollout__group_size=0", "train__checkpoint_every=0", "train__clip_norm=0", "eval__episodes=0",
     "rollout__cut_weight=-1", "team__temperature=0", "policies__main__tiny__width=0", "train__batches=0"],
)  # fmt: skip
def test_numbers_that_cannot_be_are_refused(change: str) -> None:
    path, _, value = change.partition("=")
    with pytest.raises(UsageError, match=path.rpartition("__")[2]):
        make_trainer(small(**{path: float(value) if "." in value or "e" in value else int(value)}))


def test_replay_trains_on_earlier_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer(small(rollout__replay=3))
    seen: list[list[int]] = []
    update = Trainer._update

    def watched(self: Trainer, groups: list[RolloutGroup], number: int) -> Any:
        seen.append([group.step for group in groups])
        return update(self, groups, number)

    monkeypatch.setattr(Trainer, "_update", watched)
    numbers(trainer, 3)
    assert seen == [[1] * 4, [2] * 4 + [1] * 3, [3] * 4 + [2] * 3]


# -- which tokens are trained ----------------------------------------------------------------------


def rows_with(trainer: Trainer, trace: Trace, credits: tuple[Credit, ...]) -> list[Row]:
    return trainer._rows(
        structs.replace(trace, credits=credits), RolloutGroup(step=1, version=0, traces=(trace,))
    )


def learning(*decisions: str) -> Trainer:
    """Of these alone, though the game has only stops: the traces below say that they have others."""
    trainer = make_trainer(small())
    trainer.recipe = small(train__decisions=list(decisions))
    return trainer


def team_credit(trace: Trace) -> tuple[Credit, ...]:
    return (Credit(unit="team", target=trace.trace_id, value=1.0, estimator="mean"),)


def tokens(rows: list[Row]) -> set[tuple[str, int]]:
    return {(row.call, int(place)) for row in rows for place in row.places if row.weights.all()}


@pytest.mark.parametrize("off", CHOICES)
def test_decisions_switched_off_leave_their_tokens_alone(off: Choice) -> None:
    trainer = learning(*(name for name in CHOICES if name != off))
    names = cycle(CHOICES)
    left: set[str] = set()
    gone: set[str] = set()
    for trace in played(trainer):
        events = tuple(
            structs.replace(e, decision=next(names)) if e.call and e.status == "ok" else e
            for e in trace.events
        )
        trace = structs.replace(trace, events=events)
        trained = {row.call for row in rows_with(trainer, trace, team_credit(trace))}
        for event in events:
            if event.call and event.status == "ok":
                assert (event.call in trained) is (event.decision != off)
                (gone if event.decision == off else left).add(event.decision)
    assert gone == {off}
    assert left == set(CHOICES) - {off}


def test_the_gradient_of_their_tokens_is_zero() -> None:
    """Training what is left gives the gradient of the rows without those tokens, to the bit."""
    trainer = make_trainer(small())
    trace = played(trainer)[0]
    event = next(e for e in trace.events if e.call and e.decision == "stop" and e.status == "ok")
    off = learning("spawn")
    assert all(row.call != event.call for row in rows_with(off, trace, team_credit(trace)))
    one = structs.replace(event, decision="spawn")
    mixed = structs.replace(trace, events=tuple(one if e is event else e for e in trace.events))
    rows = rows_with(off, mixed, team_credit(trace))
    assert {row.call for row in rows} == {event.call}
    grads = []
    for batch in (
        rows,
        [row for row in rows_with(trainer, trace, team_credit(trace)) if row.call == event.call],
    ):
        policy = trainer.policies["main"]
        policy.model.zero_grad()
        trainer.gradients["main"].backward(batch, version="0")
        grads.append([p.grad.clone() for p in policy.model.parameters() if p.grad is not None])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def test_going_on_is_a_decision_about_stopping() -> None:
    trainer = learning("spawn")
    trace = played(trainer)[0]
    waits = tuple(structs.replace(e, decision="wait" if e.call else e.decision) for e in trace.events)
    valid = structs.replace(trace, events=tuple(e for e in waits if e.status != "invalid"))
    rows = rows_with(trainer, valid, team_credit(trace))
    assert not {row.call for row in rows} & {e.call for e in valid.events}


def capped(trainer: Trainer) -> Trace:
    """A rollout that its budget ended."""
    return next(trace for trace in played(trainer) if cut_off(trace))


def test_a_forced_stop_is_never_trained_as_chosen() -> None:
    trainer = make_trainer(small(team__limits={"calls": 2}))
    trace = capped(trainer)
    forced = next(e for e in trace.events if e.status == "forced")
    said = structs.replace(forced, call=trace.calls[-1].id)  # as if the last answer had said it
    trace = structs.replace(trace, events=tuple(said if e is forced else e for e in trace.events))
    for credit in (
        Credit(unit="orchestrator", target=forced.id, value=1.0, estimator="coma"),
        *team_credit(trace),
    ):
        for row in rows_with(trainer, trace, (credit,)):
            assert row.call != said.call or not np.any(row.advantages)
    trainer.step()
    assert trainer.policies["main"].version <= 1


def test_rollouts_cut_off_count_by_their_weight() -> None:
    for weight in (1.0, 0.25, 0.0):
        trainer = make_trainer(small(team__limits={"calls": 2}, rollout__cut_weight=weight))
        trace = capped(trainer)
        rows = rows_with(trainer, trace, team_credit(trace))
        assert bool(rows) is (weight > 0)
        assert all((row.weights == weight).all() for row in rows)
    ended = next(trace for trace in played(make_trainer(small())) if not cut_off(trace))
    assert all((row.weights == 1).all() for row in rows_with(trainer, ended, team_credit(ended)))


def test_kl_is_taken_to_the_first_weights() -> None:
    trainer = make_trainer(small(loss__kl=0.1))
    first = trainer.step().metrics["kl"]
    assert first == pytest.approx(0.0, abs=1e-9)
    assert trainer.step().metrics["kl"] > 0


def test_groups_are_named_by_step_and_instance() -> None:
    trainer = make_trainer(small(GROUP))
    groups = trainer.rollouts.take(1)
    names = {row.group for g in groups for t in g.traces for row in rows_with(trainer, t, team_credit(t))}
    assert len(names) == 4


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"policies__main__dtype": "float31"}, "dtype 'float31' is not known"),
        ({"policies__main__device": "tpu9"}, "device 'tpu9' is not known"),
        ({"policies__main__model": "no/such/folder"}, "there is no folder 'no/such/folder'"),
    ],
)
def test_a_model_that_is_none_is_refused_before_anything_is_played(
    changes: dict[str, Any], says: str
) -> None:
    told: list[str] = []
    with pytest.raises(UsageError, match=says):
        make_trainer(small(**changes), progress=told.append)
    assert told == []
