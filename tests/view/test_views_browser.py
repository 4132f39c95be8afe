"""The views of a trace in a real browser: each is drawn, what it is worth is told, however large, on every screen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from browsing import FITS, PHONE, WIDE, Site, Tab, drawn, has, says, shows, until

from baton.trace import read

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


class TestViews:
    @pytest.mark.parametrize("view", ["graph", "tree", "network"])
    def test_canvases(self, tab: Tab, site: Site, view: str) -> None:
        page = tab.open(site.trace(view=view))
        drawn(page, more_than=8)
        has(page, ".stage", "data-view", view)
        page.keyboard.press("c")
        page.keyboard.press("t")
        says(page, ".detail", "Taint")

    def test_keys_go_through_the_views(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace())
        for number, view in enumerate(("lanes", "graph", "tree", "network", "summary"), 1):
            page.keyboard.press(str(number))
            has(page, ".stage", "data-view", view)
        page.keyboard.press("?")
        says(page, "dialog", "one event back or on")

    def test_who_earned_what(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace(view="summary"))
        says(page, ".summary", "shapley · agent")
        page.click(".summary th >> text=shapley")
        rows = ".summary table:has-text('spawned by') tbody tr"
        says(page, f"{rows} >> nth=0", "lead2.worker1")
        says(page, f"{rows}:has-text('orchestrator') >> nth=-1", "not measured")


class TestWorth:
    def test_zero_and_not_measured_look_different(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace())
        page.select_option("select[aria-label='Colour by']", label="shapley · agent")
        says(page, ".legend", "not measured")
        drawn(page, more_than=8)
        page.select_option("select[aria-label='Colour by']", label="message-replay · message")
        for view in ("graph", "network"):
            page.click(f"[role=tab][data-view={view}]")
            has(page, ".stage", "data-view", view)
            drawn(page, more_than=8)
        page.select_option("select[aria-label='Colour by']", label="format · turn")
        says(page, ".legend", "−0.1")

    def test_tokens_are_coloured_by_advantage(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace(event="lead1#1"))
        page.click(".detail summary >> text=LLM call")
        page.wait_for_selector(".tokens .judged")
        says(page, ".tokens", "There are 2 shards")
        page.select_option(".call select", label="advantage: turn-group · turn")
        colours = (
            "[...new Set([...document.querySelectorAll('.tokens span')].map(s => s.style.backgroundColor))]"
        )
        until(page, f"{colours}.length === 1 && {colours}[0] !== ''")
        says(page, ".turn.system", "You are lead1")

    def test_regret_ledger(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.page("trace", "training", id="before-0", view="summary"))
        says(page, ".summary", "= optimum 0.743 − regret")
        page.keyboard.press("1")
        page.select_option("select[aria-label='Colour by']", "regret")
        says(page, ".legend", "regret")

    def test_taint(self, tab: Tab, site: Site) -> None:
        trace = read(site.folder / "tainted.jsonl")
        page = tab.open(site.trace(trace.trace_id, "tainted.jsonl"))
        page.click(".toolbar >> text=taint")
        says(page, ".detail", "Violations")
        page.click(".detail >> text=lead: tool call pay")
        says(page, ".badges", "violation")


class TestLarge:
    def test_a_thousand_agents(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace("team-20000", "big.jsonl"))
        says(page, ".tiles", "20,000")
        drawn(page, more_than=8)
        box = page.locator(".stage canvas").bounding_box()
        page.mouse.move(box["x"] + 600, box["y"] + 200)
        page.mouse.down()
        for step in range(6):
            page.mouse.move(box["x"] + 600 - 40 * step, box["y"] + 200 - 30 * step)
        page.mouse.up()
        before = drawn(page)
        page.click("text=fold roles")
        drawn(page, more_than=8, other_than=before)
        for view in ("graph", "tree", "network"):
            page.click(f"[role=tab][data-view={view}]")
            has(page, ".stage", "data-view", view)
            drawn(page, more_than=4)


class TestScreens:
    @pytest.mark.parametrize("tab", [(PHONE, "light"), (PHONE, "dark"), (WIDE, "dark")], indirect=True)
    def test_sizes_and_themes(self, tab: Tab, site: Site) -> None:
        dark = tab.page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
        backgrounds = "getComputedStyle(document.body).backgroundColor === 'rgb(255, 255, 255)'"
        for address, ready in (
            (site.trace(), ".headline .told"),
            (site.page("place", "training"), ".report svg path.line"),
            (site.trace(event="lead1.worker1#2"), ".detail .facts"),
        ):
            page = tab.open(address, shows=ready)
            until(page, FITS)
            until(page, f"{backgrounds} !== {str(dark).lower()}")

    def test_the_theme_can_be_chosen(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace())
        page.click("text=◐ auto")
        page.click("text=◐ light")
        until(page, "getComputedStyle(document.body).backgroundColor === 'rgb(20, 23, 28)'")
        page.reload()
        shows(page, "text=◐ dark", 1)


def test_the_benchmark_still_runs() -> None:
    command = [sys.executable, str(BENCHMARKS / "viewer.py"), "--smoke"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for figure in ("first paint", "panning", "server memory"):
        assert figure in done.stdout
