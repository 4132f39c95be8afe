"""`baton recipes`: the training recipes by where they stand in the taxonomy; one of them, as it is written."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec

from baton import registry
from baton.cli.printing import aligned, print_json, say
from baton.compose.corpus_recipes import train_line
from baton.errors import UsageError, nearest
from baton.learn.method import find_method, marks_of, page, sign
from baton.learn.recipe import RECIPES, Cells, Recipe, built_in, load, resolved
from baton.trace.vocabulary import CreditUnit, RewardFamily, Topology
from baton.view.terminal.fitting import Line
from baton.view.terminal.screen import emit
from baton.view.text import count, printable

_DECISIONS = ("spawn", "delegate", "communicate", "aggregate", "stop")
_FAMILIES = ("shared", "individual", "role", "process", "tool", "debate", "orchestration", "hybrid")
_REWARDS = {f"R{n}": family for n, family in enumerate(_FAMILIES, 1)}
_CODES = {"reward": _REWARDS, "decision": {f"O{n}": name for n, name in enumerate(_DECISIONS, 1)}}
_WORDS: dict[str, tuple[str, ...]] = {
    "decision": _DECISIONS,
    "reward": get_args(RewardFamily),
    "credit": get_args(CreditUnit),
    "topology": get_args(Topology),
    "regime": ("A", "B", "C"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help="print this recipe and how to run it")
    parser.add_argument("--json", action="store_true", help="as JSON, every setting written out")
    parser.add_argument(
        "--page", action="store_true", help="NAME's page: the paper's formula, Baton's, every difference"
    )
    parser.add_argument(
        "--decision", metavar="D", help=f"that trains it: {', '.join(_DECISIONS)} (or O1 to O5)"
    )
    parser.add_argument("--credit", metavar="U", help=f"that gives credit to: {', '.join(_WORDS['credit'])}")
    parser.add_argument(
        "--reward", metavar="R", help=f"with rewards of: {', '.join(_FAMILIES)} (or R1 to R8)"
    )
    parser.add_argument(
        "--topology", metavar="T", help=f"for teams that are: {', '.join(_WORDS['topology'])}"
    )
    parser.add_argument("--regime", metavar="A", help="A frozen sub-agents, B joint, C policies apart")
    parser.epilog = (
        "examples:\n  baton recipes --decision stop\n  baton recipes --credit agent --regime B\n"
        "  baton recipes dr-mas\n  baton recipes dr-mas > mine.toml\n  baton recipes dr-mas --page\n"
    )


def run(args: argparse.Namespace) -> int:
    wanted = {field: _word(field, given) for field in _WORDS if (given := getattr(args, field)) is not None}
    if args.name is not None:
        if wanted:
            raise UsageError("a recipe's name and a filter together. Give one of them.")
        if args.page:
            say(page(args.name).removesuffix("\n"))
            return 0
        return _one(args.name, as_json=args.json)
    if args.page:
        raise UsageError("--page is of one recipe. Type: baton recipes NAME --page")
    recipes = built_in() | {name: load(name) for name in registry.every("recipe") if name not in RECIPES}
    found = {name: recipe for name, recipe in recipes.items() if _matches(recipe.cells, wanted)}
    if args.json:
        return print_json([_document(name, recipe) for name, recipe in found.items()])
    emit(_table(found))
    return 0


def _word(field: str, given: str) -> str:
    known = _WORDS[field]
    word = _CODES.get(field, {}).get(given.upper(), given if field != "regime" else given.upper())
    if word not in known:
        raise UsageError(f"--{field} {given!r}: {nearest(given, known)}")
    return word


def _matches(cells: Cells, wanted: Mapping[str, str]) -> bool:
    has = {
        "decision": cells.decisions,
        "reward": cells.reward,
        "credit": cells.credit,
        "topology": (cells.topology,),
        "regime": (cells.regime,),
    }
    return all(word in has[field] for field, word in wanted.items())


def _one(name: str, *, as_json: bool) -> int:
    recipe = load(name)  # a name that is not there is an error with the nearest
    if as_json:
        told = {"recipe": msgspec.to_builtins(recipe), "method": msgspec.to_builtins(find_method(name))}
        return print_json(_document(name, recipe) | told)
    shown = "\n".join(map(printable, _written(name, recipe).splitlines()))
    emit([[(line, "dim" if line.startswith("#") else "")] for line in shown.split("\n")])
    emit(_marks(name, recipe))
    emit([[], [(f"# Type: {train_line(name)}", "bold")]])
    return 0


def _marks(name: str, recipe: Recipe) -> list[Line]:
    """What is the same as in the paper and what is not, as comments: the whole can be kept as a recipe."""
    method = find_method(name)
    if method is None:
        return []
    told = [
        f"{sign(mark)} {mark.part}: {mark.paper} [{mark.tag}]"
        + ("" if mark.same else f" -> {mark.here}. {mark.why}")
        for mark in marks_of(method, recipe)
    ] or ["Baton's own: there is no paper to compare with."]
    lines = [line for each in told for line in textwrap.wrap(each, 116, subsequent_indent="    ")]
    return [[], *([(f"# {printable(line)}", "dim")] for line in lines)]


def _written(name: str, recipe: Recipe) -> str:
    """A recipe as its file has it; one that another package made in Python, with every setting written out."""
    found = Path(name) if name.endswith(".toml") else registry.resolve("recipe", name)
    found = Path(found) if isinstance(found, str) else found
    return found.read_text("utf-8") if hasattr(found, "read_text") else resolved(recipe)


def _document(name: str, recipe: Recipe) -> dict[str, Any]:
    return {
        "name": name,
        "about": recipe.about,
        "source": recipe.source,
        "evidence": recipe.evidence,
        "cells": msgspec.to_builtins(recipe.cells),
        "task": recipe.task.name,
        "team": recipe.team.topology,
        "command": train_line(name),
    }


def _table(found: Mapping[str, Recipe]) -> list[Line]:
    head = ("recipe", "topology", "reward", "credit", "decisions", "regime", "evidence")
    rows = [
        (
            name,
            recipe.cells.topology or "any",
            _short(recipe.cells.reward, _REWARDS),
            " ".join(recipe.cells.credit),
            _short(recipe.cells.decisions, _CODES["decision"]),
            recipe.cells.regime or "-",
            " ".join(re.findall(r"\[[A-Z/]+\]", recipe.evidence.partition(";")[0])) or "-",
        )
        for name, recipe in found.items()
    ]
    legend = (
        "  ".join(f"{code} {word}" for code, word in _REWARDS.items()),
        "  ".join(f"{code} {word}" for code, word in _CODES["decision"].items()),
        "A frozen sub-agents  B joint  C policies apart, a central critic or a baseline for each role",
        "[P] paper  [C] authors' code  [A] abstract  [M] textbook  [I] inferred by Baton",
    )
    return [
        *aligned([head, *rows]),
        [(count(len(found), "recipe"), "bold")],
        [],
        *([(line, "dim")] for line in legend),
        [("Type: baton recipes NAME", "")],
    ]


def _short(words: tuple[str, ...], codes: Mapping[str, str]) -> str:
    """Words as their codes, in the order of the codes."""
    return " ".join(code for code, word in codes.items() if word in words) or "-"
