"""What tests of the results of learning share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

LEARNING = Path(__file__).parents[2] / "benchmarks" / "learning"


@pytest.fixture
def beside_the_results(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Their scripts can be imported in a test, and are gone after it."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(LEARNING))
    yield
    for name in set(sys.modules) - before:
        if "learning" in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
