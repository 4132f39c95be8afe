"""The benchmark of weighted votes runs, and its exact figures are the textbook's."""

from __future__ import annotations

import asyncio
import math
import re
from pathlib import Path

import pytest

import weighted_vote
from baton.tasks.voters import VotersTask


def test_exact_figures() -> None:
    skills = (0.9, 0.6, 0.6, 0.55, 0.55)
    odds = [math.log(p / (1 - p)) for p in skills]
    assert weighted_vote.exact(skills, 2, [1.0] * 5) == pytest.approx(0.755, abs=5e-4)  # Shapley and Grofman
    assert weighted_vote.exact(skills, 2, odds) == pytest.approx(0.9)  # the best voter outweighs all others
    assert weighted_vote.exact((0.7, 0.7, 0.7), 2, [1.0] * 3) == pytest.approx(0.7**3 + 3 * 0.7**2 * 0.3)


def test_given_and_claimed_accuracies_are_the_same_votes() -> None:
    skills = (0.8, 0.45, 0.4)
    given = {f"peer{k + 1}": p for k, p in enumerate(skills)}
    quiet = VotersTask(skills=skills, num_classes=3, confident=False)
    sure = VotersTask(skills=skills, num_classes=3)
    told = asyncio.run(weighted_vote.played(quiet, "log_odds", 8, given))
    assert told == asyncio.run(weighted_vote.played(sure, "log_odds", 8, {}))


def test_the_page_has_the_exact_figures() -> None:
    page = (Path(__file__).parents[2] / "docs" / "teams.md").read_text("utf-8")
    for skills, num_classes in weighted_vote.JURIES:
        name = f"{' '.join(f'{p:g}' for p in skills)}, {num_classes} answers"
        row = next(line for line in page.splitlines() if line.startswith(f"| {name} |"))
        figures = [float(figure) for figure in re.findall(r"\d\.\d{3}", row)]
        plain = weighted_vote.exact(skills, num_classes, [1.0] * len(skills))
        best = weighted_vote.exact(
            skills, num_classes, [math.log(p * (num_classes - 1) / (1 - p)) for p in skills]
        )
        assert (figures[1], figures[3]) == (pytest.approx(plain, abs=5e-4), pytest.approx(best, abs=5e-4))
        # What was played stands within four standard errors of it.
        for played, wanted in ((figures[0], plain), (figures[2], best)):
            assert abs(played - wanted) < 4 * math.sqrt(wanted * (1 - wanted) / 1000)
