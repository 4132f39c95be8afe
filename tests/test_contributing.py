"""What CONTRIBUTING.md and docs/extending.md say is so: paths exist, snippets run, every kind has its row and check."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import baton.testing
from baton import registry
from baton.cli import main

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
EXTENDING = (ROOT / "docs" / "extending.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT + EXTENDING, re.DOTALL | re.MULTILINE)
SNIPPETS = [body for language, body in BLOCKS if language == "python"]
COMMANDS = [
    line.partition("#")[0].split()
    for language, body in BLOCKS
    if language == "sh"
    for line in body.splitlines()
]


def rows(text: str) -> list[list[str]]:
    """The cells of every table's rows, less their heads."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in found if row[-1] != "check"]


@pytest.mark.parametrize("text", [TEXT, EXTENDING], ids=["contributing", "extending"])
def test_every_path_they_name_exists(text: str) -> None:
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    named = set(re.findall(r"`((?:src|docs|tests|examples|design)/[\w./-]*|[\w-]+\.md)`", prose))
    links = set(re.findall(r"\]\((?!http)([^)]+)\)", prose))
    assert len(named) >= 15
    assert sorted(name for name in named | links if not (ROOT / name).exists()) == []


def test_contributing_has_a_row_for_every_kind_with_the_check_that_is_its_own() -> None:
    found = {row[0].split(" ", 1)[1]: row[-1] for row in rows(TEXT)}
    assert {kind: f"`check_{kind}`" for kind in registry.HOMES}.items() <= found.items()
    assert set(found) - set(registry.HOMES) == {"command", "paper"}


def test_every_kind_can_be_named_everywhere_and_has_an_example_and_a_check() -> None:
    found = {row[0]: row for row in rows(EXTENDING)}
    assert list(found) == list(registry.HOMES)
    for kind, (_, about, python, recipe, typed, example, check) in found.items():
        assert about
        assert python.startswith("`baton.")
        assert recipe.startswith("`") or kind in ("format", "source")
        assert typed.startswith("`baton ")
        assert example == f"`examples/my_{kind}.py`"
        assert check == f"`check_{kind}`"
        assert callable(getattr(baton.testing, f"check_{kind}"))
        assert f"check_{kind}" in baton.testing.__all__


def test_the_examples_package_names_one_of_every_kind() -> None:
    declared = tomllib.loads((ROOT / "examples" / "pyproject.toml").read_text())["project"]["entry-points"]
    assert list(declared) == [f"baton.{kind}" for kind in registry.HOMES]
    found = {row[0]: row for row in rows(EXTENDING)}
    for kind in registry.HOMES:
        ((name, _),) = declared[f"baton.{kind}"].items()
        assert name in found[kind][4]
        assert name not in registry.shipped(kind)


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_snippets_run(number: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SNIPPETS[number]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_commands_work_as_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    typed = [words[1:] for words in COMMANDS if words[:1] == ["baton"]]
    assert typed
    for words in typed:
        assert main(words) == 0


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)", TEXT, re.MULTILINE))
    assert {a or b for a, b in named} <= targets


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("my_*.py")), ids=lambda path: path.stem)
def test_an_example_is_short_and_calls_its_check(path: Path) -> None:
    source = path.read_text()
    assert len(source.splitlines()) < 60
    assert f"check_{path.stem.removeprefix('my_')}(" in source
