"""A process model learned from traces: it tells good turns from bad ones in traces it has not seen."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import pytest
from reward_traces import Clock, recorded

from baton.cli import main
from baton.errors import BatonError
from baton.reward.process_model import (
    ProcessModel,
    _fitted,
    learn_process_model,
    load_process_model,
    quality_of,
)
from baton.reward.rules.process import Scorer
from baton.trace.formats import write
from baton.trace.recorded_agent import RecordedAgent
from baton.trace.recorder import Recorder
from baton.trace.trace import Trace

GOOD = (
    "checked every row",
    "the rows add up, checked",
    "verified twice and they match",
    "all of it was checked",
)
BAD = ("skipped the second half", "guessed the rest", "ran out of patience and guessed", "skipped it")
IDLE = ("reading", "the weather is fine", "a file was opened", "looking at the list now", "still at it")


def played(seed: int) -> tuple[Trace, float, int | None]:
    """Workers that mostly do well; one bad turn and the team fails four times of five. (trace, outcome, bad turn)."""
    rng = random.Random(seed)
    num = rng.randint(2, 5)
    bad = rng.randrange(num) if rng.random() < 0.5 else None
    outcome = float(rng.random() < (0.2 if bad is not None else 0.95))

    def play(_: Recorder, lead: RecordedAgent, clock: Clock) -> None:
        lead.call(completion_ids=[1], duration_s=1.0)
        crew = [
            lead.spawn(f"w{k}", role="worker", task=f"part {k} of {rng.randint(10, 99)}") for k in range(num)
        ]
        for k, worker in enumerate(crew):
            clock.seconds += 1
            worker.call(completion_ids=[1, 2], duration_s=1.0)
            worker.send(lead, rng.choice(IDLE))
            worker.call(completion_ids=[1, 2], duration_s=1.0)
            worker.returns(f"{rng.choice(BAD if k == bad else GOOD)} {rng.randint(0, 999)}")
        lead.call(completion_ids=[3], duration_s=1.0)
        lead.stop("done")

    turn = None if bad is None else 1 + 2 * bad + 1  # turns: lead, then two of each worker
    return recorded(play, outcome=outcome, trace_id=f"t{seed}"), outcome, turn


TRAIN = [played(seed) for seed in range(80)]
HELD_OUT = [played(seed) for seed in range(1000, 1060)]


@pytest.fixture(scope="module")
def model() -> ProcessModel:
    return learn_process_model([trace for trace, _, _ in TRAIN], [outcome for _, outcome, _ in TRAIN])


def best_auc() -> float:
    """Of one who sees whether the bad turn has been taken, at each turn alike."""
    above = pairs = 0.0
    for at in range(1, 13):
        seen = [
            (turn is None or at <= turn, outcome)
            for trace, outcome, turn in HELD_OUT
            if at <= len(trace.calls)
        ]
        for one, won in seen:
            for two, lost in seen:
                if won and not lost:
                    pairs += 1
                    above += (one > two) + 0.5 * (one == two)
    return above / pairs


def test_it_predicts_held_out_traces(model: ProcessModel) -> None:
    base = sum(outcome for _, outcome, _ in TRAIN) / len(TRAIN)
    found = quality_of(model, [t for t, _, _ in HELD_OUT], [outcome for _, outcome, _ in HELD_OUT], base)
    assert found.auc is not None
    assert best_auc() - 0.08 < found.auc < best_auc() + 0.01  # from 80 traces
    assert found.brier < 0.9 * found.brier_of_base_rate
    last = [(model(trace), outcome) for trace, outcome, _ in HELD_OUT]
    pairs = [(a > b) + 0.5 * (a == b) for a, won in last if won for b, lost in last if not lost]
    assert sum(pairs) / len(pairs) > 0.8  # by hand, of whole traces


def test_the_turn_that_went_wrong_gets_the_least(model: ProcessModel, tmp_path: Path) -> None:
    model.save(tmp_path / "prm.json")
    rule = Scorer(model=str(tmp_path / "prm.json"))
    hits = total = 0
    for trace, _, turn in HELD_OUT:
        values = [reward.value for reward in rule.score(trace)]
        along = model.along(trace)
        assert sum(values) == pytest.approx(along[-1] - along[0])  # it telescopes
        if turn is not None:
            total += 1
            hits += values.index(min(values)) == turn
    assert total > 15
    assert hits / total > 0.9


def test_a_turn_of_padding_earns_nothing_much(model: ProcessModel) -> None:
    """Idle turns are as frequent in good traces as in bad ones."""
    steps = []
    for trace, _, _ in HELD_OUT:
        along = model.along(trace)
        steps += [
            abs(along[k + 1] - along[k]) for k in range(1, len(along) - 2, 2)
        ]  # the workers' first turns
    assert sum(steps) / len(steps) < 0.1


def test_saved_and_read_again_it_is_the_same(model: ProcessModel, tmp_path: Path) -> None:
    model.save(tmp_path / "m.json")
    assert load_process_model(tmp_path / "m.json") == model
    (tmp_path / "no.json").write_text("{}")
    with pytest.raises(BatonError, match="is no process model"):
        load_process_model(tmp_path / "no.json")
    with pytest.raises(BatonError, match="--learn"):
        load_process_model(tmp_path / "nowhere.json")


def test_the_order_of_traces_does_not_matter(model: ProcessModel) -> None:
    mixed = random.Random(1).sample(TRAIN, len(TRAIN))
    other = learn_process_model([trace for trace, _, _ in mixed], [outcome for _, outcome, _ in mixed])
    assert other.weights.keys() == model.weights.keys()
    assert all(other.weights[name] == pytest.approx(model.weights[name], abs=1e-6) for name in model.weights)


def test_the_fit_is_the_optimum_of_its_objective() -> None:
    """Gradient of the penalised log-loss by differences is zero at what was found."""
    rng = np.random.default_rng(3)
    x = np.hstack([rng.normal(size=(40, 3)), np.ones((40, 1))])
    y = (rng.random(40) < 0.4).astype(float)
    weight = rng.random(40)
    found = _fitted(x, y, weight, 0.7)

    def loss(w: list[float]) -> float:
        total = 0.35 * sum(v * v for v in w[:-1]) + 0.5e-6 * w[-1] ** 2
        for row, label, n in zip(x.tolist(), y.tolist(), weight.tolist(), strict=True):
            z = sum(a * b for a, b in zip(row, w, strict=True))
            total += n * (math.log1p(math.exp(-abs(z))) + max(z, 0.0) - label * z)
        return total

    for k in range(4):
        step = [1e-5 * (j == k) for j in range(4)]
        up, down = (loss([v + s * d for v, d in zip(found, step, strict=True)]) for s in (1, -1))
        assert (up - down) / 2e-5 == pytest.approx(0, abs=1e-5)


def test_what_cannot_be_learned_from_is_refused() -> None:
    traces = [trace for trace, _, _ in TRAIN[:10]]
    with pytest.raises(BatonError, match="came out at 1"):
        learn_process_model(traces, [1.0] * 10)
    with pytest.raises(BatonError, match="too few"):
        learn_process_model(traces[:3], [1.0, 0.0, 1.0])
    with pytest.raises(BatonError, match="between 0 and 1"):
        learn_process_model(traces, [2.0, *[0.0] * 9])


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write([trace for trace, _, _ in TRAIN], tmp_path / "traces.jsonl")
    path = str(tmp_path / "traces.jsonl")
    assert main(["reward", path, "--learn", str(tmp_path / "prm.json")]) == 0
    out = capsys.readouterr().out
    assert "learned from 64 traces" in out
    assert "16 held out" in out
    recipe = tmp_path / "prm.toml"
    recipe.write_text(f'[[rules]]\nrule = "scorer"\nmodel = "{tmp_path / "prm.json"}"\n')
    assert main(["reward", path, "--recipe", str(recipe)]) == 0
    assert "scorer" in capsys.readouterr().out
    assert main(["reward", path]) == 2
    assert "--recipe" in capsys.readouterr().err
