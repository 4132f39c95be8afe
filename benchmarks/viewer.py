"""The viewer on 1,000 agents and 20,000 events: first paint, panning, memory, in headless Chromium.

Beside it the same trace as Chrome-trace JSON (what Perfetto and chrome://tracing take) in speedscope, a viewer
of that format that npm ships ready to serve; Perfetto's own page is not on any package registry. speedscope
shows one agent at a time and no arrows between them, so only loading is comparable.
"""

from __future__ import annotations

import argparse
import http.server
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlencode

import psutil

import team_trace
import viewer_search
import viewer_table
from baton.trace import write
from baton.trace.trace import Trace
from table import machine, print_table, row

PEER = "speedscope@1.25.0"
EVENTS = 20_000
LOADS = 5
PATIENCE_MS = 600_000
PAN_SECONDS = 3
PAN = """(seconds) => new Promise((done) => {
  const canvas = document.querySelector('.stage canvas');
  const frames = []; let last = performance.now(); const end = last + 1000 * seconds; let way = 1;
  const step = (now) => {
    frames.push(now - last); last = now;
    if (frames.length % 40 === 0) way = -way;
    canvas.dispatchEvent(new WheelEvent('wheel', {deltaX: 9 * way, deltaY: 14 * way, bubbles: true, cancelable: true}));
    if (now < end) requestAnimationFrame(step);
    else { frames.shift(); frames.sort((a, b) => a - b);
      done([1000 * frames.length / frames.reduce((a, b) => a + b, 0), frames[Math.floor(frames.length * 0.95)]]); }
  };
  requestAnimationFrame(step);
})"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="seconds, and figures that mean nothing")
    parser.add_argument("--table", action="store_true", help="100,000 traces in the table, and nothing else")
    parser.add_argument("--search", action="store_true", help="searches in 100,000 traces, and nothing else")
    parser.add_argument(
        "--events", type=int, default=EVENTS, help=f"of the trace ({EVENTS:,}); others: not beside speedscope"
    )
    args = parser.parse_args()
    if args.search:
        many = 300 if args.smoke else 100_000
        print_table(viewer_search.rows(viewer_search.measure(many), many, machine("no browser")))
        return
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print(
            "viewer: not measured, there is no Chromium here. On Debian: apt-get install chromium",
            file=sys.stderr,
        )
        return
    from playwright.sync_api import sync_playwright

    num_traces = 300 if args.smoke else 100_000
    if args.table:
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
            where = machine(f"Chromium {browser.version}, headless, software drawing")
            print_table(viewer_table.rows(viewer_table.measure(browser, num_traces), num_traces, where))
            browser.close()
        return
    num_events, loads, seconds = (600, 1, 0.3) if args.smoke else (args.events, LOADS, PAN_SECONDS)
    trace = thousand_agents(num_events)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        place = Path(folder)
        write(trace, place / "big.jsonl")
        write(trace, place / "big.chrome.json")
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        where = machine(f"Chromium {browser.version}, headless, software drawing")
        ours = measure(browser, place / "big.jsonl", trace, loads, seconds)
        peer = None if args.smoke or num_events != EVENTS else loads_of_peer(browser, place, loads)
        browser.close()
        chrome_bytes = (place / "big.chrome.json").stat().st_size
    agents = 1 + len({event.to for event in trace.events if event.type == "spawn"})
    print_table(rows(f"{agents:,} agents, {num_events:,} events", ours, peer, chrome_bytes, where))


def thousand_agents(num_events: int) -> Trace:
    """The team of the other benchmarks with as many events a worker as make it so large (20 at least)."""
    team_trace.WORKER_EVENTS = max(20, num_events // 1000)
    return team_trace.team_trace(num_events)


def measure(browser: Any, path: Path, trace: Trace, loads: int, seconds: float) -> dict[str, Any]:
    with viewer(path) as (server, address):
        url = f"{address}#trace?{urlencode({'place': path.name, 'id': trace.trace_id})}"
        times = [first_paint(browser, url) for _ in range(loads + 1)]
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(PATIENCE_MS)
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        page.goto(url)
        page.wait_for_selector(".stage canvas[data-arrows]", timeout=PATIENCE_MS)
        found: dict[str, Any] = {
            "cold": times[0],
            "warm": median(times[1:]),
            "thread": thread_seconds(session),
        }
        found["bytes"] = page.evaluate(
            "performance.getEntriesByType('resource').reduce((sum, one) => sum + one.encodedBodySize, 0)"
        )
        before = thread_seconds(session)
        found["pan"] = page.evaluate(PAN, seconds)
        found["pan thread"] = (thread_seconds(session) - before) / (found["pan"][0] * seconds)
        page.click("button[title^='All of it']")
        found["pan whole"] = page.evaluate(PAN, seconds)
        page.select_option("select[aria-label=Arrows]", "all")
        for _ in range(6):
            page.click("button[aria-label='Zoom in']")
        found["pan arrows"] = page.evaluate(PAN, seconds)
        found["views"] = {name: view_seconds(page, key) for key, name in zip("2345", VIEWS, strict=True)}
        page.keyboard.press("t")
        page.wait_for_selector(".detail >> text=Taint", timeout=PATIENCE_MS)
        found["memory"] = server.memory_info().rss
        return found


def thread_seconds(session: Any) -> float:
    """Processor time of the page's thread so far: another process takes none of it."""
    told = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    return float(told["TaskDuration"])


VIEWS = ("graph", "tree", "network", "summary")


def view_seconds(page: Any, key: str) -> float:
    """From the key to the second frame after it: drawn and shown."""
    return float(
        page.evaluate(
            """(key) => new Promise((done) => { const start = performance.now();
            document.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
            requestAnimationFrame(() => requestAnimationFrame(() => done((performance.now() - start) / 1000))); })""",
            key,
        )
    )


def first_paint(browser: Any, url: str) -> float:
    """Seconds from the navigation to the lanes being drawn."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.goto(url)
    page.wait_for_selector(".stage canvas[data-arrows]", timeout=PATIENCE_MS)
    drawn = page.evaluate("performance.getEntriesByName('baton-drawn')[0].startTime")
    context.close()
    return float(drawn) / 1000


@contextmanager
def viewer(path: Path) -> Iterator[tuple[psutil.Process, str]]:
    start = "import sys; from baton.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", start, "view", str(path), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        yield psutil.Process(process.pid), said.split()[1]
    finally:
        process.terminate()
        process.wait()


def loads_of_peer(browser: Any, place: Path, loads: int) -> float | None:
    """Seconds until speedscope shows the Chrome trace; None where npm cannot fetch it."""
    if shutil.which("npm") is None:
        return None
    fetched = subprocess.run(["npm", "pack", PEER], cwd=place, capture_output=True, text=True, check=False)
    if fetched.returncode:
        return None
    with tarfile.open(place / fetched.stdout.split()[-1]) as archive:
        archive.extractall(place, filter="data")
    site = place / "package" / "dist" / "release"
    shutil.copy(
        place / "big.chrome.json", site / "big.json"
    )  # by the other name it takes it for something else
    with static_site(site) as address:
        return median(
            _peer_load(browser, f"{address}index.html#profileURL={address}big.json") for _ in range(loads)
        )


def _peer_load(browser: Any, url: str) -> float:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    start = time.monotonic()
    page.goto(url)
    page.wait_for_selector("text=Left Heavy", timeout=PATIENCE_MS)
    taken = time.monotonic() - start
    context.close()
    return taken


@contextmanager
def static_site(folder: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        thread.join()


def rows(
    size: str, ours: dict[str, Any], peer: float | None, chrome_bytes: int, where: str
) -> list[tuple[str, ...]]:
    found = []
    for kind, name in (("cold", "the file not read before"), ("warm", "read before")):
        taken = "not measured" if peer is None else f"{peer:.2f} s"
        ratio = None if peer is None else peer / ours[kind]
        against = f"{PEER.replace('@', ' ')}, the Chrome trace, one agent of it shown"
        found.append(
            row(f"{size}: load to first paint, {name}", f"{ours[kind]:.2f} s", against, taken, ratio, where)
        )
    found.append(
        row(f"{size}: bytes before it is drawn, page included", f"{ours['bytes'] / 1e6:.2f} MB",
            "the same as Chrome trace", f"{chrome_bytes / 1e6:.2f} MB", chrome_bytes / ours["bytes"], where)
    )  # fmt: skip
    for name, taken in (
        ("until drawn", ours["thread"]),
        ("a frame of panning, rows as they open", ours["pan thread"]),
    ):
        told = f"{1000 * taken:,.0f} ms"
        found.append(
            row(
                f"{size}: the page's thread, processor time {name}", told, "none", "not measured", None, where
            )
        )
    for key, name in (
        ("pan", "rows as they open"),
        ("pan whole", "all rows as low as they get"),
        ("pan arrows", "zoomed in, all arrows"),
    ):
        fps, slowest = ours[key]
        found.append(row(f"{size}: panning, {name}", f"{fps:.0f} fps, 95 % of frames in {slowest:.0f} ms",
                         "target", "30 fps", fps / 30, where))  # fmt: skip
    for name, taken in ours["views"].items():
        found.append(
            row(f"{size}: open the {name} view", f"{taken:.2f} s", "none", "not measured", None, where)
        )
    found.append(
        row(f"{size}: server memory after all of this", f"{ours['memory'] / 1e6:.0f} MB", "target", "500 MB",
            500e6 / ours["memory"], where)
    )  # fmt: skip
    return found


if __name__ == "__main__":
    main()
