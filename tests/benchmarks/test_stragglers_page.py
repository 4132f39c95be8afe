"""The page on asynchrony prints what was kept and what enumeration gives, and its picture is drawn from the same."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from stragglers import METHODS, expected, picture

ROOT = Path(__file__).parents[2]
KEPT = json.loads((ROOT / "benchmarks" / "stragglers.json").read_text())
PAGE = (ROOT / "docs" / "scale" / "asynchrony.md").read_text("utf-8")
T_19 = 2.0930240544082634
"""Student's t for 19 degrees of freedom at 97.5 %."""


def told(values: list[float]) -> str:
    mean, half = np.mean(values), T_19 * np.std(values, ddof=1) / math.sqrt(len(values))
    return f"{mean:.4f} ± {half:.4f}".replace("-", "−")


def row_of(name: str, table: int) -> str:
    found = re.findall(rf"^\| {re.escape(name)} \|.*$", PAGE, re.MULTILINE)
    return str(found[table]).replace("**", "").replace("+", "")


NAMES = ("wait for all", "cut, plain", "cut, weighed", "carry, each step alike", "carry")


@pytest.mark.parametrize(("name", "method"), list(zip(NAMES, METHODS, strict=True)))
def test_the_tables_are_what_was_kept(name: str, method: str) -> None:
    assert told(KEPT["estimated"][method]) in row_of(name, 0)
    runs = KEPT["trained"][method]
    row = row_of(name, 1)
    assert told([run["values"][-1] for run in runs]) in row
    means = {key: np.mean([run[key] for run in runs]) for key in ("waits_first", "rounds", "calls_cut")}
    assert f"| {means['waits_first']:.2f} | {means['rounds']:.0f} | {means['calls_cut']:.0f} |" in row
    assert len(runs) == 20


def test_what_is_enumerated_is_on_the_page() -> None:
    found = expected()
    assert found == pytest.approx({key: KEPT["expected"][key] for key in found}, abs=1e-12)
    assert found["cut, weighed without a bound"] == pytest.approx(KEPT["true"], abs=1e-12)
    assert f"{found['cut, plain']:.4f}" in row_of("cut, plain", 0)
    assert f"{found['cut, weighed']:.4f}".replace("-", "−") in row_of("cut, weighed", 0)
    # By hand: wait once, then stop, is 0.15 * 0.9 - 0.16.
    assert KEPT["optimum"] == 0.0 > 0.15 * 0.9 - 0.16
    worse = sum(run["values"][-1] < -0.05 for run in KEPT["trained"]["cut, plain"])
    assert f"{worse} of 20 seeds" in PAGE


def test_the_picture_is_of_what_was_kept() -> None:
    assert (ROOT / "docs" / "images" / "stragglers.svg").read_text() == picture(KEPT)
