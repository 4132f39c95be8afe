"""The inspection game: Dresher's value, best replies by brute force, zero-sum on a team, and bad input."""

from __future__ import annotations

import asyncio
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.cli import main
from baton.engine.scripted import ScriptedEngine
from baton.errors import UsageError
from baton.tasks.inspection import (
    SEATS,
    Inspection,
    best_reply,
    equilibrium,
    exploitability,
    strategy_of,
    value,
    worth,
)
from baton.team.protocol import Answer
from baton.team.running import Run, header_of
from baton.team.team import Team
from baton.testing import check_task
from baton.trace.outcome import team_return
from baton.trace.trace import Trace

SPOTS = [(n, k) for n in range(1, 4) for k in range(3)]
tables = st.lists(st.floats(0, 1), min_size=18, max_size=18).map(
    lambda p: dict(zip(product(SEATS, SPOTS), p, strict=True))
)


def recursion(n: int, k: int) -> float:
    """The value as that of a two by two game at each message."""
    if n == 0 or k >= n:
        return 0.0
    if k == 0:
        return 1.0
    caught, through = -1.0, 1.0
    checked, passed = recursion(n - 1, k - 1), recursion(n - 1, k)
    return (caught * passed - through * checked) / (caught + passed - through - checked)


@pytest.mark.parametrize("n", range(1, 9))
def test_dreshers_value_is_the_recursions(n: int) -> None:
    for k in range(n + 1):
        assert value(n, k) == pytest.approx(recursion(n, k), abs=1e-12)


@pytest.mark.parametrize(("n", "k"), [(1, 0), (1, 1), (4, 2), (6, 1), (8, 3), (5, 5)])
def test_the_equilibrium_cannot_be_exploited(n: int, k: int) -> None:
    assert worth(equilibrium, n, k) == pytest.approx(value(n, k))
    assert exploitability(equilibrium, n, k) == pytest.approx(0.0, abs=1e-12)
    assert all(0 <= equilibrium(seat, n, k) <= 1 for seat in SEATS)


def by_hand(table: dict[tuple[str, tuple[int, int]], float], n: int, k: int) -> float:
    """What the attacker wins, over every course of play."""
    if n == 0:
        return 0.0
    plant, check = table["attacker", (n, k)], table["defender", (n, k)] if k else 0.0
    caught, through = plant * check, plant * (1 - check)
    left = (1 - plant) * check * by_hand(table, n - 1, k - 1) if k else 0.0
    return through - caught + left + (1 - plant) * (1 - check) * by_hand(table, n - 1, k)


@settings(max_examples=25, deadline=None)
@given(tables)
def test_worth_and_best_replies_by_brute_force(table: dict[tuple[str, tuple[int, int]], float]) -> None:
    def play(seat: str, n: int, k: int) -> float:
        return table[seat, (n, k)]

    assert worth(play, 3, 1) == pytest.approx(by_hand(table, 3, 1))
    spots = [spot for spot in SPOTS if spot[1] <= 1]
    for seat, sign in (("attacker", 1), ("defender", -1)):
        best = max(
            sign * by_hand(table | {(seat, s): float(m) for s, m in zip(spots, moves, strict=True)}, 3, 1)
            for moves in product((0, 1), repeat=len(spots))
        )
        assert best_reply(play, seat, 3, 1) == pytest.approx(best)
    assert exploitability(play, 3, 1) >= -1e-12


def played(task: Inspection, seed: int, engine: ScriptedEngine) -> Trace:
    assignment = task.assignment(task.instance(seed))
    team = Team.of(task.topology(), engine, seed=seed)
    return asyncio.run(Run(team, assignment, header_of(team, assignment, f"t{seed}")).go())


def test_on_a_team_what_one_wins_the_other_loses() -> None:
    task = Inspection(messages=2, checks=1)
    won = set()
    for seed in range(30):
        trace = played(
            task,
            seed,
            ScriptedEngine(
                "scripted", lambda request: Answer(policy="p", text=task.reference_play()(request))
            ),
        )
        own = {r.target: r.value for r in trace.rewards if r.unit == "agent"}
        assert own["attacker1"] == -own["defender1"]
        assert team_return(trace) == own["defender1"]
        won.add(own["attacker1"])
    assert won == {-1.0, 0.0, 1.0}


def test_neither_knows_what_the_other_says_before_both_have() -> None:
    """What a player is shown names what is left, and nothing of this message."""
    asked: list[str] = []

    def always(move: str) -> ScriptedEngine:
        def answer(request: object) -> Answer:
            options = request.options or ("return wait",)  # type: ignore[attr-defined]
            asked.append(str(request.entries[-1].text))  # type: ignore[attr-defined]
            return Answer(policy="p", text=next((o for o in options if o.endswith(move)), options[0]))

        return ScriptedEngine("scripted", answer)

    shown = {}
    for move in ("plant", "wait"):
        asked.clear()
        played(Inspection(messages=2, checks=1), 0, always(move))
        shown[move] = [text for text in asked if "pass or check" in text][:1]
    assert shown["plant"] == shown["wait"] != []


def test_a_strategy_is_read_off_traces_that_have_chances() -> None:
    def answer(request: object) -> Answer:
        options = request.options  # type: ignore[attr-defined]
        chances = (0.75, 0.25) if len(options) == 2 else (1.0,)
        return Answer(policy="p", text=options[0], choice=0, option_propensities=chances)

    found = strategy_of([played(Inspection(), 0, ScriptedEngine("scripted", answer))])
    assert found("attacker", 4, 2) == found("defender", 3, 2) == 0.25
    assert found("attacker", 9, 9) == 0.5


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"messages": 0}, "from 1 to 30"),
        ({"messages": "many"}, "expected"),
        ({"checks": 9}, "from 0 to 4"),
        ({"cheks": 1}, "checks"),
    ],
)
def test_bad_input_is_one_line(
    given: dict[str, object], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word for key, of in given.items() for word in ("--set", f"task.{key}={of}")]
    assert main(["run", "inspection", *words, "--out", "nowhere"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_contract() -> None:
    check_task(Inspection())
    with pytest.raises(UsageError):
        Inspection(messages=31)
