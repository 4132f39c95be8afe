"""The page of a training run, in a real browser: its report, and its traces in the one table, while it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from browsing import Site, Tab, eventually, expect, has, leads_to, says, shows, until
from viewer_runs import more_training, training_run

ROWS = "#report-traces .grid tr.press"
TOLD = "#report-traces [data-complete=true]"


@pytest.fixture
def site(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site") / "runs"
    training_run(folder / "training", steps=8, episodes=4, status="running")
    made = Site(folder)
    yield made
    made.close()


def test_a_run_while_it_goes_on(tab: Tab, site: Site) -> None:
    page = tab.open(site.page("place", "training"))
    page.wait_for_selector(".report svg path.line")
    until(page, "document.querySelectorAll('.report figure svg').length >= 8")
    says(page, ".lead", "Return on held-out instances")
    says(page, "#report-warnings", "serial-collapse")
    page.wait_for_selector(".progress[aria-valuenow]")
    page.click(".page nav >> text=Traces")
    expect(page.locator(TOLD)).to_have_text("36")
    more_training(site.folder / "training", 8)
    page.wait_for_selector("[data-steps='9']")
    expect(page.locator(TOLD)).to_have_text("38")
    says(page, f"{ROWS} >> nth=0", "step-0008")


def test_filter_and_sort(tab: Tab, site: Site) -> None:
    page = tab.open(site.page("place", "training"))
    page.fill("#report-traces input.query", "step-0003")
    shows(page, ROWS, 4)
    page.fill("#report-traces input.query", "reward:any")
    expect(page.locator(TOLD)).to_have_text("36")
    page.click("#report-traces .grid th >> text=reward")
    has(page, "#report-traces .grid th:has-text('reward')", "aria-sort", "descending")

    def values() -> list[float]:
        cells = page.locator(f"{ROWS} td:nth-child(3)").all_inner_texts()
        return [float(cell.replace("−", "-")) for cell in cells if cell != "…"]

    eventually(page, lambda: len(values()) > 5 and values() == sorted(values(), reverse=True), "sorted")
    page.locator(f"{ROWS} a").first.click()
    page.wait_for_selector(".trace-page")
    leads_to(page, "#trace")
    page.go_back()
    has(page, "#report-traces .grid th:has-text('reward')", "aria-sort", "descending")
    page.go_back()
    has(page, "#report-traces .grid th:has-text('step')", "aria-sort", "descending")
    expect(page.locator("#report-traces input.query")).to_have_value("reward:any")
    page.go_back()
    expect(page.locator("#report-traces input.query")).to_have_value("")
