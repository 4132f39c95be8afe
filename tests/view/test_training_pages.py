"""Training runs side by side, and from a step of a curve to its traces: what the server answers, and in a browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from test_browser import PHONE, SHOTS, WIDE, Site, Tab, chromium, text, until  # noqa: F401  # a fixture
from viewer_runs import training_run

from baton.cli.view import attached
from baton.view.report.side_by_side import differences, settings_of
from baton.view.web.server import make_app
from baton.view.web.traces import Library

RECIPES = {
    "one": "[optim]\nlr = 0.01\n[loss]\nkind = 'ppo'\n",
    "two": "[optim]\nlr = 0.02\n[loss]\nkind = 'ppo'\n",
    "three": "[optim]\nlr = 0.01\nextra = '<b>x</b>'\n[loss]\nkind = 'ppo'\n",
}


def fill(folder: Path, steps: int = 4) -> None:
    for number, (name, recipe) in enumerate(RECIPES.items()):
        training_run(folder / name, steps=steps + number, episodes=2)
        (folder / name / "recipe.toml").write_text(recipe)


def ask(folder: Path, runs: object = None) -> Any:
    page = TestClient(make_app(Library([folder]), attached()), base_url="http://127.0.0.1:8321")
    query = {} if runs is None else {"runs": runs if isinstance(runs, str) else json.dumps(runs)}
    return page.get("/api/trainings", params=query).json()


def test_a_table_of_recipes_says_what_differs_and_what_came_out(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "run.json").write_text("[" * 100_000)
    found = ask(tmp_path)
    rows = {row["key"].rpartition("/")[2]: row for row in found["runs"]}
    assert set(rows) == {"one", "two", "three"}
    assert rows["one"]["differs"] == {"optim.lr": "0.01", "optim.extra": None}
    assert rows["two"]["differs"]["optim.lr"] == "0.02"
    assert (rows["one"]["before"], rows["one"]["after"], rows["one"]["half"]) == (0.52, 0.72, 0.01)
    assert [rows[name]["done"] for name in RECIPES] == [4, 5, 6]
    assert found["plots"] == []


def test_curves_of_several_runs_stand_in_one_plot(tmp_path: Path) -> None:
    fill(tmp_path)
    keys = [f"{tmp_path.name}/{name}" for name in RECIPES]
    told = json.dumps(ask(tmp_path, keys)["plots"])
    assert told.count('"line h') == 6
    assert '"band h0"' in told
    assert all(key in told for key in keys)
    assert '"data-step": "5"' in told


@pytest.mark.parametrize("runs", ["[1]", "{", json.dumps(["a"] * 9), "no list"])
def test_what_names_no_runs_is_a_sentence(tmp_path: Path, runs: str) -> None:
    fill(tmp_path, steps=1)
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


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("trainings") / "runs"
    fill(folder)
    made = Site(folder, fill=False)
    yield made
    made.close()


@pytest.fixture
def tab(chromium: Any, site: Site, request: pytest.FixtureRequest) -> Iterator[Tab]:  # noqa: F811
    size, scheme = getattr(request, "param", (WIDE, "light"))
    made = Tab(chromium, site, size, scheme)
    yield made
    made.context.close()
    assert made.errors == []


class TestPages:
    def test_the_table_before_and_after_is_on_the_page_of_a_run(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.page("place", "one"))
        page.wait_for_selector("#report-comparison table")
        assert "trained" in text(page, "#report-comparison")

    def test_from_a_step_of_a_curve_to_its_traces(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.page("place", "one"))
        page.locator("#report-learning rect.hover[data-step='2']").first.click()
        until(page, "() => location.hash.includes('step=2')")
        until(page, "() => document.querySelectorAll('#report-traces tbody tr').length === 2")
        page.reload()
        until(page, "() => document.querySelectorAll('#report-traces tbody tr').length === 2")
        page.fill("#report-traces input[aria-label=Step]", "")
        until(page, "() => document.querySelectorAll('#report-traces tbody tr').length > 8")

    def test_runs_are_overlaid_and_lead_to_their_traces(self, tab: Tab, site: Site) -> None:
        page = tab.open(f"{site.address}#runs")
        page.wait_for_selector("figure svg")
        assert page.locator("figure").first.locator("path.line").count() == 3
        page.locator("input[aria-label$='/two']").uncheck()
        until(page, "() => document.querySelector('figure').querySelectorAll('path.line').length === 2")
        assert "runs=" in page.url
        page.reload()
        until(page, "() => document.querySelector('figure')?.querySelectorAll('path.line').length === 2")
        page.locator("rect.hover[data-step='3']").first.click()
        page.locator("p.hint button", has_text="three").click()
        until(page, "() => location.hash.startsWith('#place') && location.hash.includes('step=3')")
        until(page, "() => document.querySelectorAll('#report-traces tbody tr').length === 2")

    @pytest.mark.skipif(SHOTS is None, reason="BATON_SCREENSHOTS says where pictures go")
    @pytest.mark.parametrize(
        ("tab", "name"),
        [((WIDE, "light"), "runs"), ((WIDE, "dark"), "runs-dark"), ((PHONE, "light"), "runs-phone")],
        indirect=["tab"],
    )
    def test_pictures(self, tab: Tab, site: Site, name: str) -> None:
        page = tab.open(f"{site.address}#runs")
        page.wait_for_selector("figure svg")
        tab.shot(name)
