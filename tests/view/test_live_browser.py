"""A trace that is still being written, in a real browser: it grows under the page."""

from __future__ import annotations

from browsing import TEAM, Site, Tab, says


def test_a_trace_while_it_is_written(tab: Tab, site: Site) -> None:
    path = site.folder / "live.jsonl"
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:50]))
    page = tab.open(site.trace(TEAM, "live.jsonl"))
    says(page, ".head", "not finished")
    path.write_bytes(whole)
    says(page, ".head", "1014")
    says(page, ".moment", "30 / 30")
