"""Every page is what the recipe and its method say, and every mark of equality on it has a test in this folder."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

from baton.cli import main
from baton.errors import UsageError
from baton.learn.method import METHODS, Mark, Method, find_method, marks_of, page
from baton.learn.recipe import RECIPES, load

HERE = Path(__file__).parent
PAGES = HERE.parents[2] / "docs" / "recipes"


def parts_with_tests() -> set[tuple[str, str]]:
    """(recipe, part) of every `@marked` in this folder."""
    found: set[tuple[str, str]] = set()
    for path in sorted(HERE.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "marked":
                recipes, parts = (ast.literal_eval(each) for each in node.args)
                found |= {(recipe, part) for recipe in recipes for part in parts}
    return found


@pytest.mark.parametrize("name", sorted(METHODS))
def test_the_page_is_what_the_method_says(name: str) -> None:
    assert (PAGES / f"{name}.md").read_text("utf-8") == page(name), (
        f"type: baton recipes {name} --page > docs/recipes/{name}.md"
    )


def test_every_recipe_has_a_page_and_no_page_is_left_over() -> None:
    assert set(METHODS) == set(RECIPES)
    assert {path.stem for path in PAGES.glob("*.md")} == set(METHODS)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_what_has_a_source_is_compared_with_it(name: str) -> None:
    """A recipe that rests on a paper's text or on its authors' code has marks; what Baton thought up has none."""
    method = find_method(name)
    assert method is not None
    evidence = load(name).evidence
    if evidence.startswith(("[P]", "[C]")) and "for the estimator" not in evidence:
        assert method.marks
    if evidence.startswith("[I]"):
        assert not method.marks


def test_every_mark_of_equality_is_tested_and_no_other() -> None:
    said = {
        (name, mark.part)
        for name in METHODS
        if (method := find_method(name)) is not None
        for mark in method.marks
        if mark.same
    }
    assert said == parts_with_tests()


def test_what_is_printed_is_still_the_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "dr-grpo"]) == 0
    out = capsys.readouterr().out
    assert "# [=] credit: return less the group's mean" in out
    assert "# [≠] invalid answers" in out
    assert tomllib.loads(out)["about"] == load("dr-grpo").about
    assert main(["recipes", "dr-grpo", "--page"]) == 0
    assert capsys.readouterr().out == page("dr-grpo")
    assert main(["recipes", "--page"]) != 0
    assert "baton recipes NAME --page" in capsys.readouterr().err


def test_a_price_on_invalid_answers_is_marked() -> None:
    method = find_method("dr-grpo")
    assert method is not None
    assert marks_of(method, load("dr-grpo"))[-1].part == "invalid answers"
    assert marks_of(method, load("dr-grpo", ["train.invalid=0"])) == method.marks


def test_a_difference_has_a_reason_and_a_method_its_marks() -> None:
    with pytest.raises(ValueError, match="a difference has a reason"):
        Mark(part="credit", same=False, tag="P", paper="x", here="y")
    with pytest.raises(ValueError, match="no mark on policies"):
        Method(paper="x", here="y")
    with pytest.raises(UsageError, match="has no page"):
        page("nosuch")
