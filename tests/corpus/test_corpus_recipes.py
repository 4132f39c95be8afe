"""The records name training recipes; they have to be there."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from baton.compose.corpus_recipes import installed_recipes
from baton.corpus import AdviceAnswers, advise, load
from baton.corpus.advice import ROLES

FOLDER = Path(__file__).parents[2] / "src" / "baton" / "learn" / "recipes"
NAMED = {paper.recipe: paper.key for paper in load().all_papers if paper.recipe is not None}
pytestmark = pytest.mark.skipif(
    not any((FOLDER / f"{recipe}.toml").is_file() for recipe in NAMED),
    reason="no training recipe of a paper is in src/baton/learn/recipes yet",
)


def test_every_recipe_that_a_record_names_is_installed() -> None:
    missing = {recipe: key for recipe, key in NAMED.items() if not (FOLDER / f"{recipe}.toml").is_file()}
    assert not missing, f"recipe -> the record that names it: {missing}"
    assert set(NAMED) <= installed_recipes()


def test_every_recipe_that_is_advised_is_installed() -> None:
    for dynamic, bottleneck, long, roles in itertools.product(
        (False, True), (False, True), (False, True), ROLES
    ):
        advice = advise(AdviceAnswers(dynamic=dynamic, bottleneck=bottleneck, long=long, roles=roles))  # type: ignore[arg-type]
        assert {advice.recipe, *advice.instead} <= installed_recipes()
