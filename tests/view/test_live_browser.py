"""What is still being written, in a real browser: a training run and a trace that grow under the page."""

from __future__ import annotations

import re
from typing import Any

from browsing import TEAM, Site, Tab, eventually, expect, has, leads_to, says, shows, until
from viewer_runs import more_training

TRACES = "#report-traces"
ROWS = f"{TRACES} .grid tr.press"


def counts(page: Any, words: str) -> None:
    """Wait until the run has so many traces, or so many that fit."""
    expect(page.locator(f"{TRACES} [data-complete=true]")).to_have_text(re.compile(rf"^{words}(?!\d)"))


class TestRuns:
    def test_a_run_while_it_goes_on(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.page("place", "training"))
        page.wait_for_selector(".report svg path.line")
        until(page, "document.querySelectorAll('.report figure svg').length >= 8")
        says(page, ".lead", "Return on held-out instances")
        says(page, "#report-warnings", "serial-collapse")
        until(page, "(document.querySelector('.progress')?.ariaValueNow ?? null) !== null")
        page.click(".page nav >> text=Traces")
        counts(page, "36")
        more_training(site.folder / "training", 8)
        page.wait_for_selector("[data-steps='9']")
        counts(page, "38")

    def test_search_filter_and_sort(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.page("place", "training"))
        page.fill(f"{TRACES} input.query", "step-0003")
        counts(page, "4 of")
        shows(page, ROWS, 4)
        page.fill(f"{TRACES} input.query", "")
        counts(page, r"3\d")
        page.click(f"{TRACES} th >> text=reward")
        has(page, f"{TRACES} th:has-text('reward')", "aria-sort", "descending")
        column = page.locator(f"{TRACES} th").all_inner_texts().index("reward ▾") + 1

        def falls() -> bool:
            cells = page.locator(f"{ROWS} td:nth-child({column})").all_inner_texts()
            if len(cells) < 10 or not all(re.fullmatch(r"−?[\d.]+", cell) for cell in cells):
                return False
            values = [float(cell.replace("−", "-")) for cell in cells]
            return values == sorted(values, reverse=True)

        eventually(page, falls, "rewards fall from row to row")
        page.click(f"{ROWS} a >> nth=0")
        page.wait_for_selector(".trace-page")
        leads_to(page, "#trace")

    def test_a_trace_while_it_is_written(self, tab: Tab, site: Site) -> None:
        path = site.folder / "live.jsonl"
        whole = path.read_bytes()
        lines = whole.splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:50]))
        page = tab.open(site.trace(TEAM, "live.jsonl"))
        says(page, ".head", "not finished")
        path.write_bytes(whole)
        says(page, ".head", "1014")
        says(page, ".moment", "30 / 30")
