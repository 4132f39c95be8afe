"""The command centre as one types it: `baton view --steer` beside live runs, in a real browser."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from browsing import WIDE, Tab, expect
from child_process import on_path
from gated_run import GATED, Gated
from held_run import Held

from baton.cli import main
from baton.trace import Trace, read
from baton.trace.notes import who
from baton.trace.records import Event
from baton.trace.validation import validate

CARD = "article.card"


class Viewer:
    """`baton view runs --steer`, in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-c", "import sys; from baton.cli import main; sys.exit(main())"),
                *("view", "runs", "--steer", "--port", "0", "--policy", "scripted:gated:answer"),
            ],
            cwd=folder,
            env=on_path(folder) | {"XDG_CACHE_HOME": str(folder / "cache"), "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        found = re.search(r"http://\S+", self.process.stdout.readline())
        assert found is not None
        self.opened = found[0]
        self.address = self.opened.partition("?")[0]

    def close(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def viewer(tmp_path: Path) -> Iterator[Viewer]:
    (tmp_path / "gated.py").write_text(GATED)
    made = Viewer(tmp_path)
    yield made
    made.close()


@pytest.fixture
def tab(chromium: Any, viewer: Viewer) -> Iterator[Tab]:
    made = Tab(chromium, viewer, WIDE, "light")
    made.open(viewer.opened)
    made.open(f"{viewer.address}#live")
    yield made
    made.end()


def aside(work: Callable[[], Any]) -> Any:
    """In a thread of its own: the browser's driver has a loop in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()


def people(trace: Trace) -> list[Event]:
    return [event for event in trace.events if event.type == "human_intervention"]


def signed(event: Event) -> None:
    """A person's act says who did it, and when."""
    assert event.extra["by"] == who()
    done = datetime.fromisoformat(event.extra["when"])
    assert timedelta(0) <= datetime.now(UTC) - done < timedelta(hours=1)


def outcome(held: Held) -> tuple[list[Event], list[str]]:
    """What people did, and why the guard refused; the trace is whole and is played again exactly."""
    trace = aside(held.end)
    return people(trace), [trace.text(e.content_ref) or "" for e in trace.events if e.status == "failed"]


def test_calls_are_approved_refused_and_time_out_side_by_side(tab: Tab, viewer: Viewer) -> None:
    page = tab.page
    page.wait_for_selector("details.start")
    yes = Held(viewer.folder / "yes")
    no = Held(viewer.folder / "no")
    late = Held(viewer.folder / "late", wait_seconds=15)
    try:
        card = {
            held.folder.name: page.locator(CARD, has_text=f"runs/{held.folder.name}")
            for held in (yes, no, late)
        }
        expect(page.locator(CARD)).to_have_count(3)
        expect(card["late"]).to_contain_text(re.compile("main wants pay|ended"))
        for name, why, press in (("yes", "a bill we know", "approve"), ("no", "who is mallory", "refuse")):
            expect(card[name]).to_contain_text("main wants pay its caller has read untrusted text")
            expect(card[name].locator("pre.said")).to_contain_text('"to": "mallory"')
            assert (yes if name == "yes" else no).paid == []
            card[name].get_by_label("Why").fill(why)
            card[name].get_by_role("button", name=press, exact=True).click()
            expect(card[name]).to_contain_text("ended")
        expect(card["late"]).to_contain_text("ended")
        expect(card["late"].get_by_role("button", name="approve")).to_have_count(0)
        (word,), refused = outcome(yes)
        assert (word.status, word.extra["do"], word.extra["at"], refused) == ("ok", "approve", "main#2", [])
        signed(word)
        assert yes.paid == ["mallory 99"]
        (word,), refused = outcome(no)
        assert (word.status, word.extra["do"]) == ("ok", "refuse")
        assert refused[-1].endswith("a person refused it")
        signed(word)
        assert outcome(late)[0] == []
        assert outcome(late)[1][-1].endswith("nobody let it through within 15 seconds")
        assert no.paid == late.paid == []
        tab.open(
            f"{viewer.address}#trace?place=runs/yes&id={yes.trace().trace_id}&event={people(yes.trace())[0].id}"
        )
        expect(page.locator(".detail .facts")).to_contain_text(f"approvedone by{who()}")
    finally:
        for held in (yes, no, late):
            held.close()


def test_a_run_started_from_the_page_is_steered_to_its_end(tab: Tab, viewer: Viewer) -> None:
    page = tab.page
    try:
        form = page.locator("details.start")
        form.get_by_label("task").select_option("shard-sum")
        form.get_by_label("topology").select_option("centralized")
        form.get_by_label("policy").select_option("scripted:gated:answer")
        form.get_by_label("clock").select_option("real")
        form.get_by_label("folder").fill("mine")
        form.get_by_role("button", name="start").click()
        card = page.locator(CARD, has_text="runs/mine")
        expect(card.locator(".chip").first).to_have_text("at work")
        card.get_by_role("button", name="pause").click()
        expect(card.locator(".chip").first).to_have_text("paused")
        (viewer.folder / "open").touch()
        coming = card.locator("li", has_text="worker1#1").or_(card.locator("li", has_text="worker1#2")).first
        coming.locator("textarea").fill("all done <b>really</b>")
        coming.get_by_role("button", name="edit").click()
        expect(card).to_contain_text(re.compile(r"edited: it says so|edit: human#"))
        card.get_by_label("What to say").fill("be quick")
        card.get_by_label("To whom").select_option("to everybody")
        card.get_by_role("button", name="say").click()
        expect(card).to_contain_text("say: human#")
        card.locator("li", has_text="worker2").get_by_role("button", name="stop this branch").click()
        expect(card).to_contain_text("stop: human#")
        card.get_by_role("button", name="go on").click()
        expect(card).to_contain_text("ended")
        expect(page.locator(".chip", has_text="done")).to_have_count(1)
    finally:
        (viewer.folder / "open").touch()
    store = viewer.folder / "runs" / "mine" / "run.db"
    trace = read(store)
    assert trace.finished
    assert validate(trace) == []
    assert aside(lambda: main(["replay", str(store)])) == 0
    assert sorted(event.extra["do"] for event in people(trace)) == ["edit", "go", "pause", "say", "stop"]
    for event in people(trace):
        assert event.status == "ok"
        signed(event)


def test_what_cannot_be_done_is_told_on_its_card_alone(tab: Tab, viewer: Viewer) -> None:
    page = tab.page
    first, second = (Gated(viewer.folder, out=f"runs/{name}") for name in ("a", "b"))
    try:
        one, other = (page.locator(CARD, has_text=f"runs/{name}") for name in ("a", "b"))
        for card in (one, other):
            card.get_by_role("button", name="pause").click()
            expect(card.locator(".chip").first).to_have_text("paused")
        one.get_by_label("What to say").fill("only you")
        one.get_by_label("What to say").press("Enter")
        expect(one).to_contain_text("say: human#2")
        expect(other).not_to_contain_text("human#2")
        second.kill()
        expect(other.locator(".chip").first).to_have_text("not at work")
        one.get_by_role("button", name="go on").click()
        expect(one.locator(".chip").first).to_have_text("at work")
        other.get_by_label("What to say").fill("when you are back")
        other.get_by_label("What to say").press("Enter")
        expect(other).to_contain_text("kept; the run has not come to it yet")
        assert [event.extra["do"] for event in people(aside(first.end))] == ["pause", "say", "go"]
        expect(one).to_contain_text("ended")
    finally:
        first.close()
        second.close()
