"""The table of all traces, comparing many, and search, in a real browser."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote

import pytest
from accessible import serious
from browsing import (
    FITS,
    PHONE,
    WIDE,
    Site,
    Tab,
    eventually,
    expect,
    has,
    leads_to,
    says,
    settled,
    shows,
    until,
)
from msgspec import structs
from viewer_runs import hostile, odd, run_team, training_run

from baton.cli import main
from baton.trace import Trace, write
from baton.trace.formats.jsonl import read_bytes
from baton.trace.formats.sqlite.store import write_store

MANY = 700


def renamed(trace: Trace, name: str, reward: float) -> Trace:
    rewards = tuple(structs.replace(one, target=name, value=reward) for one in trace.rewards)
    return structs.replace(trace, header=structs.replace(trace.header, trace_id=name), rewards=rewards)


def many(folder: Path) -> None:
    """Many traces in a store, a training run, and files."""
    folder.mkdir()
    (folder / "many").mkdir()
    short = run_team("shard-sum", "swarm", 1)
    write_store((renamed(short, f"t-{k:04d}", k / MANY) for k in range(MANY)), folder / "many" / "run.db")
    write(
        [run_team("shard-sum", "hierarchical", 3), run_team("shard-sum", "debate", 1)],
        folder / "teams.jsonl",
    )
    training_run(folder / "training", steps=2, episodes=2)
    hostile(folder / "hostile.jsonl")
    write(odd(), folder / "odd.jsonl")
    (folder / "broken.jsonl").write_bytes(b'{"kind":"trace"}\n{]\n')


@pytest.fixture(scope="module")
def site(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site") / "runs"
    many(folder)
    made = Site(folder)
    yield made
    made.close()


STATE = ".toolbar [data-complete]"
ROW = ".grid tbody tr.press"
NAME = f"{ROW} td.name"


def table(tab: Tab, site: Site, query: str = "") -> Any:
    page = tab.open(f"{site.address}#table?{query}", shows=".traces-page")
    page.wait_for_selector(".toolbar [role=status][data-complete=true]", state="attached")
    return page


def counts(page: Any, words: str) -> None:
    """Wait until the table says that it has so many, beginning with these words."""
    expect(page.locator(STATE)).to_have_text(re.compile(rf"^{re.escape(words)}(?!\d)"))


def _windows(url: str) -> list[int]:
    place, _, query = url.partition("?")
    return [int(at) for at in parse_qs(query).get("from", ())] if place.endswith("/api/table") else []


def until_asked(page: Any, asked: set[int], wanted: set[int]) -> None:
    eventually(page, lambda: asked >= wanted, f"these are asked for: {sorted(wanted)}")


def names(page: Any) -> list[str]:
    return list(page.locator(NAME).all_text_contents())


def address(page: Any) -> dict[str, str]:
    return {name: value for name, (value, *_) in parse_qs(page.url.partition("?")[2]).items()}


def first_is(page: Any, name: str) -> None:
    expect(page.locator(NAME).first).to_have_text(name)


class TestTable:
    def test_every_trace_is_in_it_and_rows_are_few(self, tab: Tab, site: Site) -> None:
        page = table(tab, site, "sort=trace")
        expect(page.locator(STATE)).to_have_text("715")
        has(page, ".grid", "aria-rowcount", "716")
        until(page, f"document.querySelectorAll('{ROW}').length < 60")
        says(page, "details.notes", "1 place cannot be read")
        page.evaluate("document.querySelector('.scroll').scrollTop = 1e9")
        says(page, f"{ROW}:last-child", "t-0699")
        leads_to(page, "at=")
        page.reload()
        says(page, f"{ROW}:last-child", "t-0699")

    def test_rows_are_asked_for_before_they_are_scrolled_to(self, tab: Tab, site: Site) -> None:
        asked: set[int] = set()
        tab.page.on("request", lambda request: asked.update(_windows(request.url)))
        page = table(tab, site, "sort=trace")
        until_asked(page, asked, {0, 60, 120, 180})
        asked.clear()
        page.evaluate("document.querySelector('.scroll').scrollTop = 30 * 610")
        until_asked(page, asked, {600, 660})
        asked.clear()
        page.evaluate("document.querySelector('.scroll').scrollTop = 30 * 430")
        until_asked(page, asked, {420, 360, 300, 240})

    def test_an_answer_that_nobody_waits_for_any_more_is_not_told(self, tab: Tab, site: Site) -> None:
        page = table(tab, site, "sort=trace")
        held: list[Any] = []
        page.route("**/api/table?q=trace*", lambda route: held.append(route))
        page.fill("input.query", "trace=t-0001")
        page.keyboard.press("Enter")
        eventually(page, lambda: bool(held), "the question is held")
        page.fill("input.query", "topology=swarm")
        page.keyboard.press("Enter")
        counts(page, "700 of")
        for route in held:
            with page.expect_response(lambda answer, asked=route.request.url: answer.url == asked):
                route.continue_()
        settled(page)
        counts(page, "700 of")

    def test_the_end_of_a_long_name_is_never_cut(self, tab: Tab, site: Site) -> None:
        table(tab, site, "q=place%3Druns/teams.jsonl&sort=trace")
        shows(tab.page, f"{NAME} .tail", 2)
        until(
            tab.page,
            f"[...document.querySelectorAll('{NAME}')].every((cell) => cell.textContent.endsWith("
            "cell.querySelector('.tail').textContent) && cell.querySelector('.tail').getBoundingClientRect().right"
            " <= cell.getBoundingClientRect().right)",
        )
        assert names(tab.page) == ["shard-sum-debate-1", "shard-sum-hierarchical-3"]

    def test_a_query_sort_and_columns_are_in_the_address(self, tab: Tab, site: Site) -> None:
        page = table(tab, site)
        page.fill("input[aria-label='Filter traces']", "reward>0.98 topology=swarm")
        page.keyboard.press("Enter")
        counts(page, "13 of 715")
        page.click("th >> text=reward")
        says(page, "th[aria-sort=descending]", "reward")
        first_is(page, "t-0699")
        page.click("summary >> text=columns")
        page.click(".ticks label:has-text('policy')")
        page.wait_for_selector("th >> text=policy")
        leads_to(page, "columns=")
        kept = page.url
        assert address(page)["q"] == "reward>0.98 topology=swarm"
        page.go_back()
        shows(page, "th:has-text('policy')", 0)
        says(page, "th[aria-sort=descending]", "reward")
        page.go_back()
        says(page, "th[aria-sort=descending]", "when")
        page.go_forward()
        says(page, "th[aria-sort=descending]", "reward")
        page.go_forward()
        page.wait_for_selector("th >> text=policy")
        other = tab.another()
        other.goto(kept)
        other.wait_for_selector("th >> text=policy")
        first_is(other, "t-0699")
        expect(other.locator("input[aria-label='Filter traces']")).to_have_value("reward>0.98 topology=swarm")
        other.close()

    def test_presses_filter(self, tab: Tab, site: Site) -> None:
        page = table(tab, site)
        page.click(".side .facet:has-text('hierarchical')")
        counts(page, "1 of")
        page.click(".side .facet:has-text('hierarchical')")
        counts(page, "715")
        page.click(".side .facet:has-text('runs/many')", modifiers=["Shift"])
        counts(page, "15 of")
        expect(page.locator("input[aria-label='Filter traces']")).to_have_value("-place=runs/many")

    def test_a_mistake_is_told_and_takes_nothing_away(self, tab: Tab, site: Site) -> None:
        page = table(tab, site)
        before = names(page)[:10]
        page.fill("input[aria-label='Filter traces']", "rewrd>1")
        page.wait_for_selector("p.bad:has-text(\"Did you mean 'reward'\")")
        assert names(page)[:10] == before

    def test_by_keys_alone(self, tab: Tab, site: Site) -> None:
        page = table(tab, site, "sort=trace&q=place%3Druns/many")
        page.keyboard.press("/")
        page.keyboard.press("ArrowDown")
        for _ in range(3):
            page.keyboard.press("ArrowDown")
        page.keyboard.press(" ")
        expect(page.locator(".chosen b")).to_have_text("1 ticked")
        page.keyboard.press("End")
        until(page, "document.activeElement.innerText?.includes('t-0699')")
        page.keyboard.press("PageUp")
        page.keyboard.press("Home")
        until(page, "document.activeElement.innerText?.includes('t-0000')")
        page.keyboard.press("Enter")
        page.wait_for_selector(".trace-page")
        page.go_back()
        page.wait_for_selector(ROW)
        expect(page.locator(".chosen b")).to_have_text("1 ticked")

    def test_it_is_live(self, tab: Tab, site: Site) -> None:
        page = table(tab, site, "q=trace:brand-new")
        shows(page, NAME, 0)
        write(renamed(run_team("shard-sum", "swarm", 2), "brand-new", 0.5), site.folder / "new.jsonl")
        page.wait_for_selector(f"{NAME} >> text=brand-new")
        (site.folder / "new.jsonl").unlink()
        shows(page, NAME, 0)


class TestSelections:
    def test_many_are_compared(self, tab: Tab, site: Site) -> None:
        page = table(tab, site, "q=place%3Druns/teams.jsonl or trace%3Dt-0007&sort=trace")
        shows(page, ".grid tbody input", 3)
        for at in range(3):
            page.locator(".grid tbody input").nth(at).check()
        expect(page.locator(".chosen b")).to_have_text("3 ticked")
        page.click(".chosen >> text=compare")
        shows(page, ".many .stage canvas", 3)
        says(page, "h1", "3 traces side by side")
        page.click(".sides th button >> nth=0")
        leads_to(page, "#compare?picks")
        page.click("a[aria-label^='Event by event'] >> nth=0")
        page.wait_for_selector(".diff-page")

    def test_more_than_fit_are_counted(self, tab: Tab, site: Site) -> None:
        page = tab.open(f"{site.address}#compare?q=place%3Druns/many", shows=".sides")
        says(page, ".page", "The first 24 of 700")

    def test_measured_exported_and_labelled(self, tab: Tab, site: Site, tmp_path: Path) -> None:
        page = table(tab, site, "q=place%3Druns/teams.jsonl&measure=topology&sort=trace")
        page.wait_for_selector(".measures tbody tr >> nth=1")
        says(page, ".measures tbody", "hierarchical")
        shows(page, NAME, 2)
        for name, kind in (("export table", "csv"), ("export traces", "jsonl")):
            with page.expect_download() as got:
                page.click(f".chosen >> text={name}")
            got.value.save_as(tmp_path / f"traces.{kind}")
        told = list(csv.DictReader((tmp_path / "traces.csv").read_text("utf-8").splitlines()))
        made = list(read_bytes((tmp_path / "traces.jsonl").read_bytes()))
        assert (
            [row["trace"] for row in told] == sorted(trace.trace_id for trace in made) == sorted(names(page))
        )
        page.fill(".chosen input[aria-label=Label]", "look at")
        page.keyboard.press("Enter")
        page.wait_for_selector(".chosen >> text=2 traces labelled")
        table(tab, site, "q=label%3D%22look%20at%22&columns=label")
        shows(page, ".grid .chip", 2)


class TestSearch:
    def test_all_traces_and_then_one(self, tab: Tab, site: Site) -> None:
        page = tab.open(f"{site.address}#search")
        page.fill("input[aria-label='Words to find']", "sum the numbers")
        page.keyboard.press("Enter")
        expect(page.locator(".lead")).to_have_text(re.compile("715 (traces|in which).* (was|were) read"))
        shows(page, ".hits li", 1)
        page.locator("h1").click()
        page.keyboard.press("n")
        page.keyboard.press("Enter")
        page.wait_for_selector(".finder .excerpt mark")
        says(page, ".finder", "of 10 events")
        first = address(page)["event"]
        page.click("button[aria-label='Next found']")
        eventually(page, lambda: address(page)["event"] != first, "another event is in the address")
        page.click("button[aria-label='Previous found']")
        eventually(page, lambda: address(page)["event"] == first, "the first event is in the address again")
        page.reload()
        page.wait_for_selector(".finder .excerpt mark")
        assert address(page)["event"] == first
        page.go_back()
        page.wait_for_selector(".hits li.chosen")

    def test_in_those_a_query_finds(self, tab: Tab, site: Site) -> None:
        page = tab.open(f"{site.address}#search?words=window.hacked&q=place:hostile", shows=".hits li mark")
        says(page, ".lead", "1 trace that fit was read")
        assert page.evaluate("window.hacked") is None


class TestAddress:
    def test_all_that_is_seen_of_a_trace_is_in_it(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace())
        page.select_option("select[aria-label=Axis]", "sequence")
        page.select_option("select[aria-label=Arrows]", "all")
        page.click("text=fold roles")
        page.click("text=critical path")
        page.select_option("select[aria-label='Colour by']", "role")
        page.locator(".track input").fill("14")
        page.click("button[aria-label='Zoom in']")
        leads_to(page, "window=")
        settled(page)
        other = tab.another()
        other.goto(page.url)
        other.wait_for_selector(".stage canvas[data-arrows]")
        for label, value in (("Axis", "sequence"), ("Arrows", "all"), ("Colour by", "role")):
            expect(other.locator(f"select[aria-label='{label}']")).to_have_value(value)
        says(other, ".moment", "14 / 30")
        for name in ("fold roles", "critical path"):
            has(other, f".toolbar button:has-text('{name}')", "aria-pressed", "true")
        eventually(other, lambda: address(other) == address(page), "both have one address")
        other.close()


@pytest.mark.parametrize("tab", [(PHONE, "light"), (PHONE, "dark"), (WIDE, "dark")], indirect=True)
def test_sizes_and_themes(tab: Tab, site: Site) -> None:
    picks = json.dumps([["runs/teams.jsonl", "shard-sum-debate-1"], ["runs/many", "t-0001"]])
    for part in ("table?measure=topology", f"compare?picks={quote(picks)}", "search?words=sum"):
        page = tab.open(f"{site.address}#{part}", shows=".grid tbody tr.press, .sides, .hits li")
        settled(page)
        until(page, FITS)
        assert serious(page) == []


def test_a_page_that_was_left_draws_nothing_more(tab: Tab, site: Site) -> None:
    page = tab.page
    held: list[Any] = []
    holding = True
    page.route("**/api/setup*", lambda route: held.append(route) if holding else route.continue_())
    page.goto(f"{site.address}#places")
    eventually(page, lambda: bool(held), "the first page has asked")
    page.evaluate("location.hash = '#table?sort=trace'")
    page.wait_for_selector(".traces-page", state="attached")
    holding = False
    for route in held:
        route.continue_()
    until(page, f"document.querySelectorAll('{ROW}').length > 5")
    settled(page)
    until(page, f"document.querySelectorAll('{ROW}').length > 5")
    shows(page, "text=Runs and traces", 0)


def test_a_fork_in_a_folder_of_its_own_is_compared_with_what_it_was_made_of(tab: Tab, site: Site) -> None:
    run, fork = str(site.folder / "sum"), str(site.folder / "fork")
    with ThreadPoolExecutor(1) as pool:  # the browser's driver keeps a loop in this thread
        made = ["run", "shard-sum", "--topology", "hierarchical", "--out", run]
        assert pool.submit(main, made).result() == 0
        changed = ["fork", run, "--at", "lead1.worker1#2", "--replace", "0", "--out", fork]
        assert pool.submit(main, changed).result() == 0
    page = table(tab, site, "q=is:fork")
    page.wait_for_selector(".grid tbody tr.press")
    page.click(".grid tbody td.name a")
    page.click("text=compare with what it was forked from")
    page.wait_for_selector(".diff-page")
    says(page, ".lead", "events are the same")
