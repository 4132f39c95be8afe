"""The training report in a real browser: its style applies under its own policy, and it fits a phone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from accessible import serious
from viewer_runs import training_run

from baton.view.report.training_report import write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip(
        "no Chromium here, so the report is not opened in one (Debian: apt-get install chromium)",
        allow_module_level=True,
    )
playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright here: pip install -e '.[dev]'")


def test_the_report_opens_light_dark_and_on_a_phone_without_asking_for_anything(tmp_path: Path) -> None:
    training_run(tmp_path / "run", steps=4, episodes=2)
    place = write_report(tmp_path / "run")
    backgrounds, said = [], []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for width, scheme in ((1280, "light"), (1280, "dark"), (390, "light")):
            page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
            page.on("console", lambda message: said.append(message.text))
            page.on("request", lambda request: said.append(request.url))
            page.goto(place.as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            backgrounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            assert page.locator("svg path.line").first.bounding_box()["width"] > 100
            assert serious(page) == []
            page.close()
        browser.close()
    assert backgrounds == ["rgb(255, 255, 255)", "rgb(20, 23, 28)", "rgb(255, 255, 255)"]
    assert said == [place.as_uri()] * 3
