"""The viewer in a real browser: Debian's Chromium, headless, on pages from real runs.

The pictures of the documentation come from here too, of a team's trace and of a real training run:
    BATON_SCREENSHOTS=docs/images BATON_RUN=runs/flagship python -m pytest tests/view/test_browser.py -k Pictures
    BATON_SCREENSHOTS=docs/images python -m pytest tests/view/test_trace_browser.py -k Pictures
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from viewer_runs import credited, hostile, imported, odd, run_team, tainted, training_run

import team_trace
from baton.cli import main
from baton.cli.view import attached
from baton.measure.prices import PriceTable
from baton.trace import Trace, read, write
from baton.view.web.server import listen, make_app, server_of
from baton.view.web.traces import Library

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip(
        "no Chromium here, so the viewer's browser tests do not run (Debian: apt-get install chromium)",
        allow_module_level=True,
    )
playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright here: pip install -e '.[dev]'")

SHOTS = os.environ.get("BATON_SCREENSHOTS")
RUN = os.environ.get("BATON_RUN")
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TEAM = "shard-sum-hierarchical-3"
WIDE = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
COLOURS = """() => { const c = document.querySelector('.stage canvas'); const x = c.getContext('2d');
  const d = x.getImageData(0, 0, c.width, c.height).data; const found = new Set();
  for (let i = 0; i < d.length; i += 16) found.add((d[i] << 16) | (d[i + 1] << 8) | d[i + 2]); return found.size; }"""


def big_trace() -> Trace:
    """1,000 agents, 20,000 events."""
    usual, team_trace.WORKER_EVENTS = team_trace.WORKER_EVENTS, 20
    try:
        return team_trace.team_trace(20_000)
    finally:
        team_trace.WORKER_EVENTS = usual


class Site:
    """A viewer on this machine with something of everything."""

    def __init__(self, folder: Path, *, fill: bool = True, prices: PriceTable | None = None) -> None:
        self.folder = folder
        if fill:
            self.fill(folder)
        app = make_app(Library([folder]), attached(forks=True, prices=prices))
        at = listen(0)
        self.address = f"http://127.0.0.1:{at.getsockname()[1]}/"
        self.server = server_of(app)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [at]})
        self.thread.start()

    def fill(self, folder: Path) -> None:
        folder.mkdir()
        training_run(folder / "training", steps=8, episodes=4, status="running")
        hostile(folder / "hostile.jsonl")
        tainted(folder / "tainted.jsonl")
        team = credited(run_team("shard-sum", "hierarchical", 3))
        write([team, run_team("shard-sum", "debate", 1)], folder / "teams.jsonl")
        write(team, folder / "live.jsonl")
        write(imported(team), folder / "imported.jsonl")
        write(odd(), folder / "odd.jsonl")
        write(big_trace(), folder / "big.jsonl")
        (folder / "corrupt.jsonl").write_bytes(
            (folder / "hostile.jsonl").read_bytes()[:-400] + b"\xff{]\n{}\n"
        )

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join()

    def page(self, name: str, place: str, **query: str) -> str:
        return f"{self.address}#{name}?{urlencode({'place': f'{self.folder.name}/{place}', **query})}"

    def trace(self, trace_id: str = TEAM, place: str = "teams.jsonl", **query: str) -> str:
        return self.page("trace", place, id=trace_id, **query)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("site") / "runs")
    yield made
    made.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


class Tab:
    """One tab, which remembers everything that should not have happened."""

    def __init__(self, chromium: Any, site: Site, size: dict[str, int], scheme: str) -> None:
        self.context = chromium.new_context(viewport=size, color_scheme=scheme, device_scale_factor=1)
        self.page = self.context.new_page()
        self.page.set_default_timeout(15_000)
        self.errors: list[str] = []
        self.strangers: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: self.errors.append(f"dialog {dialog.message}"))
        self.page.on("console", self._console)
        home = (site.address, "file://")
        self.page.on("request", lambda r: r.url.startswith(home) or self.strangers.append(r.url))

    def _console(self, message: Any) -> None:
        if "Content Security Policy" in message.text or "Trusted" in message.text:
            self.errors.append(message.text)

    def open(self, address: str) -> Any:
        self.page.goto(address)
        self.page.wait_for_selector(".stage canvas, .page, .traces-page, .failure, .summary")
        return self.page

    def shot(self, name: str) -> None:
        self.page.wait_for_timeout(500)
        self.page.mouse.move(1, 1)
        self.page.screenshot(path=str(Path(SHOTS or ".") / f"{name}.png"))


@pytest.fixture
def tab(chromium: Any, site: Site, request: pytest.FixtureRequest) -> Iterator[Tab]:
    size, scheme = getattr(request, "param", (WIDE, "light"))
    made = Tab(chromium, site, size, scheme)
    yield made
    made.context.close()
    assert made.errors == []
    assert made.strangers == [], "the page asked somebody else for something"


def text(page: Any, selector: str) -> str:
    return str(page.inner_text(selector))


def until(page: Any, holds: str) -> None:
    """Wait for a condition. (Playwright's own wait evaluates text inside the page, which the policy forbids.)"""
    for _ in range(200):
        if page.evaluate(holds):
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"never came true: {holds}")


def drawn(page: Any, *, other_than: int = 1) -> int:
    """How many colours are on the canvas, once there are others than there were and they stay."""
    last = other_than
    for _ in range(150):
        page.wait_for_timeout(120)
        found = int(page.evaluate(COLOURS))
        if found == last != other_than:
            return found
        last = found
    return last


class TestLanes:
    def test_choosing_and_reading_an_event(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace())
        assert drawn(page) > 8
        assert int(page.get_attribute(".stage canvas", "data-arrows")) >= 8
        assert "1014" in text(page, ".answer")
        page.focus(".stage canvas")
        page.keyboard.press("ArrowRight")
        page.wait_for_selector(".detail .said")
        assert page.get_attribute(".detail", "data-event") == "orchestrator#1"
        assert "sum the numbers" in text(page, ".detail .said")
        page.keyboard.press("ArrowDown")
        page.wait_for_selector(".detail[data-event='lead1#1'] .facts")
        assert "lead1 (lead)" in text(page, ".detail .facts")
        assert "event=lead1%231" in page.url
        page.click(".detail .edges button")
        assert page.get_attribute(".detail", "data-event") == "orchestrator#1"
        page.keyboard.press("Escape")
        assert "In short" in text(page, ".detail")

    def test_a_bar_can_be_pressed(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace())
        box = page.locator(".stage canvas").bounding_box()
        page.mouse.click(box["x"] + 220, box["y"] + 26 + 20)
        assert page.get_attribute(".detail", "data-event") == "orchestrator#1"

    def test_axis_folding_arrows_and_the_critical_path(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace())
        before = drawn(page)
        page.click("text=critical path")
        assert drawn(page, other_than=before) != before
        page.click("text=critical path")
        page.select_option("select[aria-label=Arrows]", "selected")
        page.wait_for_selector(".stage canvas[data-arrows='0']")
        page.select_option("select[aria-label=Arrows]", "all")
        until(page, "Number(document.querySelector('.stage canvas').dataset.arrows) > 12")
        page.click("text=fold roles")
        until(page, "Number(document.querySelector('.stage canvas').dataset.arrows) < 12")
        page.select_option("select[aria-label=Axis]", "sequence")
        assert page.locator("text=compress idle").count() == 0
        page.select_option("select[aria-label=Axis]", "time")
        page.click("text=compress idle")
        for name in ("Zoom in", "Zoom in", "Zoom out"):
            page.click(f"button[aria-label='{name}']")
        assert drawn(page) > 4

    def test_a_subtree_folds(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace())
        arrows = int(page.get_attribute(".stage canvas", "data-arrows"))
        box = page.locator(".stage canvas").bounding_box()
        page.mouse.click(box["x"] + 60, box["y"] + 26 + 60)
        until(page, f"Number(document.querySelector('.stage canvas').dataset.arrows) < {arrows}")
        page.mouse.click(box["x"] + 60, box["y"] + 26 + 60)
        until(page, f"Number(document.querySelector('.stage canvas').dataset.arrows) === {arrows}")

    def test_scrubbing(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace())
        page.locator(".track input").fill("14")
        assert "At this moment" in text(page, ".detail")
        assert "14 / 30" in text(page, ".moment")
        assert "7 agents alive" in text(page, ".moment")
        page.keyboard.press(".")
        assert "15 / 30" in text(page, ".moment")
        page.click("button[aria-label=Play]")
        until(page, "!document.querySelector('.moment').textContent.startsWith('15 ')")

    def test_what_was_inferred_and_long_pauses(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace("imported", "imported.jsonl"))
        assert "inferred, not recorded" in text(page, ".legend")
        before = drawn(page)
        page.click("text=compress idle")
        assert drawn(page, other_than=before) != before
        page.goto(site.trace("imported", "imported.jsonl", event="lead1#1"))
        page.wait_for_selector(".badge.dashed")
        page.wait_for_selector(".detail .edges >> text=, inferred")

    def test_finding(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace())
        before = drawn(page)
        page.fill("input[type=search]", "lead2 return")
        assert drawn(page, other_than=before) != before


class TestViews:
    @pytest.mark.parametrize("view", ["graph", "tree", "network"])
    def test_canvases(self, tab: Tab, site: Site, view: str) -> None:
        page = tab.open(site.trace(view=view))
        assert drawn(page) > 8
        assert page.get_attribute(".stage", "data-view") == view
        page.keyboard.press("c")
        page.keyboard.press("t")
        page.wait_for_selector(".detail >> text=Taint")

    def test_keys_go_through_the_views(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace())
        for number, view in enumerate(("lanes", "graph", "tree", "network", "summary"), 1):
            page.keyboard.press(str(number))
            page.wait_for_selector(f".stage[data-view={view}]")
        page.keyboard.press("?")
        assert "one event back or on" in text(page, "dialog")

    def test_who_earned_what(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace(view="summary"))
        assert "shapley · agent" in text(page, ".summary")
        page.click(".summary th >> text=shapley")
        assert "lead2.worker1" in text(page, ".summary table:has-text('spawned by') tbody tr >> nth=0")
        assert "not measured" in text(
            page, ".summary table:has-text('spawned by') tbody tr:has-text('orchestrator') >> nth=-1"
        )


class TestWorth:
    def test_zero_and_not_measured_look_different(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace())
        page.select_option("select[aria-label='Colour by']", label="shapley · agent")
        assert "not measured" in text(page, ".legend")
        assert drawn(page) > 8
        page.select_option("select[aria-label='Colour by']", label="message-replay · message")
        for view in "24":
            page.keyboard.press(view)
            assert drawn(page) > 8
        page.select_option("select[aria-label='Colour by']", label="format · turn")
        assert "−0.1" in text(page, ".legend")

    def test_tokens_are_coloured_by_advantage(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace(event="lead1#1"))
        page.click(".detail summary >> text=LLM call")
        page.wait_for_selector(".tokens .judged")
        assert "There are 2 shards" in text(page, ".tokens")
        page.select_option(".call select", label="advantage: turn-group · turn")
        colours = page.evaluate(
            "[...new Set([...document.querySelectorAll('.tokens span')].map(s => s.style.backgroundColor))]"
        )
        assert len(colours) == 1
        assert colours != [""]
        assert "You are lead1" in text(page, ".turn.system")

    def test_regret_ledger(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.page("trace", "training", id="before-0", view="summary"))
        page.wait_for_selector(".summary >> text=optimum")
        assert "= optimum 0.743 − regret" in text(page, ".summary")
        page.keyboard.press("1")
        page.select_option("select[aria-label='Colour by']", "regret")

    def test_taint(self, tab: Tab, site: Site) -> None:
        trace = read(site.folder / "tainted.jsonl")
        page = tab.open(site.trace(trace.trace_id, "tainted.jsonl"))
        page.click(".toolbar >> text=taint")
        page.wait_for_selector(".detail >> text=Violations")
        page.click(".detail >> text=lead: tool call pay")
        assert "violation" in text(page, ".badges")


class TestDiffAndFork:
    def test_before_and_after(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.page("place", "training"))
        page.click("text=example 0")
        page.wait_for_selector(".diff-page")
        assert page.locator(".stage canvas").count() == 2
        assert "events are the same" in text(page, ".lead")
        assert "→" in text(page, ".tiles")
        page.click(".detail .badge.changed + button >> nth=0")
        page.wait_for_selector(".detail >> text=After")
        page.click("text=swap")
        until(page, "location.hash.includes('id=after-0')")

    def test_two_ticked_traces(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.page("place", "teams.jsonl"))
        page.wait_for_selector(".grid tbody input >> nth=1")
        for box in page.locator(".grid tbody input").all():
            box.check()
        page.click(".chosen >> text=compare")
        page.click("a[aria-label^='Event by event']")
        page.wait_for_selector(".diff-page")

    def test_traces_of_two_places(self, tab: Tab, site: Site) -> None:
        page = tab.open(f"{site.address}#places")
        assert "training run" in text(page, "tbody")
        page.click("tbody >> text=imported.jsonl")
        page.click(".title >> text=compare")
        page.go_back()
        page.click("tbody >> text=live.jsonl")
        page.click(".title >> text=compare")
        page.wait_for_selector(".diff-page")
        assert "events are the same" in text(page, ".lead")

    def test_forking_from_the_page(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace(event="lead1.worker1#2"))
        page.click("summary >> text=What if")
        page.fill(".fork textarea", "0")
        page.click("text=Edit and run again")
        page.wait_for_selector(".diff-page")
        assert "shared reward 1 → 0" in text(page, ".lead")
        assert "changed" in text(page, ".detail")
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


class TestRuns:
    def test_a_trace_while_it_is_written(self, tab: Tab, site: Site) -> None:
        path = site.folder / "live.jsonl"
        whole = path.read_bytes()
        lines = whole.splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:50]))
        page = tab.open(site.trace(TEAM, "live.jsonl"))
        assert "not finished" in text(page, ".head")
        path.write_bytes(whole)
        page.wait_for_selector(".head:has-text('1014')", timeout=20_000)
        assert "30 / 30" in text(page, ".moment")


class TestHarm:
    def test_nothing_in_a_trace_is_executed(self, tab: Tab, site: Site) -> None:
        trace = read(site.folder / "hostile.jsonl")
        page = tab.open(site.trace(trace.trace_id, "hostile.jsonl"))
        scripts = page.locator("script").count()
        for number in range(1, 6):
            page.keyboard.press(str(number))
            drawn_or_read = page.locator(".stage canvas, .summary")
            drawn_or_read.first.wait_for()
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
        page.goto(site.trace(trace.trace_id, "hostile.jsonl", event=result.id))
        page.click("text=show all 300")
        until(page, "document.querySelector('.said').textContent.length > 300000")
        assert "<script>" in text(page, ".said")[:50]
        assert "\\u202e" in page.evaluate("document.querySelector('.said').textContent.slice(0, 400)")
        assert page.evaluate("window.hacked") is None
        assert page.locator("script").count() == scripts
        assert page.locator("main img, main a[href^=javascript]").count() == 0
        page.goto(site.page("place", "hostile.jsonl"))
        page.wait_for_selector(".trace-page")

    def test_the_browser_itself_refuses_markup_and_strangers(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace())
        refused = (
            "() => { try { document.body.innerHTML = '<b>x</b>'; return false; } catch { return true; } }"
        )
        assert page.evaluate(refused)
        blocked = "() => fetch('http://127.0.0.1:1/').then(() => false, () => true)"
        assert page.evaluate(blocked)
        assert any("connect-src" in error for error in tab.errors)
        tab.errors.clear()
        tab.strangers.clear()

    @pytest.mark.parametrize("name", ["empty", "single", "cycle", "same"])
    def test_odd_traces_are_shown_as_they_are(self, tab: Tab, site: Site, name: str) -> None:
        page = tab.open(site.trace(name, "odd.jsonl"))
        for key in ("2", "3", "4", "5", "1", "x", "i", "r", "c", ".", ","):
            page.keyboard.press(key)
        page.focus(".stage canvas")
        for key in ("ArrowRight", "ArrowDown", "+", "-", "f", "Escape"):
            page.keyboard.press(key)
        page.keyboard.press("t")
        page.wait_for_timeout(200)
        assert ("No critical path" in text(page, ".notes")) if name in ("cycle", "same") else True

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
        page = tab.open(site.page("trace" if query else "place", place, **query))
        page.wait_for_selector(".failure")
        assert "This cannot be shown" in text(page, ".failure")
        assert said in text(page, ".failure")
        assert "Traceback" not in text(page, "body")


class TestLarge:
    def test_a_thousand_agents(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace("team-20000", "big.jsonl"))
        assert "20,000" in text(page, ".tiles")
        assert drawn(page) > 8
        box = page.locator(".stage canvas").bounding_box()
        page.mouse.move(box["x"] + 600, box["y"] + 200)
        page.mouse.down()
        for step in range(6):
            page.mouse.move(box["x"] + 600 - 40 * step, box["y"] + 200 - 30 * step)
        page.mouse.up()
        page.click("text=fold roles")
        assert drawn(page) > 8
        for view in "234":
            page.keyboard.press(view)
            assert drawn(page) > 4


class TestScreens:
    @pytest.mark.parametrize("tab", [(PHONE, "light"), (PHONE, "dark"), (WIDE, "dark")], indirect=True)
    def test_sizes_and_themes(self, tab: Tab, site: Site) -> None:
        dark = tab.page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
        for address in (site.trace(), site.page("place", "training"), site.trace(event="lead1.worker1#2")):
            tab.page.goto("about:blank")
            page = tab.open(address)
            page.wait_for_timeout(150)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            light = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
            assert light != dark

    def test_the_theme_can_be_chosen(self, tab: Tab, site: Site) -> None:
        page = tab.open(site.trace())
        page.click("text=◐ auto")
        page.click("text=◐ light")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 28)"
        page.reload()
        page.wait_for_selector("text=◐ dark")


class TestExported:
    def test_one_file_does_it_all(self, tab: Tab, site: Site, tmp_path: Path) -> None:
        out = tmp_path / "team.html"
        assert main(["export", "html", str(site.folder / "live.jsonl"), "--out", str(out)]) == 0
        page = tab.open(out.as_uri())
        assert drawn(page) > 8
        for view in "2345":
            page.keyboard.press(view)
        assert "shapley" in text(page, ".summary")
        page.goto(f"{out.as_uri()}#trace?event=lead1%231")
        page.wait_for_selector(".detail .said")
        page.click(".detail summary >> text=LLM call")
        page.wait_for_selector(".tokens .judged")
        page.keyboard.press("t")
        assert page.locator("text=What if").count() == 0


def test_the_benchmark_still_runs() -> None:
    command = [sys.executable, str(BENCHMARKS / "viewer.py"), "--smoke"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for figure in ("first paint", "panning", "server memory"):
        assert figure in done.stdout


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site") / "runs"
    folder.mkdir()
    write(run_team("shard-sum", "hierarchical", 3), folder / "team.jsonl")
    (folder / "flagship").symlink_to(Path(str(RUN)).resolve())
    made = Site(folder, fill=False)
    Path(str(SHOTS)).mkdir(parents=True, exist_ok=True)
    yield made
    made.close()


@pytest.mark.skipif(SHOTS is None or RUN is None, reason="pictures are taken on demand")
class TestPictures:
    def test_a_training_run(self, chromium: Any, gallery: Site) -> None:
        tab = Tab(chromium, gallery, WIDE, "dark")
        page = tab.open(gallery.page("place", "flagship"))
        page.wait_for_selector(".report svg path.line")
        tab.shot("run-dark")
        tab.context.close()
        tab = Tab(chromium, gallery, WIDE, "light")
        page = tab.open(gallery.page("place", "flagship"))
        page.fill("input[type=search]", "step-0024")
        page.click("th >> text=events")
        page.click("tbody tr.press a >> nth=90")
        page.wait_for_selector(".trace-page")
        page.select_option("select[aria-label='Colour by']", label="coma · orchestrator")
        tab.shot("credit")
        page.goto(gallery.page("diff", "flagship", id="before-2", place2="runs/flagship", id2="after-2"))
        page.wait_for_selector(".diff-page")
        tab.shot("diff")
        tab.context.close()
