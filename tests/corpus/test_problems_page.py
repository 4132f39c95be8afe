"""docs/problems.md: fifteen problems, and every command it names is there to be typed."""

from __future__ import annotations

import argparse
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from baton.cli import COMMANDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "problems.md").read_text("utf-8")
SECTIONS = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
LINES = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]
INLINE = re.findall(r"`((?:baton|python|make) [^`]+)`", PAGE)


def test_there_are_fifteen_in_order() -> None:
    assert [section.split()[0] for section in SECTIONS] == [f"P{n}" for n in range(1, 16)]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.split()[0])
def test_each_says_what_is_done_what_to_type_and_what_is_open(section: str) -> None:
    does, shows, still_open = (section.find(part) for part in ("**Does.**", "```sh\n", "**Open.**"))
    assert 0 < does < shows < still_open


class _Strict(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise AssertionError(message)


def check(line: str, *, whole: bool) -> None:
    program, *words = shlex.split(line)
    if program == "baton":
        assert words[0] in COMMANDS, f"{line}: there is no command {words[0]!r}"
        parser = _Strict(prog=f"baton {words[0]}")
        import_module(f"baton.cli.{words[0]}").add_arguments(parser)
        if whole:
            parser.parse_args(words[1:])
        return
    assert program == "python", f"{line}: say it with baton or python"
    assert (ROOT / words[0]).is_file(), f"{line}: there is no file {words[0]}"


@pytest.mark.parametrize("line", dict.fromkeys(LINES))
def test_every_command_can_be_typed(line: str) -> None:
    check(line, whole=True)


@pytest.mark.parametrize("line", dict.fromkeys(INLINE))
def test_commands_in_the_text_exist(line: str) -> None:
    check(line, whole=False)


def test_p5_and_the_page_on_learning_give_the_same_figures() -> None:
    """Result 6: how far below the optimum at 3, 6, 12 and 30 workers, and where each size is trained."""
    learning = (ROOT / "docs" / "learning.md").read_text("utf-8")
    row = next(line for line in learning.splitlines() if "`result6_sizes.py`" in line)
    told = re.search(
        r"it is ([\d.]+) % below the optimum there, ([\d.]+) % with 6, ([\d.]+) % with 12 and ([\d.]+) % with 30; "
        r".* stays within ([\d.]+) %",
        row,
    )
    assert told is not None, row
    p5 = " ".join(SECTIONS[4].split())
    here = re.search(
        r"it is ([\d.]+) % below the optimum there, and ([\d.]+), ([\d.]+) and ([\d.]+) % below with 6, 12 and 30; "
        r"trained at each size it stays within ([\d.]+) %",
        p5,
    )
    assert here is not None, p5
    assert here.groups() == told.groups()


def test_links_lead_somewhere() -> None:
    for page in ("problems.md", "corpus.md"):
        text = (ROOT / "docs" / page).read_text("utf-8")
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            assert target.startswith("http") or (ROOT / "docs" / target).exists(), f"{page} links to {target}"
