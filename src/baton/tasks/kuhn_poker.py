"""Kuhn poker: two players with opposite interests, played against oneself by one policy or against another by two.

Three cards, one each; both have put one chip in. The first player checks or bets one chip; a bet is called or folded.
Who has the higher card, or whom the other folded to, has the pot. What one wins the other loses. Its value to the first
player is -1/18 (Kuhn 1950), so what play is worth, and what an opponent could take from it, are exact.

    baton run kuhn-poker --policy reference --seed 3 --out runs/kuhn

A dealer, who is a program, gives cards and asks the players by turns; they are shown their own card and what was said.
What each of them won is its own reward; what stands on the team is what the first player won. A move that is not open
is a fold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import permutations
from typing import Any, ClassVar, Final
from weakref import WeakKeyDictionary

import numpy as np

from baton.tasks.task import Instance, Play, Task
from baton.team.agent import Agent, AgentRun, Role
from baton.team.clock import uniform
from baton.team.protocol import Request
from baton.team.team import Assignment, Topology
from baton.trace.records import Reward
from baton.trace.trace import Trace

CARDS: Final = ("jack", "queen", "king")
PLAYERS: Final = ("first", "second")
VALUE: Final = -1 / 18
"""To the first player, where both play their best."""
_OPEN: Final[Mapping[str, tuple[str, str]]] = {
    "": ("check", "bet"),
    "check": ("check", "bet"),
    "bet": ("fold", "call"),
    "check bet": ("fold", "call"),
}
"""What was said -> the moves that are open, the one that puts a chip in last."""
Strategy = Callable[[str, str], float]
"""(own card, what was said) -> the chance to bet or call."""


def to_move(said: str) -> int | None:
    """Which player's turn it is; None: play is over."""
    return len(said.split()) % 2 if said in _OPEN else None


def won(cards: Sequence[str], said: str) -> int:
    """What the first player wins when play is over."""
    if said.endswith("fold"):
        return 1 if len(said.split()) % 2 == 0 else -1
    higher = CARDS.index(cards[0]) > CARDS.index(cards[1])
    return (1 if higher else -1) * (2 if said.endswith("call") else 1)


def value(first: Strategy, second: Strategy) -> float:
    """What the first player wins on average."""
    deals = list(permutations(CARDS, 2))
    return sum(_value(cards, "", (first, second)) for cards in deals) / len(deals)


def _value(cards: Sequence[str], said: str, play: tuple[Strategy, Strategy]) -> float:
    player = to_move(said)
    if player is None:
        return won(cards, said)
    low, high = (f"{said} {move}".strip() for move in _OPEN[said])
    chance = play[player](cards[player], said)
    return (1 - chance) * _value(cards, low, play) + chance * _value(cards, high, play)


def exploitability(strategy: Strategy) -> float:
    """What the best opponents of either seat take from a player who plays this in both, more than the game gives them.

    0 for an equilibrium: (best reply to it in the first seat + in the second) / 2.
    """
    return (_best_reply(strategy, 0) + _best_reply(strategy, 1)) / 2


def _best_reply(strategy: Strategy, seat: int) -> float:
    """What the best reply from a seat wins: it knows its card, and weighs the two that the other may have."""
    sign = 1 if seat == 0 else -1

    def reply(own: str, others: Mapping[str, float], said: str) -> float:
        player = to_move(said)
        if player is None:
            deals = {other: (own, other) if seat == 0 else (other, own) for other in others}
            return sum(weight * sign * won(deals[other], said) for other, weight in others.items())
        low, high = (f"{said} {move}".strip() for move in _OPEN[said])
        if player == seat:
            return max(reply(own, others, low), reply(own, others, high))
        chances = {other: strategy(other, said) for other in others}
        return reply(own, {o: w * (1 - chances[o]) for o, w in others.items()}, low) + reply(
            own, {o: w * chances[o] for o, w in others.items()}, high
        )

    return sum(reply(own, {other: 1 / 6 for other in CARDS if other != own}, "") for own in CARDS)


def equilibrium(bluff: float = 0.0) -> Strategy:
    """One of Kuhn's: the first player bets a jack with chance `bluff`, 0 to 1/3, and a king three times as often."""
    table = {
        ("jack", ""): bluff, ("queen", ""): 0.0, ("king", ""): 3 * bluff,
        ("jack", "check bet"): 0.0, ("queen", "check bet"): bluff + 1 / 3, ("king", "check bet"): 1.0,
        ("jack", "check"): 1 / 3, ("queen", "check"): 0.0, ("king", "check"): 1.0,
        ("jack", "bet"): 0.0, ("queen", "bet"): 1 / 3, ("king", "bet"): 1.0,
    }  # fmt: skip
    return lambda card, said: table[card, said]


def strategy_of(traces: Iterable[Trace]) -> Strategy:
    """What the players of traces would do: the chances that are on their choices; 1/2 where nobody was asked."""
    known: dict[tuple[str, str], float] = {}
    for trace in traces:
        cards = trace.header.meta["run"]["task"]["cards"]
        said = ""
        for event in trace.events:
            if event.type != "return" or (player := to_move(said)) is None or event.agent != _agent(player):
                continue
            if event.option_propensities is not None:
                known[cards[player], said] = event.option_propensities[1]
            said = f"{said} {_move(said, trace.text(event.content_ref) or '')}".strip()
    return lambda card, said: known.get((card, said), 0.5)


class KuhnPoker(Task):
    """Poker with three cards."""

    name: ClassVar[str] = "kuhn-poker"

    def __init__(self) -> None:
        self._said: WeakKeyDictionary[AgentRun, str] = WeakKeyDictionary()
        """What was said so far, of each run that is being played."""

    def draw(self, random: np.random.Generator) -> tuple[str, Any, Any]:
        cards = [CARDS[k] for k in random.permutation(3)[:2].tolist()]
        return "Deal.", int(random.integers(2**53)), cards  # the number tells deals of the same cards apart

    def verify(self, instance: Instance, answer: str) -> float:  # noqa: ARG002 (no answer is right or wrong)
        return 0.0

    def assignment(self, instance: Instance) -> Assignment:
        """Who won what is the score; the moves that are open are the options."""
        spec = {"task": self.name, "split": instance.split, "seed": instance.seed, "cards": instance.data}
        return Assignment(
            task_id=instance.id,
            prompt=instance.prompt,
            score=lambda trace: _scored(trace, instance.data),
            options=self._options,
            spec=spec,
        )

    def topology(self) -> Topology:
        """A dealer and two players."""
        return Topology(
            name="debate",
            root="dealer",
            roles=(
                Role(name="dealer", verbs=("spawn", "delegate", "wait", "stop"), spawns=PLAYERS),
                *(Role(name=name, instructions="Win chips.", verbs=("return",)) for name in PLAYERS),
            ),
            programs={"dealer": self._deal},
            built_from={"name": "debate", "task": self.name},
        )

    def reference_play(self) -> Play:
        """Legal, and no better than chance: a small model learns the moves from it, and when to make them by itself."""

        def play(request: Request) -> str:
            options = request.options or ("return check",)
            return options[int(uniform(request.sampling.key or "") * len(options))]

        return play

    async def _deal(self, me: Agent) -> None:
        """The dealer: asks the players by turns, and ends with what was said."""
        cards = me.run.assignment.spec["cards"]
        said = ""
        there: dict[int, str | None] = {}
        while (player := to_move(said)) is not None:
            self._said[me.run] = said
            told = f"card {cards[player]}, said {said or 'nothing'}: {' or '.join(_OPEN[said])}"
            if player not in there:
                there[player] = await me.spawn(PLAYERS[player], told)
            elif (agent := there[player]) is not None:
                await me.delegate(agent, told)
            agent = there[player]
            if agent is not None:
                await me.wait([agent])
            said = f"{said} {_move(said, me.results.get(agent or '', ('', ''))[1])}".strip()
        await me.stop(said)

    def _options(self, me: Agent) -> tuple[str, ...] | None:
        """The moves that are open to a player, as it says them."""
        if me.parent is None:
            return None
        return tuple(f"return {move}" for move in _OPEN[self._said[me.run]])


def _move(said: str, answer: str) -> str:
    """The move that an answer is; a fold where it is none that is open."""
    return answer.strip() if answer.strip() in _OPEN[said] else "fold"


def _scored(trace: Trace, cards: Sequence[str]) -> Iterable[Reward]:
    """What each player won, and on the team what the first did."""
    stop = next((event for event in reversed(trace.events) if event.decision == "stop"), None)
    said = (trace.text(stop.content_ref) or "") if stop is not None else ""
    first = won(cards, said) if to_move(said) is None and said else 0
    yield Reward(family="shared", unit="team", target=trace.trace_id, value=float(first), by="game")
    for player, sign in ((0, 1), (1, -1)):
        if any(event.agent == _agent(player) for event in trace.events):
            yield Reward(
                family="individual", unit="agent", target=_agent(player), value=float(sign * first), by="game"
            )


def _agent(player: int) -> str:
    return f"{PLAYERS[player]}1"
