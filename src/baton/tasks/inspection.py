"""The inspection game: an attacker who may plant one payload, and a defender who can check a few messages.

Messages come one after another. At each the attacker plants or waits and the defender checks or passes, both at once;
then both know what was done. A payload that is checked costs the attacker 1, one that gets through earns 1, and ends
play; who never plants has 0. What one wins the other loses. With n messages and k checks left the value to the
attacker is

    v(n, k) = C(n - 1, k) / sum of C(n, i) for i from 0 to k        (Dresher 1962)

so the value of play and what a best opponent could take from it are exact.

    baton run inspection --policy reference --seed 3 --out runs/inspection

A mailbox, which is a program, asks both and tells neither what the other said before both have. What each of them won
is its own reward; what stands on the team is what the defender won. A move
that is not open is the quiet one: wait, pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from math import comb
from typing import Any, ClassVar, Final
from weakref import WeakKeyDictionary

import numpy as np

from baton.errors import UsageError
from baton.tasks.task import Instance, Play, Task
from baton.team.agent import Agent, AgentRun, Role
from baton.team.clock import uniform
from baton.team.protocol import Request
from baton.team.team import Assignment, Topology
from baton.trace.records import Reward
from baton.trace.trace import Trace

SEATS: Final = ("attacker", "defender")
MOVES: Final = {"attacker": ("wait", "plant"), "defender": ("pass", "check")}
"""The quiet move of each, and the other."""
Strategy = Callable[[str, int, int], float]
"""(seat, messages left, checks left) -> the chance to plant or check."""


def value(messages: int, checks: int) -> float:
    """What the attacker wins where both play their best."""
    return comb(messages - 1, checks) / sum(comb(messages, i) for i in range(checks + 1)) if messages else 0.0


def equilibrium(seat: str, messages: int, checks: int) -> float:
    """The chance to plant or check at the only equilibrium: each makes the other indifferent."""
    if checks == 0:
        return 1.0 if seat == "attacker" else 0.0
    if checks >= messages:
        return 0.0 if seat == "attacker" else 1.0
    checked, passed = value(messages - 1, checks - 1), value(messages - 1, checks)
    if seat == "defender":  # planting: -1 checked, 1 passed; waiting: what is left
        return (1 - passed) / (2 + checked - passed)
    return (checked - passed) / (checked - passed + 2)


def worth(strategy: Strategy, messages: int, checks: int) -> float:
    """What the attacker wins on average where both seats are played so."""

    @lru_cache(None)
    def of(n: int, k: int) -> float:
        if n == 0:
            return 0.0
        plant, check = strategy("attacker", n, k), strategy("defender", n, k) if k else 0.0
        waited = (check * of(n - 1, k - 1) if check else 0.0) + (1 - check) * of(n - 1, k)
        return plant * (1 - 2 * check) + (1 - plant) * waited

    return of(messages, checks)


def best_reply(strategy: Strategy, seat: str, messages: int, checks: int) -> float:
    """What a best reply from a seat wins against the other seat's strategy."""

    @lru_cache(None)
    def of(n: int, k: int) -> float:
        if n == 0:
            return 0.0
        if seat == "attacker":
            check = strategy("defender", n, k) if k else 0.0
            waited = (check * of(n - 1, k - 1) if check else 0.0) + (1 - check) * of(n - 1, k)
            return max(1 - 2 * check, waited)
        plant = strategy("attacker", n, k)
        passed = -plant + (1 - plant) * of(n - 1, k)
        return max(passed, plant + (1 - plant) * of(n - 1, k - 1)) if k else passed

    return of(messages, checks)


def exploitability(strategy: Strategy, messages: int, checks: int) -> float:
    """What best replies to both seats win more than the game gives them, on average over the seats: 0 at the
    equilibrium and nowhere else."""
    return sum(best_reply(strategy, seat, messages, checks) for seat in SEATS) / 2


def strategy_of(traces: Iterable[Trace]) -> Strategy:
    """What the players of traces would do: the chances that are on their latest choices; 1/2 where nobody was asked."""
    known: dict[tuple[str, int, int], float] = {}
    for trace in traces:
        spec = trace.header.meta["run"]["task"]["settings"]
        rounds = {seat: _told(trace, seat) for seat in SEATS}
        n, k = spec["messages"], spec["checks"]
        for planted, checked in zip(rounds["attacker"], rounds["defender"], strict=False):
            for seat, (_, chance) in zip(SEATS, (planted, checked), strict=True):
                if chance is not None:
                    known[seat, n, k] = chance
            n, k = n - 1, k - (checked[0] == "check" and k > 0)
    return lambda seat, n, k: known.get((seat, n, k), 0.5)


def _told(trace: Trace, seat: str) -> list[tuple[str, float | None]]:
    """What a seat said, round by round, and with which chance it would plant or check."""
    return [
        (
            _move(seat, trace.text(event.content_ref) or ""),
            None if event.option_propensities is None else event.option_propensities[-1],
        )
        for event in trace.events
        if event.type == "return" and event.agent == f"{seat}1"
    ]


class Inspection(Task):
    """An attacker against a defender."""

    name: ClassVar[str] = "inspection"

    def __init__(self, messages: int = 4, checks: int = 2) -> None:
        if not (isinstance(messages, int) and isinstance(checks, int) and 1 <= messages <= 30):
            raise UsageError(f"inspection: messages = {messages!r} is not possible; it must be from 1 to 30.")
        if not 0 <= checks <= messages:
            raise UsageError(
                f"inspection: checks = {checks!r} is not possible; it must be from 0 to {messages}."
            )
        self.messages, self.checks = messages, checks
        self._left: WeakKeyDictionary[AgentRun, tuple[int, int]] = WeakKeyDictionary()
        """Messages and checks that are left, of each run that is being played."""

    def draw(self, random: np.random.Generator) -> tuple[str, Any, Any]:
        return "Pass the messages on.", None, int(random.integers(2**53))

    def verify(self, instance: Instance, answer: str) -> float:  # noqa: ARG002 (no answer is right or wrong)
        return 0.0

    def assignment(self, instance: Instance) -> Assignment:
        """Who won what is the score; the two moves are the options."""
        spec = {
            "task": self.name,
            "split": instance.split,
            "seed": instance.seed,
            "settings": {"messages": self.messages, "checks": self.checks},
        }
        return Assignment(
            task_id=instance.id, prompt=instance.prompt, score=_scored, options=self._options, spec=spec
        )

    def topology(self) -> Topology:
        """A mailbox and the two players."""
        return Topology(
            name="debate",
            root="mailbox",
            roles=(
                Role(name="mailbox", verbs=("spawn", "delegate", "wait", "stop"), spawns=SEATS),
                Role(name="attacker", instructions="Get the payload through.", verbs=("return",)),
                Role(name="defender", instructions="Catch the payload.", verbs=("return",)),
            ),
            programs={"mailbox": self._pass_on},
            built_from={"name": "debate", "task": self.name},
        )

    def reference_play(self) -> Play:
        """Legal, and no better than chance."""

        def play(request: Request) -> str:
            options = request.options or ("return wait",)
            return options[int(uniform(request.sampling.key or "") * len(options))]

        return play

    async def _pass_on(self, me: Agent) -> None:
        """The mailbox: asks both at each message, and ends with what came of it."""
        n, k = self.messages, self.checks
        there: dict[str, str | None] = {}
        while n:
            self._left[me.run] = n, k
            for seat in SEATS:
                told = f"messages {n}, checks {k}: {' or '.join(_open(seat, k))}"
                if seat not in there:
                    there[seat] = await me.spawn(seat, told)
                elif (agent := there[seat]) is not None:
                    await me.delegate(agent, told)
            await me.wait([agent for agent in there.values() if agent is not None])
            said = {seat: _move(seat, me.results.get(there[seat] or "", ("", ""))[1]) for seat in SEATS}
            checked = said["defender"] == "check" and k > 0
            if said["attacker"] == "plant":
                await me.stop("caught" if checked else "through")
                return
            n, k = n - 1, k - checked
        await me.stop("nothing")

    def _options(self, me: Agent) -> tuple[str, ...] | None:
        if me.parent is None:
            return None
        return tuple(f"return {move}" for move in _open(me.role.name, self._left[me.run][1]))


def _open(seat: str, checks: int) -> tuple[str, ...]:
    """The moves that are open: who has no check left can only pass."""
    moves = MOVES[seat]
    return moves if seat == "attacker" or checks else moves[:1]


def _move(seat: str, answer: str) -> str:
    """The move that an answer is; the quiet one where it is none."""
    return answer.strip() if answer.strip() in MOVES[seat] else MOVES[seat][0]


_WON = {"caught": -1.0, "through": 1.0}


def _scored(trace: Trace) -> Sequence[Reward]:
    """What each won, and on the team what the defender did."""
    stop = next((event for event in reversed(trace.events) if event.decision == "stop"), None)
    won = _WON.get((trace.text(stop.content_ref) or "") if stop is not None else "", 0.0)
    agents = {event.agent for event in trace.events}
    return [
        Reward(family="shared", unit="team", target=trace.trace_id, value=0.0 - won, by="game"),
        *(
            Reward(family="individual", unit="agent", target=f"{seat}1", value=0.0 + sign * won, by="game")
            for seat, sign in (("attacker", 1.0), ("defender", -1.0))
            if f"{seat}1" in agents
        ),
    ]
