"""O3: value of information, silos, Dec-Tiger, scouts."""

from __future__ import annotations

from itertools import product
from math import ceil, log2

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.errors import UsageError
from baton.games.joint_policy import joint_optimum
from baton.games.library.dec_tiger import DecTiger, TigerModel
from baton.games.library.one_shot_message import OneShotMessage
from baton.games.library.quiet import Quiet
from baton.games.library.scouts import Scouts, ScoutsModel
from baton.games.library.silo import Silo
from baton.games.play import PolicyTable
from baton.games.solve import evaluate, solve
from baton.testing.check_tasks import check_decpomdp


def normalised(weights: list[float]) -> tuple[float, ...]:
    return tuple(w / sum(weights) for w in weights)


distributions = st.lists(st.floats(0.05, 1), min_size=3, max_size=3).map(normalised)
messages = st.builds(
    OneShotMessage,
    prior=distributions,
    channel=st.lists(distributions, min_size=3, max_size=3).map(tuple),
    utility=st.lists(
        st.lists(st.floats(-1, 1), min_size=3, max_size=3).map(tuple), min_size=1, max_size=3
    ).map(tuple),
    cost=st.floats(0, 1),
)


@given(messages)
def test_value_of_information(game: OneShotMessage) -> None:
    voi = game.voi()
    solution = solve(game)
    known = sum(p * max(row[w] for row in game.utility) for w, p in enumerate(game.prior))
    guess = max(sum(p * u for p, u in zip(game.prior, row, strict=True)) for row in game.utility)
    assert -1e-12 <= voi <= known - guess + 1e-12
    assert solution.value == pytest.approx(guess + max(0, voi - game.cost))
    if abs(voi - game.cost) > 1e-9:
        assert (solution.best((0,)) == "send scout: report") == (voi > game.cost)


def test_quiet_informs_but_does_not_pay() -> None:
    assert 0 < Quiet().voi() < Quiet().cost


@pytest.mark.parametrize("n", range(2, 10))
@pytest.mark.parametrize("goal", ["max", "sum"])
def test_silo_needs_its_messages_and_rounds(n: int, goal: str) -> None:
    game = Silo(num_agents=n, goal=goal, prize=100.0, message_cost=0.01, round_cost=0.1)
    episode = PolicyTable(game, solve(game).policy).play(0)
    sent = sum(option.startswith("send") for option in episode.options)
    rounds = sum(reward == -0.1 for reward in episode.rewards)
    assert (sent, rounds) == (n - 1, ceil(log2(n)))
    assert solve(game).value == pytest.approx(game.facts()["value_if_complete"])


def test_silo_no_plan_is_shorter() -> None:
    """Whatever is sent, knowing everything takes n-1 messages and ceil(log2 n) rounds."""
    n = 6
    game = Silo(num_agents=n)
    fewest: dict[object, set[tuple[int, int]]] = {game.start()[0].state: {(0, 0)}}
    todo = list(fewest)
    complete = set()
    for state in todo:
        for option in game.options(state):
            for b in game.step(state, option):
                if not b.state:
                    complete |= fewest[state] if state[1][0] == n else set()
                    continue
                counts = {(m + option.startswith("send"), r + (state[0] == 0)) for m, r in fewest[state]}
                if not counts <= fewest.get(b.state, set()):
                    fewest[b.state] = fewest.get(b.state, set()) | counts
                    todo.append(b.state)
    assert min(m for m, _ in complete) == n - 1
    assert min(r for _, r in complete) == ceil(log2(n))


def test_silo_not_worth_asking() -> None:
    game = Silo(num_agents=4, message_cost=0.5, round_cost=0.5)
    assert solve(game).best(game.start()[0].state) == "stop best guess"


@pytest.mark.parametrize(("horizon", "value"), [(1, -2.0), (2, -4.0), (3, 5.19081)])
def test_dec_tiger(horizon: int, value: float) -> None:
    assert joint_optimum(TigerModel(), horizon).value == pytest.approx(value, abs=1e-5)
    # The optimal pair, played out, is worth just that, and no reply to it is better.
    assert solve(DecTiger(horizon=horizon)).value == pytest.approx(value, abs=1e-5)


def test_dec_tiger_by_brute_force() -> None:
    """Every pair of deterministic policies over two steps, evaluated one by one."""
    model = TigerModel(horizon=2)
    acts = model.role_actions("listener")

    def worth(first: tuple[str, ...], second: tuple[str, ...]) -> float:
        total = 0.0
        for begin in model.start():
            joint = {"agent-1": first[0], "agent-2": second[0]}
            for out in model.step(begin.state, joint):
                then = {
                    "agent-1": first[1 + out.observations["agent-1"]],
                    "agent-2": second[1 + out.observations["agent-2"]],
                }
                after = sum(o.probability * o.reward for o in model.step(out.state, then))
                total += begin.probability * out.probability * (out.reward + after)
        return total

    policies = list(product(acts, repeat=3))
    assert max(worth(a, b) for a in policies for b in policies) == pytest.approx(
        joint_optimum(model, 2).value
    )


def test_joint_solver_refuses_what_it_cannot_enumerate() -> None:
    with pytest.raises(UsageError, match=r"takes at most 200,000. Type: --set horizon=3"):
        joint_optimum(TigerModel(), 4)
    with pytest.raises(UsageError, match="2 agents and no spawns"):
        joint_optimum(ScoutsModel(), 2)


@pytest.mark.parametrize("model", [TigerModel(), ScoutsModel()], ids=lambda m: m.name)
def test_models_keep_the_contract(model: TigerModel | ScoutsModel) -> None:
    check_decpomdp(model)


@settings(max_examples=20)
@given(st.floats(0.5, 1))
def test_one_free_scout_is_worth_its_accuracy(accuracy: float) -> None:
    game = Scouts(num_scouts=1, accuracy=accuracy, spawn_cost=0, keep_cost=0, step_cost=0, horizon=4)
    assert solve(game).value == pytest.approx(accuracy)


def test_three_free_scouts_are_a_majority() -> None:
    game = Scouts(num_scouts=3, accuracy=0.8, spawn_cost=0, keep_cost=0, step_cost=0, horizon=6)
    assert solve(game).value == pytest.approx(0.8**3 + 3 * 0.8**2 * 0.2)


def test_dear_scouts_stay_home() -> None:
    game = Scouts(spawn_cost=1.0)
    assert solve(game).value == pytest.approx(0.5)
    assert solve(game).best(game.start()[0].state).startswith("stop")


def test_local_values_are_the_models() -> None:
    """Playing the model itself, with everyone's policy, gives the value the local view computes."""
    game = Scouts(num_scouts=1, horizon=4)
    solution = solve(game)
    assert evaluate(game, solution.policy).value == pytest.approx(solution.value)
    assert solution.value == pytest.approx(0.8 - 0.01 - 3 * 0.005 - 2 * 0.005)
