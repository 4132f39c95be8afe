"""Escapes from the sandbox: the five that once got through, at every level; the whole campaign in the slow suite."""

from __future__ import annotations

import sys

import pytest
from sandbox_escapes import FIRST_FIVE, run_escapes, table

from baton.team.tools.sandbox import protection
from baton.team.tools.sandbox_levels import LAYERS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the levels are Linux's")


def at(level: str, layers: tuple[str, ...]) -> object:
    found = protection(layers) if sys.platform == "linux" else None
    missing = found is None or found.level != level
    why = "" if found is None else "; ".join(f"{name}: {said}" for name, said in found.missing.items())
    return pytest.param(level, marks=pytest.mark.skipif(missing, reason=f"no {level} here ({why})"))


LEVELS = pytest.mark.parametrize("level", [at("bubblewrap", LAYERS), at("landlock", LAYERS[1:])])


@LEVELS
def test_what_once_got_through_is_held(level: str) -> None:
    assert run_escapes(level, FIRST_FIVE) == [(name, "held") for name in FIRST_FIVE]


def test_the_five_are_attacks() -> None:
    """Without a sandbox they get through (but for the one that would outlive this test)."""
    outcomes = dict(run_escapes("none", FIRST_FIVE))
    assert outcomes.pop(FIRST_FIVE[3]) == "not tried"
    assert all(outcome.startswith("ESCAPED") for outcome in outcomes.values()), outcomes


def test_the_table_is_one() -> None:
    names = [attack.name for attack in table()]
    assert len(set(names)) == len(names) >= 150
    assert set(FIRST_FIVE) <= set(names)


@pytest.mark.slow
@LEVELS
def test_nothing_gets_through(level: str) -> None:
    outcomes = run_escapes(level)
    assert [each for each in outcomes if not each[1].startswith(("held", "open: "))] == []
    if level == "bubblewrap":
        assert {outcome for _, outcome in outcomes} == {"held"}


@pytest.mark.slow
def test_most_are_attacks() -> None:
    """Without a sandbox they get through: a campaign of things that never work would prove nothing."""
    outcomes = [outcome for _, outcome in run_escapes("none") if outcome != "not tried"]
    assert sum(outcome.startswith("ESCAPED") for outcome in outcomes) > 0.6 * len(outcomes)
