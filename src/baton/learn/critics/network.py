"""A critic that is a small transformer over prefixes of the trace (MAPPO, IPPO, MARFT, COMA with a network).

It reads a trace's ids (`pages`) through the prefix forest, so that prompts which rollouts share are computed once,
and a linear head gives the value at every spot asked for. Before the first token of an answer that is V(prefix); after
an answer it is Q(prefix, answer), so options need no heads of their own: they are appended and read.

It is trained by regression on discounted returns-to-go, after each step's traces were judged: judged afterwards, they
would be compared with returns that the critic has just been shown, and what it remembers would not be learned from.
Batches are drawn from the last few steps: on one step's traces alone it would follow their luck.

Targets are those `estimators.gae` has in mind: rewards on turns when they happen, the team's return at the last turn
of the chain; and token by token those of `baton.credit.estimators.gae`.
Sources: MAPPO, arXiv 2103.01955; IPPO, arXiv 2011.09533; COMA, arXiv 1705.08926 [M].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from baton.credit import find
from baton.credit.core.acts import of_turns, own_rewards, turn_rewards, turns
from baton.credit.estimator import Prefix, RewardOf
from baton.errors import UsageError
from baton.forest.attention.parts import make_pass
from baton.forest.layout import plant, split
from baton.forest.logprobs import hidden_states, tree_attention
from baton.forest.rows import Row
from baton.learn.critics.pages import CriticPage, Places, Spot, TraceReader, row_at
from baton.learn.models.tiny import Tiny, decoder_of
from baton.learn.recipe import Recipe
from baton.trace.records import ROUNDING, Call
from baton.trace.trace import Trace

Lesson = tuple[Row, NDArray[np.float64]]
"""Spots of a row, and what came after them."""

LATEST = 768
"""Ids of a prefix that are read; of a longer one the latest."""
_STEPS_KEPT = 5
"""Steps whose traces are learned from."""
_TOKENS = 4096
"""How many tokens of rows one step of the regression takes."""


class NetworkCritic:
    """Values by a network of its own."""

    def __init__(self, recipe: Recipe, policies: Mapping[str, Any], reward: RewardOf) -> None:
        assert recipe.critic is not None
        self.part = recipe.critic
        self.reward = reward
        self.max_tokens = recipe.pack.max_tokens
        self.seed = recipe.train.seed
        self.asks = _Asked(recipe)
        tokenizer, own = _tokenizer(policies)
        self.reader = TraceReader(tokenizer, own, self.part.view, LATEST)
        size = next((p.tiny for p in recipe.policies.values()), Tiny())
        self.net = _Net(len(tokenizer), size, seed=recipe.train.seed)
        self.optimizer = torch.optim.AdamW(
            self.net.parameters(), lr=self.part.learning_rate, weight_decay=0.0, betas=(0.9, 0.95)
        )
        self._num_observed = 0
        self._kept: list[list[Lesson]] = []
        """The latest last."""
        self._read: dict[int, _Read] = {}
        """By the identity of the trace's calls. Forks may share a name, and a trace gets its credits afterwards."""

    def observe(self, traces: Iterable[Trace]) -> None:
        """Judge a step's traces with what is known, then learn from them."""
        said = [trace for trace in traces if any(event.call is not None for event in trace.events)]
        mine = [self._page(trace) for trace in said]
        self._read = {id(read.trace.calls): read for read in mine}
        lessons = _lessons(mine, self)
        if not lessons:
            return
        if not self._num_observed:
            self.net.fit_scale(np.concatenate([targets for _, targets in lessons]))
        self._answer(mine)
        self._kept = [*self._kept[1 - _STEPS_KEPT :], lessons]
        self._learn()
        self._num_observed += 1

    def value(self, prefix: Prefix) -> float:
        """What is still to come after a prefix."""
        if prefix.agent is not None and self.part.view == "central":
            raise UsageError(
                'a local value was asked of a central critic. Set critic.view = "local", or take critic = "local" out '
                "of the estimator's settings."
            )
        read = self._of(prefix.trace)
        return read.values[read.places.spot(prefix.num_events, prefix.agent)]

    def q(self, prefix: Prefix, option: str) -> float:
        """The same, of taking an option at the choice that follows a prefix."""
        read = self._of(prefix.trace)
        event = prefix.trace.events[prefix.num_events]
        key = (event.call or "", option)
        if key not in read.options:
            asked = [self._option_row(read, *key)]
            read.options[key] = float(self._values(asked)[0][0])
        return read.options[key]

    def token_values(self, trace: Trace, call: Call) -> Sequence[float]:
        """Before each token of a completion."""
        read = self._of(trace)
        return [read.values[Spot(call.id, n)] for n in range(len(call.completion_ids or ()))]

    def given(self) -> dict[str, Any]:
        """Values of prefixes, of options at them, and before each token of an answer."""
        return {"value": self.value, "q": self.q, "token_value": self.token_values}

    # -- answers --------------------------------------------------------------------------------

    def _page(self, trace: Trace) -> _Read:
        return _Read(trace, self.reader.pages(trace, tokens=self.asks.tokens))

    def _of(self, trace: Trace) -> _Read:
        read = self._read.get(id(trace.calls))
        if read is None:
            read = self._read[id(trace.calls)] = self._page(trace)
            self._answer([read])
        return read

    def _answer(self, reads: Sequence[_Read]) -> None:
        """Values at every spot, and of every option that was open, in few passes."""
        rows: list[Row] = []
        keep: list[tuple[dict[Any, float], list[Any]]] = []
        for read in reads:
            for page in read.pages:
                rows.append(row_at(page.ids, list(page.spots.values())))
                keep.append((read.values, list(page.spots)))
            for key in _open_options(read.trace) if self.asks.options else ():
                rows.append(self._option_row(read, *key))
                keep.append((read.options, [key]))
        for (into, keys), values in zip(keep, self._values(rows), strict=True):
            into.update(zip(keys, values.tolist(), strict=True))

    def _option_row(self, read: _Read, call: str, option: str) -> Row:
        page = next(page for page in read.pages if Spot(call, 0) in page.spots)
        before = page.ids[: page.spots[Spot(call, 0)] + 1]
        ids = np.concatenate((before, np.array(self.reader.said(option), np.int32)))[-2 * LATEST :]
        return row_at(ids, [len(ids) - 1])

    @torch.no_grad()
    def _values(self, rows: Sequence[Row]) -> list[NDArray[np.float64]]:
        found: list[NDArray[np.float64]] = [np.empty(0)] * len(rows)
        number = {id(row): n for n, row in enumerate(rows)}
        for part in split(rows, self.max_tokens):
            layout, at = plant(part)
            nodes, of = np.unique(np.concatenate(at), return_inverse=True)
            values = self.net.at(layout, nodes).double().numpy()[of]
            for row, mine in zip(part, np.split(values, np.cumsum([len(a) for a in at])[:-1]), strict=True):
                found[number[id(row)]] = mine
        return found

    # -- learning -------------------------------------------------------------------------------

    def _learn(self) -> None:
        lessons = [each for step in self._kept for each in step]
        random = np.random.default_rng((self.seed, self._num_observed))
        order: list[int] = []
        for _ in range(self.part.steps):
            batch: list[Lesson] = []
            size = 0
            while size < _TOKENS and len(batch) < len(lessons):
                if not order:
                    order = random.permutation(len(lessons)).tolist()
                batch.append(lessons[order.pop()])
                size += len(batch[-1][0].ids)
            self._regress(batch)

    def _regress(self, batch: Sequence[Lesson]) -> None:
        """Towards the mean target of each node, by how often it was seen: the same gradient as of all spots apart."""
        layout, at = plant([row for row, _ in batch])
        nodes, of = np.unique(np.concatenate(at), return_inverse=True)
        count = np.bincount(of)
        mean = torch.from_numpy(np.bincount(of, np.concatenate([each for _, each in batch])) / count).float()
        weight = torch.from_numpy(count / count.sum()).float()
        self.optimizer.zero_grad()
        self.net.regress(layout, nodes, mean, weight)
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optimizer.step()

    # -- to go on from ----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The network, its optimiser and the lessons it draws from, with tensors among them."""
        optimizer = self.optimizer.state_dict()["state"]
        return {
            "num_observed": self._num_observed,
            "kept": [_packed(step) for step in self._kept],
            "net": {key: value.clone() for key, value in self.net.state_dict().items()},
            "optimizer": {str(k): {n: v.clone() for n, v in each.items()} for k, each in optimizer.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """What `state_dict` gave."""
        self._num_observed = state["num_observed"]
        self._kept = [_unpacked(step) for step in state["kept"]]
        self.net.load_state_dict(state["net"])
        whole = self.optimizer.state_dict()
        whole["state"] = {int(key): each for key, each in state["optimizer"].items()}
        self.optimizer.load_state_dict(whole)


def _packed(lessons: Sequence[Lesson]) -> dict[str, Tensor]:
    """Lessons as tensors, for a checkpoint."""
    return {
        "sizes": torch.tensor([[len(row.ids), len(row.places)] for row, _ in lessons]),
        "ids": torch.from_numpy(np.concatenate([row.ids for row, _ in lessons])),
        "places": torch.from_numpy(np.concatenate([row.places for row, _ in lessons])),
        "targets": torch.from_numpy(np.concatenate([targets for _, targets in lessons])),
    }


def _unpacked(packed: Mapping[str, Tensor]) -> list[Lesson]:
    ends = np.cumsum(packed["sizes"].numpy(), 0)[:-1]
    ids = np.split(packed["ids"].numpy(), ends[:, 0])
    places = np.split(packed["places"].numpy(), ends[:, 1])
    targets = np.split(packed["targets"].numpy(), ends[:, 1])
    return [(row_at(i, p), t) for i, p, t in zip(ids, places, targets, strict=True)]


class _Read:
    """A trace, and what the critic says of it."""

    def __init__(self, trace: Trace, pages: list[CriticPage]) -> None:
        self.trace = trace
        self.places = Places(trace)
        self.pages = pages
        self.values: dict[Spot, float] = {}
        self.options: dict[tuple[str, str], float] = {}


class _Asked:
    """What a recipe's estimators will ask, and how they discount."""

    def __init__(self, recipe: Recipe) -> None:
        parts = [(find(part.estimator), part) for part in recipe.credit]
        self.tokens = any("token" in each.units and "value" in each.settings for each, _ in parts)
        self.options = any("q" in each.settings for each, _ in parts)
        discounted = [
            ("token" in e.units, part) for e, part in parts if {"value", "gamma"} <= e.settings.keys()
        ]
        chained = min(discounted, key=lambda each: each[0])[1] if discounted else None
        self.own_rewards = chained is not None
        self.gamma, self.by_agent = 1.0, self.tokens
        if chained is not None:
            settings = find(chained.estimator).settings
            self.gamma = float(chained.settings.get("gamma", settings["gamma"].default))
            self.by_agent |= chained.settings.get("critic") == "local"
        central = recipe.critic is not None and recipe.critic.view == "central"
        if central and self.by_agent and not self.tokens:
            raise UsageError(
                'estimator gae has critic = "local" and [critic] has view = "central". Set view = "local".'
            )


class _Net(nn.Module):
    """A decoder and a linear head; values in units of the first returns seen."""

    shift: Tensor
    scale: Tensor

    def __init__(self, vocabulary: int, size: Tiny, *, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed + 1)
            self.decoder = decoder_of(vocabulary, size, context=2 * LATEST)
            self.head = nn.Linear(size.width, 1)
            nn.init.zeros_(self.head.weight)
            nn.init.zeros_(self.head.bias)
        self.register_buffer("shift", torch.zeros(()))
        self.register_buffer("scale", torch.ones(()))

    def fit_scale(self, targets: NDArray[np.float64]) -> None:
        self.shift.fill_(float(targets.mean()))
        spread = float(targets.std())
        self.scale.fill_(spread if spread > ROUNDING * float(np.abs(targets).max()) else 1.0)

    def at(self, layout: Any, nodes: NDArray[np.int32]) -> Tensor:
        """Values behind these tokens of the layout."""
        current = make_pass(layout, torch.float32, torch.device("cpu"))
        with tree_attention(self.decoder, current):
            return self._head(hidden_states(self.decoder, current.layout), nodes) * self.scale + self.shift

    def regress(self, layout: Any, nodes: NDArray[np.int32], target: Tensor, weight: Tensor) -> None:
        """Gradients of the weighted mean square."""
        current = make_pass(layout, torch.float32, torch.device("cpu"))
        with tree_attention(self.decoder, current):
            values = self._head(hidden_states(self.decoder, current.layout), nodes)
            loss = (weight * (values - (target - self.shift) / self.scale) ** 2).sum()
            loss.backward()  # type: ignore[no-untyped-call]  # torch's

    def _head(self, hidden: Tensor, nodes: NDArray[np.int32]) -> Tensor:
        found: Tensor = self.head(hidden.index_select(0, torch.from_numpy(nodes.astype(np.int64))))[:, 0]
        return found


def returns_to_go(
    trace: Trace, reward: RewardOf, *, gamma: float = 1.0, by_agent: bool = False, own: bool = True
) -> dict[str, tuple[float, float]]:
    """Call -> what is still to come before its answer, and after it."""
    total, every = reward(trace), turns(trace)
    on_turn = turn_rewards(trace) if own else {}
    on_agent = own_rewards(trace, ("agent",)) if own and by_agent else {}
    found: dict[str, tuple[float, float]] = {}
    for chain in of_turns(every, "agent").values() if by_agent else [every]:
        end = total + on_agent.get(chain[-1].agent, 0.0)
        after, before = end, 0.0
        for turn in reversed(chain):
            last = turn is chain[-1]
            before = on_turn.get(turn.call, 0.0) + (end if last else gamma * before)
            found[turn.call] = (before, after)
            after = before
    return found


def token_returns_to_go(trace: Trace, reward: RewardOf, *, gamma: float = 1.0) -> dict[str, list[float]]:
    """Call -> what is still to come before each token of its answer, and after it, as token-gae discounts it.

    A turn's rewards come at its last token, the team's return at its agent's last. A call without ids is no step.
    """
    total, on_turn = reward(trace), turn_rewards(trace)
    found: dict[str, list[float]] = {}
    for chain in of_turns(turns(trace), "agent").values():
        after: float | None = None
        for turn in reversed(chain):
            call = trace.call_by_id.get(turn.call)
            size = len(call.completion_ids or ()) if call is not None else 0
            end = on_turn.get(turn.call, 0.0) + (total if after is None else gamma * after)
            before = [end * gamma ** (size - 1 - n) for n in range(size)]
            found[turn.call] = [*before, total if after is None else after]
            after = before[0] if before else after
    return found


def _lessons(reads: Sequence[_Read], critic: NetworkCritic) -> list[Lesson]:
    found: list[Lesson] = []
    asks, reward, gamma = critic.asks, critic.reward, critic.asks.gamma
    for read in reads:
        ahead: Mapping[str, Sequence[float]] = (
            token_returns_to_go(read.trace, reward, gamma=gamma)
            if asks.tokens
            else returns_to_go(read.trace, reward, gamma=gamma, by_agent=asks.by_agent, own=asks.own_rewards)
        )
        for page in read.pages:
            targets = [_at(ahead[spot.call], spot.num_said) for spot in page.spots]
            found.append((row_at(page.ids, list(page.spots.values())), np.array(targets)))
    return found


def _at(ahead: Sequence[float], num_said: int) -> float:
    """What is to come at a spot, of what is to come before each token and after all; a critic's own tokenizer may have
    made more tokens of it."""
    return ahead[-1] if num_said < 0 else ahead[max(0, min(num_said, len(ahead) - 2))]


def _open_options(trace: Trace) -> dict[tuple[str, str], None]:
    return {
        (event.call, option): None
        for event in trace.events
        if event.call is not None and event.options is not None and event.choice is not None
        for option in event.options
    }


def _tokenizer(policies: Mapping[str, Any]) -> tuple[Any, frozenset[str]]:
    """The tokenizer of the first policy that has one, and the policies whose ids it wrote."""
    found = [policy for policy in policies.values() if policy.tokenizer is not None]
    if not found:
        raise UsageError(
            '[critic] kind = "network" reads with a local policy\'s tokenizer, and there is none.'
        )
    first = max(found, key=lambda policy: policy.learns).tokenizer
    words = first.get_vocab()
    same = [p.name for p in found if p.tokenizer is first or p.tokenizer.get_vocab() == words]
    return first, frozenset(same)
