"""What each format and version gives is what it gave: events, edges, calls, rewards, and what the report says."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden_connect import PLACES, golden_outline, source_of

from baton.connect.import_report import ImportReport


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_golden(place: Path) -> None:
    assert golden_outline(place) == (place.parent / f"{place.name}.outline").read_text()


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_reading_twice_says_the_same(place: Path) -> None:
    source = source_of(place)
    assert list(source.read(place, ImportReport())) == list(source.read(place, ImportReport()))
