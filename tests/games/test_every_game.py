"""What holds for all games: the contract, the ledger, closed forms against the solver, pages, bad input."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from baton.errors import UsageError
from baton.games.game import CHOICES
from baton.games.ledger import expected_regret
from baton.games.library import GAMES, make_game
from baton.games.reference import REFERENCE, best_alone, reference
from baton.games.solve import Solution, evaluate, solve
from baton.testing.check_tasks import check_game

PAGES = Path(__file__).parents[2] / "docs" / "games"
SOLVED: dict[str, Solution] = {}


def solved(name: str) -> Solution:
    if name not in SOLVED:
        SOLVED[name] = solve(make_game(name))
    return SOLVED[name]


@pytest.mark.parametrize("name", GAMES)
def test_contract(name: str) -> None:
    assert check_game(make_game(name)) > 1


@pytest.mark.parametrize("name", GAMES)
def test_decisions_are_those_that_occur(name: str) -> None:
    game = make_game(name)
    asked = {game.decision(state) for state in solved(name).values if game.options(state)}
    assert asked == set(game.decisions)


@pytest.mark.parametrize("name", GAMES)
def test_closed_form_is_the_optimum(name: str) -> None:
    facts = make_game(name).facts()
    if "value" in facts:
        assert solved(name).value == pytest.approx(facts["value"], abs=1e-9)


@pytest.mark.parametrize("policy", REFERENCE)
@pytest.mark.parametrize("name", GAMES)
def test_ledger_adds_up(name: str, policy: str) -> None:
    solution = solved(name)
    ledger = expected_regret(solution, reference(policy, solution.game, solution))
    assert abs(ledger.residual) <= 1e-9
    assert abs(ledger.regret - (solution.value - ledger.value)) <= 1e-9
    assert all(part >= -1e-9 for part in ledger.parts.values())
    if policy == "optimal":
        assert ledger.regret == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("name", GAMES)
def test_the_best_alone_is_between_greedy_play_without_agents_and_the_optimum(name: str) -> None:
    game = make_game(name)
    value = evaluate(game, best_alone(game)).value
    assert evaluate(game, reference("never-spawn", game)).value - 1e-9 <= value <= solved(name).value + 1e-9


@pytest.mark.parametrize("name", GAMES)
def test_page(name: str) -> None:
    """Each game has its page, and the page's table is what the solver gives now."""
    text = (PAGES / f"{name}.md").read_text()
    for part in ("## Formula", "## Source", "## Regret of the reference policies"):
        assert part in text, f"{name}.md has no {part!r}"
    solution = solved(name)
    shown = float(re.search(r"V\* = (-?[\d.]+)", text)[1])
    assert shown == pytest.approx(solution.value, abs=5e-5)
    for policy in REFERENCE:
        row = re.search(rf"^\| {policy} \|(.*)\|$", text, re.M)
        assert row, f"{name}.md has no row for {policy}"
        ledger = expected_regret(solution, reference(policy, solution.game, solution))
        numbers = [float(cell) for cell in row[1].split("|")]
        assert numbers == pytest.approx(
            [ledger.value, ledger.regret, *(ledger.parts[c] for c in CHOICES)], abs=6e-5
        )


def test_no_page_without_a_game() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} - {"README"} == set(GAMES)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("best-of-n", "p", 1.5),
        ("best-of-n", "p", -0.1),
        ("best-of-n", "cost", -1.0),
        ("best-of-n", "max_agents", 0),
        ("divisible-work", "cost", 0.0),
        ("usl", "contention", 2.0),
        ("dag-schedule", "num_slots", 0),
        ("dag-schedule", "edges", [[0, 1], [1, 2], [2, 0]]),
        ("dag-schedule", "edges", [[0, 99]]),
        ("dag-schedule", "durations", []),
        ("assignment", "skills", [[0.5], [0.5]]),
        ("assignment", "skills", [[1.5]]),
        ("weighted-completion", "durations", [0.0]),
        ("skill-bandit", "discount", 0.0),
        ("one-shot-message", "prior", [0.5, 0.6]),
        ("one-shot-message", "channel", [[1.0]]),
        ("silo", "num_agents", 0),
        ("dec-tiger", "horizon", 4),
        ("scouts", "accuracy", 1.1),
        ("voters", "skills", [0.5] * 40),
        ("voters", "num_classes", 1),
        ("correlated-estimators", "covariance", [[1.0, 2.0], [2.0, 1.0]]),
        ("sequential-test", "cost", -0.1),
        ("pandora", "costs", [0.1]),
        ("batch-search", "cost", -0.1),
        ("stopping-chain", "good", 1.2),
        ("airport", "lengths", [1.0] * 30),
        ("gloves", "left", -1),
        ("weighted-voting", "quota", 99),
        ("induced-subgraph", "weights", [[0.0, 1.0], [2.0, 0.0]]),
        ("spawn-forest", "parents", [1, 0]),
        ("signalling-chain", "flip", 0.7),
        ("spawn-bandit", "lift", [0.5, 0.9]),
        ("length-ladder", "pivot", 10),
        ("alone", "steps", 0),
        ("quiet", "cost", -1.0),
        ("enough", "num_levels", 0),
        ("parallel-pandora", "num_slots", 0),
        ("parallel-pandora", "read_cost", -1.0),
        ("parallel-pandora", "unit", 0.0),
    ],
)
def test_impossible_parameters_say_the_limit(name: str, field: str, value: object) -> None:
    with pytest.raises(UsageError, match=rf"{name}: {field} = .* is not possible; ."):
        make_game(name, {field: value})


@pytest.mark.parametrize("value", [float("nan"), "Infinity", "1e999", [[0.0, float("inf")]]])
def test_numbers_are_finite(value: object) -> None:
    for name, field in (("pandora", "in_hand"), ("one-shot-message", "utility")):
        with pytest.raises(UsageError, match=r"expected a (finite )?(number|list)"):
            make_game(name, {field: value})


@pytest.mark.parametrize("settings", [{"num_boxes": 7}, {"num_rounds": 4}])
def test_past_exact_solution_is_refused_and_still_played(settings: dict[str, int]) -> None:
    from baton.games.play import PolicyTable

    game = make_game("parallel-pandora", settings)
    with pytest.raises(UsageError, match="past exact solution, which takes at most 6"):
        solve(game)
    assert PolicyTable(game, reference("greedy", game)).play(0).options


def test_long_traces_of_the_flagship() -> None:
    """Past exact solution there are traces of hundreds of decisions."""
    from baton.games.play import PolicyTable

    game = make_game("parallel-pandora", {"num_boxes": 100, "num_rounds": 60, "num_slots": 4, "prior": -3})
    episode = PolicyTable(game, reference("always-spawn", game)).play(0)
    assert len(episode.options) > 500


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("pandorra", {}), "Did you mean 'pandora'"),
        (("pandora", {"cost": 1}), "Did you mean 'costs'"),
        (("best-of-n", {"p": "many"}), "expected a number"),
    ],
)
def test_unknown_names(given: tuple[str, dict[str, object]], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        make_game(*given)


def test_settings_as_text() -> None:
    game = make_game("silo", {"goal": "sum", "num_agents": "4"})
    assert game == GAMES["silo"](goal="sum", num_agents=4)


@pytest.mark.parametrize(("name", "option"), [("alone", "wait"), ("quiet", "wait"), ("enough", "stop best")])
def test_negative_controls(name: str, option: str) -> None:
    """Not to spawn, not to speak, to stop at once: strictly the best first choice."""
    solution = solved(name)
    q = solution.q(solution.game.start()[0].state)
    assert all(q[option] > value for other, value in q.items() if other != option)
