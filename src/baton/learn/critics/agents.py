"""A critic with a value for every agent, mixed into one for the team: VDN's sum, QMIX's monotone network.

    Q_i   = a recurrent network over the turns that agent i took; all agents share it and are told their role
    VDN     Q_tot = sum_i Q_i
    QMIX    Q_tot = |W2(s)| . elu(|W1(s)| q + b1(s)) + V(s), all of it made by hypernetworks from the state s

As in the authors' code each hypernetwork is one linear layer, V two, and absolute values make the mixing monotone.
Fitted to the returns of the last traces by gradient descent on (R - Q_tot)^2, by the mixing that is used and no other.

What differs from the papers [I]: a turn is described by what was done in it (a tool called, an answer returned, a
message, an agent spawned, tokens), and the state by the sums of those over the agents of each role. Agents of one role
share a column of W1, so that teams may grow. There is one target, at the end of an episode, and no bootstrapping from
later values, so no target network. The policy is trained by the error, and not by taking the largest value.
Sources: VDN, arXiv 1706.05296; QMIX, arXiv 1803.11485, and its authors' PyMARL [C].
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import elu, one_hot
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

from baton.credit import find
from baton.credit.estimator import RewardOf
from baton.credit.estimators.mixing import Mix
from baton.learn.recipe import CriticPart, Recipe
from baton.trace.acts import agents, turns
from baton.trace.records import Event
from baton.trace.trace import Trace

NUM_FEATURES = 7
_READ = 16
"""Size of the recurrent state."""
_HIDDEN = 8
"""Of the mixing."""
_KEPT = 512
"""Traces it is fitted to: the latest."""
_TOKENS = 64.0


class _Seen(NamedTuple):
    """A trace, as the critic reads it."""

    roles: list[int]
    """Of each agent, in order of birth; -1 where no policy answers for it."""
    turns: list[list[list[float]]]
    """Agent -> turn -> features."""
    value: float


class Mixer(nn.Module):
    """Q_tot of values by role and of a state: monotone in every value, with weights that the state decides."""

    def __init__(self, num_roles: int, num_state: int, hidden: int = _HIDDEN) -> None:
        super().__init__()
        self.shape = (num_roles, hidden)
        self.w1 = nn.Linear(num_state, num_roles * hidden)
        self.b1 = nn.Linear(num_state, hidden)
        self.w2 = nn.Linear(num_state, hidden)
        self.v = nn.Sequential(nn.Linear(num_state, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, q_TR: Tensor, state_TS: Tensor) -> Tensor:
        w1_TRH = self.w1(state_TS).abs().unflatten(-1, self.shape)
        hidden_TH = elu(torch.einsum("tr,trh->th", q_TR, w1_TRH) + self.b1(state_TS))
        found: Tensor = (hidden_TH * self.w2(state_TS).abs()).sum(-1) + self.v(state_TS)[:, 0]
        return found


class _Values(nn.Module):
    """Every agent's value, and the mixing where there is one."""

    def __init__(self, num_roles: int, *, mixing: bool) -> None:
        super().__init__()
        self.num_roles = num_roles
        self.enter = nn.Linear(NUM_FEATURES + num_roles, _READ)
        self.read = nn.GRU(_READ, _READ, batch_first=True)
        self.head = nn.Linear(_READ, 1)
        self.mixer = Mixer(num_roles, num_roles * NUM_FEATURES) if mixing else None

    def values(self, roles: Tensor, turns_: Sequence[Tensor]) -> Tensor:
        """Of A agents, after the last turn of each."""
        sizes = torch.tensor([len(each) for each in turns_])
        padded = pad_sequence(list(turns_), batch_first=True)
        who = one_hot(roles, self.num_roles).to(padded.dtype)[:, None].expand(-1, padded.shape[1], -1)
        entered = torch.relu(self.enter(torch.cat((padded, who), -1)))
        _, last = self.read(pack_padded_sequence(entered, sizes, batch_first=True, enforce_sorted=False))
        found: Tensor = self.head(last[0])[:, 0]
        return found


class _Batch(NamedTuple):
    """T traces at once."""

    roles: Tensor
    """Of all agents that a policy answers for."""
    turns: list[Tensor]
    of: Tensor
    """The trace that each of them is in."""
    states: Tensor
    """T x (roles x features): what the agents of each role did, added up."""
    returns: Tensor

    @classmethod
    def made(cls, seen: Sequence[_Seen], num_roles: int) -> Self:
        """The traces side by side."""
        states = torch.zeros(len(seen), num_roles, NUM_FEATURES)
        roles: list[int] = []
        turns_: list[Tensor] = []
        of: list[int] = []
        for number, each in enumerate(seen):
            for role, mine in zip(each.roles, each.turns, strict=True):
                if role >= 0:
                    roles.append(role)
                    turns_.append(torch.tensor(mine))
                    of.append(number)
                    states[number, role] += turns_[-1].sum(0)
        returns = torch.tensor([each.value for each in seen], dtype=torch.float32)
        return cls(torch.tensor(roles), turns_, torch.tensor(of), states.flatten(1), returns)

    def by_role(self, values: Tensor) -> Tensor:
        """T x roles: values of agents, added up."""
        size = (len(self.returns), self.states.shape[1] // NUM_FEATURES)
        return values.new_zeros(size).index_put((self.of, self.roles), values, accumulate=True)


class AgentsCritic:
    """Values of agents by what they did; `roles` are those the team may have."""

    def __init__(
        self,
        roles: Sequence[str],
        *,
        steps: int,
        learning_rate: float,
        reward: RewardOf,
        mixing: bool = True,
        seed: int = 0,
    ) -> None:
        """`mixing`: QMIX's; False: VDN's sum."""
        self.roles = tuple(roles)
        self.steps = steps
        self.reward = reward
        self.learning_rate = learning_rate
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed + 1)
            self.net = _Values(len(self.roles), mixing=mixing)
        self._kept: list[_Seen] = []

    @classmethod
    def from_recipe(cls, recipe: Recipe, policies: Mapping[str, Any], reward: RewardOf) -> Self:
        """As the recipe's [critic] has it, for all roles of the policies."""
        part = recipe.critic or CriticPart()
        return cls(
            [role for policy in policies.values() for role in policy.roles],
            steps=part.steps,
            learning_rate=part.learning_rate,
            reward=reward,
            mixing=any("mix" in find(each.estimator).settings for each in recipe.credit),
            seed=recipe.train.seed,
        )

    def observe(self, traces: Iterable[Trace]) -> None:
        """Fit the values of agents to what the latest traces earned."""
        self._kept = [*self._kept, *(self._seen(trace, self.reward(trace)) for trace in traces)][-_KEPT:]
        if not self._kept:
            return
        batch = _Batch.made(self._kept, len(self.roles))
        optimizer = torch.optim.Adam(self.net.parameters(), lr=self.learning_rate)
        for _ in range(self.steps):
            optimizer.zero_grad()
            loss = ((batch.returns - self._total(batch)) ** 2).mean()
            loss.backward()  # type: ignore[no-untyped-call]  # torch does not say
            optimizer.step()

    def _total(self, batch: _Batch) -> Tensor:
        q_TR = batch.by_role(self.net.values(batch.roles, batch.turns))
        return q_TR.sum(-1) if self.net.mixer is None else self.net.mixer(q_TR, batch.states)

    def _seen(self, trace: Trace, value: float) -> _Seen:
        found = agents(trace)
        features = _features(trace)
        roles = [self.roles.index(role) if role in self.roles else -1 for role in found.values()]
        # One who was never asked has one turn of nothing.
        return _Seen(roles, [features.get(agent) or [[0.0] * NUM_FEATURES] for agent in found], value)

    @torch.no_grad()
    def q(self, trace: Trace, agent: str) -> float:
        """An agent's own value of what it did; 0 for one that no policy answers for."""
        seen = self._seen(trace, 0.0)
        place = list(agents(trace)).index(agent)
        if seen.roles[place] < 0:
            return 0.0
        return float(self.net.values(torch.tensor([seen.roles[place]]), [torch.tensor(seen.turns[place])]))

    def mix(self, trace: Trace) -> Mix:
        """How the values of a trace's agents, in order of birth, become the team's."""
        seen = self._seen(trace, 0.0)
        state = _Batch.made([seen], len(self.roles)).states.double()
        # Slopes are taken by differences, for which single precision is too coarse.
        mixer = None if self.net.mixer is None else copy.deepcopy(self.net.mixer).double()

        @torch.no_grad()
        def mixed(values: Sequence[float]) -> float:
            q_TR = torch.zeros(1, len(self.roles), dtype=torch.float64)
            for role, value in zip(seen.roles, values, strict=True):
                if role >= 0:
                    q_TR[0, role] += value
            return float(q_TR.sum() if mixer is None else mixer(q_TR, state))

        return mixed

    def given(self) -> dict[str, Callable[..., Any]]:
        """The value of an agent, and how a team's values are mixed."""
        return {"q": self.q, "mix": self.mix}

    def state_dict(self) -> dict[str, Any]:
        """The weights, and the traces they are fitted to."""
        return {
            "net": {name: value.clone() for name, value in self.net.state_dict().items()},
            "kept": [list(each) for each in self._kept],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave. A checkpoint of 0.2 has no networks: these are then fitted anew."""
        if "net" in state:
            self.net.load_state_dict(state["net"])
            self._kept = [_Seen(*each) for each in state["kept"]]


def _features(trace: Trace) -> dict[str, list[list[float]]]:
    """Agent -> turn -> what was done in it."""
    found: dict[str, list[list[float]]] = {}
    for turn in turns(trace):
        mine = [trace.events[place] for place in turn.events]
        call = trace.call_by_id.get(turn.call)
        found.setdefault(turn.agent, []).append(
            [
                1.0,
                _count(mine, "tool_call"),
                _count(mine, "return"),
                _count(mine, "message"),
                _count(mine, "spawn"),
                float(sum(event.status == "invalid" for event in mine)),
                ((call.completion_tokens or 0) if call is not None else 0) / _TOKENS,
            ]
        )
    return found


def _count(events: Sequence[Event], kind: str) -> float:
    return float(sum(event.type == kind and event.status == "ok" for event in events))
