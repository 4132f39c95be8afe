"""The conformance checks notice what they are for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from baton.errors import UsageError
from baton.games.decpomdp import JointOutcome
from baton.games.game import OVER, Branch, Choice, Game, State
from baton.games.library.dec_tiger import TigerModel
from baton.games.library.scouts import ScoutsModel
from baton.games.play import PolicyTable
from baton.games.solve import evaluate, solve
from baton.tasks.shard_sum import ShardSum
from baton.tasks.task import Instance
from baton.testing.check_tasks import check_decpomdp, check_game, check_task


class Coin(Game, frozen=True, kw_only=True):
    """A game that can be broken in one way at a time."""

    name: ClassVar[str] = "coin"
    decisions: ClassVar[tuple[Choice, ...]] = ("stop",)
    broken: str = ""

    def start(self) -> Sequence[Branch]:
        return (
            Branch(1.0, (("a",) if self.broken == "state" else (0,)), 1.0 if self.broken == "start" else 0.0),
        )

    def options(self, state: State) -> tuple[str, ...]:
        if not state:
            return ()
        return {
            "command": ("heads",),
            "two": ("stop a\nstop b",),
            "repeat": ("stop a", "stop a"),
        }.get(self.broken, ("stop a", "stop b"))

    def decision(self, state: State) -> Choice:
        return "spawn" if self.broken == "decision" else "stop"

    def step(self, state: State, option: str) -> Sequence[Branch]:
        if self.broken == "nothing":
            return ()
        if self.broken == "circle":
            return (Branch(1.0, (0,)),)
        tails = {"sum": 0.4, "zero": 0.0}.get(self.broken, 0.5)
        return (Branch(1.0 if self.broken == "zero" else 0.5, OVER, 1.0), Branch(tails, OVER))

    def quit(self, state: State) -> str:
        return "stop c" if self.broken == "quit" else self.options(state)[0]

    def text(self, state: State) -> str:
        return " " if self.broken == "text" else "heads or tails?"


def test_whole_game() -> None:
    assert check_game(Coin()) == 2


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("state", "nested tuples of ints"),
        ("start", "no reward"),
        ("command", "no command of the lines surface"),
        ("two", "no single command"),
        ("repeat", "options repeat"),
        ("decision", "not among the game's decisions"),
        ("nothing", "nothing follows"),
        ("sum", "sum to 0.9"),
        ("zero", "has no chance"),
        ("quit", "quit is no option"),
        ("text", "no text"),
    ],
)
def test_broken_games(broken: str, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check_game(Coin(broken=broken))


def test_games_that_need_not_end() -> None:
    with pytest.raises(UsageError, match="can come back"):
        solve(Coin(broken="circle"))


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ({"stop c": 1.0}, "no option there"),
        ({"stop a": 0.5}, "must sum to 1"),
        ({"stop a": 2.0, "stop b": -1.0}, "sum"),
    ],
)
def test_broken_policies(policy: Mapping[str, float], said: str) -> None:
    for use in (
        lambda: evaluate(Coin(), lambda state: policy),
        lambda: PolicyTable(Coin(), lambda state: policy).play(0),
    ):
        with pytest.raises(UsageError, match=said):
            use()


class Forgetful(ShardSum):
    def draw(self, random: np.random.Generator) -> tuple[str, Any, Any]:
        return super().draw(np.random.default_rng())


class Lenient(ShardSum):
    def verify(self, instance: Instance, answer: str) -> float:
        return 1.0


class Wrong(ShardSum):
    def solve(self, instance: Instance) -> str:
        return "0"


class Same(ShardSum):
    def draw(self, random: np.random.Generator) -> tuple[str, Any, Any]:
        return super().draw(np.random.default_rng(0))


@pytest.mark.parametrize(
    ("task", "said"),
    [(Forgetful(), "differs"), (Lenient(), "not 0"), (Wrong(), "not right"), (Same(), "same instances")],
)
def test_broken_tasks(task: ShardSum, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check_task(task)


class Deaf(TigerModel, frozen=True, kw_only=True):
    def step(self, state: State, joint: Mapping[str, str]) -> Sequence[JointOutcome]:
        return [JointOutcome(o.probability, o.state, {"agent-1": 0}) for o in super().step(state, joint)]


class Undying(ScoutsModel, frozen=True, kw_only=True):
    def step(self, state: State, joint: Mapping[str, str]) -> Sequence[JointOutcome]:
        outcomes = []
        for o in super().step(state, joint):
            after = (
                (o.state[0], tuple(1 if status == 4 else status for status in o.state[1])) if o.state else ()
            )
            if after != o.state and self.alive(state) == ("orchestrator",):
                o = o._replace(state=after, observations=dict.fromkeys(self.alive(after), 0))
            outcomes.append(o)
        return outcomes


@pytest.mark.parametrize(
    ("model", "said"), [(Deaf(), "exactly those alive"), (Undying(horizon=12), "came back")]
)
def test_broken_models(model: TigerModel, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check_decpomdp(model, episodes=300)
