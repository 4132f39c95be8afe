"""Training runs side by side: what the server answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from viewer_runs import trainings

from baton.cli.view import attached
from baton.view.report.side_by_side import differences, settings_of
from baton.view.web.server import make_app
from baton.view.web.traces import Library


def ask(folder: Path, runs: object = None) -> Any:
    page = TestClient(make_app(Library([folder]), attached()), base_url="http://127.0.0.1:8321")
    query = {} if runs is None else {"runs": runs if isinstance(runs, str) else json.dumps(runs)}
    return page.get("/api/trainings", params=query).json()


def test_a_table_of_recipes_says_what_differs_and_what_came_out(tmp_path: Path) -> None:
    trainings(tmp_path)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "run.json").write_text("[" * 100_000)
    found = ask(tmp_path)
    rows = {row["key"].rpartition("/")[2]: row for row in found["runs"]}
    assert set(rows) == {"one", "two", "three"}
    assert rows["one"]["differs"] == {"optim.lr": "0.01", "optim.extra": None}
    assert rows["two"]["differs"]["optim.lr"] == "0.02"
    assert (rows["one"]["before"], rows["one"]["after"], rows["one"]["half"]) == (0.52, 0.72, 0.01)
    assert [rows[name]["done"] for name in ("one", "two", "three")] == [4, 5, 6]
    assert found["plots"] == []


def test_curves_of_several_runs_stand_in_one_plot(tmp_path: Path) -> None:
    trainings(tmp_path)
    keys = [f"{tmp_path.name}/{name}" for name in ("one", "two", "three")]
    told = json.dumps(ask(tmp_path, keys)["plots"])
    assert told.count('"line h') == 6
    assert '"band h0"' in told
    assert all(key in told for key in keys)
    assert '"data-step": "5"' in told


@pytest.mark.parametrize("runs", ["[1]", "{", json.dumps(["a"] * 9), "no list"])
def test_what_names_no_runs_is_a_sentence(tmp_path: Path, runs: str) -> None:
    trainings(tmp_path, steps=1)
    assert "error" in ask(tmp_path, runs)


def test_settings_are_told_by_their_whole_names(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text("a = 1\n[b.c]\nd = [1, 2]\n")
    assert settings_of(tmp_path) == {"a": "1", "b.c.d": "[1, 2]"}
    (tmp_path / "recipe.toml").write_bytes(b"\xff")
    assert settings_of(tmp_path) == {}
    assert differences([{"a": "1", "b": "2"}, {"a": "1"}]) == ["b"]
    assert differences([]) == []


def test_what_a_recipe_says_of_itself_is_no_setting(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(
        'about = "words"\nsource = "a paper"\n[cells]\ncredit = ["agent"]\n[[credit]]\nestimator = "coma"\n'
        '[[credit]]\nestimator = "gae"\n[train]\nsteps = 2\n'
    )
    assert settings_of(tmp_path) == {
        "credit1.estimator": "coma",
        "credit2.estimator": "gae",
        "train.steps": "2",
    }
