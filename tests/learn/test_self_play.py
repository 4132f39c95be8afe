"""Self-play: one policy on both sides of Kuhn poker, credited by what its own seat won."""

from __future__ import annotations

import pytest
from msgspec import structs

from baton.compose.training import make_trainer
from baton.credit import find
from baton.learn.models.tiny import Tiny
from baton.learn.recipe import load
from baton.tasks.kuhn_poker import exploitability, strategy_of
from baton.trace.records import Call, Event, Ints, Reward
from baton.trace.trace import Header, Trace


def duel(name: str, won: float, turns: tuple[int, int] = (2, 1)) -> Trace:
    """Two players that speak by turns, the first so often and the second so often."""
    events, calls = [], []
    order = [
        player
        for number in range(max(turns))
        for player in ("first1", "second1")[: 2 if number < turns[1] else 1]
    ]
    for seq, agent in enumerate(order, 1):
        calls.append(
            Call(id=f"{agent}:{seq}", agent=agent, role=agent[:-1], completion_ids=Ints([1]), policy="main")
        )
        events.append(
            Event(
                id=f"{agent}#{seq}", agent=agent, seq=seq, t=float(seq), type="return", role=agent[:-1],
                call=calls[-1].id, decision="communicate",
            )
        )  # fmt: skip
    rewards = (
        Reward(family="shared", unit="team", target=name, value=won),
        Reward(family="individual", unit="agent", target="first1", value=won),
        Reward(family="individual", unit="agent", target="second1", value=-won),
    )
    return Trace(
        header=Header(trace_id=name, task_id="t"), events=tuple(events), calls=tuple(calls), rewards=rewards
    )


def test_each_seat_is_paid_by_what_it_won_and_centred_by_itself() -> None:
    games = [duel("a", 1.0), duel("b", -2.0, (1, 1)), duel("c", 2.0), duel("d", -1.0, (1, 1))]
    estimator = find("return-to-go")
    found = estimator(games, **estimator.bind(unit="turn", per="role", counts="own"))
    first = [1.0, 1.0, -2.0, 2.0, 2.0, -1.0]  # one number for each of its turns
    second = [-1.0, 2.0, -2.0, 1.0]
    centres = {"first1": sum(first) / len(first), "second1": sum(second) / len(second)}
    for trace, mine in zip(games, found, strict=True):
        own = {r.target: r.value for r in trace.rewards if r.unit == "agent"}
        for credit in mine:
            agent = credit.target.partition(":")[0]
            assert credit.value == pytest.approx(own[agent] - centres[agent])


@pytest.mark.slow
def test_play_gets_better_against_the_best_opponent(first_weights: None) -> None:
    """Self-play need not come to rest, but what a best opponent takes falls at first."""
    recipe = load("marshal", ["train.learning_rate=0.003", "loss.kl=0.0"])
    assert recipe.warm is not None
    tiny = Tiny(width=32, layers=1, heads=2, vocabulary=300)
    small = structs.replace(
        recipe,
        policies={"main": structs.replace(recipe.policies["main"], tiny=tiny)},
        warm=structs.replace(recipe.warm, episodes=60, steps=80, learning_rate=0.01),
    )
    trainer = make_trainer(small)
    lost = []
    for _ in range(10):
        made = trainer.step()
        lost.append(exploitability(strategy_of(made.traces)))
        for trace in made.traces:
            own = {r.target: r.value for r in trace.rewards if r.unit == "agent"}
            assert len(own) == 1 or sum(own.values()) == 0
    assert min(lost[-3:]) < lost[0] - 0.05
