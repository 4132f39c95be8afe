"""What keeps people out of a page, by axe-core, in the browser in which the page is."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pytest

AXE = files(pytest.importorskip("axe_playwright_python")).joinpath("axe.min.js").read_text("utf-8")
SERIOUS = ("serious", "critical")


def serious(page: Any) -> list[str]:
    """What axe finds that keeps people out, each with where it is."""
    page.evaluate(AXE)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [
        f"{one['id']}: {node['html'][:160]} {node['any'][0]['message'] if node['any'] else ''}"
        for one in found
        if one["impact"] in SERIOUS
        for node in one["nodes"]
    ]
