"""`baton train --credentials`: tools get their secrets in rollouts, and none is anywhere in the run's folder."""

from __future__ import annotations

import re
import sqlite3
import zipfile
import zlib
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import careless_team
import pytest
from careless_team import PAID

import baton
from baton.cli import main
from baton.errors import UsageError
from baton.trace.formats import read_all

VALUE = "sk-planted-7f3c9a1be2"
PIECES = (VALUE.encode(), VALUE[3:18].encode(), VALUE.encode().hex().encode())


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PLANTED_KEY", VALUE)
    monkeypatch.chdir(tmp_path)
    PAID.clear()
    Path("keys.toml").write_text('[search_key]\nenv = "PLANTED_KEY"\nroles = ["executor"]\n')
    Path("careless.toml").write_text(careless_team.recipe("tells", "look_up", "fail"))


def layers(raw: bytes) -> Iterator[bytes]:
    """Bytes as they are, and all that is packed in them."""
    yield raw
    if zipfile.is_zipfile(BytesIO(raw)):
        with zipfile.ZipFile(BytesIO(raw)) as archive:
            for name in archive.namelist():
                yield from layers(archive.read(name))
    for at in re.finditer(b"\x78[\x01\x5e\x9c\xda]", raw):
        try:
            yield zlib.decompressobj().decompress(raw[at.start() :])
        except zlib.error:
            continue


def cells(path: Path) -> Iterator[bytes]:
    with sqlite3.connect(path) as store:
        tables = [name for (name,) in store.execute("select name from sqlite_master where type='table'")]
        for table in tables:
            for row in store.execute(f'select * from "{table}"'):
                for cell in row:
                    yield cell if isinstance(cell, bytes) else str(cell).encode()


def check_clean(folder: Path) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 5
    for path in files:
        raw = path.read_bytes()
        everything = [*layers(raw)]
        if raw.startswith(b"SQLite"):
            everything += [layer for cell in cells(path) for layer in layers(cell)]
        for piece in PIECES:
            assert not any(piece in layer for layer in everything), path


def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    for k in range(6):
        (folder / f"{k}").write_bytes(b"x")
    with zipfile.ZipFile(folder / "0", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", zlib.compress(VALUE.encode()))
    with pytest.raises(AssertionError):
        check_clean(folder)


def test_it_is_used_and_is_nowhere(first_weights: None, capfd: pytest.CaptureFixture[str]) -> None:
    typed = ["train", "careless.toml", "--trust", "--credentials", "keys.toml", "--out", "run"]
    assert main([*typed, "--set", "train.steps=1"]) == 0
    assert set(PAID) == {VALUE}, "the tool had it"
    said = "".join(capfd.readouterr())
    check_clean(Path("run"))
    PAID.clear()
    again = ["train", "--resume", "--trust", "--out", "run", "--set", "train.steps=2"]
    assert main(again) == 2
    assert "--credentials FILE" in capfd.readouterr().err
    assert main([*again, "--credentials", "keys.toml"]) == 0
    assert set(PAID) == {VALUE}
    assert main(["eval", "run", "--trust", "--credentials", "keys.toml"]) == 0
    trace = next(iter(read_all("run/traces/run.db")))
    PAID.clear()
    typed = ["fork", "run", "--trust", "--trace", trace.trace_id, "--credentials", "keys.toml"]
    assert main([*typed, "--bar", "planner1", "--out", "forked"]) == 0
    said += "".join(capfd.readouterr())
    check_clean(Path())
    assert VALUE not in said
    texts = [payload.text() or "" for payload in trace.payloads.values()]
    assert any("[credential search_key]" in text for text in texts)
    assert not any(VALUE in text for text in texts)


def test_from_python(first_weights: None) -> None:
    done = baton.train("careless.toml", credentials="keys.toml", steps=1, out="run", trust=True)
    assert set(PAID) == {VALUE}
    assert baton.evaluate(done, episodes=1)["after"]
    check_clean(Path("run"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "needs the credential 'search_key'"),
        (["--credentials", "none.toml"], "there is no such file of credentials"),
        (["--credentials", "keys.toml", "--set", "scale.rollout_workers=1"], "credentials stay in the one"),
        (["--credentials", "keys.toml", "--set", f'about="{VALUE}"'], "the recipe has the credential"),
    ],
)
def test_what_is_refused_leaves_nothing(
    words: list[str], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "careless.toml", "--trust", "--out", "run", *words]) == 2
    error = capfd.readouterr().err
    assert said in error
    assert VALUE not in error
    assert not Path("run").exists()


def test_a_program_has_its_own() -> None:
    Path("program.toml").write_text(
        careless_team.recipe("tells", "look_up") + '[program]\ncommand = ["true"]\n'
    )
    with pytest.raises(UsageError, match=r"a .program. runs its own"):
        baton.train("program.toml", credentials="keys.toml", out="run", trust=True)
