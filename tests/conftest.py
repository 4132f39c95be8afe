"""What every test shares: the trace strategies on the path, and one Hypothesis profile."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent / "trace"))  # from strategies import ...

# A busy machine is not a failing test.
settings.register_profile("baton", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("baton")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line about tests that a machine without a browser leaves out."""
    for report in terminalreporter.stats.get("skipped", []):
        if isinstance(report.longrepr, tuple) and "Chromium" in report.longrepr[2]:
            terminalreporter.write_line(report.longrepr[2])
            return
