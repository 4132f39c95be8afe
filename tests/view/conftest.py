"""What the tests of the viewer share: a browser, and a tab in it on the `site` of each file.

A file whose `site` is of a folder of its own has a fixture of that name. Otherwise it has something of everything,
a copy for each file, in which tests may write.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    from browsing import CHROMIUM, playwright  # which leaves these tests out where there is no browser

    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def of_everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from viewer_site import everything

    return everything(tmp_path_factory.mktemp("everything") / "runs")


@pytest.fixture(scope="module")
def site(chromium: Any, of_everything: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from browsing import Site

    folder = tmp_path_factory.mktemp("site") / "runs"
    shutil.copytree(of_everything, folder)
    made = Site(folder)
    yield made
    made.close()


@pytest.fixture
def tab(chromium: Any, site: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A tab on this file's `site`, wide and light unless the test asks for another: (size, scheme)."""
    from browsing import WIDE, Tab

    size, scheme = getattr(request, "param", (WIDE, "light"))
    made = Tab(chromium, site, size, scheme)
    yield made
    made.end()
