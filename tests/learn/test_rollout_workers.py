"""Rollout workers give the numbers of the trainer that plays itself; whatever is wrong with one is a sentence."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from billing_server import billing_server
from msgspec import structs
from small_run import GROUP, TINY, small, team
from thread_seats import ThreadSeats, workers_as_threads

from baton import train
from baton.compose.rollout_worker import make_worker
from baton.compose.training import begin, go_on, make_trainer
from baton.errors import CorruptError, UsageError
from baton.learn.recipe import Recipe, RolloutPart, load, parse, resolved
from baton.learn.rollouts import lots_of
from baton.learn.scale.workers_lots import PolicyWeights, WorkerSetup, deal, digest_of
from baton.learn.scale.workers_scratch import make_scratch, sweep_scratch
from baton.learn.scale.workers_weights import read_weights, unchanging
from baton.learn.stage import Unanswered
from baton.learn.trainer import Trainer
from baton.tasks.shard_sum import ShardSum
from baton.trace.formats.jsonl import encode_trace, read_bytes
from baton.trace.trace import Trace

pytestmark = pytest.mark.usefixtures("first_weights")
LORA = f'[policies.main]\n{TINY}train = "lora"\nrank = 4\n'
MIXED = (
    f'[policies.lead]\nroles = ["orchestrator"]\n{TINY}train = "lora"\nrank = 2\n'
    f'[policies.hand]\nroles = ["worker"]\n{TINY}train = "frozen"\n'
)
SHORT: dict[str, Any] = {
    "warm__episodes": 20,
    "warm__steps": 20,
    "team__max_tokens": 12,
    "rollout__group_size": 2,
}
TREE: dict[str, Any] = {"rollout__fan_out": [2, 2], "rollout__group_size": 2}


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[ThreadSeats]]:
    return workers_as_threads(monkeypatch)


def steps(trainer: Trainer, count: int = 2) -> tuple[list[list[bytes]], dict[str, torch.Tensor], Any]:
    """Traces of each step, the weights after the last, and its metrics."""
    try:
        found = [trainer.step() for _ in range(count)]
        state = {
            f"{name}/{key}": tensor
            for name, policy in trainer.policies.items()
            if policy.learns
            for key, tensor in policy.state_dict().items()
        }
        return [list(map(written, each.traces)) for each in found], state, found[-1].metrics
    finally:
        trainer.close()


def written(trace: Trace) -> bytes:
    """All of it, to the last digit."""
    return b"".join(encode_trace(trace))


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize(
    "recipe",
    [
        small(GROUP, rollout__groups=3),
        team(LORA, **SHORT),
        team(MIXED, rollout__groups=3, **SHORT),
        small(GROUP, **TREE),
        small(GROUP, rollout__overlap=True),
    ],
    ids=["full", "an adapter", "an adapter and a frozen one", "branches", "ahead"],
)
def test_one_worker_gives_the_digits_of_the_trainer_itself(
    threads: Callable[..., list[ThreadSeats]], recipe: Recipe
) -> None:
    expected = steps(make_trainer(recipe))
    threads()
    scaled = structs.replace(recipe, scale=structs.replace(recipe.scale, rollout_workers=1))
    found = steps(make_trainer(scaled))
    assert found[0] == expected[0]
    assert same(found[1], expected[1])
    assert list(found[2]["workers"]) == ["0"]
    assert found[2]["num_workers"] == 1
    assert found[2]["busy_seconds"] >= found[2]["workers"]["0"]["busy_seconds"] > 0


def test_with_a_batch_the_digits_are_those_of_any_number_of_workers_however_they_die(
    threads: Callable[..., list[ThreadSeats]],
) -> None:
    recipe = small(GROUP, rollout__groups=5, scale__batch=2)
    expected = steps(make_trainer(recipe))
    made = threads(deaths=0.3, seed=4)
    for count in (1, 3):
        scale = structs.replace(recipe.scale, rollout_workers=count, restarts=50)
        found = steps(make_trainer(structs.replace(recipe, scale=scale)))
        assert found[0] == expected[0]
        assert same(found[1], expected[1])
    assert {"ready", "weights", "played"} <= {moment for each in made for moment in each.died}


def test_without_one_two_workers_differ_in_the_last_digits_alone(
    threads: Callable[..., list[ThreadSeats]],
) -> None:
    expected = steps(make_trainer(small()), 1)
    threads()
    found = steps(make_trainer(small(scale__rollout_workers=2)), 1)
    assert list(map(tokens, found[0][0])) == list(map(tokens, expected[0][0]))
    gap = max(float((found[1][key] - expected[1][key]).abs().max()) for key in expected[1])
    assert gap < 1e-5


def tokens(content: bytes) -> list[list[int]]:
    (trace,) = read_bytes(content)
    return [list(call.completion_ids or ()) for call in trace.calls]


def test_a_run_goes_on_with_another_number_of_workers(
    tmp_path: Path, threads: Callable[..., list[ThreadSeats]]
) -> None:
    recipe = small(GROUP, scale__batch=1, train__steps=2, train__checkpoint_every=1, eval__episodes=2)
    whole = begin(recipe, "small", tmp_path / "whole")
    expected = [line["return"] for line in whole.steps()]
    whole.close()
    made = threads()
    session = begin(
        structs.replace(recipe, scale=structs.replace(recipe.scale, rollout_workers=2)),
        "small",
        tmp_path / "cut",
    )
    found = [next(session.steps())["return"]]
    session.close()
    session = go_on(tmp_path / "cut", changes=["scale.rollout_workers=1"])
    found += [line["return"] for line in session.steps()]
    session.close()
    assert found == expected
    assert [sorted({number for number, _ in each.lots}) for each in made] == [[0, 1], [0]]
    with pytest.raises(UsageError, match=r"goes on with the settings it began with"):
        go_on(tmp_path / "cut", changes=["scale.batch=2"])


def test_workers_ask_a_server_themselves(threads: Callable[..., list[ThreadSeats]]) -> None:
    threads()
    said = {"answers": "return 3"}
    with billing_server(answers=lambda _: said["answers"]) as server:
        served = f'[policies.far]\nroles = ["worker"]\ntrain = "frozen"\nmodel = "{server.policy}"\n'
        recipe = team(
            f"[policies.main]\n{TINY}{served}", team__template="", warm__episodes=100, warm__steps=100,
            team__max_tokens=24, scale__batch=1,
        )  # fmt: skip
        expected = steps(make_trainer(recipe), 1)
        alone = len(server.books)
        scale = structs.replace(recipe.scale, rollout_workers=2)
        found = steps(make_trainer(structs.replace(recipe, scale=scale)), 1)
        assert alone > 0
        assert len(server.books) == 2 * alone
        assert list(map(tokens, found[0][0])) == list(map(tokens, expected[0][0]))
        said["answers"] = "nonsense"
        trainer = make_trainer(structs.replace(recipe, scale=scale))
        with pytest.raises(Unanswered, match=r"policy 'far' .* answered none of"):
            trainer.step()
        trainer.close()


@pytest.mark.parametrize(("groups", "batch"), [(1, 0), (7, 0), (7, 3), (2, 5), (8, 4)])
def test_groups_are_dealt_by_number_alone(groups: int, batch: int) -> None:
    for workers in (1, 2, 3, 9):
        lots = deal(groups, batch, workers)
        assert sorted(group for lot in lots for group in lot) == list(range(groups))
        assert all(lots)
        if batch:
            assert [list(lot) for lot in lots] == [
                list(lot) for lot in lots_of(RolloutPart(groups=groups), batch)
            ]
        else:
            assert max(map(len, lots)) - min(map(len, lots)) <= 1
            assert len(lots) == min(workers, groups)


def test_weights_that_are_not_the_trainers_are_refused(tmp_path: Path) -> None:
    from safetensors.torch import save

    content = save({"w": torch.arange(3.0)})
    place = tmp_path / "main-000001.safetensors"
    place.write_bytes(content)
    told = PolicyWeights(policy="main", version=1, digest=digest_of(content), path=str(place))
    assert torch.equal(read_weights(told)["w"], torch.arange(3.0))
    place.write_bytes(content[:-1] + b"\x01")
    with pytest.raises(CorruptError, match="not those that the trainer wrote"):
        read_weights(told)
    place.write_bytes(content[:40])
    with pytest.raises(CorruptError, match="checksum"):
        read_weights(told)
    place.unlink()
    with pytest.raises(CorruptError, match="cannot be read"):
        read_weights(told)


def setup_of(recipe: Recipe, **changes: Any) -> WorkerSetup:
    from baton import __version__

    told = WorkerSetup(number=0, baton=__version__, recipe=resolved(recipe), given={})
    return structs.replace(told, **changes)


def test_a_worker_has_no_optimisers_and_knows_what_is_not_sent() -> None:
    recipe = team(MIXED, **SHORT)
    trainer = make_trainer(recipe)
    given = {name: unchanging(policy) for name, policy in trainer.policies.items()}
    worker = make_worker(setup_of(recipe, given=given))
    assert all(policy.optimizer is None for policy in worker._policies.values())
    with torch.no_grad():
        trainer.policies["hand"].model.lm_head.weight[0, 0] += 1
    given = {name: unchanging(policy) for name, policy in trainer.policies.items()}
    with pytest.raises(UsageError, match=r"policy 'hand' .* is another one here"):
        make_worker(setup_of(recipe, given=given))


def test_another_version_of_baton_is_refused() -> None:
    with pytest.raises(UsageError, match=r'pip install "baton-rl==0\.0\.7"'):
        make_worker(setup_of(small(), baton="0.0.7"))


def test_a_package_that_is_not_there_is_one_line() -> None:
    told = setup_of(small())
    text = told.recipe.replace("import = []", 'import = ["nobodys_package"]')
    with pytest.raises(UsageError, match="nobodys_package") as found:
        make_worker(structs.replace(told, recipe=text))
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"scale__restarts": 5}, "scale.restarts = 5 is of rollout workers, and there are none"),
        ({"scale__workers": "ray"}, "--set scale.rollout_workers=2"),
        ({"scale__rollout_workers": 2, "scale__address": "auto"}, "--set scale.workers=ray"),
        ({"scale__rollout_workers": 2, "scale__worker_gpus": 0.5}, "scale.worker_gpus = 0.5 is of Ray's"),
    ],
)
def test_settings_that_would_do_nothing_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as found:
        make_trainer(small(**changes))
    assert said in str(found.value)


def test_what_workers_cannot_make_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the task was given as an object"):
        train(small(scale__rollout_workers=2), task=ShardSum(), out=tmp_path / "run")


def test_what_killed_trainers_left_is_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    live, held = make_scratch()
    dead, gone = make_scratch()
    gone.close()
    young, late = make_scratch()
    late.close()
    (tmp_path / "baton-workers-odd").mkdir()  # without a lock: nobody knows whose
    for folder in (live, dead, tmp_path / "baton-workers-odd"):
        os.utime(folder, (0, 0))
    sweep_scratch(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [live.name, young.name, "baton-workers-odd"]
    )
    held.close()


def test_ray_is_asked_for_by_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r'pip install "baton-rl\[ray\]"'):
        make_trainer(small(scale__rollout_workers=2, scale__workers="ray"))


def test_nothing_is_started_by_a_trainer_that_plays_nothing() -> None:
    before = threading.active_count()
    trainer = make_trainer(small(scale__rollout_workers=2))
    assert threading.active_count() == before
    trainer.close()


def test_the_recipe_that_ships_is_not_refused() -> None:
    changes = ["scale.rollout_workers=2", "scale.batch=16"]
    assert parse(resolved(load("flagship", changes))).scale.batch == 16
