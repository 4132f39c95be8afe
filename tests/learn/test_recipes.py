"""Every recipe that ships takes two steps as it stands, at sizes for a test; those of pretrained models do so in
test_recipes_reasoning.py."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest
import torch
from msgspec import structs

from baton.compose.training import make_trainer
from baton.corpus import load as load_corpus
from baton.credit import find
from baton.learn.models.tiny import Tiny
from baton.learn.recipe import Recipe, built_in, load, parse, resolved
from baton.learn.recipe_checks import loss_of
from baton.trace.vocabulary import CREDIT_UNITS, REWARD_FAMILIES, TOPOLOGIES

METHODS = {
    "dr-grpo": "[P]", "parl": "[A]", "puppeteer": "[C]", "wideseek-r1": "[C]",
    "m-grpo": "[P]", "matpo": "[C]", "marsrl": "[P]",
    "malt": "[P]", "criticlean": "[P]", "sirius": "[P]", "multiagent-finetuning": "[C]",
    "mae": "[C]", "rema": "[C]", "comas": "[A/M]",
    "dr-mas": "[C]", "magrpo": "[C]", "sharp": "[A]", "ccpo": "[C]", "maporl": "[C]", "marft": "[C]",
    "agent-q-mix": "[C]", "spiral": "[C]", "marshal": "[C]", "at-grpo": "[C]", "fold-grpo": "[A/C]",
    "softrankpo": "[A/I]", "c3": "[C]", "debate-as-reward": "[A]", "coma": "[M]", "difference": "[M]", "shapley": "[M]",
    "decoupled": "[M]", "parl-staged": "[A]",
    "vdn": "[M]", "qmix": "[M]", "mappo": "[M]", "ippo": "[M]", "message": "[I]",
    "gigpo": "[C]", "turn-ppo": "[A]",
    "grpo": "[P]", "team-advantage": "[I]", "flagship": "[I]", "spawn": "[I]", "stop": "[I]",
    "stop-value": "[I]", "layers": "[I]", "lagrangian": "[M]", "shielded": "[A]",
    "attack-defend": "[A]", "steerable": "[I]",
    "wide": "[I]", "wide-fold": "[I]", "wide-worked": "[I]",
}  # fmt: skip
"""Method -> what its formula rests on."""
ALL = sorted(
    name
    for name, recipe in built_in().items()
    if all(part.model == "tiny" for part in recipe.policies.values())
)
"""Read from the folder, so that a new recipe cannot be left out."""
SMALL = Tiny(width=64, layers=2, heads=4, vocabulary=384)
MAX_STEPS = 8
_ANY = load("dr-grpo")
COMMON = {
    key: getattr(_ANY, key)
    for key in (
        "about",
        "source",
        "evidence",
        "cells",
        "policies",
        "credit",
        "critic",
        "loss",
        "pack",
        "reward",
    )
} | {key: getattr(_ANY, key) for key in ("rollout", "train", "eval")}
"""All that a start does not depend on."""


@pytest.fixture(scope="session")
def one_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recipes of one team share its supervised start."""
    return tmp_path_factory.mktemp("cache")


def small(name: str) -> Recipe:
    """The recipe at sizes for a test: the same method, few and short rollouts, a smaller model."""
    recipe = load(name)
    warm = recipe.warm
    assert warm is not None
    sums = recipe.task.name == "shard-sum"
    settings = {**recipe.task.settings, "largest": 1} if sums else recipe.task.settings
    alone = recipe.rollout.group_size == 1
    return structs.replace(
        recipe,
        task=structs.replace(recipe.task, settings=settings),
        policies={key: structs.replace(part, tiny=SMALL) for key, part in recipe.policies.items()},
        warm=structs.replace(warm, episodes=60, steps=100, rows=32),
        critic=recipe.critic and structs.replace(recipe.critic, steps=3),
        rollout=structs.replace(
            recipe.rollout,
            groups=8 if alone else 2,
            group_size=1 if alone else 2,
            fan_out=tuple(2 for _ in recipe.rollout.fan_out),
        ),
        train=structs.replace(recipe.train, steps=2),
        phases=tuple(
            structs.replace(phase, steps=None if phase.steps is None else 1) for phase in recipe.phases
        ),
    )


@pytest.mark.parametrize("name", ALL)
def test_two_steps(name: str, one_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(one_cache))
    trainer = make_trainer(small(name))
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


@pytest.mark.parametrize("name", ALL)
def test_says_where_it_is_from(name: str) -> None:
    recipe = load(name)
    assert recipe.evidence.startswith(METHODS[name])
    assert recipe.about.endswith(".")
    assert recipe.source
    cells = recipe.cells
    assert cells.topology in (*TOPOLOGIES, "")
    assert cells.reward
    assert set(cells.reward) <= set(REWARD_FAMILIES)
    assert set(cells.credit) <= set(CREDIT_UNITS)
    assert cells.regime
    frozen = any(part.train == "frozen" for part in recipe.policies.values())
    assert not frozen or cells.regime == "A"
    assert all(find(part.estimator).units for part in recipe.credit)
    assert parse(resolved(recipe)) == recipe


def test_the_cells_are_the_literatures() -> None:
    papers = {paper.recipe: paper for paper in load_corpus().all_papers if paper.recipe in METHODS}
    assert len(papers) > 25
    for name, paper in papers.items():
        cells = load(name).cells
        if paper.reward not in (None, "verifier"):  # the pool has a word for it that the families do not
            assert paper.reward in cells.reward, name
        # COMA is here on decisions; no message has credit of its own by the abstract of Debate as Reward.
        if paper.credit is not None and name not in ("coma", "debate-as-reward"):
            assert paper.credit in cells.credit, name
        assert paper.form in (None, cells.topology), name
        assert set(paper.decisions) <= set(cells.decisions), name


OF_THEIR_OWN_SIZE = {"wide", "wide-fold", "wide-worked"}
"""A page fits their window and the whole question does not: that is their task."""


def test_recipes_of_one_team_share_its_supervised_start() -> None:
    starts = set()
    for name in ALL:
        recipe = load(name)
        sizes = {part.tiny for part in recipe.policies.values()}
        own = load("wide").policies["main"].tiny
        assert sizes == {own if name in OF_THEIR_OWN_SIZE else Tiny()}, name
        same = structs.replace(recipe, **COMMON)
        starts.add(
            msgspec.json.encode([same.task, same.team, same.policies, same.warm], order="deterministic")
        )
    assert len(starts) <= 21 + len(OF_THEIR_OWN_SIZE)  # games, sums by each team, poker, formulas


def test_the_methods_own_settings() -> None:
    """What papers fix, and a reader would look for."""
    assert load("parl").loss.kind == "masked"
    assert load("parl").policies["workers"].train == "frozen"
    assert load("wideseek-r1").loss.scale == load("matpo").loss.scale == ("trace", "agent")
    assert load("rema").train.freeze_by_turns > 0
    assert load("rema").loss.kind == "gspo"
    assert load("puppeteer").credit[0].settings["gamma"] == 0.99
    assert load("maporl").credit[0].settings["discount"] == 0.3
    assert (load("c3").rollout.group_size, load("c3").rollout.fan_out) == (2, (4,))
    for name in ("marft", "mappo", "ippo"):
        assert load(name).credit[0].settings["lambda_"] == 0.95
        assert load(name).credit[0].normalise
        assert loss_of(load(name)).limits == (0.2, 0.2)
    views = [critic.view for name in ("mappo", "ippo") if (critic := load(name).critic) is not None]
    assert views == ["central", "local"]
