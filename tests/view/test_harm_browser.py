"""Traces that mean harm, are odd, or are not there, in a browser: nothing of them runs, what is wrong is said."""

from __future__ import annotations

import pytest
from browsing import Site, Tab, drawn, eventually, has, says, shows, until

from baton.trace import read

VIEWS = ("lanes", "graph", "tree", "network", "summary")


class TestHarm:
    def test_nothing_in_a_trace_is_executed(self, tab: Tab, site: Site) -> None:
        trace = read(site.folder / "hostile.jsonl")
        page = tab.open(site.trace(trace.trace_id, "hostile.jsonl"))
        scripts = page.locator("script").count()
        for number, view in enumerate(VIEWS, 1):
            page.keyboard.press(str(number))
            has(page, ".stage", "data-view", view)
            page.locator(".stage canvas, .summary").first.wait_for()
            box = page.locator(".stage").bounding_box()
            page.mouse.move(box["x"] + 30, box["y"] + 50)
        page.keyboard.press("1")
        page.focus(".stage canvas")
        for _ in trace.events:
            page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowDown")
        for event in trace.events:
            page.goto(site.trace(trace.trace_id, "hostile.jsonl", event=event.id))
            page.wait_for_selector(f".detail[data-event='{event.id}'] .facts")
        result = next(event for event in trace.events if event.type == "tool_result")
        page = tab.open(site.trace(trace.trace_id, "hostile.jsonl", event=result.id))
        page.click("text=show all 300")
        until(page, "document.querySelector('.said').textContent.length > 300000")
        until(page, "document.querySelector('.said').textContent.slice(0, 50).includes('<script>')")
        until(page, "document.querySelector('.said').textContent.slice(0, 400).includes('\\\\u202e')")
        assert page.evaluate("window.hacked") is None
        shows(page, "script", scripts)
        shows(page, "main img, main a[href^=javascript]", 0)
        # The table itself: a place that has one trace, and is known to, opens as that trace.
        tab.open(f"{site.address}#table?q=place%3Druns/hostile.jsonl", shows=".traces-page .grid tr.press")

    def test_the_browser_itself_refuses_markup_and_strangers(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace())
        refused = (
            "() => { try { document.body.innerHTML = '<b>x</b>'; return false; } catch { return true; } }"
        )
        assert page.evaluate(refused)
        blocked = "() => fetch('http://127.0.0.1:1/').then(() => false, () => true)"
        assert page.evaluate(blocked)
        eventually(page, lambda: any("connect-src" in error for error in tab.errors), "the refusal is told")
        tab.errors.clear()
        tab.strangers.clear()

    @pytest.mark.parametrize("name", ["empty", "single", "cycle", "same"])
    def test_odd_traces_are_shown_as_they_are(self, tab: Tab, site: Site, name: str) -> None:
        page = tab.open(site.trace(name, "odd.jsonl"))
        for key in ("2", "3", "4", "5", "1", "x", "i", "r", "c", ".", ","):
            page.keyboard.press(key)
        has(page, ".stage", "data-view", "lanes")
        page.focus(".stage canvas")
        for key in ("ArrowRight", "ArrowDown", "+", "-", "f", "Escape"):
            page.keyboard.press(key)
        page.keyboard.press("t")
        if name in ("cycle", "same"):
            says(page, ".notes", "No critical path", "No taint")
        else:
            says(page, ".detail", "Taint")
        drawn(page, more_than=0)

    @pytest.mark.parametrize(
        ("place", "query", "said"),
        [
            ("corrupt.jsonl", {}, "corrupt.jsonl"),
            ("nowhere.jsonl", {}, "there is no place"),
            ("teams.jsonl", {"id": "no-such-trace"}, "no trace"),
        ],
    )
    def test_what_cannot_be_shown_is_said(
        self, tab: Tab, site: Site, place: str, query: dict[str, str], said: str
    ) -> None:
        page = tab.open(site.page("trace" if query else "place", place, **query), shows=".failure")
        says(page, ".failure", "This cannot be shown", said)
        assert "Traceback" not in page.inner_text("body")
