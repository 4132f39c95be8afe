"""The page of one trace in a real browser: what it says of the trace, the transcript, notes, and who has no mouse."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from test_browser import PHONE, SHOTS, TEAM, WIDE, Site, Tab, chromium, site, tab, text, until
from viewer_runs import run_team

from baton.cli import main
from baton.measure.prices import Price, PriceTable
from baton.trace import Trace, read, write
from baton.trace.formats.sqlite.store_read import read_store
from baton.trace.notes import Notebook
from baton.view.headline import titled

__all__ = ["chromium", "site", "tab"]  # fixtures

LARGE = {"width": 1920, "height": 1200}
AXE = files(pytest.importorskip("axe_playwright_python")).joinpath("axe.min.js").read_text("utf-8")


def read_training(site: Site, trace_id: str) -> Trace:
    (found,) = read_store(site.folder / "training" / "traces" / "run.db", [trace_id])
    return found


class TestHeadline:
    def test_its_words_lead_to_events(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace())
        page.wait_for_selector(".headline .told")
        assert text(page, ".headline").startswith("orchestrator stopped. lead2 took 2.35s of the 5.67s")
        page.click(".headline >> text=lead2’s spawn")
        page.wait_for_selector(".detail[data-event='lead2#1']")

    def test_a_game_says_which_choice_lost_most(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.page("trace", "training", id="before-0"))
        page.wait_for_selector(".headline .told.worth")
        assert "against the best choice" in text(page, ".headline")


class TestTranscript:
    def read(self, tab: Tab, site: Site, **query: str) -> Any:
        tab.page.goto(site.trace(view="transcript", **query))
        tab.page.wait_for_selector(".entry")
        return tab.page

    def test_everything_in_order_with_what_was_thought(self, tab: Tab, site: Site) -> None:
        page = self.read(tab, site)
        assert page.locator(".entry").count() == 30
        assert "sum the numbers in shards 1 2" in text(page, ".entry >> nth=0")
        assert "~271 tokens · asked 236, said 35" in text(page, ".entry >> nth=0")
        assert not page.is_visible(".entry .thought pre >> nth=0")
        page.click("text=thoughts")
        assert text(page, ".entry .thought pre >> nth=0") == "There are 4 shards, which can be read at once."
        page.click(".entry summary >> text=system prompt >> nth=0")
        assert "You are orchestrator" in text(page, ".entry .system pre >> nth=0")

    def test_from_an_entry_to_its_event_in_the_lanes_and_back(self, tab: Tab, site: Site) -> None:
        page = self.read(tab, site)
        page.click(".entry[data-row='5'] >> text=in the lanes")
        page.wait_for_selector(".stage[data-view=lanes]")
        assert page.get_attribute(".detail", "data-event") == "lead1#3"
        page.click(".detail >> text=in the transcript")
        page.wait_for_selector(".entry.chosen[data-row='5']")
        assert "view=transcript" in page.url

    def test_one_agent_and_log_probabilities_on_demand(self, tab: Tab, site: Site) -> None:
        page = self.read(tab, site)
        page.select_option("select[aria-label=Agent]", "lead2")
        until(page, "document.querySelectorAll('.entry').length === 6")
        assert "agent=lead2" in page.url
        assert page.locator(".tokens").count() == 0
        page.click(".entry summary >> text=LLM call >> nth=0")
        page.wait_for_selector(".entry .tokens")
        page.reload()
        page.wait_for_selector(".entry")
        assert page.locator(".entry").count() == 6

    def test_it_can_be_copied(self, tab: Tab, site: Site) -> None:
        tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = self.read(tab, site)
        page.click(".entry[data-row='0'] >> text=copy")
        page.wait_for_selector(".entry[data-row='0'] >> text=copied")
        copied = page.evaluate("navigator.clipboard.readText()")
        assert "sum the numbers in shards 1 2" in copied
        assert copied.startswith("[orchestrator#1 · orchestrator · spawn → lead1 · 271 tokens]")

    def test_a_long_one_comes_in_pages_and_is_never_cut_short(self, tab: Tab, site: Site) -> None:
        tab.page.goto(site.trace("team-20000", "big.jsonl", view="transcript"))
        page = tab.page
        page.wait_for_selector(".entry")
        assert "of 20,000 entries" in text(page, ".transcript-bar")
        page.click("text=later (19,800)")
        page.wait_for_selector("text=earlier (200)")
        page.wait_for_selector(".headline .told")
        page.click(".headline .told .link >> nth=0")
        page.wait_for_selector(".entry.chosen[data-row='19999']")


class TestKeyboard:
    def test_focus_never_falls_out_of_the_page(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace())
        inside = "document.activeElement !== document.body"
        page.focus("[role=tab][aria-selected=true]")
        for view in ("graph", "tree", "network", "summary", "transcript", "lanes"):
            page.keyboard.press("ArrowRight")
            page.wait_for_selector(f".stage[data-view={view}]")
            assert page.evaluate("document.activeElement.dataset.view") == view
        page.focus("select[aria-label=Axis]")
        page.select_option("select[aria-label=Axis]", "sequence")
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Axis"
        page.focus(".stage canvas")
        for key in ("2", "3", "4", "5", "6", "1"):
            page.keyboard.press(key)
            page.wait_for_timeout(100)
            assert page.evaluate(inside), key
        page.focus(".stage canvas")
        page.keyboard.press("ArrowRight")
        page.wait_for_selector(".detail .facts")
        page.focus(".detail [aria-label=Close]")
        page.keyboard.press("Enter")
        until(page, "document.querySelector('.detail').textContent.includes('In short')")
        assert page.evaluate(inside)


class TestNotes:
    def test_a_note_on_an_event_is_there_for_the_next_reader(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace(event="lead1#1"))
        page.wait_for_selector(".note-form")
        page.fill("[aria-label='Note on the event']", "wrong shard <img src=x onerror=alert(1)>")
        page.fill("[aria-label=Labels]", "bad, to check")
        page.fill("[aria-label=Score]", "much")
        page.click("text=Add note")
        assert "is no score" in text(page, ".note-form .bad")
        page.fill("[aria-label=Score]", "−1")
        page.click("text=Add note")
        page.wait_for_selector(".note")
        assert "wrong shard <img" in text(page, ".note .words")
        page.reload()
        page.wait_for_selector(".note")
        assert text(page, ".note .badges").split() == ["bad", "to", "check", "−1"]
        assert (site.folder / "teams.jsonl.notes").read_text().count("\n") == 1
        page.click(".note >> text=edit")
        page.fill(".note [aria-label=Labels]", "good")
        page.click(".note >> text=Save")
        until(page, "document.querySelector('.note .badges')?.textContent.startsWith('good')")
        page.focus(".stage canvas")
        page.keyboard.press("Escape")
        page.wait_for_selector(".detail >> text=1 note: good")
        page.fill("[aria-label='Right answer']", "1014")
        page.click("text=Add note")
        page.wait_for_selector(".detail >> text=right answer 1014")
        page.click(".note >> text=remove")
        until(page, "!document.querySelector('.note')")

    def test_what_somebody_else_notes_is_told_and_takes_no_words_away(self, tab: Tab, site: Site) -> None:
        trace = read(site.folder / "imported.jsonl")
        page = tab.open(site.trace("imported", "imported.jsonl"))
        page.wait_for_selector(".note-form")
        Notebook(site.folder / "imported.jsonl").add("imported", text="from another desk", by="ada")
        page.wait_for_selector(".note >> text=from another desk")
        page.fill("[aria-label='Note on the trace']", "half a sentence")
        Notebook(site.folder / "imported.jsonl").add(
            "imported", event=trace.events[0].id, text="more", by="ada"
        )
        page.wait_for_timeout(1500)
        assert page.input_value("[aria-label='Note on the trace']") == "half a sentence"
        page.click("text=Add note")
        page.wait_for_selector(".note >> text=half a sentence")
        page.wait_for_selector(".notebook >> text=1 note: more")

    def test_what_is_being_written_stays_while_the_trace_grows(self, tab: Tab, site: Site) -> None:
        path = site.folder / "live.jsonl"
        whole = path.read_bytes()
        path.write_bytes(b"".join(whole.splitlines(keepends=True)[:50]))
        page = tab.open(site.trace(TEAM, "live.jsonl"))
        page.wait_for_selector(".note-form")
        page.fill("[aria-label='Note on the trace']", "half a sentence")
        path.write_bytes(whole)
        page.wait_for_selector(".head:has-text('1014')", timeout=20_000)
        assert page.input_value("[aria-label='Note on the trace']") == "half a sentence"


SERIOUS = ("serious", "critical")


def serious(page: Any) -> list[str]:
    """What axe finds that keeps people out, each with where it is."""
    page.evaluate(AXE)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [
        f"{one['id']}: {node['html'][:160]} {node['any'][0]['message'] if node['any'] else ''}"
        for one in found
        if one["impact"] in SERIOUS
        for node in one["nodes"]
    ]


@pytest.mark.parametrize(
    "tab",
    [(WIDE, "light"), (WIDE, "dark"), (PHONE, "light"), (PHONE, "dark"), (LARGE, "light")],
    indirect=True,
)
class TestAxe:
    def test_a_trace_in_every_view(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace(event="lead1#1"))
        page.wait_for_selector(".note-form")
        found = {}
        for view in ("lanes", "graph", "tree", "network", "summary", "transcript"):
            page.click(f"[role=tab][data-view={view}]")
            page.wait_for_selector(f".stage[data-view={view}]")
            page.wait_for_timeout(250)
            found[view] = serious(page)
        page.keyboard.press("Escape")
        page.wait_for_timeout(100)
        found["in short"] = serious(page)
        page.goto(site.trace(event="lead1#1"))
        page.click(".detail summary >> text=LLM call")
        page.wait_for_selector(".tokens")
        found["a call"] = serious(page)
        assert {view: some for view, some in found.items() if some} == {}

    def test_taint_and_two_traces(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.page("diff", "training", id="before-0", place2="runs/training", id2="after-0"))
        page.wait_for_timeout(300)
        assert serious(page) == []
        trace = read(site.folder / "tainted.jsonl")
        page.goto(site.trace(trace.trace_id, "tainted.jsonl"))
        page.wait_for_selector(".headline .told.wrong")
        page.keyboard.press("t")
        page.wait_for_selector(".detail >> text=Violations")
        assert serious(page) == []


class TestLanesTellTheTruth:
    def test_thumb_histogram_and_cursor_stand_in_one_place(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace())
        for position in ("1", "9", "14", "29"):
            page.locator(".track input").fill(position)
            page.wait_for_timeout(150)
            left = page.locator(".stage canvas").bounding_box()["x"]
            cursor = int(page.get_attribute(".stage canvas", "data-cursor"))
            assert abs(left + cursor - int(page.get_attribute(".scrubber", "data-x"))) <= 2, position

    def test_the_bar_is_dragged_to_a_moment(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace())
        box = page.locator(".strip canvas").bounding_box()
        for share in (0.3, 0.7):
            page.mouse.click(box["x"] + 8 + (box["width"] - 16) * share, box["y"] + 12)
            page.wait_for_timeout(150)
            x = int(page.get_attribute(".scrubber", "data-x"))
            assert x <= box["x"] + 8 + (box["width"] - 16) * share + 1, "what has begun by then, and no more"
        page.mouse.click(box["x"] + box["width"] - 1, box["y"] + 12)
        until(page, "document.querySelector('.moment').textContent.startsWith('30 / 30')")

    def test_a_decision_not_to_spawn_is_not_titled_spawn(self, tab: Tab, site: Site) -> None:
        tab.page.goto(site.page("trace", "training", id="after-0", view="transcript"))
        page = tab.page
        page.wait_for_selector(".entry")
        titles = page.locator(".entry header .link[title]").all_inner_texts()
        events = read_training(site, "after-0").events
        assert titles == [titled(event) for event in events]
        asked = [title for event, title in zip(events, titles, strict=True) if event.decision == "spawn"]
        assert "spawn decision" not in asked, "what was chosen is told"

    def test_a_thousand_agents_open_folded_by_role(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace("team-20000", "big.jsonl"))
        assert page.get_attribute("button:has-text('fold roles')", "aria-pressed") == "true"
        page.goto(site.trace())
        page.wait_for_selector(".head:has-text('shard-sum')")
        assert page.get_attribute("button:has-text('fold roles')", "aria-pressed") == "false"

    @pytest.mark.parametrize(("view", "last"), [("tree", "lead2"), ("network", None)])
    def test_trees_and_networks_have_keys(self, tab: Tab, site: Site, view: str, last: str | None) -> None:
        page = tab.open(site.trace(view=view))
        page.wait_for_selector(f".stage[data-view={view}] canvas")
        page.focus(".stage canvas")
        for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
            page.keyboard.press(key)
        focused = page.get_attribute(".stage canvas", "data-focused")
        assert focused == last if last else focused
        page.keyboard.press("Enter")
        page.wait_for_selector(f".detail-head:has-text('{focused}')")
        for name in ("Zoom in", "Zoom out"):
            page.click(f"button[aria-label='{name}']")
        page.click("text=fit >> nth=0")


class TestPhone:
    @pytest.mark.parametrize("tab", [(PHONE, "light")], indirect=True)
    def test_everything_can_be_reached(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace())
        page.click(".toolbar >> text=in short, notes")
        page.wait_for_selector(".detail.open >> text=The team")
        assert page.is_visible("[aria-label='Note on the trace']")
        page.click(".detail .close")
        until(page, "!document.querySelector('.detail.open')")
        for view in ("graph", "tree", "network", "summary", "transcript", "lanes"):
            page.click(f"[role=tab][data-view={view}]")
            page.wait_for_selector(f".stage[data-view={view}]")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
        page.click("text=taint")
        page.wait_for_selector(".detail.open >> text=Taint")


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
    made = Site(
        folder, fill=False, prices=PriceTable(models={"reference": Price(prompt=2.5, completion=10.0)})
    )
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
class TestPictures:
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
        page = tab.page
        page.goto(gallery.trace(place="team.jsonl", **query))
        page.wait_for_selector(".headline .told")
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


class TestExportedTranscript:
    def test_a_file_holds_what_was_said(self, tab: Tab, site: Site, tmp_path: Path) -> None:
        out = tmp_path / "team.html"
        words = ["export", "html", str(site.folder / "teams.jsonl"), "--trace", TEAM, "--out", str(out)]
        assert main(words) == 0
        page = tab.page
        page.goto(f"{out.as_uri()}#trace?view=transcript")
        page.wait_for_selector(".entry > .said")
        assert "sum the numbers in shards 1 2" in text(page, ".entry[data-row='0'] > .said")
        page.wait_for_selector(".headline .told")
        page.select_option("select[aria-label=Agent]", "lead2")
        until(page, "document.querySelectorAll('.entry').length === 6")
        page.click("[role=tab][data-view=lanes]")
        assert page.locator(".note-form").count() == 0, "a file is read, and nothing is written"
