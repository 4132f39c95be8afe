"""What a recipe's method says and what Baton computes, side by side, with a mark on everything that is compared.

`methods/NAME.toml` belongs to `recipes/NAME.toml`. It is a file of its own because a recipe hands its settings down to
recipes that are based on it, and what is the same as in one paper says nothing about another's.

    paper = "A_i = (R_i - mean R) / std R"
    here = "A_i = (R_i - mean R) / (std R + 1e-4)"
    [[marks]]
    part = "credit"
    same = true
    tag = "P"
    paper = "return less the group's mean, over its deviation"
    here = "the same"

Invariant: `docs/recipes/NAME.md` is `page(NAME)`, and every mark of equality has a test in `tests/learn/methods` that
computes the paper's formula without Baton's code and compares.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from msgspec import Struct

from baton.errors import UsageError
from baton.learn.recipe import RECIPES, Recipe, load
from baton.settings import Shipped, decode, read_table

METHODS: Final = Shipped("baton.learn", "methods")
"""The files of the methods that Baton's recipes are compared with, by the recipe's name."""

PARTS: Final = ("policies", "rollouts", "reward", "credit", "loss", "task")
"""What every published method is compared in; a file may add parts of its own."""

Tag = Literal["P", "C", "A", "M", "I"]
"""From the paper's text, the authors' code, an abstract or secondary source, textbooks, or inferred here."""

_PRICED: Final = "invalid answers"

NOTHING_SHOWN = "Nothing was measured: the recipe is tested to run and to compute what is written above."


class Mark(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One part of a method, as it was published and as it is here."""

    part: str
    """policies (who learns, with which weights), rollouts (how they are drawn), reward, credit, loss, task (model and
    task), or a word of the method's own."""
    same: bool
    """True: a test compares the two. False: `why` says what for."""
    tag: Tag
    """What the paper's side rests on."""
    paper: str
    here: str = "the same"
    why: str = ""
    """Only of a difference."""

    def __post_init__(self) -> None:
        if self.same == bool(self.why):
            raise ValueError(
                f"the mark on {self.part!r} has same = {str(self.same).lower()} and "
                f"{'a' if self.why else 'no'} `why`; a difference has a reason, and an equality has none"
            )


class Method(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a recipe's page says beside its settings."""

    paper: str = ""
    """The published formula. Empty: the recipe is Baton's own, and there is nothing to compare with."""
    here: str
    """The formula that Baton computes."""
    shown: str = NOTHING_SHOWN
    """What the recipe has been measured to do, and where the figures are."""
    notes: str = ""
    marks: tuple[Mark, ...] = ()

    def __post_init__(self) -> None:
        parts = [mark.part for mark in self.marks]
        if twice := sorted({part for part in parts if parts.count(part) > 1}):
            raise ValueError(f"{', '.join(twice)} marked twice; expected one mark for each part")
        missing = [part for part in PARTS if part not in parts]
        if self.paper and missing:
            raise ValueError(f"no mark on {', '.join(missing)}; a published method has one on each of these")
        if self.marks and not self.paper:
            raise ValueError("marks, and no paper to compare with")


def find_method(name: str) -> Method | None:
    """What is known of a recipe's method; None: nobody has written it."""
    return decode(Method, read_table(name, METHODS, what="method"), name) if name in METHODS else None


def marks_of(method: Method, recipe: Recipe) -> tuple[Mark, ...]:
    """The method's marks, and those that follow from the recipe's settings."""
    price = recipe.train.invalid if recipe.train.options == "sampled" else 0.0
    said = not method.marks or any(mark.part == _PRICED for mark in method.marks)
    return method.marks if said or not price else (*method.marks, _price(price))


def _price(price: float) -> Mark:
    return Mark(
        part=_PRICED,
        same=False,
        tag="I",
        paper="not in the formula",
        here=f"an answer that cannot be carried out pays train.invalid = {price:g} times the step's root mean square "
        "credit, on top of its credit",
        why="The team may try again at no cost, so without a price such answers grow",
    )


def sign(mark: Mark) -> Literal["[=]", "[≠]"]:
    return "[=]" if mark.same else "[≠]"


def page(name: str) -> str:
    """The recipe's page, in Markdown."""
    method = find_method(name)
    if method is None or name not in RECIPES:
        raise UsageError(f"recipe {name!r} has no page. Pages are of the recipes that ship with Baton.")
    recipe = load(name)
    tags = " ".join(re.findall(r"\[[A-Z/]+\]", recipe.evidence.partition(";")[0]))
    parts = [f"# {name}", f"{recipe.about} Source: {recipe.source}. {tags}"]
    if method.paper:
        parts += ["## The paper's formula", _block(method.paper)]
    parts += ["## Baton's formula", _block(method.here)]
    if method.marks:
        parts += ["## What is the same, and what is not", "\n".join(_table(marks_of(method, recipe)))]
    if method.notes:
        parts.append(method.notes.strip())
    parts += ["## Run it", _block(_commands(name, recipe)), "## What it has been shown to do"]
    parts.append(method.shown.strip())
    return "\n\n".join(parts) + "\n"


def _block(text: str) -> str:
    return f"```\n{text.strip()}\n```"


def _table(marks: tuple[Mark, ...]) -> list[str]:
    rows = [
        (
            sign(mark),
            mark.part,
            f"{mark.paper} [{mark.tag}]",
            mark.here if mark.same else f"{mark.here}. {mark.why}",
        )
        for mark in marks
    ]
    return [
        "| | part | published | here |",
        "|---|---|---|---|",
        *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows),
    ]


def _commands(name: str, recipe: Recipe) -> str:
    steps = "" if recipe.train.steps <= 5 else f"\nbaton train {name} --set train.steps=5   # a short look"
    return f"baton recipes {name}\nbaton train {name}{steps}"
