"""What is still being written, in a real browser: a training run and a trace that grow under the page."""

from __future__ import annotations

from browsing import TEAM, Site, Tab, eventually, has, leads_to, says, shows, until
from viewer_runs import more_training

ROWS = "tbody tr.press"


class TestRuns:
    def test_a_run_while_it_goes_on(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.page("place", "training"))
        page.wait_for_selector(".report svg path.line")
        until(page, "document.querySelectorAll('.report figure svg').length >= 8")
        says(page, ".lead", "Return on held-out instances")
        says(page, "#report-warnings", "serial-collapse")
        until(page, "document.querySelector('.progress').ariaValueNow !== null")
        page.click(".page nav >> text=Traces")
        until(page, f"document.querySelectorAll('{ROWS}').length > 30")
        before = page.locator(ROWS).count()
        more_training(site.folder / "training", 8)
        page.wait_for_selector("[data-steps='9']")
        until(page, f"document.querySelectorAll('{ROWS}').length > {before}")

    def test_search_filter_and_sort(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.page("place", "training"))
        page.fill("input[type=search]", "step-0003")
        shows(page, ROWS, 4)
        page.fill("input[type=search]", "")
        page.click("th >> text=reward")
        has(page, "th:has-text('reward')", "aria-sort", "descending")

        def values() -> list[float]:
            cells = page.locator(f"{ROWS} td:nth-child(4)").all_inner_texts()
            return [float(cell.replace("−", "-")) for cell in cells]

        eventually(page, lambda: len(values()) > 30 and values() == sorted(values(), reverse=True), "sorted")
        every = len(values())
        page.select_option("select[aria-label=State]", "worst")
        until(page, f"document.querySelectorAll('{ROWS}').length < {every}")
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
