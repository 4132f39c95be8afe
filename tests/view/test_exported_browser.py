"""An exported trace in a real browser: one file does it all, and asks nobody for anything."""

from __future__ import annotations

from pathlib import Path

from browsing import TEAM, Site, Tab, drawn, has, says, shows

from baton.cli import main


def test_one_file_does_it_all(tab: Tab, site: Site, tmp_path: Path) -> None:
    out = tmp_path / "team.html"
    assert main(["export", "html", str(site.folder / "live.jsonl"), "--out", str(out)]) == 0
    page = tab.open(out.as_uri())
    drawn(page, more_than=8)
    for number, view in enumerate(("graph", "tree", "network", "summary"), 2):
        page.keyboard.press(str(number))
        has(page, ".stage", "data-view", view)
    says(page, ".summary", "shapley")
    page = tab.open(f"{out.as_uri()}#trace?event=lead1%231")
    page.wait_for_selector(".detail .said")
    page.click(".detail summary >> text=LLM call")
    page.wait_for_selector(".tokens .judged")
    page.keyboard.press("t")
    says(page, ".detail", "Taint")
    shows(page, "text=What if", 0)


def test_a_file_holds_what_was_said(tab: Tab, site: Site, tmp_path: Path) -> None:
    out = tmp_path / "team.html"
    words = ["export", "html", str(site.folder / "teams.jsonl"), "--trace", TEAM, "--out", str(out)]
    assert main(words) == 0
    page = tab.open(f"{out.as_uri()}#trace?view=transcript", shows=".entry > .said")
    says(page, ".entry[data-row='0'] > .said", "sum the numbers in shards 1 2")
    page.wait_for_selector(".headline .told")
    page.select_option("select[aria-label=Agent]", "lead2")
    shows(page, ".entry", 6)
    page.click("[role=tab][data-view=lanes]")
    has(page, ".stage", "data-view", "lanes")
    shows(page, ".note-form", 0)  # a file is read, and nothing is written
