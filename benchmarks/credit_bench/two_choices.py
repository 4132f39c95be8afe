"""A log whose exact credit is arithmetic: one choice among three, one word, and between them texts that vary.

The lead thinks aloud in one of so many texts, which are worth nothing, and asks its worker for one of three things,
worth `OPTIONS`; the worker looks once to three times and says one of two words, worth `WORDS`. The return is the sum
and luck: normal, or a coin with that chance. Nothing here looks at an estimator.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from msgspec import Struct

from baton.trace.records import Call, Event, Ints, Reward, Sampling
from baton.trace.trace import Header, Trace

OPTIONS = {
    "spawn worker: dig": (0.5, 0.1),
    "spawn worker: look": (0.3, 0.25),
    "spawn worker: ask": (0.2, -0.25),
}
"""What the lead may ask for: its chance and its worth."""
WORDS = {"no": (0.5, -0.2), "yes": (0.5, 0.2)}
LOOKS = (1, 2, 3)
LEVEL = 0.5
LUCK = 0.6
"""The deviation of luck, where it is normal."""


class Case(Struct, frozen=True, kw_only=True):
    """One kind of log."""

    num_texts: int
    group_size: int
    coin: bool = False
    """Returns are 0 or 1."""
    worthless: bool = False
    """What the lead asks for is worth nothing either: only the word matters."""
    luck: float = LUCK
    """Its deviation, where it is normal."""

    def worth(self, option: str) -> float:
        return 0.0 if self.worthless else OPTIONS[option][1]

    @property
    def mean(self) -> float:
        """E R."""
        asked = math.fsum(p * self.worth(option) for option, (p, _) in OPTIONS.items())
        return LEVEL + asked + math.fsum(p * w for p, w in WORDS.values())

    @property
    def deviation(self) -> float:
        """Of returns."""
        square = math.fsum(c * (m - self.mean) ** 2 for c, m in self.parts())
        return math.sqrt(self.mean * (1 - self.mean) if self.coin else square + self.luck**2)

    def parts(self) -> list[tuple[float, float]]:
        """What is expected after both choices, with its chance."""
        return [
            (p * q, LEVEL + self.worth(option) + word)
            for option, (p, _) in OPTIONS.items()
            for q, word in WORDS.values()
        ]

    def below(self, value: float) -> float:
        """The share of returns below a value, those that equal it counting half."""
        if self.coin:
            return 1 - self.mean / 2 if value == 1 else (1 - self.mean) / 2
        return math.fsum(c * NormalDist(m, self.luck).cdf(value) for c, m in self.parts())


class Rollout(Struct, frozen=True, kw_only=True):
    """One rollout, and what is known of it."""

    trace: Trace
    option: str
    word: str
    total: float
    looks: int
    expected: float
    """Of the return, after both choices."""
    found: tuple[float, ...]
    """What each look was worth by itself: in one rollout they go together, and their mean is zero."""


def rollout(case: Case, draw: np.random.Generator, name: str) -> Rollout:
    """Drawn by the policy."""
    text = int(draw.integers(case.num_texts))
    option = str(draw.choice(list(OPTIONS), p=[p for p, _ in OPTIONS.values()]))
    looks, word = int(draw.choice(LOOKS)), str(draw.choice(list(WORDS)))
    expected = LEVEL + case.worth(option) + WORDS[word][1]
    luck = float(draw.normal(0, case.luck)), float(draw.random())
    total = float(luck[1] < expected) if case.coin else expected + luck[0]
    shared = float(draw.normal())  # what one rollout's tool calls have in common
    return Rollout(
        trace=_trace(name, text, option, looks, word, total),
        found=tuple(shared + 0.5 * float(draw.normal()) for _ in range(looks)),
        option=option,
        word=word,
        total=total,
        looks=looks,
        expected=expected,
    )


def _trace(name: str, text: int, option: str, looks: int, word: str, total: float) -> Trace:
    asked, said = list(OPTIONS).index(option), list(WORDS).index(word)
    calls = [_call("lead", "lead:1", (1,), (100 + text, 10 + asked), name)]
    events = [
        Event(
            id="spawn", type="spawn", agent="lead", role="worker", seq=1, t=1.0, to="w", call="lead:1", span=(1, 2),
            decision="spawn", options=tuple(OPTIONS), choice=asked, propensity=OPTIONS[option][0],
            option_propensities=tuple(p for p, _ in OPTIONS.values()),
        )
    ]  # fmt: skip
    for k in range(looks):
        calls.append(_call("w", f"w:{k + 1}", (10 + asked,), (20,), name))
        events.append(_event(f"look{k}", "tool_call", "w", len(events) + 1, call=f"w:{k + 1}", tool="grep"))
    calls.append(_call("w", f"w:{looks + 1}", (10 + asked, 30), (40, 41 + said), name))
    events.append(
        _event("word", "return", "w", len(events) + 1, call=f"w:{looks + 1}", to="lead", decision="communicate",
               content_ref=f"text:{word}", span=(0, 2))
    )  # fmt: skip
    calls.append(_call("lead", "lead:2", (1, 2), (50,), name))
    events.append(
        _event("stop", "orchestrator_decision", "lead", len(events) + 1, call="lead:2", decision="stop")
    )
    return Trace(
        header=Header(trace_id=name, task_id="two choices"),
        events=tuple(events),
        edges=(),
        calls=tuple(calls),
        rewards=(Reward(family="shared", unit="team", target=name, value=total),),
    )


def _call(agent: str, name: str, prompt: tuple[int, ...], said: tuple[int, ...], key: str) -> Call:
    return Call(
        id=name,
        agent=agent,
        role="orchestrator" if agent == "lead" else "worker",
        prompt_ids=Ints(prompt),
        completion_ids=Ints(said),
        sampling=Sampling(key=f"{key}/{name}"),
    )


def _event(name: str, kind: str, agent: str, seq: int, **more: object) -> Event:
    role = "orchestrator" if agent == "lead" else "worker"
    return Event(id=name, type=kind, agent=agent, role=role, seq=seq, t=float(seq), **more)  # type: ignore[arg-type]  # as the caller has them


def group_of(case: Case, seed: int) -> list[Rollout]:
    """A group of rollouts."""
    draw = np.random.default_rng([seed, case.num_texts, case.group_size, case.coin])
    return [rollout(case, draw, f"r{place:02}") for place in range(case.group_size)]
