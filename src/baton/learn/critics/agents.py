"""A critic with a value for every agent, mixed into one for the team: VDN's sum, QMIX's monotone network.

Q_i = w_role . x_i over what an agent did (calls, tool calls, returns, messages, answers that could not be carried out,
tokens), Q_tot = sum Q_i or |w2| . elu(|w1| q + b1) + b2 with one slot for each role (an agent's value goes into its
role's, so teams may grow). Fitted to the returns of the last traces by gradient descent on (R - Q_tot)^2: at the end
of an episode that is the temporal difference.
Sources: VDN, arXiv 1706.05296; QMIX, arXiv 1803.11485 [M]; features in place of a recurrent network, and no
hypernetwork, so the mixing is the same in every state [I].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.functional import elu

from baton.credit.estimator import RewardOf
from baton.credit.estimators.mixing import Mix
from baton.learn.recipe import CriticPart, Recipe
from baton.trace.acts import agents
from baton.trace.trace import Trace

NUM_FEATURES = 7
_HIDDEN = 8
_KEPT = 512
"""Traces it is fitted to: the latest."""


class AgentsCritic:
    """Values of agents by role; `roles` are those the team may have."""

    def __init__(
        self, roles: Sequence[str], *, steps: int, learning_rate: float, reward: RewardOf, seed: int = 0
    ) -> None:
        self.roles = tuple(roles)
        self.steps = steps
        self.reward = reward
        self.learning_rate = learning_rate
        noise = torch.Generator().manual_seed(seed)
        size = len(self.roles)
        self.weights: dict[str, Tensor] = {
            "w": torch.zeros(size, NUM_FEATURES),
            "w1": 0.5 + 0.1 * torch.rand(_HIDDEN, size, generator=noise),
            "b1": torch.zeros(_HIDDEN),
            "w2": torch.full((_HIDDEN,), 1 / _HIDDEN),
            "b2": torch.zeros(()),
        }
        self._seen: list[tuple[list[list[float]], float]] = []
        """For each trace: the features of its agents added up by role, and the return."""

    @classmethod
    def from_recipe(cls, recipe: Recipe, policies: Mapping[str, Any], reward: RewardOf) -> Self:
        """As the recipe's [critic] has it, for all roles of the policies."""
        part = recipe.critic or CriticPart()
        return cls(
            [role for policy in policies.values() for role in policy.roles],
            steps=part.steps,
            learning_rate=part.learning_rate,
            reward=reward,
            seed=recipe.train.seed,
        )

    def observe(self, traces: Iterable[Trace]) -> None:
        """Fit the values of agents to what the latest traces earned."""
        for trace in traces:
            rows = [[0.0] * NUM_FEATURES for _ in self.roles]
            for agent, role in agents(trace).items():
                if role in self.roles:
                    row = rows[self.roles.index(role)]
                    for place, value in enumerate(_features(trace, agent)):
                        row[place] += value
            self._seen.append((rows, self.reward(trace)))
        self._seen = self._seen[-_KEPT:]
        self._fit()

    def _fit(self) -> None:
        x = torch.tensor([rows for rows, _ in self._seen])
        returns = torch.tensor([value for _, value in self._seen])
        learned = [value.requires_grad_() for value in self.weights.values()]
        optimizer = torch.optim.Adam(learned, lr=self.learning_rate)
        for _ in range(self.steps):
            optimizer.zero_grad()
            q_TR = (x * self.weights["w"]).sum(-1)  # T traces, R roles
            mixed = _mixed(q_TR, self.weights)
            both = ((returns - q_TR.sum(-1)) ** 2).mean() + ((returns - mixed) ** 2).mean()
            both.backward()  # type: ignore[no-untyped-call]  # torch does not say
            optimizer.step()
        self.weights = {name: value.detach() for name, value in self.weights.items()}

    def q(self, trace: Trace, agent: str) -> float:
        """An agent's own value of what it did."""
        role = agents(trace)[agent]
        if role not in self.roles:
            return 0.0
        weights = self.weights["w"][self.roles.index(role)].tolist()
        return math.fsum(w * x for w, x in zip(weights, _features(trace, agent), strict=True))

    def mix(self, trace: Trace) -> Mix:
        """How the values of a trace's agents, in order of birth, become the team's."""
        slots = [self.roles.index(role) if role in self.roles else None for role in agents(trace).values()]

        def mixed(values: Sequence[float]) -> float:
            sums = torch.zeros(len(self.roles), dtype=torch.float64)
            for slot, value in zip(slots, values, strict=True):
                if slot is not None:
                    sums[slot] += value
            return float(_mixed(sums, {name: value.double() for name, value in self.weights.items()}))

        return mixed

    def given(self) -> dict[str, Callable[..., Any]]:
        """The value of an agent, and how a team's values are mixed."""
        return {"q": self.q, "mix": self.mix}

    def state_dict(self) -> dict[str, Any]:
        """The weights and the traces they are fitted to, as plain values."""
        return {
            "weights": {name: value.tolist() for name, value in self.weights.items()},
            "seen": [[rows, value] for rows, value in self._seen],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.weights = {name: torch.tensor(value) for name, value in state["weights"].items()}
        self._seen = [(rows, value) for rows, value in state["seen"]]


def _mixed(q: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
    """Values of roles, in the last dimension, as QMIX mixes them into one."""
    hidden = elu(q @ weights["w1"].abs().T + weights["b1"])
    return hidden @ weights["w2"].abs() + weights["b2"]


def _features(trace: Trace, agent: str) -> list[float]:
    calls = [call for call in trace.calls if call.agent == agent]
    mine = [event for event in trace.events if event.agent == agent]
    return [
        1.0,
        float(len(calls)),
        float(sum(e.type == "tool_call" and e.status == "ok" for e in mine)),
        float(sum(e.type == "return" and e.status == "ok" for e in mine)),
        float(sum(e.type == "message" for e in mine)),
        float(sum(e.status == "invalid" for e in mine)),
        sum(call.completion_tokens or 0 for call in calls) / 64,
    ]
