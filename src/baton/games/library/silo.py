"""O3: n silos hold one number each; who sends to whom, until one of them knows the max or the sum.

In a round each holder takes part in at most one message. One holder that knows everything needs
n-1 messages (each joins two holders) and ceil(log2 n) rounds (what one knows at most doubles).
Source: gossip and broadcasting, Hedetniemi, Hedetniemi and Liestman 1988.

A state is (phase, free, busy): what each holder knows, in numbers counted, best first; busy ones
have spoken this round. Holders are interchangeable, so only counts are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2
from typing import ClassVar, Literal

from baton.games.game import OVER, Branch, Choice, Game, State, possible

_STOP, _SEND = 0, 1


class Silo(Game, frozen=True, kw_only=True):
    """Bring together what nobody knows alone."""

    name: ClassVar[str] = "silo"
    decisions: ClassVar[tuple[Choice, ...]] = ("communicate", "stop")
    roles: ClassVar[tuple[str, ...]] = ("holder",)

    num_agents: int = 5
    goal: Literal["max", "sum"] = "max"
    """max: right with probability known/n; sum: right only if all is known."""
    prize: float = 1.0
    message_cost: float = 0.02
    round_cost: float = 0.05

    def __post_init__(self) -> None:
        self.require(1 <= self.num_agents <= 24, "num_agents", "the exact solver takes 1 to 24 agents")
        for field in ("prize", "message_cost", "round_cost"):
            self.require(getattr(self, field) >= 0, field, "it must not be negative")

    def start(self) -> Sequence[Branch]:
        return (Branch(1.0, (_STOP, (1,) * self.num_agents, ())),)

    def options(self, state: State) -> tuple[str, ...]:
        if not state:
            return ()
        phase, free, busy = state
        if phase == _STOP:
            return ("stop best guess", "wait") if len(free) > 1 else ("stop best guess",)
        pairs: dict[tuple[int, int], str] = {}
        for i, more in enumerate(free):
            for j in range(i + 1, len(free)):
                pairs.setdefault((more, free[j]), f"send holder-{i + 1}: from holder-{j + 1}")
        return (*pairs.values(), *(("wait",) if busy else ()))

    def decision(self, state: State) -> Choice:
        return "stop" if state[0] == _STOP else "communicate"

    def step(self, state: State, option: str) -> Sequence[Branch]:
        phase, free, busy = state
        if option.startswith("stop"):
            known = free[0] / self.num_agents
            right = known if self.goal == "max" else float(known == 1)
            return possible(Branch(right, OVER, self.prize), Branch(1 - right, OVER))
        if phase == _STOP:
            return (Branch(1.0, (_SEND, free, ()), -self.round_cost),)
        if option == "wait":
            return (Branch(1.0, _next_round(free, busy)),)
        i, j = (int(part.partition(":")[0]) - 1 for part in option.split("holder-")[1:])
        left = tuple(k for n, k in enumerate(free) if n not in (i, j))
        joined = tuple(sorted((*busy, free[i] + free[j]), reverse=True))
        after = (_SEND, left, joined) if len(left) > 1 else _next_round(left, joined)
        return (Branch(1.0, after, -self.message_cost),)

    def quit(self, state: State) -> str:
        if state[0] == _STOP:
            return "stop best guess"
        return "wait" if state[2] else self.options(state)[0]

    def text(self, state: State) -> str:
        if not state:
            return "over"
        phase, free, busy = state
        lines = [f"{self.goal} of {self.num_agents}"]
        lines += [f"holder-{i + 1} knows {known}" for i, known in enumerate(free)]
        lines += [f"spoken: {' '.join(map(str, busy))}"] if busy else []
        return "\n".join([*lines, "answer now?" if phase == _STOP else "who sends to whom?"])

    def facts(self) -> dict[str, float]:
        messages, rounds = self.num_agents - 1, ceil(log2(self.num_agents))
        full = self.prize - messages * self.message_cost - rounds * self.round_cost
        return {"messages": messages, "rounds": rounds, "value_if_complete": full}


def _next_round(free: tuple[int, ...], busy: tuple[int, ...]) -> State:
    return (_STOP, tuple(sorted((*free, *busy), reverse=True)), ())
