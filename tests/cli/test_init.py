"""`baton init`: the written project is used as its reader would use it, in a scratch folder, by the printed lines."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import baton
from baton.cli import main
from baton.learn.recipe import load
from baton.trace.formats import read_all

# The command as it is installed: unlike `python -m baton`, it has no folder of its own on the path.
BATON = (sys.executable, "-P", "-W", "error", "-c", "from baton.cli import main; raise SystemExit(main())")


def typed(folder: Path, line: str, **environment: str) -> str:
    """What a line prints in a folder, in a process of its own."""
    program, *words = shlex.split(line)
    command = [*BATON, *words] if program == "baton" else [sys.executable, "-P", *words]
    source = str(Path(baton.__file__).parents[1])
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": source} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{line}: {done.stdout[-1500:]}{done.stderr[-1500:]}"
    return done.stdout + done.stderr


def written(folder: Path, name: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """A project in a folder; the lines that are to be typed next, less `cd`."""
    assert main(["init", str(folder), "--task-name", name]) == 0
    said = capsys.readouterr().out
    lines = [line.strip() for line in said.partition("Type:\n")[2].splitlines()]
    assert lines.pop(0) == f"cd {shlex.quote(str(folder))}"
    assert max(map(len, lines)) <= 78
    for line in lines:
        assert line in (folder / "README.md").read_text()
    return lines


def test_what_is_printed_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "odd place" / "p"
    run, show, train, test = written(folder, "room-keys-7", capsys)
    assert sorted(path.name for path in folder.iterdir()) == [
        "README.md", "recipe.toml", "room_keys_7.py", "room_keys_7_reward.py", "test_room_keys_7.py",
    ]  # fmt: skip
    assert "lost" not in "".join(path.read_text().lower() for path in folder.iterdir())
    assert "reward   shared" in typed(folder, run)
    monkeypatch.chdir(folder)
    assert main(shlex.split(show)[1:]) == 0
    assert "room-keys-7/train/0" in capsys.readouterr().out
    # The recipe's test brings torch: it is run with the training (test_init_learns).
    assert "3 passed" in typed(folder, f"{test} -p no:cacheprovider -k 'not recipe'")
    (trace,) = read_all(folder / "runs" / "first")
    assert trace.header.task_id == "room-keys-7/train/0"
    assert train == "baton train recipe.toml --trust --out runs/trained"


def test_a_stranger_would_be_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "p", "asked-for", capsys)
    monkeypatch.chdir(tmp_path / "p")
    before = list(sys.path)
    assert main(["train", "recipe.toml", "--out", "x"]) == 2
    assert "type: --trust" in capsys.readouterr().err
    assert sys.path == before
    assert "asked_for" not in sys.modules


def test_the_recipe_is_checked_and_a_name_leads_to_the_folder_one_stands_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "p", "three-doors", capsys)
    monkeypatch.chdir(tmp_path / "p")
    monkeypatch.setattr(sys, "path", list(sys.path))
    recipe = load("recipe.toml", trust=True)
    assert recipe.task.name == "three-doors"
    assert sys.path[-1] == str(tmp_path / "p")  # last: it hides nothing that is installed
    assert main(["tasks", "three-doors"]) == 0
    assert "task.rooms = 3" in capsys.readouterr().out


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path / "p", "kept-once", capsys)
    (tmp_path / "p" / "recipe.toml").write_text("mine")
    assert main(["init", str(tmp_path / "p"), "--task-name", "kept-once"]) == 2
    said = capsys.readouterr().err
    assert "nothing is overwritten" in said
    assert (tmp_path / "p" / "recipe.toml").read_text() == "mine"
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / "recipe.toml").write_text("mine")
    assert main(["init", str(tmp_path / "q"), "--task-name", "kept-once"]) == 2
    assert [path.name for path in (tmp_path / "q").iterdir()] == ["recipe.toml"]  # nor is half of it written
    (tmp_path / "file").write_text("")
    assert main(["init", str(tmp_path / "file"), "--task-name", "kept-once"]) == 2
    assert "is a file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("My Task!", "--task-name my-task"),
        ("7up", "--task-name task-7up"),
        ("", "--task-name lost-and-found"),
        ("../x", "--task-name x"),
        ("a--b", "--task-name a-b"),
        ("shard-sum", "--task-name my-shard-sum"),
        ("json", "--task-name my-json"),
        ("class", "--task-name my-class"),
        ("numpy", "--task-name my-numpy"),
    ],
)
def test_names_are_checked(
    name: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--task-name", name]) == 2
    assert capsys.readouterr().err.strip().endswith(told)
    assert list(tmp_path.iterdir()) == []
