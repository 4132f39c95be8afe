"""The dynamic game: a prize is behind one of two doors, and scouts can be spawned to listen.

The orchestrator hears nothing itself. A scout listens in its first step and returns what it heard in
its second, then it is gone; each costs to spawn and to keep. All of it is a dynamic Dec-POMDP: the
agents change, a scout may return only once it has listened, spawn and cancel are actions. With
scouts' policy fixed (listen, then say what was heard) the orchestrator's optimum is exact.
Source: the dynamic Dec-POMDP of the survey, arXiv 2605.02801; the doors are Dec-Tiger's.

In each step the orchestrator first stops or goes on (O5), then spawns, cancels or waits (O1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import ClassVar

from msgspec import structs

from baton.games.decpomdp import DecPOMDP, History, JointOutcome, LocalView
from baton.games.game import Branch, Choice, Game, State

_UNBORN, _NEW, _HEARD_LEFT, _HEARD_RIGHT, _GONE = range(5)
_ROOT = "orchestrator"
_SPAWN, _WAIT = "spawn scout: listen", "wait"
_STOPS = ("stop left", "stop right")
_LISTEN, _RETURNS = "call listen {}", ("return left", "return right")
_DECIDING, _TEAM = 0, 1


class ScoutsModel(DecPOMDP, frozen=True, kw_only=True):
    """State: (door of the prize, status of each scout); () once it is over."""

    name: ClassVar[str] = "scouts"
    orchestrator: ClassVar[str] = _ROOT

    num_scouts: int = 3
    accuracy: float = 0.8
    prize: float = 1.0
    spawn_cost: float = 0.01
    keep_cost: float = 0.005
    """What each scout that is there costs in a step."""
    step_cost: float = 0.005
    """What the time of a step costs."""
    horizon: int = 6

    def everyone(self) -> tuple[str, ...]:
        return (_ROOT, *(f"scout-{i + 1}" for i in range(self.num_scouts)))

    def role(self, agent: str) -> str:
        return agent.partition("-")[0]

    def alive(self, state: State) -> tuple[str, ...]:
        if not state:
            return ()
        there = (_NEW, _HEARD_LEFT, _HEARD_RIGHT)
        return (_ROOT, *(f"scout-{i + 1}" for i, status in enumerate(state[1]) if status in there))

    def role_actions(self, role: str) -> tuple[str, ...]:
        if role == _ROOT:
            cancels = (f"cancel scout-{i + 1}" for i in range(self.num_scouts))
            return (*_STOPS, _WAIT, _SPAWN, *cancels)
        return (_LISTEN, *_RETURNS)

    def num_observations(self, role: str) -> int:
        """The orchestrator sees how many returned left and right; a scout what it heard (0: nothing)."""
        return (self.num_scouts + 1) ** 2 if role == _ROOT else 3

    def actions(self, agent: str, history: History) -> tuple[str, ...]:
        if agent != _ROOT:
            return _RETURNS if history[-1][1] else (_LISTEN,)
        said = [action for action, _ in history]
        spawned = said.count(_SPAWN)
        out = [name for name in (f"scout-{i + 1}" for i in range(spawned)) if f"cancel {name}" not in said]
        return (
            *_STOPS,
            _WAIT,
            *((_SPAWN,) if spawned < self.num_scouts else ()),
            *(f"cancel {name}" for name in out),
        )

    def start(self) -> Sequence[JointOutcome]:
        nobody = (_UNBORN,) * self.num_scouts
        return [JointOutcome(0.5, (door, nobody), {_ROOT: 0}) for door in (0, 1)]

    def step(self, state: State, joint: Mapping[str, str]) -> Sequence[JointOutcome]:
        door, scouts = state
        said = joint[_ROOT]
        if said in _STOPS:
            return [JointOutcome(1.0, (), {}, self.prize if _STOPS.index(said) == door else 0.0)]
        after = list(scouts)
        returned = [0, 0]
        listening = []
        for i, status in enumerate(scouts):
            action = joint.get(f"scout-{i + 1}")
            if action == _LISTEN and status == _NEW:
                listening.append(i)
            elif action in _RETURNS and status in (_HEARD_LEFT, _HEARD_RIGHT):
                returned[_RETURNS.index(action)] += 1
                after[i] = _GONE
        cost = self.step_cost + self.keep_cost * (len(self.alive(state)) - 1)
        if said == _SPAWN and _UNBORN in after:
            after[after.index(_UNBORN)] = _NEW
            cost += self.spawn_cost
        elif said.startswith("cancel") and after[int(said.rsplit("-", 1)[1]) - 1] != _UNBORN:
            gone = int(said.rsplit("-", 1)[1]) - 1
            after[gone] = _GONE
            listening = [i for i in listening if i != gone]
        seen = returned[0] * (self.num_scouts + 1) + returned[1]
        heard = product((0, 1), repeat=len(listening))
        return [self._listened(door, after, listening, ears, seen, cost) for ears in heard]

    def _listened(
        self,
        door: int,
        scouts: list[int],
        listening: list[int],
        ears: tuple[int, ...],
        seen: int,
        cost: float,
    ) -> JointOutcome:
        p, after = 1.0, list(scouts)
        for i, ear in zip(listening, ears, strict=True):
            p *= self.accuracy if ear == door else 1 - self.accuracy
            after[i] = _HEARD_LEFT + ear
        state = (door, tuple(after))
        heard = {_ROOT: seen}
        for agent in self.alive(state)[1:]:
            status = after[int(agent.rsplit("-", 1)[1]) - 1]
            heard[agent] = status - _NEW
        return JointOutcome(p, state, heard, 0.0, cost)


def scout_policy(agent: str, history: History) -> str:  # noqa: ARG001 (all scouts alike)
    """Listen, then say what was heard."""
    heard = history[-1][1]
    return _RETURNS[heard - 1] if heard else _LISTEN


class Scouts(Game, frozen=True, kw_only=True):
    """The orchestrator's side of it. A state is (phase, own history)."""

    name: ClassVar[str] = "scouts"
    decisions: ClassVar[tuple[Choice, ...]] = ("spawn", "stop")
    roles: ClassVar[tuple[str, ...]] = ("scout",)

    num_scouts: int = 3
    accuracy: float = 0.8
    prize: float = 1.0
    spawn_cost: float = 0.01
    keep_cost: float = 0.005
    step_cost: float = 0.005
    horizon: int = 6

    def __post_init__(self) -> None:
        self.require(1 <= self.num_scouts <= 4, "num_scouts", "the exact solver takes 1 to 4 scouts")
        self.require(0 <= self.accuracy <= 1, "accuracy", "a probability lies from 0 to 1")
        for field in ("prize", "spawn_cost", "keep_cost", "step_cost"):
            self.require(getattr(self, field) >= 0, field, "it must not be negative")
        self.require(1 <= self.horizon <= 7, "horizon", "the exact solver takes 1 to 7 steps")

    @cached_property
    def model(self) -> ScoutsModel:
        return ScoutsModel(**structs.asdict(self))

    @cached_property
    def _view(self) -> LocalView:
        return LocalView(self.model, _ROOT, scout_policy)

    def start(self) -> Sequence[Branch]:
        return [Branch(p, (_DECIDING, history)) for p, history, _ in self._view.start()]

    def options(self, state: State) -> tuple[str, ...]:
        if not state:
            return ()
        phase, history = state
        actions = self._view.options(history)
        if phase == _TEAM:
            return tuple(action for action in actions if action not in _STOPS)
        # The last step is for answering: waiting then would only let the answer lapse.
        return (*_STOPS, _WAIT) if len(history) < self.horizon else _STOPS

    def decision(self, state: State) -> Choice:
        return "stop" if state[0] == _DECIDING else "spawn"

    def step(self, state: State, option: str) -> Sequence[Branch]:
        phase, history = state
        if phase == _DECIDING and option == _WAIT:
            return (Branch(1.0, (_TEAM, history)),)
        return [
            Branch(p, (_DECIDING, after) if after else (), reward)
            for p, after, reward in self._view.step(history, option)
        ]

    def quit(self, state: State) -> str:
        phase, history = state
        if phase == _TEAM:
            return _WAIT
        left, right = self._returns(history)
        return _STOPS[int(right > left)]

    def spawns(self, state: State, option: str) -> int:
        """To go on counts as a spawn while there is a scout to spawn: never-spawn answers at once."""
        if state[0] == _DECIDING:
            return int(option == _WAIT and self.spawned(state) < self.num_scouts)
        return int(option == _SPAWN)

    def spawned(self, state: State) -> int:
        return [action for action, _ in self._view.history(state[1])].count(_SPAWN)

    def _returns(self, history: State) -> tuple[int, int]:
        pairs = [divmod(seen, self.num_scouts + 1) for _, seen in history]
        return sum(left for left, _ in pairs), sum(right for _, right in pairs)

    def text(self, state: State) -> str:
        if not state:
            return "over"
        phase, history = state
        left, right = self._returns(history)
        acts = [action for action, _ in self._view.history(history[1:])]
        return (
            f"so far: {', '.join(acts) or 'nothing'}\nscouts say: {left} left, {right} right\n"
            f"steps left: {self.horizon - len(history) + 1}\n"
            + ("stop or go on?" if phase == _DECIDING else "spawn, cancel or wait?")
        )
