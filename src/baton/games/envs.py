"""A game as a Gymnasium environment: the orchestrator alone, workers being part of the world.

An observation is {"state": the state as numbers, "action_mask": what is open}; `info` has the text
and the options. An action is an option's place in the list; one beyond it means to quit, and
`info["illegal"]` says so.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from baton.errors import MissingExtraError, UsageError
from baton.games.decpomdp import DecPOMDP, History, JointOutcome
from baton.games.game import Game, State

try:
    import gymnasium
    from gymnasium import spaces
    from pettingzoo import ParallelEnv
except ImportError as error:
    raise MissingExtraError("A game as a Gymnasium or PettingZoo environment", "games") from error


_MAX_STATES = 20_000
_RANGE = 2**31 - 1


def flat(state: State) -> list[int]:
    """A state as numbers: each tuple as its length and then its parts, so that no two are alike."""
    numbers = [len(state)]
    for part in state:
        numbers += flat(part) if isinstance(part, tuple) else [part]
    return numbers


class OrchestratorEnv(gymnasium.Env[dict[str, Any], np.int64]):
    """One orchestrator in one game."""

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012 (Gymnasium's own form)

    def __init__(
        self,
        game: Game,
        *,
        num_actions: int | None = None,
        width: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Sizes are found by walking the game; name both for a game too large to walk."""
        self.game = game
        self.render_mode = render_mode
        if num_actions is None or width is None:
            num_actions, width = _sizes(game)
        self._width, self._num_actions = width, num_actions
        self.action_space = spaces.Discrete(num_actions)
        self.observation_space = spaces.Dict(
            {
                "state": spaces.Box(-_RANGE, _RANGE, (width,), np.int64),
                "action_mask": spaces.MultiBinary(num_actions),
            }
        )
        self._state: State = ()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._state = self._draw(self.game.start())[0]
        return self._observe(), self._info()

    def step(self, action: np.int64) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        options = self.game.options(self._state)
        illegal = int(action) >= len(options)
        option = self.game.quit(self._state) if illegal else options[int(action)]
        self._state, reward = self._draw(self.game.step(self._state, option))
        info = self._info() | ({"illegal": True} if illegal else {})
        return self._observe(), reward, not self.game.options(self._state), False, info

    def render(self) -> str:
        return self.game.text(self._state)

    def _draw(self, branches: Any) -> tuple[State, float]:
        chances = np.array([b.probability for b in branches])
        chosen = branches[int(self.np_random.choice(len(branches), p=chances / chances.sum()))]
        return chosen.state, float(chosen.reward)

    def _observe(self) -> dict[str, Any]:
        numbers = flat(self._state)
        state = np.zeros(self._width, dtype=np.int64)
        state[: len(numbers)] = numbers
        mask = np.zeros(self._num_actions, dtype=np.int8)
        mask[: len(self.game.options(self._state))] = 1
        return {"state": state, "action_mask": mask}

    def _info(self) -> dict[str, Any]:
        return {"text": self.game.text(self._state), "options": self.game.options(self._state)}


def _sizes(game: Game) -> tuple[int, int]:
    """The most options and the longest state, over all that can be reached."""
    todo = [b.state for b in game.start()]
    seen = set(todo)
    actions = width = 1
    while todo:
        state = todo.pop()
        options = game.options(state)
        actions, width = max(actions, len(options)), max(width, len(flat(state)))
        for option in options:
            for b in game.step(state, option):
                if b.state not in seen:
                    seen.add(b.state)
                    todo.append(b.state)
        if len(seen) > _MAX_STATES:
            raise UsageError(
                f"{game.name} has more than {_MAX_STATES:,} states, too many to walk for its sizes. "
                "Type: OrchestratorEnv(game, num_actions=..., width=...)"
            )
    return actions, width


# A dynamic Dec-POMDP as a PettingZoo ParallelEnv: whoever trains on those can train on these.
#
# Agents join `agents` when spawned and leave it, terminated, when they return or are cancelled. An
# observation is {"observation": number, "action_mask": what is open now}. An action that is not open
# is replaced by the first that is, and `info["illegal"]` says so.


class TeamEnv(ParallelEnv[str, dict[str, Any], int]):  # type: ignore[misc]  # PettingZoo publishes no types
    """Everyone acts at once; one shared reward, net of costs."""

    def __init__(self, model: DecPOMDP) -> None:
        self.model = model
        self.metadata = {"name": model.name, "render_modes": []}
        self.render_mode = None
        self.possible_agents = list(model.everyone())
        self.agents: list[str] = []
        self._actions = {agent: model.role_actions(model.role(agent)) for agent in self.possible_agents}
        self.action_spaces = {
            agent: spaces.Discrete(len(self._actions[agent])) for agent in self.possible_agents
        }
        self.observation_spaces = {
            agent: spaces.Dict(
                {
                    "observation": spaces.Discrete(model.num_observations(model.role(agent))),
                    "action_mask": spaces.MultiBinary(len(self._actions[agent])),
                }
            )
            for agent in self.possible_agents
        }
        self._random = Random()
        self._state: State = ()
        self._histories: dict[str, History] = {}
        self._steps = 0

    def observation_space(self, agent: str) -> spaces.Dict:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Discrete:
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
        """Begin again; `options` are not used."""
        del options
        if seed is not None:
            self._random = Random(seed)
            # Agents spawned later sample from spaces nobody else has seeded.
            for i, agent in enumerate(self.possible_agents):
                self.action_spaces[agent].seed(seed + i)
        outcome = self._draw(self.model.start())
        self._state, self._steps = outcome.state, 0
        self._histories = {agent: (("", seen),) for agent, seen in outcome.observations.items()}
        self.agents = list(outcome.observations)
        return {agent: self._observe(agent) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        """All act; returns observations, rewards, terminations, truncations, infos."""
        before = list(self.agents)
        joint, illegal = {}, set()
        for agent in before:
            legal = self.model.actions(agent, self._histories[agent])
            action = self._actions[agent][int(actions[agent])]
            if action not in legal:
                action = legal[0]
                illegal.add(agent)
            joint[agent] = action
        outcome = self._draw(self.model.step(self._state, joint))
        self._state, self._steps = outcome.state, self._steps + 1
        for agent, seen in outcome.observations.items():
            entry = (joint.get(agent, ""), seen)
            self._histories[agent] = (*self._histories.get(agent, ()), entry)
        there = list(outcome.observations)
        concerned = before + [agent for agent in there if agent not in before]
        late = self._steps >= self.model.horizon
        self.agents = [] if late else there
        reward = outcome.reward - outcome.cost
        return (
            {agent: self._observe(agent) for agent in concerned},
            {agent: reward if agent in before else 0.0 for agent in concerned},
            {agent: agent not in there for agent in concerned},
            {agent: late and agent in there for agent in concerned},
            {agent: {"illegal": True} if agent in illegal else {} for agent in concerned},
        )

    def _draw(self, outcomes: Any) -> JointOutcome:
        drawn: JointOutcome = self._random.choices(outcomes, [o.probability for o in outcomes])[0]
        return drawn

    def _observe(self, agent: str) -> dict[str, Any]:
        history = self._histories[agent]
        legal = self.model.actions(agent, history)
        mask = np.array([action in legal for action in self._actions[agent]], dtype=np.int8)
        return {"observation": np.int64(history[-1][1]), "action_mask": mask}
