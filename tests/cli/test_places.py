"""Places that are not there, are something else, or may not be used: one line that says what to do."""

from __future__ import annotations

import errno
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from baton.cli import main
from baton.learn.recipe import load
from baton.learn.run.folder import Folder

GOLDEN = Path(__file__).parents[1] / "golden" / "v1" / "centralized.jsonl"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["corpus", "bib", "--out", "nowhere/x.bib"], "Type: mkdir -p nowhere"),
        (["reward", str(GOLDEN), "--recipe", "no.toml"], "there is no file 'no.toml'. Give a path"),
        (
            ["reward", str(GOLDEN), "--recipe", "shared", "--gold", "no.json"],
            "there is no such file. Expected JSON",
        ),
        (["reward", str(GOLDEN), "--recipe", "shared", "--gold", "."], "that is a folder. Expected JSON"),
    ],
)
def test_a_wrong_place_is_one_line_with_what_to_do(
    args: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(args) == 2
    error = capsys.readouterr().err.strip()
    assert said in error
    assert "Errno" not in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("command", ["train", "run", "run model"])
@pytest.mark.parametrize(
    ("folder", "options", "said"),
    [
        (
            "model",
            {"dtype": "float31"},
            "dtype 'float31' is not known. Expected float32, bfloat16 or float16",
        ),
        ("model", {"dtype": "int8"}, "dtype 'int8' is not known"),
        ("model", {"device": "gpu"}, "device 'gpu' is not known"),
        ("bare", {}, "is not a model: it has no config.json"),
        ("odd", {}, "is not a model: its config.json is not JSON"),
        ("none", {}, "there is no folder"),
    ],
)
def test_what_needs_no_torch_is_refused_before_it_is_imported(
    command: str,
    folder: str,
    options: dict[str, str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, config in (("model", '{"model_type": "llama"}'), ("bare", None), ("odd", "model_type: llama")):
        (tmp_path / name).mkdir()
        if config is not None:
            (tmp_path / name / "config.json").write_text(config)
    monkeypatch.setitem(sys.modules, "torch", None)  # importing it fails
    place = str(tmp_path / folder)
    spec = place + "".join(f"?{key}={value}" for key, value in options.items())
    words = {
        "train": ["train", "grpo", "--set", f"policies.main.model={place}"],
        "run": ["run", "shard-sum", "--policy", f"torch:{spec}"],
        "run model": ["run", "shard-sum", "--policy", f"smollm2{spec.removeprefix(place)}"],
    }[command]
    if command == "train":
        words += [
            word for key, value in options.items() for word in ("--set", f"policies.main.{key}={value}")
        ]
    if command == "run model" and not options:
        pytest.skip("a model by name has no folder")
    assert main([*words, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EACCES, "Give another place, or look at: ls -ld"),
        (errno.EROFS, "read-only. Make room, or give another place"),
        (errno.ENOSPC, "the disk is full. Make room"),
        (errno.EISDIR, "expected a file"),
        (errno.EEXIST, "there is a file of that name"),
        (errno.ENOENT, "there is no "),
    ],
)
def test_what_the_system_refuses_is_said_with_what_to_do(
    number: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, "refused", str(tmp_path / "x"))

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert main(["game", "play", "parallel-pandora", "--out", str(tmp_path / "x")]) == 2
    error = capsys.readouterr().err.strip()
    assert said in error
    assert str(tmp_path) in error
    assert "Errno" not in error


@contextmanager
def no_room() -> Iterator[None]:
    """No file can grow."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_project_that_finds_no_room_names_its_file_and_leaves_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "proj"
    with no_room():
        assert main(["init", str(place)]) == 2
    error = capsys.readouterr().err
    assert f"{place / 'README.md'} cannot be written: files may not grow" in error
    assert main(["init", str(place)]) == 0  # nothing is in the way


def test_a_training_run_that_finds_no_room_names_its_file(tmp_path: Path) -> None:
    with no_room(), pytest.raises(OSError, match="too large") as error:
        Folder(tmp_path).begin(load("flagship"), {})
    assert error.value.filename == str(tmp_path / "recipe.toml")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32"])
@pytest.mark.parametrize("command", ["show", "stats", "validate", "measure"])
def test_text_of_wide_characters_is_named_everywhere(
    command: str, encoding: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "wide.jsonl").write_bytes(GOLDEN.read_text("utf-8").encode(encoding))
    assert main([command, str(tmp_path / "wide.jsonl")]) == 2
    assert f"Type: iconv -f {encoding[:6].upper()} -t UTF-8" in capsys.readouterr().err
