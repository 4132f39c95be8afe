"""A real browser for tests: Debian's Chromium, headless, on a viewer of this machine, and assertions that wait.

No test reads a page right after an action: a page is as quick as the machine that it is on. `says`, `until`, `drawn`
and Playwright's `expect` wait for what has to hold, and never for a time. To try that they do, make everything slow:
    BATON_SLOW_PROCESSOR=8 BATON_SLOW_ANSWERS=1 python -m pytest -m long tests/view -k browser
The first makes the page's processor so many times slower; the second holds every answer of the server for up to
0.8 s, drawn from this seed.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode

import pytest
from viewer_site import TEAM

from baton.cli.view import attached
from baton.view.web.attached import Attached
from baton.view.web.server import listen, make_app, server_of
from baton.view.web.traces import Library

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip(
        "no Chromium here, so the viewer's browser tests do not run (Debian: apt-get install chromium)",
        allow_module_level=True,
    )
playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright here: pip install -e '.[dev]'")
expect = playwright.expect

SHOTS = os.environ.get("BATON_SCREENSHOTS")
SLOW_PROCESSOR = float(os.environ.get("BATON_SLOW_PROCESSOR", "1"))
SLOW_ANSWERS = os.environ.get("BATON_SLOW_ANSWERS")
LONGEST_WAIT_S = 0.4  # of an answer that is held: before it is thought of, and again before it is given
PATIENCE_S = 90 + 6 * SLOW_PROCESSOR
"""How long a condition is waited for. It is spent only where something fails."""

WIDE = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
BEGUN = ".stage canvas, .page, .traces-page, .failure, .summary, .entry"
FITS = "document.documentElement.scrollWidth <= innerWidth"
FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
PICTURE = """() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => {
  const c = document.querySelector('.stage canvas');
  const d = c ? c.getContext('2d').getImageData(0, 0, c.width, c.height).data : [];
  const colours = new Set(); let sum = 0;
  for (let i = 0; i < d.length; i += 4) {
    const one = (d[i] << 16) | (d[i + 1] << 8) | d[i + 2];
    sum = (Math.imul(sum, 31) + one) | 0;
    if (i % 16 === 0) colours.add(one);
  }
  done([colours.size, sum >>> 0]); })))"""

expect.set_options(timeout=1000 * PATIENCE_S)


class HeldAnswers:
    """An application whose every answer comes late, and not in the order in which it was asked."""

    def __init__(self, app: Any, seed: str) -> None:
        self.app = app
        self.state = app.state
        self.random = random.Random(seed)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def late(message: Any) -> None:
            if message["type"] == "http.response.start":
                await self.wait()
            await send(message)

        await self.wait()
        await self.app(scope, receive, late)

    async def wait(self) -> None:
        await asyncio.sleep(self.random.uniform(0, LONGEST_WAIT_S))


class Site:
    """A viewer on this machine, of one folder."""

    def __init__(self, folder: Path, given: Attached | None = None) -> None:
        self.folder = folder
        app: Any = make_app(Library([folder]), given or attached(forks=True))
        if SLOW_ANSWERS is not None:
            app = HeldAnswers(app, SLOW_ANSWERS)
        at = listen(0)
        self.address = f"http://127.0.0.1:{at.getsockname()[1]}/"
        self.server = server_of(app)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [at]})
        self.thread.start()

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join()

    def page(self, name: str, place: str, **query: str) -> str:
        return f"{self.address}#{name}?{urlencode({'place': f'{self.folder.name}/{place}', **query})}"

    def trace(self, trace_id: str = TEAM, place: str = "teams.jsonl", **query: str) -> str:
        return self.page("trace", place, id=trace_id, **query)


class Served(Protocol):
    """What is looked at: nothing else is asked for anything."""

    address: str


class Tab:
    """One tab, which remembers everything that should not have happened."""

    def __init__(self, chromium: Any, site: Served, size: dict[str, int], scheme: str) -> None:
        self.context = chromium.new_context(viewport=size, color_scheme=scheme, device_scale_factor=1)
        self.home = (site.address, "file://")
        self.errors: list[str] = []
        self.strangers: list[str] = []
        self.asked: set[Any] = set()
        self.page = self.another()

    def another(self) -> Any:
        """One more page in the same browser, listened to as the first is."""
        page = self.context.new_page()
        page.set_default_timeout(1000 * PATIENCE_S)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("dialog", lambda dialog: self.errors.append(f"dialog {dialog.message}"))
        page.on("console", self._console)
        page.on("request", lambda r: r.url.startswith(self.home) or self.strangers.append(r.url))
        page.on("request", lambda r: r.resource_type == "eventsource" or self.asked.add(r))
        for end in ("requestfinished", "requestfailed"):
            page.on(end, lambda r: self.asked.discard(r))
        if SLOW_PROCESSOR > 1:
            session = self.context.new_cdp_session(page)
            session.send("Emulation.setCPUThrottlingRate", {"rate": SLOW_PROCESSOR})
        return page

    def _console(self, message: Any) -> None:
        if "Content Security Policy" in message.text or "Trusted" in message.text:
            self.errors.append(message.text)

    def open(self, address: str, *, shows: str = BEGUN) -> Any:
        """The page at an address, once it shows one of these and has drawn every answer that it asked for.

        What the tab showed before is gone first. After this nothing moves away from under a mouse.
        """
        if self.page.url != "about:blank":
            self.page.goto("about:blank")
        self.page.goto(address)
        self.page.wait_for_selector(shows)
        self.answered()
        return self.page

    def answered(self) -> None:
        """Wait until the page waits for no answer any more, and has drawn what came."""

        def all_drawn() -> bool:
            if self.asked:
                return False
            self.page.evaluate(FRAMES)  # what came may ask for more
            return not self.asked

        eventually(self.page, all_drawn, "every answer has come and is drawn")

    def shot(self, name: str) -> None:
        self.page.wait_for_timeout(500)
        self.page.mouse.move(1, 1)
        self.page.screenshot(path=str(Path(SHOTS or ".") / f"{name}.png"))

    def end(self) -> None:
        self.context.close()
        assert self.errors == []
        assert self.strangers == [], "the page asked somebody else for something"


def text(page: Any, selector: str) -> str:
    """What the first of these says now. Only for what cannot change any more: `says` waits."""
    return str(page.inner_text(selector))


def says(page: Any, selector: str, *words: str) -> None:
    """Wait until the first of these says all of these words, in whatever case they are shown."""
    for each in words:
        expect(page.locator(selector).first).to_contain_text(each, use_inner_text=True, ignore_case=True)


def shows(page: Any, selector: str, count: int) -> None:
    """Wait until there are so many of these."""
    expect(page.locator(selector)).to_have_count(count)


def has(page: Any, selector: str, name: str, value: str) -> None:
    """Wait until the first of these has an attribute of this value."""
    expect(page.locator(selector).first).to_have_attribute(name, value)


def leads_to(page: Any, part: str) -> None:
    """Wait until this is part of the address."""
    expect(page).to_have_url(re.compile(re.escape(part)))


def until(page: Any, holds: str) -> None:
    """Wait for a condition. (Playwright's own wait evaluates text inside the page, which the policy forbids.)"""
    eventually(page, lambda: bool(page.evaluate(holds)), holds)


def settled(page: Any) -> None:
    """Wait until nothing in the page has changed for a while: for what may not come, as a fault or a lost focus."""
    page.evaluate(
        """() => new Promise((done) => {
          const still = () => setTimeout(() => { seen.disconnect(); done(); }, 250);
          let soon = still();
          const seen = new MutationObserver(() => { clearTimeout(soon); soon = still(); });
          seen.observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
        })"""
    )


def eventually(page: Any, holds: Callable[[], bool], what: str) -> None:
    """Wait for a condition that is not the page's alone."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"never came true: {what}"
        page.wait_for_timeout(50)


def drawn(page: Any, *, more_than: int = 1, other_than: int | None = None) -> int:
    """What is on the canvas as one number, once it has more colours than these, is other than it was, and stays."""
    last = None
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        colours, *_ = found = page.evaluate(PICTURE)
        if found == last and colours > more_than and found[1] != other_than:
            return int(found[1])
        last = found
        page.wait_for_timeout(120)
    raise AssertionError(f"the canvas is not drawn: {last} colours and picture, wanted more than {more_than}")
