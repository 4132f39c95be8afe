"""The check of recipes passes what ships and says what is wrong with one that cannot be trained by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

pytest.importorskip("torch", reason="training needs the extra `train`")

from baton.learn.recipe import PolicyPart, Recipe, TaskPart, load
from baton.testing import CheckFailed, check_recipe


@pytest.mark.parametrize("name", ["grpo", "flagship", "mappo"])
def test_what_ships_passes(name: str) -> None:
    assert check_recipe(name) == load(name)


def changed(**parts: Any) -> Recipe:
    return structs.replace(load("grpo"), **parts)


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (changed(task=TaskPart(name="game:no-such")), "there is no task"),
        (changed(credit=()), "nothing would be learned"),
        (changed(about=" "), "does not say in `about`"),
        (changed(warm=None), "which says nothing before"),
        (changed(policies={"main": PolicyPart(train="frozen")}), "frozen"),
    ],
    ids=["task", "credit", "about", "warm", "frozen"],
)
def test_what_is_broken_is_told(broken: Recipe, why: str) -> None:
    with pytest.raises(CheckFailed, match=why):
        check_recipe(broken)


def test_a_file_that_names_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('base = "grpo"\n[loss]\nkind = "no_package:LOSS"\n')
    with pytest.raises(CheckFailed, match="cannot be loaded"):
        check_recipe(tmp_path / "own.toml")
    with pytest.raises(CheckFailed, match="there is no file"):
        check_recipe(tmp_path / "gone.toml")
