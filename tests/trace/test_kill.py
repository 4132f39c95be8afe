"""Writers and seals that are really killed: no acknowledged event is lost, none is there twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")


def _kill(what: str, folder: Path, first: int, second: int = 0) -> int:
    """How many were killed; fails with the driver's own words."""
    driver = Path(__file__).parents[1] / "support" / "kill_driver.py"
    done = subprocess.run(
        [sys.executable, str(driver), what, str(folder), str(first), str(second)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return int(done.stdout.split()[0])


def test_kills_at_random_moments(tmp_path: Path) -> None:
    assert _kill("random", tmp_path, 60, 1) == 60


def test_kills_at_every_statement(tmp_path: Path) -> None:
    assert _kill("steps", tmp_path, 0) > 50


def test_killed_seals(tmp_path: Path) -> None:
    assert _kill("seals", tmp_path, 30, 1) == 30


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 5))
def test_a_thousand_kills_at_random_moments(tmp_path: Path, seed: int) -> None:
    assert _kill("random", tmp_path, 1000, seed) == 1000


@pytest.mark.slow
def test_kills_at_every_step_of_the_machine(tmp_path: Path) -> None:
    assert _kill("steps", tmp_path, 2) > 500


@pytest.mark.slow
def test_a_thousand_killed_seals(tmp_path: Path) -> None:
    assert _kill("seals", tmp_path, 1000, 2) == 1000
