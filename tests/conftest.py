"""What every test shares: Hypothesis profiles, and which tests are long. Helpers are in tests/support."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is not a failing test. `make test-long` looks at more examples than `make test`.
quiet = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("baton", quiet, max_examples=40)
settings.register_profile("long", quiet, max_examples=200)
settings.load_profile(os.environ.get("BATON_TESTS", "baton"))

LINES = [
    line
    for line in (Path(__file__).parent / "long.txt").read_text().splitlines()
    if line and not line.startswith("#")
]


def is_long(name: str) -> bool:
    """Whether tests/long.txt names this test."""
    return any(name.startswith(line) for line in LINES) and not any(
        name.startswith(line[1:]) for line in LINES if line[0] == "!"
    )


def pytest_make_parametrize_id(val: object) -> str | None:
    """What gzip packed holds the second it was packed in, which may not stand in a test's name: workers that collect
    in different seconds would not agree on it."""
    return "packed" if isinstance(val, bytes) and val.startswith(b"\x1f\x8b") else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    names = [item.nodeid for item in items]
    for item in items:
        if is_long(item.nodeid):
            item.add_marker(pytest.mark.long)
    if config.args == config.getini("testpaths"):  # all of them were collected
        for line in LINES:
            if not any(name.startswith(line.removeprefix("!")) for name in names):
                raise pytest.UsageError(f"tests/long.txt: no test begins with {line!r}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line about tests that a machine without a browser leaves out."""
    for report in terminalreporter.stats.get("skipped", []):
        if isinstance(report.longrepr, tuple) and "Chromium" in report.longrepr[2]:
            terminalreporter.write_line(report.longrepr[2])
            return
