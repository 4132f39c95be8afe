from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from baton.cli import main
from baton.learn.recipe import built_in


def typed(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> str:
    capsys.readouterr()
    assert main(["recipes", *args]) == code
    out, err = capsys.readouterr()
    assert len(err.splitlines()) == (1 if code else 0)
    return err if code else out


def names(text: str) -> set[str]:
    return {
        line.split()[0]
        for line in text.splitlines()[1:]
        if line.split()[:1] and line.split()[0] in built_in()
    }


def test_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    out = typed(capsys)
    assert names(out) == set(built_in())
    assert f"{len(built_in())} recipes" in out
    row = next(line.split() for line in out.splitlines() if line.startswith("parl "))
    assert row == ["parl", "swarm", "R1", "R7", "R8", "orchestrator", "O1", "O2", "A", "[A]"]


@pytest.mark.parametrize(
    ("filters", "there", "not_there"),
    [
        (["--decision", "stop"], "puppeteer", "parl"),
        (["--decision", "o5"], "puppeteer", "parl"),
        (["--credit", "message"], "c3", "dr-mas"),
        (["--reward", "R7"], "parl", "dr-mas"),
        (["--reward", "orchestration"], "parl", "dr-mas"),
        (["--topology", "debate"], "spiral", "parl"),
        (["--regime", "c"], "mappo", "ippo"),
        *((["--regime", "C"], name, "wideseek-r1") for name in ("m-grpo", "matpo", "spiral", "marshal")),
        (["--regime", "B", "--credit", "agent"], "dr-mas", "mappo"),
    ],
)
def test_filters(capsys: pytest.CaptureFixture[str], filters: list[str], there: str, not_there: str) -> None:
    found = names(typed(capsys, *filters))
    assert there in found
    assert not_there not in found
    told = json.loads(typed(capsys, *filters, "--json"))
    assert {each["name"] for each in told} == found


def test_one_as_it_is_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = typed(capsys, "puppeteer")
    assert "# Unlike the authors' code" in out
    assert out.endswith("# Type: baton train puppeteer\n")
    tomllib.loads(out)  # redirected into a file, it is a recipe
    mine = tmp_path / "mine.toml"
    mine.write_text(out)
    assert typed(capsys, str(mine)).startswith(out.rstrip().rpartition("\n")[0].rstrip())
    told = json.loads(typed(capsys, "puppeteer", "--json"))
    assert told["command"] == "baton train puppeteer"
    assert told["recipe"]["rollout"]["replay"] == 0


def test_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Did you mean 'dr-mas'" in typed(capsys, "drmas", code=2)
    assert "there is no file" in typed(capsys, "none.toml", code=2)
    assert "Did you mean 'spawn'" in typed(capsys, "--decision", "spwan", code=2)
    assert "Give one of them" in typed(capsys, "parl", "--regime", "A", code=2)
