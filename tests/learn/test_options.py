"""Learning from options not taken."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from baton.compose.training import make_trainer
from baton.errors import UsageError
from baton.forest.rows import Row
from baton.games.game import CHOICES
from baton.learn.options import Asked, option_chances, option_rows, target_of, trained_decisions
from baton.learn.policy import samplers
from baton.learn.recipe import load
from baton.learn.recipe_checks import check_idle
from baton.learn.rollouts import batches_of
from baton.learn.trainer import Trainer
from baton.trace.trace import Trace

SMALL = (
    "warm.episodes=200", "warm.steps=40", "rollout.groups=8", "train.steps=2", "train.epochs=1", "train.batches=1",
    "train.options=all",
)  # fmt: skip


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=6), st.floats(0, 1), st.data())
def test_the_target_is_a_distribution_that_prefers_what_is_better(
    values: list[float], forget: float, data: st.DataObject
) -> None:
    raw = np.array(data.draw(st.lists(st.floats(1e-6, 1), min_size=len(values), max_size=len(values))))
    chances = raw / raw.sum()
    target = target_of(chances.tolist(), values, temperature=0.1, forget=forget)
    assert target.sum() == pytest.approx(1)
    best = int(np.argmax(values))
    if forget == 0:  # the chance of the best never falls
        assert target[best] >= chances[best] - 1e-9


def test_an_option_given_up_comes_back() -> None:
    target = target_of([1 - 1e-4, 1e-4], [0.0, 0.5], temperature=0.05, forget=0.0)
    assert target[1] > 0.5
    kept = target_of([0.5, 0.5], [0.0, 0.0], temperature=0.05, forget=0.5)
    assert kept.tolist() == [0.5, 0.5]


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    patch = pytest.MonkeyPatch()
    patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    made = make_trainer(load("flagship", SMALL))
    patch.undo()
    return made


def test_rows_are_all_options_of_all_situations(trainer: Trainer) -> None:
    traces = trainer.step().traces
    policy = trainer.policies["main"]
    rows = option_rows(
        traces,
        {policy.engine.name: policy.tokenizer},
        lambda _prefix, option: float(option.startswith("spawn")),
        ("spawn",),
        temperature=0.1,
        forget=0.1,
    )
    met = {
        (trace.prompt_ids(trace.call_by_id[event.call or ""]), event.options)
        for trace in traces
        for event in trace.events
        if event.decision == "spawn"
        and event.options is not None
        and event.status == "ok"
        and event.choice is not None
    }
    assert len(rows) == sum(len(options or ()) for _, options in met)
    visits = sum(row.weights[0] * row.advantages[0] for row in rows)
    events = sum(
        event.decision == "spawn" and event.choice is not None and event.status == "ok"
        for trace in traces
        for event in trace.events
    )
    assert visits == pytest.approx(events), (
        "the targets of a situation sum to one, and it counts as often as it was met"
    )
    for batch in batches_of(rows, 3):
        shares: dict[bytes, float] = {}
        for row in batch:
            prompt = row.ids[: row.places[0]].tobytes()
            shares[prompt] = shares.get(prompt, 0.0) + float(row.advantages[0])
        assert list(shares.values()) == pytest.approx([1.0] * len(shares)), "no situation is cut in two"
    said = policy.tokenizer.decode(rows[0].ids[rows[0].places], skip_special_tokens=True)
    assert any(said in (options or ()) for _, options in met)


def test_cut_off_rollouts_count_as_much_as_they_are_said_to(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = trainer.step().traces
    policy = trainer.policies["main"]
    cut = {trace.trace_id for trace in traces[::2]}
    monkeypatch.setattr("baton.learn.options.cut_off", lambda trace: trace.trace_id in cut)

    def counted(some: list[Trace], weight: float) -> float:
        rows = option_rows(
            some,
            {policy.engine.name: policy.tokenizer},
            lambda _prefix, _option: 0.0,
            CHOICES,
            temperature=0.1,
            forget=0.1,
            cut_weight=weight,
        )
        assert all(row.weights[0] > 0 for row in rows)
        return float(sum(row.weights[0] * row.advantages[0] for row in rows))

    whole = [trace for trace in traces if trace.trace_id not in cut]
    finished, everyone = counted(whole, 1.0), counted(traces, 1.0)
    assert 0 < finished < everyone
    assert counted(traces, 0.0) == pytest.approx(finished)
    assert counted(traces, 0.5) == pytest.approx((finished + everyone) / 2)


def test_of_a_situation_met_again_the_newest_chances_count(trainer: Trainer) -> None:
    new = trainer.step().traces[0]
    event = next(e for e in new.events if e.choice is not None and len(e.options or ()) > 1)
    policy = trainer.policies["main"]

    def sure(level: float) -> Trace:
        """The first choice alone, with this chance of its first option."""
        rest = (1 - level) / (len(event.options or ()) - 1)
        chances = (level, *[rest] * (len(event.options or ()) - 1))
        return structs.replace(new, events=(structs.replace(event, option_propensities=chances),))

    rows = option_rows(
        [sure(0.9), sure(0.2)],  # a step's own rollouts, and then those that are trained on again
        {policy.engine.name: policy.tokenizer},
        lambda _prefix, _option: 0.0,
        CHOICES,
        temperature=0.1,
        forget=0.0,
    )
    assert rows[0].advantages[0] == pytest.approx(0.9)
    assert [row.weights[0] for row in rows] == [2.0] * len(event.options or ())


def test_rollouts_trained_on_again_have_the_chances_of_the_policy_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    changes = ("rollout.replay=8", "rollout.staleness=2", "train.learning_rate=0.01")
    trainer = make_trainer(load("flagship", [*SMALL, *changes]))
    first = trainer.step().traces
    model, tokenizer = samplers(trainer.policies)["main"]
    before = copy.deepcopy(model)
    seen: list[Trace] = []

    def rows(traces: Sequence[Trace], *args: Any, **settings: Any) -> list[Row]:
        seen.extend(traces)
        return option_rows(traces, *args, **settings)

    monkeypatch.setattr("baton.learn.trainer.option_rows", rows)
    fresh = {trace.trace_id for trace in trainer.step().traces}
    old = [trace for trace in seen if trace.trace_id not in fresh]
    assert {trace.trace_id for trace in old} == {trace.trace_id for trace in first}
    chances = {
        asked: event.option_propensities
        for trace in old
        for event in trace.events
        if (asked := Asked.at(trace, event)) is not None
    }
    exact = option_chances(before, tokenizer, list(chances))
    for asked, found in chances.items():
        assert found == pytest.approx(exact[asked], rel=1e-4)
    recorded = {event.option_propensities for trace in first for event in trace.events if event.options}
    assert max(min(abs(a[0] - b[0]) for b in recorded if b) for a in chances.values() if a) > 1e-3
    kept = [trace for group in trainer.buffer.groups for trace in group.traces]
    again = {event.option_propensities for t in kept if t.trace_id not in fresh for event in t.events}
    assert again >= {event.option_propensities for trace in first for event in trace.events if event.options}


def test_credit_chooses_what_is_trained() -> None:
    assert trained_decisions(load("flagship")) == set(CHOICES)
    assert trained_decisions(load("flagship", ['credit.0.decisions=["stop", "spawn"]'])) == {"stop", "spawn"}
    both = load("flagship", ['credit.0.decisions=["stop", "spawn"]', 'train.decisions=["stop", "delegate"]'])
    assert trained_decisions(both) == {"stop"}


def test_a_step_changes_the_weights(trainer: Trainer) -> None:
    before = trainer.policies["main"].state_dict()
    trainer.step()
    after = trainer.policies["main"].state_dict()
    assert any(not bool((before[name] == after[name]).all()) for name in before)


def test_it_needs_a_critic() -> None:
    with pytest.raises(UsageError, match='options = "all" asks a critic'):
        check_idle(load("team-advantage", ["train.options=all"]))


@pytest.mark.parametrize("change", ["loss.kind=gspo", "loss.low=0.1"])
def test_a_loss_that_would_do_nothing_is_refused(change: str) -> None:
    with pytest.raises(UsageError, match="has a loss of its own"):
        check_idle(load("flagship", [change]))
