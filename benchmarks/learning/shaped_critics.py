"""The critics of result 22 behind one face: learn from rollouts of shaped teams, then value every prefix of a trace."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
import shaped_features
from msgspec import structs
from shaped_teams import Rollout, drawn, play

from baton.credit.estimator import Prefix
from baton.learn.recipe import CreditPart, CriticPart, load
from baton.trace.outcome import team_return

Array = np.ndarray


class Learned(Protocol):
    """A critic of rollouts."""

    def learn(self, rollouts: Sequence[Rollout]) -> None: ...
    def values(self, rollout: Rollout) -> Array:
        """Of every prefix, those of no plan too."""
        ...


class Linear:
    """Ridge regression on features by hand; it learns from prefixes that have the plan, about a hundred a trace."""

    def __init__(self, features: Callable[[Any], Array], penalty: float) -> None:
        self.features, self.penalty = features, penalty
        self.ridge: Any = None
        self.kept: list[tuple[Array, float]] = []

    def learn(self, rollouts: Sequence[Rollout], latest: int = 1024) -> None:
        """Anew, from the latest of all that it was shown."""
        for one in rollouts:
            read = self.features(one.trace)[one.planned :: max(1, len(one.values) // 100)]
            self.kept.append((read.astype(np.float32), one.total))
        self.kept = self.kept[-latest:]
        self.ridge = shaped_features.Ridge(self.kept[0][0].shape[1], self.penalty)
        self.ridge.fit([read for read, _ in self.kept], [total for _, total in self.kept])

    def values(self, rollout: Rollout) -> Array:
        return np.asarray(self.ridge.values(self.features(rollout.trace)))


class Shipped:
    """A critic of Baton's, as a recipe makes it."""

    def __init__(self, kind: str, rate: float, steps: int, seed: int, **settings: Any) -> None:
        recipe = load("mappo")
        self.recipe = structs.replace(
            recipe,
            critic=CriticPart(kind=kind, steps=steps, learning_rate=rate, settings=settings),
            credit=(CreditPart(estimator="telescope"),),
            train=structs.replace(recipe.train, seed=seed),
        )
        self.kind, self.critic = kind, None

    def learn(self, rollouts: Sequence[Rollout]) -> None:
        """What it would have said before it learned is asked by nobody here."""
        self._made().observe([one.trace for one in rollouts])

    def judge_then_learn(self, rollouts: Sequence[Rollout]) -> list[Array]:
        """The values as they were before, as in a training run."""
        self.learn(rollouts)
        return [self.values(one) for one in rollouts]

    def values(self, rollout: Rollout) -> Array:
        value = self._made().value
        return np.array([value(Prefix(rollout.trace, k)) for k in range(len(rollout.values))])

    def forget(self) -> None:
        """Values that are kept for traces that will not come again."""
        made = self._made()
        for kept in ("_known", "_read"):
            if hasattr(made, kept):
                getattr(made, kept).clear()

    def _made(self) -> Any:
        if self.critic is None:
            from baton.learn.critics.graph import GraphCritic
            from baton.learn.critics.network import NetworkCritic

            if self.kind == "graph":
                self.critic = GraphCritic(self.recipe, {}, team_return)
            else:
                self.critic = NetworkCritic(self.recipe, {"main": _reader()}, team_return)
                self.critic._answer = _only_after(self.critic._answer, self.critic)  # type: ignore[method-assign]
        return self.critic


def _only_after(answer: Any, critic: Any) -> Any:
    """The network judges a step's traces before it learns from them: of thousands, that is most of its time."""

    def answered(reads: Any) -> None:
        if critic._num_observed:
            answer(reads)

    def observed(traces: Any, observe: Any = critic.observe) -> None:
        observe(traces)
        critic._read.clear()

    critic.observe = observed
    return answered


def _reader() -> Any:
    """Whoever has a tokenizer that knows the words of shaped teams."""
    from baton.learn.models.tiny import Tiny, make_tiny

    texts: list[str] = []
    for number in range(8):
        payloads = play(drawn(f"words/{number}", 100), f"words/{number}").trace.payloads.values()
        said = filter(None, (each.text() for each in payloads))
        texts += [json.loads(text)[0]["text"] if text.startswith("[") else text for text in said]
    _, tokenizer = make_tiny(texts, Tiny(), seed=0)
    return SimpleNamespace(name="main", tokenizer=tokenizer, learns=True, roles=())


def group_mean(rollouts: Sequence[Rollout], group: int) -> list[Array]:
    """The mean return of the others of a group, at every prefix."""
    found = []
    for start in range(0, len(rollouts), group):
        mine = rollouts[start : start + group]
        total = math.fsum(one.total for one in mine)
        found += [np.full(len(one.values), (total - one.total) / (len(mine) - 1)) for one in mine]
    return found


def judged(rollouts: Sequence[Rollout], values: Sequence[Array], uniform: bool = False) -> dict[str, float]:
    """How right values and telescoped credit are. `uniform`: credit is R less the value, for every choice alike."""
    pairs = list(zip(rollouts, values, strict=True))
    off = np.concatenate([(v - one.values)[one.planned :] for one, v in pairs])
    truth = np.concatenate([one.values[one.planned :] for one in rollouts])
    exact = np.concatenate([one.values[one.choices + 1] - one.values[one.choices] for one in rollouts])
    said = np.concatenate(
        [
            np.full(len(one.choices), one.total - v[0]) if uniform else v[one.choices + 1] - v[one.choices]
            for one, v in pairs
        ]
    )
    side = np.concatenate(
        [[1.0 if one.trace.events[place].choice == 0 else -1.0 for place in one.choices] for one in rollouts]
    )
    worth, told = exact * side, said * side
    pays = worth > 0
    cosine = float(exact @ said / math.sqrt(float(exact @ exact) * float(said @ said) or 1.0))
    spread = float(worth.std() * told.std())
    return {
        "value error": float(np.sqrt(np.mean(off**2)) / truth.std()),
        "cosine": cosine,
        "snr": cosine / math.sqrt(max(1e-9, 1 - cosine**2)),
        "apart": float(np.mean((worth - worth.mean()) * (told - told.mean())) / spread)
        if spread > 1e-12
        else 0.0,
        "sign": float((np.mean(told[pays] > 0) + np.mean(told[~pays] <= 0)) / 2),
    }


def missed(rollouts: Sequence[Rollout], values: Sequence[Array]) -> float:
    """The mean square of the return less the value, each rollout once: what tuning looks at, and no truth in it."""
    return float(
        np.mean(
            [np.mean((one.total - v[one.planned :]) ** 2) for one, v in zip(rollouts, values, strict=True)]
        )
    )
