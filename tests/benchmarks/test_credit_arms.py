"""The arms of result 9: their gradients against the exact one of the game, and against Baton's own estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from credit_teams import group_of, values_of

from baton.credit import ESTIMATORS
from baton.games.game import Game
from baton.games.library.pandora import Pandora
from baton.games.library.stopping_chain import StoppingChain
from baton.games.solve import evaluate, solve

GAMES: dict[str, Game] = {
    "stopping-chain": StoppingChain(num_workers=2, num_steps=3),
    "pandora": Pandora(scales=(1.0, 0.7), costs=(0.05, 0.1), num_levels=3),
}


pytestmark = pytest.mark.usefixtures("beside_the_results")


def table_of(game: Game, seed: int = 3) -> Any:
    """A table that plays neither at random nor well."""
    from table_team import Table

    table = Table(game, seed)
    draw = np.random.default_rng(seed)
    for state in solve(game).values:
        number = table.board.number(state)
        if num := len(table.board.options[number]):
            table.chances(number)
            table.move({number: list(draw.normal(size=num))}, 1.0)
    return table


def exact_gradient(table: Any) -> dict[tuple[int, int], float]:
    """Of the value in each logit: by enumeration before and after a small change."""
    found, small = {}, 1e-5
    for number, options in enumerate(table.board.options):
        for option in range(len(options)) if len(options) > 1 else ():
            push = [small * (k == option) for k in range(len(options))]
            values = []
            for sign in (1.0, -2.0, 1.0):
                table.move({number: push}, sign)
                values.append(evaluate(table.board.game, table.policy).value)
            found[number, option] = (values[0] - values[1]) / (2 * small)
    return found


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("arm", ["leave-one-out", "return-to-go", "forks"])
def test_the_mean_of_the_gradients_is_the_gradient_of_the_value(game: str, arm: str) -> None:
    from credit_arms import Crediting

    table = table_of(GAMES[game])
    truth = exact_gradient(table)
    crediting = Crediting(arm, table)
    samples: dict[tuple[int, int], list[float]] = {key: [] for key in truth}
    visits = evaluate(table.board.game, table.policy).visits
    often = {
        key for key in truth
        if visits[table.board.states[key[0]]] > 0.1 and min(table.chances(key[0])) > 0.1
    }  # fmt: skip
    num = 800
    for instance in range(num):
        group = [table.play(instance) for _ in range(4)]
        credit = crediting.of([group])
        sums = dict.fromkeys(truth, 0.0)
        for one, worth in zip(group, credit, strict=True):
            for state, choice, each in zip(one.states, one.choices, worth, strict=True):
                for option, chance in enumerate(table.chances(state)):
                    if (state, option) in sums:
                        sums[state, option] += each * ((option == choice) - chance) / len(group)
        for key, value in sums.items():
            samples[key].append(value)
    errors = [
        (np.mean(values) - truth[key]) / max(np.std(values, ddof=1) / np.sqrt(num), 1e-6)
        for key, values in samples.items()
        if key in often
    ]
    assert len(errors) > 3
    assert max(map(abs, errors)) < 4.5


def test_layers_add_up_to_the_return_less_the_mean_of_the_others() -> None:
    from credit_arms import Crediting, leave_one_out

    table = table_of(GAMES["pandora"])
    group = [table.play(0) for _ in range(5)]
    for one, worth, whole in zip(
        group, Crediting("layered", table).of([group]), leave_one_out([group]), strict=True
    ):
        if any(len(table.board.options[state]) > 1 for state in one.states) and len(one.states) > 1:
            assert sum(worth) == pytest.approx(whole[0]) or worth == whole


def test_a_fork_with_the_same_choice_is_the_rollout_itself_and_is_charged() -> None:
    table = table_of(GAMES["stopping-chain"])
    one = table.play(7)
    before = table.spent
    assert table.fork(one, 0, one.choices[0]) == one.value
    real = sum(len(table.board.options[state]) > 1 for state in one.states)
    assert table.spent - before == real


def test_values_by_counts_meet_those_of_the_game() -> None:
    from credit_arms import Crediting

    table = table_of(GAMES["stopping-chain"])
    crediting = Crediting("coma", table)
    for instance in range(1500):
        crediting.counts.observe([table.play(instance)])
    crediting.counts.back_up()
    truth = evaluate(table.board.game, table.policy)
    for number, value in crediting.counts.values.items():
        if number >= 0 and truth.visits[table.board.states[number]] > 0.1:
            assert value == pytest.approx(truth.values[table.board.states[number]], abs=0.05)


@pytest.mark.parametrize(("arm", "estimator"), [("uniform", "group"), ("leave-one-out", "leave-one-out")])
def test_whole_rollouts_are_credited_as_batons_estimators_do(arm: str, estimator: str) -> None:
    from credit_arms import Crediting
    from table_team import Rollout, Table

    totals = [0.3, 1.0, -0.2, 0.3, 0.85]
    table = Table(GAMES["pandora"], 0)
    rollouts = [Rollout(0, [0], [0], [total], [0.5]) for total in totals]
    mine = [credit[0] for credit in Crediting(arm, table).of([rollouts])]
    theirs = values_of(ESTIMATORS[estimator].function(group_of(totals)))
    assert mine == pytest.approx([each[0] for each in theirs], rel=1e-4)
