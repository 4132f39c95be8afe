"""The pictures of the documentation, of a team's trace and of a real training run, taken on demand:
BATON_SCREENSHOTS=docs/images BATON_RUN=runs/flagship python -m pytest -m long tests/view/test_pictures_browser.py
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import PHONE, SHOTS, WIDE, Site, Tab
from viewer_runs import run_team

from baton.cli.view import attached
from baton.measure.prices import Price, PriceTable
from baton.trace import write
from baton.trace.notes import Notebook

RUN = os.environ.get("BATON_RUN")


@pytest.fixture(scope="module")
def of_a_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site") / "runs"
    folder.mkdir()
    write(run_team("shard-sum", "hierarchical", 3), folder / "team.jsonl")
    (folder / "flagship").symlink_to(Path(str(RUN)).resolve())
    made = Site(folder)
    Path(str(SHOTS)).mkdir(parents=True, exist_ok=True)
    yield made
    made.close()


@pytest.mark.skipif(SHOTS is None or RUN is None, reason="pictures are taken on demand")
class TestOfARun:
    def test_a_training_run(self, chromium: Any, of_a_run: Site) -> None:
        tab = Tab(chromium, of_a_run, WIDE, "dark")
        page = tab.open(of_a_run.page("place", "flagship"))
        page.wait_for_selector(".report svg path.line")
        tab.shot("run-dark")
        tab.context.close()
        tab = Tab(chromium, of_a_run, WIDE, "light")
        page = tab.open(of_a_run.page("place", "flagship"))
        page.fill("input[type=search]", "step-0024")
        page.click("th >> text=events")
        page.click("tbody tr.press a >> nth=90")
        page.wait_for_selector(".trace-page")
        page.select_option("select[aria-label='Colour by']", label="coma · orchestrator")
        tab.shot("credit")
        tab.open(f"{of_a_run.address}#table", shows=".traces-page tbody tr")
        tab.shot("table")
        both = of_a_run.page("diff", "flagship", id="before-2", place2="runs/flagship", id2="after-2")
        page = tab.open(both, shows=".diff-page")
        tab.shot("diff")
        tab.context.close()


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site") / "runs"
    folder.mkdir()
    team = run_team("shard-sum", "hierarchical", 3)
    write(team, folder / "team.jsonl")
    Notebook(folder / "team.jsonl").add(
        team.trace_id,
        event="lead1#1",
        text="Could have read both shards itself.",
        labels=("too many",),
        by="ada",
    )
    prices = PriceTable(models={"reference": Price(prompt=2.5, completion=10.0)})
    made = Site(folder, attached(forks=True, prices=prices))
    Path(str(SHOTS)).mkdir(parents=True, exist_ok=True)
    yield made
    made.close()


@pytest.mark.skipif(SHOTS is None, reason="pictures are taken on demand")
@pytest.mark.parametrize(
    ("size", "scheme", "query", "name"),
    [
        (WIDE, "light", {}, "lanes"),
        (PHONE, "dark", {}, "lanes-phone"),
        (WIDE, "dark", {"event": "lead1.worker1#2"}, "detail-dark"),
        (WIDE, "light", {"event": "lead1.worker1#2"}, "fork"),
        (WIDE, "dark", {"view": "transcript", "event": "lead1#1"}, "transcript-dark"),
        (PHONE, "light", {"view": "transcript"}, "transcript-phone"),
        (WIDE, "light", {"view": "summary"}, "cost"),
        (WIDE, "light", {"event": "lead1#1"}, "notes"),
    ],
)
class TestOfATeam:
    def test_of_a_team(
        self,
        chromium: Any,
        gallery: Site,
        size: dict[str, int],
        scheme: str,
        query: dict[str, str],
        name: str,
    ) -> None:
        tab = Tab(chromium, gallery, size, scheme)
        page = tab.open(gallery.trace(place="team.jsonl", **query), shows=".headline .told")
        if name == "fork":
            page.click("summary >> text=What if")
            page.fill(".fork textarea", "0")
            page.locator(".fork .row >> nth=-1").scroll_into_view_if_needed()
        if name == "transcript-dark":
            page.click("text=thoughts")
        if name == "cost":
            page.wait_for_selector(".money table")
            page.locator(".money").scroll_into_view_if_needed()
        if name == "notes":
            page.wait_for_selector(".note")
            page.locator(".note-form").scroll_into_view_if_needed()
        tab.shot(name)
        tab.context.close()
