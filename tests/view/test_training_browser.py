"""Training runs side by side, and from a step of a curve to its traces, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from accessible import serious
from browsing import PHONE, SHOTS, WIDE, Site, Tab, expect, has, leads_to, says, settled, shows, until
from viewer_runs import trainings


@pytest.fixture(scope="module")
def site(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("trainings") / "runs"
    trainings(folder)
    made = Site(folder)
    yield made
    made.close()


ROWS = "#report-traces .grid tr.press"
LINES = "figure >> nth=0 >> path.line"


class TestPages:
    def test_the_table_before_and_after_is_on_the_page_of_a_run(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.page("place", "one"))
        page.wait_for_selector("#report-comparison table")
        says(page, "#report-comparison", "trained")

    def test_from_a_step_of_a_curve_to_its_traces(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.page("place", "one"))
        page.locator("#report-learning rect.hover[data-step='2']").first.click()
        leads_to(page, "q=step%3D2")
        shows(page, ROWS, 2)
        page.reload()
        shows(page, ROWS, 2)
        page.locator("#report-learning rect.hover[data-step='3']").first.click()
        leads_to(page, "q=step%3D3")
        shows(page, ROWS, 2)
        page.fill("#report-traces input.query", "")
        until(page, f"document.querySelectorAll('{ROWS}').length > 8")

    def test_the_traces_of_a_run_are_the_one_table_and_what_is_chosen_is_in_the_address(
        self, tab: Tab, site: Site
    ) -> None:
        page = tab.open(site.page("place", "one"))
        says(page, "#report-traces [data-complete]", "12")
        page.click("#report-traces .grid th >> text=reward")
        has(page, "#report-traces .grid th:has-text('reward')", "aria-sort", "descending")
        page.fill("#report-traces input.query", "trace:before- reward>0")
        page.keyboard.press("Enter")
        says(page, "#report-traces [data-complete]", "of 12")
        leads_to(page, "sort=-reward")
        page.locator(f"{ROWS} input").first.check()
        says(page, "#report-traces .chosen b", "1 ticked")
        page.click("#report-traces .chosen button:has-text('measure')")
        page.wait_for_selector("#report-traces .measures table")
        page.click("#report-traces summary:has-text('columns')")
        page.locator("#report-traces .ticks label", has_text="policy").locator("input").check()
        page.wait_for_selector("#report-traces th >> text=policy")
        other = tab.another()
        other.goto(page.url)
        says(other, "#report-traces .chosen b", "1 ticked")
        says(other, "#report-traces [data-complete]", "of 12")
        other.wait_for_selector("#report-traces th >> text=policy")
        other.wait_for_selector("#report-traces .measures table")
        has(other, "#report-traces .grid th:has-text('reward')", "aria-sort", "descending")
        expect(other.locator("#report-traces input.query")).to_have_value("trace:before- reward>0")
        other.fill("#report-traces input.query", "trace:nothing-like-it")
        says(other, "#report-traces .grid", "No trace fits.")

    def test_a_step_is_pressed_in_the_table(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.page("place", "one"))
        page.locator(f"{ROWS} >> nth=0 >> td.num button").first.click()
        leads_to(page, "q=step%3D")
        shows(page, ROWS, 2)

    def test_runs_are_overlaid_and_lead_to_their_traces(self, tab: Tab, site: Site) -> None:
        page = tab.open(f"{site.address}#runs")
        shows(page, LINES, 3)
        page.locator("input[aria-label$='/two']").uncheck()
        shows(page, LINES, 2)
        leads_to(page, "runs=")
        page.reload()
        shows(page, LINES, 2)
        page.locator("rect.hover[data-step='3']").first.click()
        page.locator("p.hint button", has_text="three").click()
        leads_to(page, "#place")
        leads_to(page, "q=step%3D3")
        shows(page, ROWS, 2)

    @pytest.mark.parametrize("tab", [(WIDE, "light"), (PHONE, "dark")], indirect=True)
    def test_nothing_in_them_keeps_people_out(self, tab: Tab, site: Site) -> None:
        for address, ready in (
            (site.page("place", "one"), "#report-comparison table"),
            (f"{site.address}#runs", LINES),
        ):
            page = tab.open(address, shows=ready)
            settled(page)
            assert serious(page) == []

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
