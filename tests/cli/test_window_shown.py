"""What a window of steps tells is shown where it says something, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_train_display import line, plain, shown

from baton.learn.run.session import _flat
from baton.view.report.run_figures import TrainingRun
from baton.view.report.sections import _cost

AHEAD: dict[str, Any] = {
    "staleness": {"mean": 1.5, "max": 2, "tokens": [["0", 7], ["11", 90]]},
    "idle": {"trainer": 0.25, "players": 0.125},
}
CUT: dict[str, Any] = {
    "stragglers": {"taken": 6, "left": 2, "most_weight": 3.0, "tail": 0.0},
    "discarded_tokens": 1234,
}


def test_a_line_of_the_terminal() -> None:
    said = shown(plain(), 1, line(1, **AHEAD, **CUT))
    assert "1.5 steps old (at most 2), trainer 25% idle, players 12% idle, 2 groups unfinished" in said
    assert "1,234 tokens discarded" in said
    assert "idle" not in shown(plain(), 1, line(1))


def test_the_report() -> None:
    def report(*steps: dict[str, Any]) -> str:
        return _cost(TrainingRun(path=Path(), told={}, steps=list(steps), evals=[], num_unreadable=0))

    said = report(line(1, **AHEAD, **CUT), line(2, **AHEAD, **CUT))
    for fact in ("updates behind, mean over steps", "1.50", "idle share of the trainer", "25%", "2,468"):
        assert fact in said
    assert "Idle share of a step" in said
    assert "idle" not in report(line(1), line(2)).lower()


def test_loggers_get_figures_of_a_fixed_number_of_names() -> None:
    """Tokens by version would be a new curve with every step."""
    found = _flat({**AHEAD, **CUT})
    assert found["staleness/mean"] == 1.5
    assert found["idle/players"] == pytest.approx(0.125)
    assert not [name for name in found if name.startswith("staleness/tokens")]
