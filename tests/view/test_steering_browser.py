"""Runs that are started, paused, spoken to, edited and stopped from the page, in a real browser.

BATON_SCREENSHOTS=docs/images python -m pytest tests/view/test_steering_browser.py -k Pictures
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from browsing import PHONE, SHOTS, WIDE, Site, Tab, eventually, expect, says
from gated_run import Gated

from baton.cli.view import attached
from baton.compose.started_runs import StartedRuns
from baton.trace import Trace, read
from baton.trace.validation import validate


@pytest.fixture
def going(tmp_path: Path) -> Iterator[Gated]:
    made = Gated(tmp_path, out="runs/a")
    yield made
    made.close()


@pytest.fixture
def site(chromium: Any, going: Gated) -> Iterator[Site]:
    """A viewer begun with `--steer` on a folder of runs."""
    folder = going.folder / "runs"
    made = Site(folder, attached(forks=True, command=StartedRuns(folder, ("scripted:gated:answer",))))
    yield made
    made.close()


CARD = "article.card"


def people(trace: Trace) -> list[tuple[str, str]]:
    return [(e.extra["do"], e.status) for e in trace.events if e.type == "human_intervention"]


def ended(going: Gated) -> Trace:
    """In a thread of its own: Playwright has a loop in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(going.end).result()


def test_a_run_is_steered_from_its_page(tab: Tab, site: Site, going: Gated) -> None:
    page = tab.open(site.page("trace", "a", id=going.trace().trace_id))
    page.click(".steer button:text-is('pause')")
    page.wait_for_selector(".steer .chip.paused")
    going.open()
    page.locator(".steer-lists li", has_text="worker1#1").wait_for()
    page.select_option(".steer select", "worker1")
    page.fill(".steer .toolbar input[type=text]", "look twice <b>now</b>")
    page.keyboard.press("Enter")
    says(page, ".steer [role=status].small", "say: human#2")
    page.locator(".steer-lists li", has_text="worker1#1").locator("textarea").fill("all done")
    page.locator(".steer-lists li", has_text="worker1#1").locator("button").click()
    says(page, ".steer", "edited: it says so")
    page.locator(".steer-lists li", has_text="worker2").locator("button:text-is('stop this branch')").click()
    says(page, ".steer", "stop: human#")
    page.click(".steer button:text-is('go on')")
    expect(page.locator(".steer .chip").first).to_have_text("finished")
    trace = ended(going)
    assert sorted(people(trace)) == sorted(
        [("pause", "ok"), ("say", "ok"), ("edit", "ok"), ("stop", "ok"), ("go", "ok")]
    )
    assert trace.text(trace.event("worker1#1").content_ref) == "all done"


def test_what_is_being_written_stays_while_the_run_changes(tab: Tab, site: Site, going: Gated) -> None:
    page = tab.open(site.page("trace", "a", id=going.trace().trace_id))
    page.click(".steer button:text-is('pause')")
    page.wait_for_selector(".steer .chip.paused")
    going.open()
    decided = page.locator(".steer-lists li", has_text="worker1#1").locator("textarea")
    decided.fill("half a sentence")
    button = page.locator(".steer-lists li", has_text="worker1#1").locator("button").element_handle()
    page.select_option(".steer select", "worker1")
    page.fill(".steer .toolbar input[type=text]", "look twice")
    page.keyboard.press("Enter")
    says(page, ".steer-lists", "1 thing to read")
    expect(decided).to_have_value("half a sentence")
    assert button.evaluate("one => one.isConnected"), "what did not change can be pressed meanwhile"
    page.locator(".steer-lists li", has_text="worker1#1").locator("button").click()
    says(page, ".steer", "edited: it says so")
    page.click(".steer button:text-is('go on')")
    trace = ended(going)
    assert trace.text(trace.event("worker1#1").content_ref) == "half a sentence"


def test_live_runs_stand_side_by_side_and_one_is_started(tab: Tab, site: Site, going: Gated) -> None:
    page = tab.open(f"{site.address}#live")
    page.wait_for_selector(f"{CARD} .chip.live")
    page.select_option("details.start select[aria-label=policy]", "reference")
    page.fill("details.start input[aria-label=folder]", "../out")
    page.click("details.start button:text-is('start')")
    says(page, "details.start", "cannot name a folder")
    page.fill("details.start input[aria-label=folder]", "mine")
    page.click("details.start button:text-is('start')")
    expect(page.locator(".chip").get_by_text("done", exact=True)).not_to_have_count(0)
    store = site.folder / "mine" / "run.db"
    eventually(page, lambda: read(store).finished, "what was started has ended")
    assert validate(read(store)) == []
    page.click(f"{CARD} button:text-is('pause')")
    page.wait_for_selector(f"{CARD} .chip.paused")
    page.click(f"{CARD} button:text-is('go on')")
    page.wait_for_selector(f"{CARD} .chip.live")
    ended(going)
    page.wait_for_selector(f"{CARD}.over")


@pytest.mark.skipif(SHOTS is None, reason="BATON_SCREENSHOTS says where pictures go")
class TestPictures:
    @pytest.mark.parametrize(
        ("tab", "name"),
        [
            ((WIDE, "light"), "live"), ((WIDE, "dark"), "live-dark"), ((PHONE, "light"), "live-phone"),
            (({"width": 1920, "height": 1080}, "dark"), "live-large"), ((PHONE, "dark"), "live-phone-dark"),
        ],
        indirect=["tab"],
    )  # fmt: skip
    def test_live(self, tab: Tab, site: Site, going: Gated, name: str) -> None:
        page = tab.open(f"{site.address}#live")
        page.click(f"{CARD} button:text-is('pause')")
        page.wait_for_selector(f"{CARD} .chip.paused")
        going.open()
        page.wait_for_selector(f"{CARD} textarea")
        tab.shot(name)
        page.goto(site.page("trace", "a", id=going.trace().trace_id))
        page.wait_for_selector(".steer textarea")
        tab.shot(name.replace("live", "steer"))
        page.click(".steer button:text-is('go on')")
