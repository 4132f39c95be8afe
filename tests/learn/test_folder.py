"""A run's folder that is taken, or whose files were damaged: one line that says what can still be done."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from baton.cli import main
from baton.errors import FormatError, UsageError
from baton.learn.recipe import load, resolved
from baton.learn.run.folder import Folder, read_lines, read_recipe

RUN = '{"recipe": "small", "status": "stopped", "steps": 4}'


def test_a_folder_of_runs_is_not_trained_into(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "shard-sum", "--out", str(tmp_path)]) == 0
    with pytest.raises(UsageError, match=r"holds runs of `baton run` in run\.db\. Give another --out"):
        Folder(tmp_path).check_free()
    capsys.readouterr()
    assert main(["train", "flagship", "--out", str(tmp_path)]) == 2
    assert "Give another --out" in capsys.readouterr().err
    assert not (tmp_path / "run.json").exists()


@pytest.mark.parametrize("content", [b"{", b"", b"[1]", b"\xff\xfe", b"{}", b'{"recipe": 5, "status": "x"}'])
def test_a_damaged_run_json_is_one_line_that_says_how_to_go_on(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.json").write_bytes(content)
    (tmp_path / "recipe.toml").write_text(resolved(load("flagship")))
    for args in (["eval", str(tmp_path)], ["train", "--resume", "--out", str(tmp_path)]):
        assert main(args) == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith(f"baton {args[0]}: {tmp_path / 'run.json'} ")
        assert f"baton train --resume --out {tmp_path}" in error
    mended = error.split("echo '")[1].split("' >")[0]
    (tmp_path / "run.json").write_text(mended)
    assert Folder(tmp_path).told()["status"] == "stopped"


def test_a_damaged_run_json_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(FormatError, match=r"run\.json is damaged"):
        Folder(tmp_path).tell({"status": "running"})
    assert (tmp_path / "run.json").read_text() == "{"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[task", r"recipe\.toml: not valid TOML"),
        (b"\xff", r"recipe\.toml is not UTF-8 text"),
        (None, r"has no recipe\.toml"),
    ],
)
def test_a_damaged_recipe_is_named_with_its_folder(content: bytes | None, said: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(RUN)
    if content is not None:
        (tmp_path / "recipe.toml").write_bytes(content)
    with pytest.raises((FormatError, UsageError), match=said) as caught:
        read_recipe(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_lines_that_are_whole_outlive_those_that_are_not(tmp_path: Path) -> None:
    place = tmp_path / "metrics.jsonl"
    place.write_bytes(b'{"step": 1}\n\xff\xfe\n7\n{"st\n{"step": 2}\n{"step": 3')
    assert read_lines(place) == [{"step": 1}, {"step": 2}]
    Folder(tmp_path).add("metrics", {"step": 3})
    assert read_lines(place) == [{"step": 1}, {"step": 2}, {"step": 3}]


def test_a_line_without_a_step_does_not_keep_a_run_from_going_on(tmp_path: Path) -> None:
    place = tmp_path / "metrics.jsonl"
    place.write_text('{"step": 1}\n{"seconds": 2}\n{"step": "x"}\n{"step": 2}\n')
    Folder(tmp_path).forget_after(1)
    assert [json.loads(line) for line in place.read_text().splitlines()] == [{"step": 1}]
