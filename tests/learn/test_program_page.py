"""docs/serve/training.md is held to its word: its recipe is one, its settings are those that there are."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import structs

from baton.learn.program.part import ProgramPart
from baton.learn.recipe import load, parse

REPO = Path(__file__).parents[2]
PAGE = REPO / "docs" / "serve" / "training.md"


def test_every_setting_is_told_and_the_recipe_is_one() -> None:
    text = PAGE.read_text("utf-8")
    table = "".join(line for line in text.splitlines() if line.startswith("| "))
    named = set(re.findall(r"`(\w+)`", table))
    assert {field.name for field in structs.fields(ProgramPart)} - {"folder"} <= named
    (recipe,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert parse(recipe).program is not None


def test_what_it_links_and_names_is_there() -> None:
    text = PAGE.read_text("utf-8")
    for link in re.findall(r"\]\((?!http)([^)#]+)", text):
        assert (PAGE.parent / link).exists(), link
    recipes = sorted(set(re.findall(r"examples/programs/\w+\.toml", text)))
    assert len(recipes) == 4
    for name in recipes:
        found = load(str(REPO / name), trust=True).program
        assert found is not None
        assert (REPO / "examples" / "programs" / found.command[1]).is_file()
