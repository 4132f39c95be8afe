"""A dynamic Dec-POMDP as a PettingZoo ParallelEnv: whoever trains on those can train on these.

Agents join `agents` when spawned and leave it, terminated, when they return or are cancelled. An
observation is {"observation": number, "action_mask": what is open now}. An action that is not open
is replaced by the first that is, and `info["illegal"]` says so.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from baton.errors import MissingExtraError
from baton.tasks.decpomdp import DecPOMDP, History, Outcome
from baton.tasks.game import State

try:
    from gymnasium import spaces
    from pettingzoo import ParallelEnv
except ImportError as error:
    raise MissingExtraError("A game as a PettingZoo environment", "games") from error

__all__ = ["TeamEnv"]


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

    def _draw(self, outcomes: Any) -> Outcome:
        drawn: Outcome = self._random.choices(outcomes, [o.probability for o in outcomes])[0]
        return drawn

    def _observe(self, agent: str) -> dict[str, Any]:
        history = self._histories[agent]
        legal = self.model.actions(agent, history)
        mask = np.array([action in legal for action in self._actions[agent]], dtype=np.int8)
        return {"observation": np.int64(history[-1][1]), "action_mask": mask}
