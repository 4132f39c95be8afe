"""Steps that do not wait for all their groups: who is taken, what goes on, and what it counts."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from small_run import COMA, GROUP, TINY, small, team
from test_window import TIMES, lines_of, steps_of

from baton.compose.training import begin, check_trainable, go_on, make_trainer
from baton.errors import UsageError
from baton.learn.rollouts import RolloutGroup
from baton.learn.trainer import Trainer
from baton.trace.trace import Trace

pytestmark = pytest.mark.usefixtures("first_weights")

# Episodes of one to eight calls: whoever stops late is a straggler.
FEW: dict[str, Any] = {
    "task__settings__num_steps": 7,
    "rollout__groups": 5,
    "rollout__group_size": 2,
    "eval__episodes": 2,
    "warm__steps": 30,
    "scale__wait_for": 0.6,
}


def length(trace: Trace) -> float:
    return trace.costs["wall_clock_s"]


def said(trace: Trace) -> list[Any]:
    events = [
        (e.id, e.seq, e.t, e.duration_s, e.type, e.content_ref, e.choice, e.tokens) for e in trace.events
    ]
    return [
        events,
        [(c.id, c.t, list(c.completion_ids or ())) for c in trace.calls],
        trace.costs,
        trace.finished,
    ]


def chances(trace: Trace) -> list[float]:
    """What hangs on sums, whose last digits hang on what else was in a batch."""
    told = [p for e in trace.events for p in (e.option_propensities or ())]
    return told + [value for call in trace.calls for value in call.logprobs or ()]


def groups_of(trainer: Trainer, steps: int) -> list[list[RolloutGroup]]:
    found = [trainer.rollouts.play(number, 0) for number in range(1, steps + 1)]
    trainer.close()
    return found


def everything(trainer: Trainer, step: int) -> list[list[Trace]]:
    """A step's groups, played to their end."""
    trainer.rollouts._stragglers = None
    return [list(group.traces) for group in trainer.rollouts.play(step, 0)]


@pytest.mark.parametrize("clock", ["modelled", "tokens"])
def test_a_step_takes_what_is_finished_first(clock: str) -> None:
    """Against all of its groups played to the end and sorted."""
    recipe = small(**FEW, scale__stragglers="cut", scale__clock=clock)

    def long(traces: list[Trace]) -> float:
        if clock == "modelled":
            return max(map(length, traces))
        return max(sum(len(c.completion_ids or ()) for c in trace.calls) for trace in traces)

    whole = everything(make_trainer(recipe), 1)
    closes = sorted(map(long, whole))[3 - 1]  # six tenths of five groups
    expected = [traces for traces in whole if long(traces) <= closes]
    (taken,) = groups_of(make_trainer(recipe), 1)
    assert [list(group.traces) for group in taken] == expected
    assert len(whole) > len(expected) >= 3


def test_what_is_carried_goes_on_as_if_it_had_not_been_held() -> None:
    """With weights that stay, every rollout is the one that is played to its end, whenever it is taken."""
    recipe = small(**FEW, scale__stragglers="carry", rollout__staleness=9)
    steps = groups_of(make_trainer(recipe), 4)
    whole = {
        trace.trace_id: trace
        for step in range(1, 5)
        for traces in everything(make_trainer(recipe), step)
        for trace in traces
    }
    taken = [trace for groups in steps for group in groups for trace in group.traces]
    assert len({trace.trace_id for trace in taken}) == len(taken)
    for trace in taken:
        assert said(trace) == said(whole[trace.trace_id])
        assert chances(trace) == pytest.approx(chances(whole[trace.trace_id]), abs=1e-4)
    carried = [
        t
        for n, groups in enumerate(steps, 1)
        for g in groups
        for t in g.traces
        if f"{n:04d}" not in t.trace_id
    ]
    assert carried
    # What a step counts is what it takes beside what it begins.
    for groups in steps:
        assert {group.weight for group in groups} == {len(groups) / 5}


def test_calls_of_what_is_carried_have_the_versions_that_drew_them() -> None:
    trainer = make_trainer(small(**FEW, scale__stragglers="carry", train__steps=6))
    mixed = 0
    for number in range(1, 7):
        made = trainer.step()
        for trace in made.traces:
            begun = int(trace.trace_id[5:9])
            versions = [int(call.policy_version or -1) for call in trace.calls]
            assert versions == sorted(versions)
            assert versions[0] == begun - 1
            assert versions[-1] <= number - 1
            assert number - begun <= 2  # and then it is waited for
            mixed += len(set(versions)) > 1
        assert made.metrics["staleness"]["max"] <= 2
        told = made.metrics["stragglers"]
        assert told["taken"] * 2 == len(made.traces)
    trainer.close()
    assert mixed


def test_who_waits_for_all_takes_all() -> None:
    """The same groups and numbers as a run that never heard of stragglers."""
    plain = {key: value for key, value in FEW.items() if not key.startswith("scale")}
    expected = steps_of(make_trainer(small(**plain)), 2)
    recipe = small(**FEW | {"scale__wait_for": 0.99}, scale__stragglers="cut")
    told = steps_of(make_trainer(recipe), 2)
    for line in told:
        assert line.pop("stragglers") == {"taken": 5, "left": 0, "most_weight": 1.0, "tail": 0.0}
        assert line.pop("discarded_tokens") == 0
        line.pop("staleness")
    assert told == expected


@pytest.mark.parametrize("changes", [{}, {"scale__lag": 2}], ids=["on policy", "lag 2"])
def test_a_run_that_carries_is_cut_off_and_gives_the_same_numbers(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    recipe = small(
        GROUP, **FEW, **changes, scale__stragglers="carry", train__steps=5, train__checkpoint_every=2
    )
    whole = begin(recipe, "small", tmp_path / "whole")
    list(whole.steps())
    whole.close()
    cut = begin(recipe, "small", tmp_path / "cut")
    list(itertools.islice(cut.steps(), 3))
    cut.close()
    again = go_on(tmp_path / "cut")
    list(again.steps())
    again.close()
    assert lines_of(tmp_path / "cut") == lines_of(tmp_path / "whole")
    assert any(line["stragglers"]["left"] for line in lines_of(tmp_path / "whole"))


def test_what_is_cut_is_counted_and_what_is_taken_weighed() -> None:
    trainer = make_trainer(small(**FEW, scale__stragglers="cut", train__steps=3))
    for _ in range(3):
        made = trainer.step().metrics
        told = made["stragglers"]
        assert told["taken"] >= 3
        assert told["taken"] + told["left"] == 5
        assert (made["discarded_tokens"] > 0) == (told["left"] > 0)
        assert ("return_weighed" in made) == (told["most_weight"] != 1.0)
    trainer.close()
    assert "idle" in TIMES


def test_the_clock_on_the_wall_takes_who_was_there() -> None:
    (taken,) = groups_of(make_trainer(small(**FEW, scale__stragglers="cut", scale__clock="wall")), 1)
    assert 3 <= len(taken) <= 5
    assert all(trace.finished for group in taken for trace in group.traces)


@pytest.mark.parametrize(
    ("more", "changes", "says"),
    [
        (GROUP, {"scale__wait_for": 0.5}, "scale.wait_for is of steps that do not wait for all"),
        (GROUP, {"scale__clock": "wall"}, "scale.clock is of steps"),
        (GROUP, {"scale__stragglers": "cut", "scale__wait_for": 1.0}, "waits for all"),
        (GROUP, {"scale__stragglers": "cut", "scale__rollout_workers": 2}, "workers play in others"),
        (GROUP, {"scale__stragglers": "carry", "scale__batch": 2}, "one after the other"),
        (GROUP, {"scale__stragglers": "carry", "rollout__fan_out": [2]}, "branches grow from whole ones"),
        (COMA, {"scale__stragglers": "cut"}, "its values would be those of short"),
        (GROUP, {"scale__stragglers": "carry", "rollout__staleness": 0}, "leaves none. Set it to 1"),
    ],
)
def test_what_cannot_be_together_is_refused(more: str, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        check_trainable(small(more, **changes))


def test_answers_that_came_before_their_place_did_are_kept() -> None:
    """A team whose agents speak at once: a long answer of one must not be drawn again because another was held."""
    changes = {
        "rollout__groups": 4,
        "rollout__group_size": 2,
        "scale__wait_for": 0.5,
        "rollout__staleness": 9,
    }
    recipe = team(f"[policies.main]\n{TINY}", scale__stragglers="carry", **changes)
    trainer = make_trainer(recipe)
    steps, kept = [], 0
    for number in range(1, 5):
        steps.append(trainer.rollouts.play(number, 0))
        pool = trainer.rollouts._stragglers
        kept += sum(len(member.kept) for group in pool.pending for member in group.members)
    trainer.rollouts._stragglers = None
    whole = {t.trace_id: t for n in range(1, 5) for g in trainer.rollouts.play(n, 0) for t in g.traces}
    trainer.close()
    assert kept
    for trace in (trace for groups in steps for group in groups for trace in group.traces):
        assert said(trace) == said(whole[trace.trace_id])
