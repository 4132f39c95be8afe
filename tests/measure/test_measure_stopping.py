"""O5."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted import Scene, is_right, reading, team_of

from baton.engine.scripted import ScriptedEngine
from baton.measure.measured import MeasuredTrace
from baton.measure.metrics.stop_regret import (
    Rounds,
    going_on,
    overrun_tokens,
    premature,
    premature_rate,
    returned_regret,
    rounds_of,
    stop_regret,
    try_going_on,
)
from baton.team.forks import rerun_of
from baton.team.protocol import Request
from baton.team.running import run
from baton.team.team import Assignment, Team
from baton.team.topology import make_topology
from baton.trace.gold import Gold

GOLD = Gold(verify=is_right("y"))


def debated(answers: list[str], final: str, gold: Gold | None = GOLD) -> MeasuredTrace:
    """A lead that fuses round after round, ten tokens each, then stops."""

    def play(stage: Scene) -> None:
        lead = stage.team.agent("lead")
        worker = lead.spawn("w", task="a")
        worker.send(lead, "x")
        for answer in answers:
            stage.says(lead, tokens=10)
            lead.aggregate([worker], answer)
        stage.says(lead, tokens=10)
        lead.stop(final)

    return reading(play, gold)


def test_rounds_of_a_trace() -> None:
    found = rounds_of(debated(["n", "y", "n"], "y"))
    assert (found.scores, found.tokens) == ((0.0, 1.0, 0.0), (10.0, 20.0, 40.0))
    assert (found.stopped, found.returned) == (2, 1)
    assert overrun_tokens(found) == 20.0
    assert returned_regret(found) == 0.0
    assert stop_regret(found) == 1.0
    worse = rounds_of(debated(["n", "y", "n"], "n"))
    assert (worse.returned, returned_regret(worse)) == (2, 1.0)
    own = rounds_of(debated(["n"], "y"))  # an answer that no round had is a round of its own
    assert (own.scores, own.stopped, own.returned) == ((0.0, 1.0), 1, 1)


def test_reasons() -> None:
    assert try_going_on(debated(["n"], "n", None), None).why_not == "no verifier is given"  # type: ignore[union-attr]
    assert "past the stop" in (premature_rate([rounds_of(debated(["n"], "n"))]).why_not or "")
    assert (
        "no answer" in try_going_on(reading(lambda s: s.team.agent("a").decide("wait"), GOLD), None).why_not
    )  # type: ignore[union-attr, operator]


def test_premature_rate() -> None:
    early = Rounds(scores=(0.0, 1.0), tokens=(10.0, 20.0), stopped=0, returned=0)
    right = Rounds(scores=(1.0, 1.0), tokens=(10.0, 20.0), stopped=0, returned=0)
    assert premature(early)
    assert not premature(early, price=0.2)
    assert not premature(right)
    capped = Rounds(scores=(0.0, 1.0), tokens=(1.0, 2.0), stopped=0, returned=0, forced=True)
    found = premature_rate([early, right, right, capped])
    assert (found.value, found.n) == (pytest.approx(1 / 3), 3)
    assert "nobody's choice" in (premature_rate([capped]).why_not or "")


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 100)), min_size=1, max_size=8),
    st.floats(0, 0.1),
    st.data(),
)
def test_bounds(rows: list[tuple[float, float]], price: float, data: st.DataObject) -> None:
    scores, spent = (tuple(column) for column in zip(*rows, strict=True))
    tokens = tuple(sum(spent[: k + 1]) for k in range(len(spent)))
    stopped = data.draw(st.integers(0, len(rows) - 1))
    rounds = Rounds(
        scores=scores, tokens=tokens, stopped=stopped, returned=data.draw(st.integers(0, stopped))
    )
    assert stop_regret(rounds, price) >= 0
    assert 0 <= overrun_tokens(rounds, price) <= tokens[stopped]
    assert 0 <= returned_regret(rounds) <= 1
    if stopped < len(rows) - 1 and premature(rounds, price):
        assert stop_regret(rounds, price) > 0


def team(patience: int) -> tuple[Team, Assignment]:
    """Guesses once a turn; the third guess is right. Stops when it is told to be patient no longer."""

    def script(request: Request) -> str:
        turn = sum(entry.speaker == "assistant" for entry in request.entries)
        if request.role == "orchestrator":
            return "spawn worker: guess\nwait all" if turn == 0 else f"stop {'y' if turn >= 3 else 'n'}"
        return "return n"

    shape = make_topology("centralized", max_turns=patience)
    return Team.of(shape, ScriptedEngine("script", script)), Assignment(
        task_id="t", prompt="p", verify=is_right("y")
    )


def test_going_on_past_the_stop() -> None:
    made, assignment = team(8)
    trace = asyncio.run(run(made, assignment))
    rounds = going_on(MeasuredTrace(trace, GOLD), rerun_of(made, assignment))
    assert rounds.scores[0] == 0.0
    assert rounds.stopped == 0
    assert len(rounds.scores) == 2  # the second stop takes effect, and is as wrong
    assert not premature(rounds)
    right = MeasuredTrace(trace, Gold(verify=lambda answer: 1.0))
    assert not premature(going_on(right, rerun_of(made, assignment)))


def test_a_single_round_has_nothing_to_regret() -> None:
    rounds = rounds_of(team_of("y", gold=GOLD))
    assert (stop_regret(rounds), returned_regret(rounds), overrun_tokens(rounds)) == (0.0, 0.0, 0.0)
