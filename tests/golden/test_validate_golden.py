"""Each way of being invalid: one small file each, which earns its own code and no other."""

from __future__ import annotations

import re
from pathlib import Path

import make_invalid
import pytest

from baton.trace.validation import CODES, LEVELS, validate_file

GOLDEN = Path(__file__).parent
DOCS = Path(__file__).parents[2] / "docs" / "validation.md"


def code_of(path: Path) -> str:
    return path.stem.replace("-", "/", 1)


FILES = sorted((GOLDEN / "invalid").iterdir())


def test_every_code_has_a_file() -> None:
    assert {code_of(path) for path in FILES} == set(CODES)


def test_the_files_are_what_the_script_makes() -> None:
    assert {path.name: path.read_text(encoding="utf-8") for path in FILES} == make_invalid.files()


def test_what_they_are_made_from_is_good(tmp_path: Path) -> None:
    import json

    path = tmp_path / "good.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in make_invalid.good()))
    report = validate_file(path)
    assert report.valid, report.problems
    assert (report.num_traces, report.num_events) == (1, 9)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_exactly_its_code(path: Path) -> None:
    report = validate_file(path)
    assert report.unreadable is None
    assert set(report.counts) == {code_of(path)}, report.problems
    problem = report.problems[0]
    assert problem.message == CODES[problem.code]
    assert problem.found
    assert problem.expected


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_lower_level_does_not_see_it(path: Path) -> None:
    level = code_of(path).partition("/")[0]
    for lower in LEVELS[: LEVELS.index(level)]:
        assert validate_file(path, lower).valid


def test_the_documentation_lists_every_code_and_says_what_it_means() -> None:
    rows = dict(re.findall(r"^\| `([a-z]+/[a-z-]+)` \| ([^|]+?) \|", DOCS.read_text(encoding="utf-8"), re.M))
    assert rows == CODES
