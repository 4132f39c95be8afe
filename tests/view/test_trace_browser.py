"""The page of one trace in a real browser: what it says of the trace, the transcript, notes, and who has no mouse."""

from __future__ import annotations

import re
from typing import Any

import pytest
from accessible import serious
from browsing import FITS, PHONE, TEAM, WIDE, Site, Tab, expect, has, leads_to, says, settled, shows, until

from baton.trace import Trace, read
from baton.trace.formats.sqlite.store_read import read_store
from baton.trace.notes import Notebook
from baton.view.headline import titled

INSIDE = "document.activeElement !== document.body"
LARGE = {"width": 1920, "height": 1200}


def read_training(site: Site, trace_id: str) -> Trace:
    (found,) = read_store(site.folder / "training" / "traces" / "run.db", [trace_id])
    return found


class TestHeadline:
    def test_its_words_lead_to_events(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace())
        says(page, ".headline", "orchestrator stopped. lead2 took 2.35s of the 5.67s")
        page.click(".headline >> text=lead2’s spawn")
        page.wait_for_selector(".detail[data-event='lead2#1']")

    def test_a_game_says_which_choice_lost_most(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.page("trace", "training", id="before-0"))
        page.wait_for_selector(".headline .told.worth")
        says(page, ".headline", "against the best choice")


class TestTranscript:
    def read(self, tab: Tab, site: Site, **query: str) -> Any:
        return tab.open(site.trace(view="transcript", **query), shows=".entry")

    def test_everything_in_order_with_what_was_thought(self, tab: Tab, site: Site) -> None:
        page = self.read(tab, site)
        shows(page, ".entry", 30)
        says(page, ".entry", "sum the numbers in shards 1 2", "~271 tokens · asked 236, said 35")
        thought = page.locator(".entry .thought pre").first
        expect(thought).to_be_hidden()
        page.click("text=thoughts")
        expect(thought).to_be_visible()
        expect(thought).to_have_text("There are 4 shards, which can be read at once.")
        page.click(".entry summary >> text=system prompt >> nth=0")
        says(page, ".entry .system pre", "You are orchestrator")

    def test_from_an_entry_to_its_event_in_the_lanes_and_back(self, tab: Tab, site: Site) -> None:
        page = self.read(tab, site)
        page.click(".entry[data-row='5'] >> text=in the lanes")
        has(page, ".stage", "data-view", "lanes")
        has(page, ".detail", "data-event", "lead1#3")
        page.click(".detail >> text=in the transcript")
        page.wait_for_selector(".entry.chosen[data-row='5']")
        leads_to(page, "view=transcript")

    def test_one_agent_and_log_probabilities_on_demand(self, tab: Tab, site: Site) -> None:
        page = self.read(tab, site)
        page.select_option("select[aria-label=Agent]", "lead2")
        shows(page, ".entry", 6)
        leads_to(page, "agent=lead2")
        shows(page, ".tokens", 0)
        page.click(".entry summary >> text=LLM call >> nth=0")
        page.wait_for_selector(".entry .tokens")
        page.reload()
        shows(page, ".entry", 6)

    def test_it_can_be_copied(self, tab: Tab, site: Site) -> None:
        tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = self.read(tab, site)
        page.click(".entry[data-row='0'] >> text=copy")
        page.wait_for_selector(".entry[data-row='0'] >> text=copied")
        copied = page.evaluate("navigator.clipboard.readText()")
        assert "sum the numbers in shards 1 2" in copied
        assert copied.startswith("[orchestrator#1 · orchestrator · spawn → lead1 · 271 tokens]")

    def test_a_long_one_comes_in_pages_and_is_never_cut_short(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace("team-20000", "big.jsonl", view="transcript"), shows=".entry")
        says(page, ".transcript-bar", "of 20,000 entries")
        page.click("text=later (19,800)")
        page.wait_for_selector("text=earlier (200)")
        page.wait_for_selector(".headline .told")
        page.click(".headline .told .link >> nth=0")
        page.wait_for_selector(".entry.chosen[data-row='19999']")

    def test_a_decision_not_to_spawn_is_not_titled_spawn(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.page("trace", "training", id="after-0", view="transcript"), shows=".entry")
        events = read_training(site, "after-0").events
        shows(page, ".entry", len(events))
        titles = page.locator(".entry header .link[title]").all_inner_texts()
        assert titles == [titled(event) for event in events]
        asked = [title for event, title in zip(events, titles, strict=True) if event.decision == "spawn"]
        assert "spawn decision" not in asked, "what was chosen is told"


class TestKeyboard:
    def test_focus_never_falls_out_of_the_page(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace())
        page.focus("[role=tab][aria-selected=true]")
        for view in ("graph", "tree", "network", "summary", "transcript", "lanes"):
            page.keyboard.press("ArrowRight")
            has(page, ".stage", "data-view", view)
            until(page, f"document.activeElement.dataset.view === '{view}'")
        page.focus("select[aria-label=Axis]")
        page.select_option("select[aria-label=Axis]", "sequence")
        until(page, "document.activeElement.ariaLabel === 'Axis'")
        page.focus(".stage canvas")
        for key, view in (
            ("2", "graph"),
            ("3", "tree"),
            ("4", "network"),
            ("5", "summary"),
            ("6", "transcript"),
        ):
            page.keyboard.press(key)
            has(page, ".stage", "data-view", view)
            settled(page)
            assert page.evaluate(INSIDE), view
        page.keyboard.press("1")
        has(page, ".stage", "data-view", "lanes")
        page.focus(".stage canvas")
        page.keyboard.press("ArrowRight")
        page.wait_for_selector(".detail .facts")
        page.focus(".detail [aria-label=Close]")
        page.keyboard.press("Enter")
        says(page, ".detail", "In short")
        settled(page)
        assert page.evaluate(INSIDE)


class TestNotes:
    def test_a_note_on_an_event_is_there_for_the_next_reader(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace(event="lead1#1"))
        page.wait_for_selector(".note-form")
        page.fill("[aria-label='Note on the event']", "wrong shard <img src=x onerror=alert(1)>")
        page.fill("[aria-label=Labels]", "bad, to check")
        page.fill("[aria-label=Score]", "much")
        page.click("text=Add note")
        says(page, ".note-form .bad", "is no score")
        page.fill("[aria-label=Score]", "−1")
        page.click("text=Add note")
        says(page, ".note .words", "wrong shard <img")
        page.reload()
        expect(page.locator(".note .badges").first).to_have_text(re.compile(r"\s*bad\s*to check\s*−1\s*"))
        assert (site.folder / "teams.jsonl.notes").read_text().count("\n") == 1
        page.click(".note >> text=edit")
        page.fill(".note [aria-label=Labels]", "good")
        page.click(".note >> text=Save")
        expect(page.locator(".note .badges").first).to_have_text(re.compile("^good"))
        page.focus(".stage canvas")
        page.keyboard.press("Escape")
        page.wait_for_selector(".detail >> text=1 note: good")
        page.fill("[aria-label='Right answer']", "1014")
        page.click("text=Add note")
        page.wait_for_selector(".detail >> text=right answer 1014")
        page.click(".note >> text=remove")
        shows(page, ".note", 0)

    def test_what_somebody_else_notes_is_told_and_takes_no_words_away(self, tab: Tab, site: Site) -> None:
        trace = read(site.folder / "imported.jsonl")
        page = tab.open(site.trace("imported", "imported.jsonl"))
        page.wait_for_selector(".note-form")
        Notebook(site.folder / "imported.jsonl").add("imported", text="from another desk", by="ada")
        page.wait_for_selector(".note >> text=from another desk")
        page.fill("[aria-label='Note on the trace']", "half a sentence")
        with page.expect_response(lambda answer: "/api/notes" in answer.url):  # for the page is told
            Notebook(site.folder / "imported.jsonl").add(
                "imported", event=trace.events[0].id, text="more", by="ada"
            )
        tab.answered()
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
        says(page, ".head", "1014")
        assert page.input_value("[aria-label='Note on the trace']") == "half a sentence"


@pytest.mark.parametrize(
    "tab",
    [(WIDE, "light"), (WIDE, "dark"), (PHONE, "light"), (PHONE, "dark"), (LARGE, "light")],
    indirect=True,
)
class TestAxe:
    def test_a_trace_in_every_view(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace(event="lead1#1"), shows=".note-form")
        found = {}
        for view in ("lanes", "graph", "tree", "network", "summary", "transcript"):
            page.click(f"[role=tab][data-view={view}]")
            has(page, ".stage", "data-view", view)
            page.wait_for_selector(".stage canvas, .summary, .entry")
            settled(page)
            found[view] = serious(page)
        page.keyboard.press("Escape")
        says(page, ".detail", "In short")
        settled(page)
        found["in short"] = serious(page)
        page = tab.open(site.trace(event="lead1#1"))
        page.click(".detail summary >> text=LLM call")
        page.wait_for_selector(".tokens")
        settled(page)
        found["a call"] = serious(page)
        assert {view: some for view, some in found.items() if some} == {}

    def test_taint_and_two_traces(self, tab: Tab, site: Site) -> None:
        both = site.page("diff", "training", id="before-0", place2="runs/training", id2="after-0")
        page = tab.open(both, shows=".diff-page .stage canvas")
        settled(page)
        assert serious(page) == []
        trace = read(site.folder / "tainted.jsonl")
        page = tab.open(site.trace(trace.trace_id, "tainted.jsonl"), shows=".headline .told.wrong")
        page.keyboard.press("t")
        says(page, ".detail", "Violations")
        settled(page)
        assert serious(page) == []


class TestPhone:
    @pytest.mark.parametrize("tab", [(PHONE, "light")], indirect=True)
    def test_everything_can_be_reached(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace())
        page.click(".toolbar >> text=in short, notes")
        page.wait_for_selector(".detail.open >> text=The team")
        page.wait_for_selector("[aria-label='Note on the trace']")
        page.click(".detail .close")
        shows(page, ".detail.open", 0)
        for view in ("graph", "tree", "network", "summary", "transcript", "lanes"):
            page.click(f"[role=tab][data-view={view}]")
            has(page, ".stage", "data-view", view)
            page.wait_for_selector(".stage canvas, .summary, .entry")
            until(page, FITS)
        page.click("text=taint")
        page.wait_for_selector(".detail.open >> text=Taint")

    @pytest.mark.parametrize("tab", [(PHONE, "light")], indirect=True)
    def test_every_link_on_top_is_on_the_screen(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace())
        shows(page, ".crumbs a", 4)
        until(
            page,
            "[...document.querySelectorAll('.crumbs a')].every((a) => [...a.getClientRects()].every((box) =>"
            " a.contains(document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2))))",
        )
