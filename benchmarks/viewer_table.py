"""100,000 traces in the viewer's table: reading them, opening, sorting, filtering and scrolling, in headless Chromium.

The traces are short (8 events, no content), in ten files of a folder, so that what is measured is the table and not
the disk. Opening is from the navigation to the first rows, with the index as an earlier viewing left it in the cache;
what a press takes is from the press to the new rows, drawn.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from msgspec import structs

import team_trace
from baton.trace.formats.jsonl import encode_trace
from baton.trace.records import Reward
from table import row

FILES = 10
EVENTS = 8
NAME = "name-of-it"
AGAIN = 5
WORK = {
    "in all": "TaskDuration",
    "script": "ScriptDuration",
    "layout": "LayoutDuration",
    "style": "RecalcStyleDuration",
}
FRAMES = """(seconds) => new Promise((done) => {
  const box = document.querySelector('.scroll'); const frames = []; let last = performance.now();
  const end = last + 1000 * seconds; let blank = 0;
  const step = (now) => {
    frames.push(now - last); last = now; box.scrollTop += 90;
    if ([...document.querySelectorAll('.grid tbody td.name')].some((one) => one.textContent === '…')) blank++;
    if (now < end) requestAnimationFrame(step);
    else { frames.shift(); frames.sort((a, b) => a - b);
      const fps = 1000 * frames.length / frames.reduce((a, b) => a + b, 0);
      done([fps, frames[Math.floor(frames.length * 0.95)], blank / frames.length, frames.length]); }
  };
  requestAnimationFrame(step);
})"""
UNTIL = """([selector, press, wanted]) => new Promise((done, failed) => {
  const start = performance.now();
  const look = () => {
    const found = document.querySelector(selector)?.innerText;
    const taken = (performance.now() - start) / 1000;
    if (found === wanted) done(taken);
    else if (taken > 60) failed(new Error(`after ${press}: ${selector} is ${found}, not ${wanted}`));
    else requestAnimationFrame(look);
  };
  const input = document.querySelector("input.query");
  if (press.startsWith('q:')) { input.value = press.slice(2); input.dispatchEvent(new Event('change')); }
  else if (press.startsWith('at:')) document.querySelector('.scroll').scrollTop = Number(press.slice(3));
  else [...document.querySelectorAll('.grid th button')].find((one) => one.innerText.startsWith(press)).click();
  look();
})"""


def measure(browser: Any, num_traces: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "runs"
        place.mkdir()
        for number in range(FILES):
            (place / f"part-{number}.jsonl").write_bytes(b"".join(_lines(num_traces, number)))
        environment = {**os.environ, "XDG_CACHE_HOME": str(Path(folder) / "cache")}
        with viewer(place, environment) as (_, address):
            found["read"] = _until_read(browser, address, found)
        with viewer(place, environment) as (server, address):
            found["opened"] = _opened(browser, address)
            page = _page(browser, address)
            found |= _presses(page, num_traces)
            found["scroll"], found["work"] = _scrolled(page)
            found["memory"] = server.memory_info().rss
            page.close()
    return found


def _lines(num_traces: int, number: int) -> Iterator[bytes]:
    """The traces of one file. They differ in name, topology and reward alone: each is made of the same bytes."""
    whole = team_trace.team_trace(20)
    events = whole.events[:EVENTS]
    there = {event.id for event in events}
    edges = tuple(edge for edge in whole.edges if edge.src in there and edge.dst in there)
    reward = Reward(family="shared", unit="team", target=NAME, value=0.5)
    header = structs.replace(whole.header, trace_id=NAME, topology="swarm")
    made = structs.replace(whole, header=header, events=events, edges=edges, rewards=(reward,))
    text = re.sub(
        rb',"crc":\d+', b"", b"".join(encode_trace(made))
    )  # of one with other words there is no checksum
    for k in range(number, num_traces, FILES):
        topology = (b"swarm", b"debate", b"centralized")[k % 3]
        one = text.replace(NAME.encode(), b"t-%06d" % k).replace(
            b'"topology":"swarm"', b'"topology":"%s"' % topology
        )
        yield one.replace(b'"value":0.5', b'"value":%.6f' % (k / num_traces))


def _page(browser: Any, address: str) -> Any:
    page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
    page.goto(address)
    page.goto(f"{address.partition('?')[0]}#table?sort=trace")
    page.wait_for_selector(".grid tbody td.name >> text=t-000000", timeout=600_000)
    return page


def _opened(browser: Any, address: str) -> float:
    """Seconds from the navigation to the first rows; median."""
    taken = []
    for _ in range(AGAIN):
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        page = context.new_page()
        page.goto(address)
        page.goto("about:blank")
        start = time.monotonic()
        page.goto(f"{address.partition('?')[0]}#table?sort=trace")
        page.wait_for_selector(".grid tbody td.name >> text=t-000000")
        taken.append(time.monotonic() - start)
        context.close()
    return median(taken)


def _until_read(browser: Any, address: str, found: dict[str, Any]) -> float:
    """Seconds until every trace has been read for the first time; how long a press took meanwhile."""
    start = time.monotonic()
    page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
    page.goto(address)
    page.goto(f"{address.partition('?')[0]}#table?sort=trace")
    page.wait_for_selector(".grid tbody tr.press", timeout=60_000)
    found["first rows"] = time.monotonic() - start
    page.wait_for_selector("[data-complete=true]", state="attached", timeout=3_600_000)
    taken = time.monotonic() - start
    page.context.close()
    return taken


def _presses(page: Any, num_traces: int) -> dict[str, Any]:
    first, last = ".grid tbody td.name", f"t-{num_traces - 1:06d}"
    swarm = f"{len(range(0, num_traces, 3)):,} of {num_traces:,}"
    state = ".toolbar [data-complete]"

    def taken(selector: str, press: str, wanted: str) -> float:
        return float(page.evaluate(UNTIL, [selector, press, wanted]))

    found: dict[str, list[float]] = {"sort": [], "filter": [], "unfilter": [], "jump": []}
    for _ in range(AGAIN):
        found["sort"].append(taken(first, "reward", last))
        found["jump"].append(taken(".grid tbody tr.press:last-child td.name", "at:1e9", "t-000000"))
        found["filter"].append(taken(state, "q:topology=swarm", swarm))
        found["unfilter"].append(taken(state, "q:", f"{num_traces:,}"))
        taken(first, "trace", "t-000000")
    return {name: median(times) for name, times in found.items()}


def _scrolled(page: Any) -> tuple[list[float], dict[str, float]]:
    """Frames of two seconds of scrolling, and what each took of the page's thread, in ms of processor time."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def spent() -> dict[str, float]:
        told = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
        return {what: 1000 * told[name] for what, name in WORK.items()}

    before = spent()
    found = page.evaluate(FRAMES, 2)
    after = spent()
    return found, {what: (after[what] - before[what]) / found[3] for what in WORK}


@contextmanager
def viewer(path: Path, environment: dict[str, str]) -> Iterator[tuple[psutil.Process, str]]:
    start = "import sys; from baton.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", start, "view", str(path), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        yield psutil.Process(process.pid), process.stdout.readline().split()[1]
    finally:
        process.terminate()
        process.wait()


def rows(found: dict[str, Any], num_traces: int, where: str) -> list[tuple[str, ...]]:
    size = f"{num_traces:,} traces of {EVENTS} events in {FILES} files"
    fps, slowest, blank, _ = found["scroll"]
    work = ", ".join(f"{what} {taken:.1f}" for what, taken in found["work"].items())
    told = [
        ("first rows, nothing read before", f"{found['first rows']:.2f} s"),
        (
            "all read for the first time",
            f"{found['read']:.0f} s ({num_traces / found['read']:,.0f} traces/s)",
        ),
        ("open, read before", f"{found['opened']:.2f} s"),
        ("sort by another column", f"{found['sort']:.2f} s"),
        ("filter, to a third of them", f"{found['filter']:.2f} s"),
        ("all of them again", f"{found['unfilter']:.2f} s"),
        ("jump to the last row", f"{found['jump']:.2f} s"),
        (
            "scroll",
            f"{fps:.0f} fps, 95 % of frames in {slowest:.0f} ms, rows not there yet in {100 * blank:.0f} % of them",
        ),
        ("scroll, processor time of the page's thread for each frame", f"{work} ms"),
        ("server memory after all of this", f"{found['memory'] / 1e6:.0f} MB"),
    ]
    return [row(f"{size}: {what}", value, "none", "not measured", None, where) for what, value in told]
