"""A game as a task: an instance is a stream of luck, and any policy plays it on a team.

    baton run game:parallel-pandora --policy greedy --seed 3 --out runs/boxes

The orchestrator reads each state as text and answers with one of its options, so a script, a table
and a language model play the same game. It is scored by its return, not by its last answer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
import numpy as np

from baton.errors import UsageError
from baton.games.game import Game, Policy, chances
from baton.games.game_trace import PREFIX, played
from baton.games.on_team import Board, GamePlay, begin, read_state
from baton.games.reference import reference
from baton.games.solve import Solution, solve
from baton.tasks.task import Instance, Task
from baton.team.action import VERBS
from baton.team.agent import Agent, AgentRun, Role
from baton.team.clock import uniform
from baton.team.protocol import Answer, Request
from baton.team.surface import SURFACES
from baton.team.team import Assignment, Topology
from baton.trace.records import Reward
from baton.trace.trace import Trace

_ROOT = "orchestrator"
_SAY = "task: say "
_MAX_TURNS = 1_000_000  # games end by themselves, the longest after 100,000 choices


class GameTask(Task):
    """One game, to be played on the team runtime."""

    def __init__(self, game: Game, name: str | None = None) -> None:
        """`name` is what the game goes by where that is not its own name, such as `my_package:MyGame`."""
        self.game = game
        self.name = f"{PREFIX}{name or game.name}"  # type: ignore[misc]  # one class for all games
        self._board = Board(game)
        self._plays: WeakKeyDictionary[AgentRun, GamePlay] = WeakKeyDictionary()

    def draw(self, random: np.random.Generator) -> tuple[str, Any, Any]:
        return (
            "Play. Each time, answer with one of the commands you are given.",
            None,
            int(random.integers(2**53)),
        )

    def verify(self, instance: Instance, answer: str) -> float:  # noqa: ARG002
        """No answer is right or wrong; the return counts (`Assignment.score`)."""
        return 0.0

    def assignment(self, instance: Instance) -> Assignment:
        return Assignment(
            task_id=instance.id,
            prompt=instance.prompt,
            score=self._score,
            options=lambda me: self._play(me).view.options if me.parent is None else None,
            state=lambda me: self._play(me).view.key if me.parent is None else None,
            spec={
                "task": self.name,
                "split": instance.split,
                "seed": instance.seed,
                "settings": msgspec.to_builtins(self.game),
                "stream": instance.data,
            },
        )

    def _play(self, me: Agent) -> GamePlay:
        play = self._plays.get(me.run)
        if play is None:
            raise UsageError(
                f"{self.name} is played by its own team. Write: Team.of(task.topology(), engine), with the same task"
            )
        return play

    def _score(self, trace: Trace) -> Iterable[Reward]:
        value = played(trace, self.game).value
        yield Reward(family="shared", unit="team", target=trace.trace_id, value=value, by="game")

    def topology(self) -> Topology:
        """The orchestrator and those its commands spawn or speak to, who report when they are to."""
        roles = self.game.roles
        root = Role(
            name=_ROOT,
            instructions="Earn the most.",
            verbs=tuple(verb for verb in VERBS if verb != "return"),
            spawns=roles,
            max_turns=_MAX_TURNS,
        )
        return Topology(
            name="centralized",
            root=_ROOT,
            roles=(root, *(Role(name=role, verbs=("return",)) for role in roles)),
            programs={_ROOT: self._orchestrate, **dict.fromkeys(roles, _report)},
            built_from={"name": "centralized", "task": self.name},
        )

    async def _orchestrate(self, me: Agent) -> None:
        stream = me.run.assignment.spec["stream"]
        harness = me.run.harness
        surface = harness.surface_name if harness.surface_name in SURFACES else harness.surface
        play = GamePlay(self._board, begin(self.game, stream), stream, surface)
        self._plays[me.run] = play
        await play.orchestrate(me)

    def script(self, name: str) -> Callable[[Request], Answer]:
        """A reference policy as a script: an engine answers by it, with its propensities."""
        solution = self._solution if name == "optimal" else None
        return self.script_of(reference(name, self.game, solution), name)

    @cached_property
    def _solution(self) -> Solution:
        return solve(self.game)

    def script_of(self, policy: Policy, name: str) -> Callable[[Request], Answer]:
        """Any policy on states as a script; what it does at a state is worked out once."""

        @lru_cache(65_536)
        def row(key: str) -> tuple[tuple[float, ...], list[float]]:
            state = read_state(key)
            given = chances(self.game, state, policy)
            propensities = tuple(given.get(option, 0.0) for option in self.game.options(state))
            return propensities, list(accumulate(propensities))

        def answer(request: Request) -> Answer:
            assert request.options is not None
            assert request.state is not None
            propensities, bounds = row(request.state)
            point = uniform(request.sampling.key or "") * bounds[-1]
            choice = min(bisect_right(bounds, point), len(bounds) - 1)
            return Answer(
                text=request.options[choice], policy=name, choice=choice, option_propensities=propensities
            )

        return answer


async def _report(me: Agent) -> None:
    """An agent's program: rest until the orchestrator is to hear of it, report, and so on."""
    told = me.inbox[-1].text
    report = told.removeprefix(_SAY) if told.startswith(_SAY) else "done"
    while True:
        await me.run.next_task()
        await me.returns(report)
