"""The lanes of a trace in a real browser: choosing, folding, moving, scrubbing, and that they tell the truth."""

from __future__ import annotations

from typing import Any

import pytest
from browsing import FITS, PHONE, WIDE, Site, Tab, drawn, eventually, has, leads_to, says, until
from msgspec import structs

from baton.trace import read, write


def arrows(page: Any, holds: str) -> None:
    """Wait until there are so many arrows."""
    until(page, f"Number(document.querySelector('.stage canvas')?.dataset.arrows) {holds}")


def box_of(page: Any, selector: str = ".stage canvas") -> dict[str, float]:
    """Where this is, once it is drawn and stays there."""
    drawn(page)
    last: Any = None

    def stays() -> bool:
        nonlocal last
        before, last = last, page.locator(selector).bounding_box()
        return last is not None and last == before

    eventually(page, stays, f"{selector} has its place")
    return dict(last)


class TestLanes:
    def test_choosing_and_reading_an_event(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace())
        drawn(page, more_than=8)
        arrows(page, ">= 8")
        says(page, ".answer", "1014")
        page.focus(".stage canvas")
        page.keyboard.press("ArrowRight")
        has(page, ".detail", "data-event", "orchestrator#1")
        says(page, ".detail .said", "sum the numbers")
        page.keyboard.press("ArrowDown")
        has(page, ".detail", "data-event", "lead1#1")
        says(page, ".detail .facts", "lead1 (lead)")
        leads_to(page, "event=lead1%231")
        page.click(".detail .edges button")
        has(page, ".detail", "data-event", "orchestrator#1")
        page.keyboard.press("Escape")
        says(page, ".detail", "In short")

    def test_a_bar_can_be_pressed(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace())
        box = box_of(page)
        page.mouse.click(box["x"] + 220, box["y"] + 26 + 20)
        has(page, ".detail", "data-event", "orchestrator#1")

    def test_axis_folding_arrows_and_the_critical_path(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace())
        before = drawn(page)
        page.click("text=critical path")
        drawn(page, other_than=before)
        page.click("text=critical path")
        page.select_option("select[aria-label=Arrows]", "selected")
        arrows(page, "=== 0")
        page.select_option("select[aria-label=Arrows]", "all")
        arrows(page, "> 12")
        page.click("text=fold roles")
        arrows(page, "< 12")
        page.select_option("select[aria-label=Axis]", "sequence")
        until(page, "!document.querySelector('.toolbar').textContent.includes('compress idle')")
        page.select_option("select[aria-label=Axis]", "time")
        page.click("text=compress idle")
        for name in ("Zoom in", "Zoom in", "Zoom out"):
            page.click(f"button[aria-label='{name}']")
        drawn(page, more_than=4)

    def test_a_subtree_folds(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace())
        box = box_of(page)
        before = int(page.get_attribute(".stage canvas", "data-arrows"))
        page.mouse.click(box["x"] + 60, box["y"] + 26 + 60)
        arrows(page, f"< {before}")
        page.mouse.click(box["x"] + 60, box["y"] + 26 + 60)
        arrows(page, f"=== {before}")

    def test_scrubbing(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace())
        page.locator(".track input").fill("14")
        says(page, ".detail", "At this moment")
        says(page, ".moment", "14 / 30", "7 agents alive")
        page.keyboard.press(".")
        says(page, ".moment", "15 / 30")
        page.click("button[aria-label=Play]")
        until(page, "!document.querySelector('.moment').textContent.startsWith('15 ')")

    def test_what_was_inferred_and_long_pauses(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace("imported", "imported.jsonl"))
        says(page, ".legend", "inferred, not recorded")
        before = drawn(page)
        page.click("text=compress idle")
        drawn(page, other_than=before)
        page = tab.open(site.trace("imported", "imported.jsonl", event="lead1#1"))
        page.wait_for_selector(".badge.dashed")
        page.wait_for_selector(".detail .edges >> text=, inferred")

    def test_finding(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace())
        before = drawn(page)
        page.fill("input[type=search]", "lead2 return")
        drawn(page, other_than=before)


class TestTheyTellTheTruth:
    @pytest.mark.parametrize("tab", [(WIDE, "light"), (PHONE, "dark")], indirect=True)
    def test_thumb_histogram_and_cursor_stand_in_one_place(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace())
        box_of(page)
        for position in ("1", "9", "14", "29"):
            page.locator(".track input").fill(position)
            says(page, ".moment", f"{position} / 30")
            until(
                page,
                "(() => { const c = document.querySelector('.stage canvas');"
                " const x = c.getBoundingClientRect().x + Number(c.dataset.cursor);"
                " return Math.abs(x - Number(document.querySelector('.scrubber').dataset.x)) <= 2; })()",
            )
        until(page, FITS)

    def test_all_of_a_trace_takes_as_long_as_it_took(self, tab: Tab, site: Site) -> None:
        short = structs.replace(read(site.folder / "tainted.jsonl"), costs={})
        *others, last = short.events
        write(
            structs.replace(short, events=(*others, structs.replace(last, duration_s=7.5))),
            site.folder / "late.jsonl",
        )
        page = tab.open(site.trace(short.trace_id, "late.jsonl"))
        took = page.locator(".tile", has_text="took").locator(".value").text_content()
        assert took.startswith("7.5")
        says(page, ".moment", f"events · {took} ·")

    def test_the_bar_is_dragged_to_a_moment(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace())
        box = box_of(page, ".strip canvas")
        until(page, "document.querySelector('.scrubber').dataset.x !== undefined")
        for share in (0.3, 0.7):
            before = page.get_attribute(".scrubber", "data-x")
            wanted = box["x"] + 8 + (box["width"] - 16) * share
            page.mouse.click(wanted, box["y"] + 12)
            until(page, f"document.querySelector('.scrubber').dataset.x !== '{before}'")
            # what has begun by then, and no more
            until(page, f"Number(document.querySelector('.scrubber').dataset.x) <= {wanted + 1}")
        page.mouse.click(box["x"] + box["width"] - 1, box["y"] + 12)
        until(page, "document.querySelector('.moment').textContent.startsWith('30 / 30')")

    def test_a_thousand_agents_open_folded_by_role(self, tab: Tab, site: Site) -> None:
        tab.open(site.trace("team-20000", "big.jsonl"))
        has(tab.page, "button:has-text('fold roles')", "aria-pressed", "true")
        tab.open(site.trace())
        has(tab.page, "button:has-text('fold roles')", "aria-pressed", "false")

    @pytest.mark.parametrize(("view", "last"), [("tree", "lead2"), ("network", None)])
    def test_trees_and_networks_have_keys(self, tab: Tab, site: Site, view: str, last: str | None) -> None:
        page = tab.open(site.trace(view=view), shows=f".stage[data-view={view}] canvas")
        drawn(page)
        page.focus(".stage canvas")
        for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
            page.keyboard.press(key)
        until(page, "document.querySelector('.stage canvas').dataset.focused !== undefined")
        if last:
            has(page, ".stage canvas", "data-focused", last)
        focused = page.get_attribute(".stage canvas", "data-focused")
        page.keyboard.press("Enter")
        says(page, ".detail-head", focused)
        for name in ("Zoom in", "Zoom out"):
            page.click(f"button[aria-label='{name}']")
        page.click("text=fit >> nth=0")
