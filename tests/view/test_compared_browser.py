"""Two traces beside each other, and forks made from the page, in a real browser."""

from __future__ import annotations

from browsing import Site, Tab, leads_to, says, shows


class TestDiff:
    def test_before_and_after(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.page("place", "training"))
        page.click("text=example 0")
        page.wait_for_selector(".diff-page")
        shows(page, ".stage canvas", 2)
        says(page, ".lead", "events are the same")
        says(page, ".tiles", "→")
        page.click(".detail .badge.changed + button >> nth=0")
        page.wait_for_selector(".detail >> text=After")
        page.click("text=swap")
        leads_to(page, "id=after-0")

    def test_two_ticked_traces(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.page("place", "teams.jsonl"))
        shows(page, ".grid tbody input", 2)
        for at in range(2):
            page.locator(".grid tbody input").nth(at).check()
        page.click(".chosen >> text=compare")
        page.click("a[aria-label^='Event by event']")
        page.wait_for_selector(".diff-page")

    def test_traces_of_two_places(self, tab: Tab, site: Site) -> None:
        page = tab.open(f"{site.address}#places")
        says(page, "tbody", "training run")
        page.click("tbody >> text=imported.jsonl")
        page.click(".title >> text=compare")
        page.go_back()
        page.click("tbody >> text=live.jsonl")
        page.click(".title >> text=compare")
        page.wait_for_selector(".diff-page")
        says(page, ".lead", "events are the same")


class TestForks:
    def test_forking_from_the_page(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace(event="lead1.worker1#2"))
        page.click("summary >> text=What if")
        page.fill(".fork textarea", "0")
        page.click("text=Edit and run again")
        page.wait_for_selector(".diff-page")
        says(page, ".lead", "shared reward 1 → 0")
        says(page, ".detail", "changed")
        page.go_back()
        page.wait_for_selector(".detail .said")
        page.click("summary >> text=What if")
        page.fill("input[placeholder=answer]", "7")
        page.click("text=Stop here and run again")
        page.wait_for_selector(".fork .bad, .diff-page")

    def test_a_change_that_does_not_fit_is_a_sentence(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace(event="lead1#3"))
        page.click("summary >> text=What if")
        page.click("text=Drop it and run again")
        page.wait_for_selector(".fork .bad, .diff-page")
