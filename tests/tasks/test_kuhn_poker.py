"""Kuhn poker: its value and best replies by brute force, zero-sum on a team, and what a trace says of a strategy."""

from __future__ import annotations

import asyncio
from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.engine.scripted import ScriptedEngine
from baton.tasks.kuhn_poker import CARDS, VALUE, KuhnPoker, equilibrium, exploitability, strategy_of, value
from baton.team.protocol import Answer
from baton.team.running import Run, header_of
from baton.team.team import Team
from baton.testing import check_task
from baton.trace.trace import Trace

SPOTS = [(card, said) for said in ("", "check bet", "check", "bet") for card in CARDS]


def payoff(cards: tuple[str, str], play: dict[tuple[str, str], bool]) -> int:
    """What the first player wins, from the rules, move by move."""
    high = 1 if CARDS.index(cards[0]) > CARDS.index(cards[1]) else -1
    if play[cards[0], ""]:
        return 2 * high if play[cards[1], "bet"] else 1
    if not play[cards[1], "check"]:
        return high
    return 2 * high if play[cards[0], "check bet"] else -1


def average(chances: dict[tuple[str, str], float]) -> float:
    """Over all deals and all pure plays, by their chances."""
    total = 0.0
    for cards in permutations(CARDS, 2):
        spots = [(cards[0], ""), (cards[0], "check bet"), (cards[1], "check"), (cards[1], "bet")]
        for moves in product((False, True), repeat=4):
            weight = 1.0
            for spot, move in zip(spots, moves, strict=True):
                weight *= chances[spot] if move else 1 - chances[spot]
            total += weight * payoff(cards, dict(zip(spots, moves, strict=True))) / 6
    return total


chances = st.lists(st.floats(0, 1), min_size=12, max_size=12).map(lambda p: dict(zip(SPOTS, p, strict=True)))


@settings(max_examples=15)
@given(chances)
def test_value_and_best_replies_by_brute_force(table: dict[tuple[str, str], float]) -> None:
    def play(card: str, said: str) -> float:
        return table[card, said]

    assert value(play, play) == pytest.approx(average(table), abs=1e-12)
    mine, others = SPOTS[:6], SPOTS[6:]
    best = [0.0, 0.0]
    for seat, spots in enumerate((mine, others)):
        best[seat] = max(
            (1 if seat == 0 else -1) * average(table | dict(zip(spots, map(float, moves), strict=True)))
            for moves in product((0, 1), repeat=6)
        )
    assert exploitability(play) == pytest.approx(sum(best) / 2, abs=1e-12)


@pytest.mark.parametrize("bluff", [0.0, 0.2, 1 / 3])
def test_kuhns_equilibria(bluff: float) -> None:
    assert value(equilibrium(bluff), equilibrium()) == pytest.approx(VALUE) == pytest.approx(-1 / 18)
    assert exploitability(equilibrium(bluff)) == pytest.approx(0.0, abs=1e-12)
    assert exploitability(lambda card, said: 0.5) > 0.3


def played(task: KuhnPoker, seed: int, engine: ScriptedEngine) -> Trace:
    assignment = task.assignment(task.instance(seed))
    team = Team.of(task.topology(), engine, seed=seed)
    return asyncio.run(Run(team, assignment, header_of(team, assignment, f"t{seed}")).go())


def test_on_a_team_what_one_wins_the_other_loses() -> None:
    task = KuhnPoker()
    script = task.reference_play()
    ends = set()
    for seed in range(40):
        trace = played(task, seed, ScriptedEngine("any", script))
        own = {r.target: r.value for r in trace.rewards if r.unit == "agent"}
        team = next(r.value for r in trace.rewards if r.unit == "team")
        assert own == {"first1": team, "second1": -team}
        cards = tuple(trace.header.meta["run"]["task"]["cards"])
        moves = [e for e in trace.events if e.type == "return"]
        assert all(e.choice is not None and e.options is not None and len(e.options) == 2 for e in moves)
        table = dict.fromkeys(SPOTS, False)
        said = ""
        for event in moves:
            card = cards[0] if event.agent == "first1" else cards[1]
            text = trace.text(event.content_ref) or ""
            table[card, said] = text in ("bet", "call")
            said = f"{said} {text}".strip()
        assert team == payoff(cards, table)
        ends.add(said)
    assert len(ends) == 5


def test_a_move_that_is_not_open_is_a_fold() -> None:
    trace = played(KuhnPoker(), 1, ScriptedEngine("odd", lambda request: "return all in"))
    assert {r.target: r.value for r in trace.rewards if r.unit == "agent"} == {"first1": -1.0}
    assert next(r.value for r in trace.rewards if r.unit == "team") == -1.0  # the first to move folded


def test_a_strategy_is_read_off_traces() -> None:
    truth = {spot: (n + 1) / 14 for n, spot in enumerate(SPOTS)}

    def answer(request: object) -> Answer:
        told = request.entries[-1].text  # type: ignore[attr-defined]
        card = told.partition("card ")[2].partition(",")[0]
        said = told.partition("said ")[2].partition(":")[0].replace("nothing", "")
        chance = truth[card, said]
        choice = int(hash((told, request.sampling.key)) % 2)  # type: ignore[attr-defined]
        return Answer(
            text=request.options[choice],  # type: ignore[attr-defined]
            policy="known",
            choice=choice,
            option_propensities=(1 - chance, chance),
        )

    found = strategy_of(played(KuhnPoker(), seed, ScriptedEngine("known", answer)) for seed in range(80))
    assert {spot: found(*spot) for spot in SPOTS} == pytest.approx(truth)


def test_the_contract() -> None:
    check_task(KuhnPoker())
