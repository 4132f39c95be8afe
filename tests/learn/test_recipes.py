"""Every recipe that ships takes two steps as it stands, at sizes for a test."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from msgspec import structs

from baton.corpus import load as load_corpus
from baton.credit import find
from baton.learn.models.tiny import Tiny
from baton.learn.recipe import Recipe, built_in, load, parse, resolved
from baton.learn.trainer import Trainer
from baton.trace.vocabulary import CreditUnit, RewardFamily
from baton.trace.vocabulary import Topology as TopologyName

METHODS = """dr-grpo parl puppeteer wideseek-r1 m-grpo matpo marsrl malt mae rema comas dr-mas magrpo sharp ccpo maporl
marft agent-q-mix spiral marshal at-grpo fold-grpo softrankpo c3 debate-as-reward coma difference shapley vdn qmix mappo
ippo message""".split()
SMALL = Tiny(width=64, layers=2, heads=4, vocabulary=384)
MAX_STEPS = 8


@pytest.fixture(scope="session")
def one_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recipes of one team share its supervised start."""
    return tmp_path_factory.mktemp("cache")


def small(name: str) -> Recipe:
    """The recipe at sizes for a test: the same method, few and short rollouts, a smaller model."""
    recipe = load(name)
    warm = recipe.warm
    assert warm is not None
    game = recipe.task.name.startswith("game:")
    settings = recipe.task.settings if game else {**recipe.task.settings, "largest": 1}
    alone = recipe.rollout.group_size == 1
    return structs.replace(
        recipe,
        task=structs.replace(recipe.task, settings=settings),
        policies={key: structs.replace(part, tiny=SMALL) for key, part in recipe.policies.items()},
        warm=structs.replace(warm, episodes=60, steps=80, rows=32, learning_rate=0.01),
        critic=recipe.critic and structs.replace(recipe.critic, steps=3),
        rollout=structs.replace(
            recipe.rollout,
            groups=8 if alone else 2,
            group_size=1 if alone else 2,
            fan_out=tuple(2 for _ in recipe.rollout.fan_out),
        ),
        train=structs.replace(recipe.train, steps=2),
    )


@pytest.mark.parametrize("name", METHODS)
def test_two_steps(name: str, one_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(one_cache))
    trainer = Trainer(small(name))
    learners = [policy for policy in trainer.policies.values() if policy.learns]
    before = [value.clone() for policy in learners for value in policy.parameters()]
    losses: list[float | None] = []
    changed = False
    while len(losses) < 2 or (not changed and len(losses) < MAX_STEPS):  # rollouts may all come out alike
        losses.append(trainer.step().metrics["loss"])
        after = [value for policy in learners for value in policy.parameters()]
        changed = any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))
    assert changed
    assert all(loss is None or math.isfinite(loss) for loss in losses)
    assert all(bool(torch.isfinite(value).all()) for value in after)
