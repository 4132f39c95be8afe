"""Tests of the marks of equality on recipes' pages: each is written for some recipes and parts, and told so."""

from __future__ import annotations

import pytest


def marked(recipes: list[str], parts: list[str]) -> pytest.MarkDecorator:
    """The test computes what the papers of these recipes say of these parts by itself, and compares. It takes `recipe`.

    Both lists are written out where it is used: `tests/learn/methods/test_recipe_pages.py` reads them from the source.
    """
    assert parts
    return pytest.mark.parametrize("recipe", recipes)
