"""What every test shares: one Hypothesis profile. Helpers are in tests/support, on the path by pyproject.toml."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is not a failing test.
settings.register_profile("baton", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("baton")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line about tests that a machine without a browser leaves out."""
    for report in terminalreporter.stats.get("skipped", []):
        if isinstance(report.longrepr, tuple) and "Chromium" in report.longrepr[2]:
            terminalreporter.write_line(report.longrepr[2])
            return
