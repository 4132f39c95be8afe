"""A softmax over finite options, one row of logits per (role, information state): the exact policy.

Its distribution over the request's options is
    pi(a) = (1 - epsilon) softmax(logits / temperature)(a) + epsilon / n,
so options that a request leaves out are masked. Log-probabilities and their gradients are exact, which
makes it the reference for every estimator. One choice is one token (see `tokens`): credit on any span of
the answer falls on the one decision there was. Temperature 0 takes the best option (the first of equals).
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from baton.engine.tokens import encode_entries, option_id
from baton.errors import FormatError, UsageError, nearest
from baton.team.budget import Charging
from baton.team.clock import uniform
from baton.team.protocol import Answer, EngineError, Entry, Request
from baton.trace.formats.durable import atomic_file
from baton.trace.records import Floats, Ints

State = tuple[str, str]
"""Role and information state."""
Gradients = Mapping[State, Mapping[str, float]]
"""Ascent directions: for each state, for each option."""


class TableEngine:
    """Tabular policy; logits start at zero and rows grow as options are met."""

    charging: Charging = "estimated"

    def __init__(self, name: str = "table", *, epsilon: float = 0.0) -> None:
        if not 0.0 <= epsilon <= 1.0:
            raise UsageError(f"epsilon is {epsilon}; expected a probability between 0 and 1.")
        self.name = name
        self.version = 0
        self.epsilon = epsilon
        self._logits: dict[State, dict[str, float]] = {}

    def encode(self, entries: Sequence[Entry], after: Answer | None) -> Ints:
        return encode_entries(entries, after)

    async def answer(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
        return [self.answer_now(request) for request in requests]

    def answer_now(self, request: Request) -> Answer | EngineError:
        """Answer without an event loop."""
        options, sampling = request.options, request.sampling
        if not options:
            return EngineError("the table engine chooses among options, and this request has none.")
        if sampling.top_k is not None or sampling.top_p != 1.0:
            return EngineError("the table engine does not truncate: leave top_k and top_p at their defaults.")
        if sampling.key is None and (sampling.temperature > 0.0 or self.epsilon):
            return EngineError("the table engine draws by key, and this request's sampling has none.")
        state = request.state
        if state is None:
            state = request.entries[-1].text if request.entries else ""
        chances = self._chances((request.role, state), options, sampling.temperature)
        if sampling.key is None:
            choice = chances.index(1.0)
        else:
            edges = list(accumulate(chances))
            # Below the last edge, so an option of probability zero is never drawn.
            point = min(uniform(sampling.key) * edges[-1], math.nextafter(edges[-1], 0.0))
            choice = bisect_right(edges, point)
        text = options[choice]
        return Answer(
            text=text,
            policy=self.name,
            policy_version=str(self.version),
            completion_ids=Ints((option_id(text),)),
            logprobs=Floats((math.log(chances[choice]),)),
            token_ends=Ints((len(text),)),
            choice=choice,
            option_propensities=tuple(chances),
        )

    def logits(self, role: str, state: str) -> dict[str, float]:
        """The logits met so far in a state; options not met are at zero."""
        return dict(self._logits.get((role, state), {}))

    def probabilities(
        self, role: str, state: str, options: Sequence[str], *, temperature: float = 1.0
    ) -> NDArray[np.float64]:
        """The distribution over `options`."""
        return np.array(self._chances((role, state), options, temperature))

    def log_prob(
        self, role: str, state: str, options: Sequence[str], option: str, *, temperature: float = 1.0
    ) -> float:
        """Log-probability of one of `options`."""
        chance = self._chances((role, state), options, temperature)[_index(options, option)]
        return math.log(chance) if chance > 0.0 else -math.inf

    def grad_log_prob(
        self, role: str, state: str, options: Sequence[str], option: str, *, temperature: float = 1.0
    ) -> NDArray[np.float64]:
        """Gradient of `log_prob` with respect to the logits of `options`, in their order."""
        if temperature <= 0.0:
            raise UsageError(f"temperature is {temperature}; a greedy choice has no gradient.")
        taken = _index(options, option)
        soft = np.array(self._soft((role, state), options, temperature))
        chance = (1.0 - self.epsilon) * soft[taken] + self.epsilon / len(options)
        one = np.zeros(len(options))
        one[taken] = 1.0
        grad: NDArray[np.float64] = (1.0 - self.epsilon) * soft[taken] * (one - soft) / (temperature * chance)
        return grad

    def update(self, gradients: Gradients, lr: float) -> None:
        """One step of ascent; a new version."""
        for state, row in gradients.items():
            logits = self._logits.setdefault(state, {})
            for option, gradient in row.items():
                moved = logits.get(option, 0.0) + lr * float(gradient)
                if not math.isfinite(moved):
                    raise UsageError(
                        f"the logit of {option!r} in {state} became {moved}; lower the learning rate."
                    )
                logits[option] = moved
        self.version += 1

    def save(self, path: str | Path) -> None:
        """Write to one JSON file, whole or not at all."""
        rows = [[role, state, logits] for (role, state), logits in sorted(self._logits.items())]
        content = {"name": self.name, "version": self.version, "epsilon": self.epsilon, "rows": rows}
        with atomic_file(path) as file:
            file.write(json.dumps(content, ensure_ascii=False, allow_nan=False, indent=1).encode())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote."""
        try:
            if Path(path).exists() and not Path(path).is_file():  # a device may have no end
                raise UsageError(f"{str(path)!r} is no file. Give one that TableEngine.save wrote.")
            content: Any = json.loads(Path(path).read_text(encoding="utf-8"))
            made = cls(content["name"], epsilon=float(content["epsilon"]))
            made.version = int(content["version"])
            for role, state, logits in content["rows"]:
                made._logits[role, state] = {str(option): float(logit) for option, logit in logits.items()}
        except FileNotFoundError:
            raise UsageError(f"there is no table at {str(path)!r}. Save one with TableEngine.save.") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FormatError(
                f"{str(path)!r} is not a table saved by TableEngine.save: {error!r}."
            ) from error
        return made

    def _soft(self, state: State, options: Sequence[str], temperature: float) -> list[float]:
        row = self._logits.get(state, {})
        scores = [row.get(option, 0.0) for option in options]
        top = max(scores)
        if temperature <= 0.0:
            best = scores.index(top)
            return [1.0 if i == best else 0.0 for i in range(len(scores))]
        weights = [math.exp((score - top) / temperature) for score in scores]
        total = math.fsum(weights)
        return [weight / total for weight in weights]

    def _chances(self, state: State, options: Sequence[str], temperature: float) -> list[float]:
        soft = self._soft(state, options, temperature)
        if not self.epsilon:
            return soft
        floor = self.epsilon / len(soft)
        return [(1.0 - self.epsilon) * chance + floor for chance in soft]


def _index(options: Sequence[str], option: str) -> int:
    try:
        return options.index(option)
    except ValueError:
        raise UsageError(f"{option!r} is not among the options. {nearest(option, options)}") from None
