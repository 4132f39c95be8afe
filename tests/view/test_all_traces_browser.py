"""The table of all traces, comparing many, and search, in a real browser."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote

import pytest
from msgspec import structs
from test_browser import PHONE, WIDE, Site, Tab, chromium, text, until  # noqa: F401  # `chromium` is a fixture
from viewer_runs import hostile, odd, run_team, training_run

from baton.cli import main
from baton.trace import Trace, write
from baton.trace.formats.jsonl import read_bytes
from baton.trace.formats.sqlite.store import write_store

MANY = 700


def renamed(trace: Trace, name: str, reward: float) -> Trace:
    rewards = tuple(structs.replace(one, target=name, value=reward) for one in trace.rewards)
    return structs.replace(trace, header=structs.replace(trace.header, trace_id=name), rewards=rewards)


class Folder(Site):
    """Many traces in a store, a training run, and files."""

    def fill(self, folder: Path) -> None:
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
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Folder(tmp_path_factory.mktemp("site") / "runs")
    yield made
    made.close()


@pytest.fixture
def tab(chromium: Any, site: Site, request: pytest.FixtureRequest) -> Iterator[Tab]:  # noqa: F811
    size, scheme = getattr(request, "param", (WIDE, "light"))
    made = Tab(chromium, site, size, scheme)
    yield made
    made.context.close()
    assert made.errors == []
    assert made.strangers == []


def table(tab: Tab, site: Site, query: str = "") -> Any:
    tab.page.goto("about:blank")
    tab.page.goto(f"{site.address}#table?{query}")
    tab.page.wait_for_selector(".toolbar [role=status][data-complete=true]", state="attached")
    return tab.page


def state(page: Any) -> str:
    return text(page, ".toolbar [data-complete]")


def _windows(url: str) -> list[int]:
    place, _, query = url.partition("?")
    return [int(at) for at in parse_qs(query).get("from", ())] if place.endswith("/api/table") else []


def until_asked(page: Any, asked: set[int], wanted: set[int]) -> None:
    for _ in range(500):
        if asked >= wanted:
            return
        page.wait_for_timeout(20)
    raise AssertionError(f"asked for {sorted(asked)}, and not for all of {sorted(wanted)}")


def names(page: Any) -> list[str]:
    return list(page.locator(".grid tbody tr.press td.name").all_inner_texts())


def address(page: Any) -> dict[str, str]:
    return {name: value for name, (value, *_) in parse_qs(page.url.partition("?")[2]).items()}


class TestTable:
    def test_every_trace_is_in_it_and_rows_are_few(self, tab: Tab, site: Site) -> None:
        page = table(tab, site, "sort=trace")
        assert state(page) == "715"
        assert page.get_attribute(".grid", "aria-rowcount") == "716"
        assert page.locator(".grid tbody tr.press").count() < 60
        assert "1 place cannot be read" in text(page, "details.notes")
        page.evaluate("document.querySelector('.scroll').scrollTop = 1e9")
        until(
            page,
            "document.querySelector('.grid tbody tr.press:nth-last-child(2)').innerText.includes('t-0699')",
        )
        until(page, "location.hash.includes('at=')")
        page.reload()
        until(
            page,
            "document.querySelector('.grid tbody tr.press:nth-last-child(2)')?.innerText.includes('t-0699')",
        )

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
        while not held:
            page.wait_for_timeout(20)
        page.fill("input.query", "topology=swarm")
        page.keyboard.press("Enter")
        until(page, "document.querySelector('.toolbar [data-complete]').innerText.startsWith('70')")
        before = state(page)
        for route in held:
            route.continue_()
        page.wait_for_timeout(300)
        assert state(page) == before

    def test_a_query_sort_and_columns_are_in_the_address(self, tab: Tab, site: Site) -> None:
        page = table(tab, site)
        page.fill("input[aria-label='Filter traces']", "reward>0.98 topology=swarm")
        page.keyboard.press("Enter")
        until(page, "document.querySelector('.toolbar [data-complete]').innerText.startsWith('13 of 715')")
        page.click("th >> text=reward")
        until(page, "document.querySelector('th[aria-sort=descending]')?.innerText.includes('reward')")
        until(page, "document.querySelector('.grid tbody tr.press td.name')?.innerText === 't-0699'")
        page.click("summary >> text=columns")
        page.click(".ticks label:has-text('policy')")
        page.wait_for_selector("th >> text=policy")
        kept = page.url
        assert address(page)["q"] == "reward>0.98 topology=swarm"
        page.go_back()
        until(page, "!document.querySelector('.grid thead').innerText.includes('policy')")
        page.go_back()
        until(page, "document.querySelector('th[aria-sort=descending]')?.innerText.includes('when')")
        page.go_forward()
        page.go_forward()
        page.wait_for_selector("th >> text=policy")
        other = tab.context.new_page()
        other.goto(kept)
        other.wait_for_selector("th >> text=policy")
        until(other, "document.querySelector('.grid tbody tr.press td.name')?.innerText === 't-0699'")
        assert other.input_value("input[aria-label='Filter traces']") == "reward>0.98 topology=swarm"
        other.close()

    def test_presses_filter(self, tab: Tab, site: Site) -> None:
        page = table(tab, site)
        page.click(".side .facet:has-text('hierarchical')")
        until(page, "document.querySelector('.toolbar [data-complete]').innerText.startsWith('1 of')")
        page.click(".side .facet:has-text('hierarchical')")
        until(page, "document.querySelector('.toolbar [data-complete]').innerText === '715'")
        page.click(".side .facet:has-text('runs/many')", modifiers=["Shift"])
        until(page, "document.querySelector('.toolbar [data-complete]').innerText.startsWith('15 of')")
        assert page.input_value("input[aria-label='Filter traces']") == "-place=runs/many"

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
        assert text(page, ".chosen b") == "1 ticked"
        page.keyboard.press("End")
        until(page, "document.activeElement.innerText?.includes('t-0699')")
        page.keyboard.press("PageUp")
        page.keyboard.press("Home")
        until(page, "document.activeElement.innerText?.includes('t-0000')")
        page.keyboard.press("Enter")
        page.wait_for_selector(".trace-page")
        page.go_back()
        page.wait_for_selector(".grid tbody tr.press")
        assert text(page, ".chosen b") == "1 ticked"

    def test_it_is_live(self, tab: Tab, site: Site) -> None:
        page = table(tab, site, "q=trace:brand-new")
        assert names(page) == []
        write(renamed(run_team("shard-sum", "swarm", 2), "brand-new", 0.5), site.folder / "new.jsonl")
        page.wait_for_selector(".grid td.name >> text=brand-new", timeout=20_000)
        (site.folder / "new.jsonl").unlink()
        until(page, "!document.querySelector('.grid td.name')")


class TestSelections:
    def test_many_are_compared(self, tab: Tab, site: Site) -> None:
        page = table(tab, site, "q=place%3Druns/teams.jsonl or trace%3Dt-0007&sort=trace")
        for box in page.locator(".grid tbody input").all():
            box.check()
        assert text(page, ".chosen b") == "3 ticked"
        page.click(".chosen >> text=compare")
        page.wait_for_selector(".sides")
        until(page, "document.querySelectorAll('.many .stage canvas').length === 3")
        assert "3 traces side by side" in text(page, "h1")
        page.click(".sides th button >> nth=0")
        until(page, "location.hash.startsWith('#compare?picks')")
        page.click("a[aria-label^='Event by event'] >> nth=0")
        page.wait_for_selector(".diff-page")

    def test_more_than_fit_are_counted(self, tab: Tab, site: Site) -> None:
        page = tab.page
        page.goto(f"{site.address}#compare?q=place%3Druns/many")
        page.wait_for_selector(".sides")
        assert "The first 24 of 700" in text(page, ".page")

    def test_measured_exported_and_labelled(self, tab: Tab, site: Site, tmp_path: Path) -> None:
        page = table(tab, site, "q=place%3Druns/teams.jsonl&measure=topology&sort=trace")
        page.wait_for_selector(".measures tbody tr >> nth=1")
        assert "hierarchical" in text(page, ".measures tbody")
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
        until(page, "document.querySelectorAll('.grid .chip').length === 2")


class TestSearch:
    def test_all_traces_and_then_one(self, tab: Tab, site: Site) -> None:
        page = tab.page
        page.goto(f"{site.address}#search")
        page.fill("input[aria-label='Words to find']", "sum the numbers")
        page.keyboard.press("Enter")
        until(page, "document.querySelector('.lead')?.innerText.includes('read.')")
        until(page, "/715 (traces|in which)/.test(document.querySelector('.lead').innerText)")
        assert page.locator(".hits li").count() == 1
        page.locator("h1").click()
        page.keyboard.press("n")
        page.keyboard.press("Enter")
        page.wait_for_selector(".finder .excerpt mark")
        assert "of 10 events" in text(page, ".finder")
        first = address(page)["event"]
        page.click("button[aria-label='Next found']")
        until(page, f"!location.hash.includes('event={quote(first)}&')")
        page.click("button[aria-label='Previous found']")
        page.reload()
        page.wait_for_selector(".finder .excerpt mark")
        assert address(page)["event"] == first
        page.go_back()
        page.wait_for_selector(".hits li.chosen")

    def test_in_those_a_query_finds(self, tab: Tab, site: Site) -> None:
        page = tab.page
        page.goto(f"{site.address}#search?words=window.hacked&q=place:hostile")
        page.wait_for_selector(".hits li mark")
        until(page, "document.querySelector('.lead').innerText.includes('1 trace that fit was read')")
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
        until(page, "location.hash.includes('window=')")
        kept = page.url
        other = tab.context.new_page()
        other.goto(kept)
        other.wait_for_selector(".stage canvas[data-arrows]")
        assert other.input_value("select[aria-label=Axis]") == "sequence"
        assert other.input_value("select[aria-label=Arrows]") == "all"
        assert other.input_value("select[aria-label='Colour by']") == "role"
        assert "14 / 30" in text(other, ".moment")
        for name in ("fold roles", "critical path"):
            assert other.get_attribute(f".toolbar button:has-text('{name}')", "aria-pressed") == "true"
        other.wait_for_timeout(600)
        assert address(other) == address(page)
        other.close()


@pytest.mark.parametrize("tab", [(PHONE, "light"), (PHONE, "dark"), (WIDE, "dark")], indirect=True)
def test_sizes_and_themes(tab: Tab, site: Site) -> None:
    picks = json.dumps([["runs/teams.jsonl", "shard-sum-debate-1"], ["runs/many", "t-0001"]])
    for part in ("table?measure=topology", f"compare?picks={quote(picks)}", "search?words=sum"):
        tab.page.goto("about:blank")
        tab.page.goto(f"{site.address}#{part}")
        tab.page.wait_for_selector(".grid tbody tr.press, .sides, .hits")
        tab.page.wait_for_timeout(300)
        assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_page_that_was_left_draws_nothing_more(tab: Tab, site: Site) -> None:
    page = tab.page
    page.route("**/api/setup*", lambda route: (page.wait_for_timeout(400), route.continue_()))
    page.goto(f"{site.address}#places", wait_until="commit")
    page.evaluate("location.hash = '#table?sort=trace'")
    page.wait_for_selector(".grid tbody tr.press")
    page.wait_for_timeout(600)
    assert page.locator(".grid tbody tr.press").count() > 5
    assert page.locator("text=Runs and traces").count() == 0


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
    assert "events are the same" in text(page, ".lead")
