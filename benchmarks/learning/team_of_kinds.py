"""Who does what, learned at once by who hands out and by those who do: where one agent may come to do everything.

A subtask is of one of several kinds. The orchestrator sees the kind and hands it to an agent; the agent sees nothing
and does what it is used to, one method a kind. The right method by agent m succeeds with m's chance, any other fails.
The best team has each agent at a kind of its own, the surest at the most frequent: its value is the sum of the sorted
products, exactly. A team in which the surest agent does everything earns the most frequent kind alone.

Diversity terms, paid beside success to the orchestrator's choice of agent m for kind k, w the weight:

even         -w log s(m), s(m) the agent's share of all subtasks so far (forgetting): who is seldom asked pays more
told apart   w (log p(m | k) - log s(m)), p the policy's own chance: the same, less what is only at random; its mean is
             the information that the agent has about the kind
"""

from __future__ import annotations

import math
import random
from bisect import bisect
from itertools import accumulate, permutations
from typing import Literal, NamedTuple

Term = Literal["none", "even", "told apart"]
Fade = Literal["constant", "by step", "by success"]
KINDS = 4
BATCH = 32
FORGET = 0.9
"""What a batch's shares still count after the next one."""


class Team(NamedTuple):
    """How often each kind comes, how sure each agent is, and what all lean to before they learn."""

    frequencies: list[float]
    chances: list[float]
    leaning: list[list[float]]
    """Logits at first: a row for each kind (over agents), then one for each agent (over methods)."""

    @property
    def best(self) -> float:
        """Every assignment of agents to kinds tried."""
        return max(
            math.fsum(f * self.chances[m] for f, m in zip(self.frequencies, order, strict=True))
            for order in permutations(range(KINDS))
        )


def drawn(seed: int, lead: float) -> Team:
    """A team of a seed: what is frequent, who is sure and who begins how are all by chance.

    The surest agent begins `lead` ahead of the others, in logits, for every kind: the one everybody asks already.
    """
    draw = random.Random(f"kinds/{seed}")
    raw = [draw.expovariate(1.0) + 0.3 for _ in range(KINDS)]
    chances = [draw.uniform(0.5, 1.0) for _ in range(KINDS)]
    leaning = [[draw.gauss(0.0, 0.5) for _ in range(KINDS)] for _ in range(2 * KINDS)]
    for row in leaning[:KINDS]:
        row[chances.index(max(chances))] += lead
    return Team([each / math.fsum(raw) for each in raw], chances, leaning)


class Learning:
    """Two tables that learn together by the policy gradient."""

    def __init__(self, team: Team, seed: int) -> None:
        self.team = team
        self.hand = [list(row) for row in team.leaning[:KINDS]]
        self.method = [list(row) for row in team.leaning[KINDS:]]
        self.shares = [1.0 / KINDS] * KINDS
        self.success = 0.0
        self._means = [[0.0] * KINDS for _ in range(2)]
        self._random = random.Random(f"kinds/{seed}/own")

    def value(self) -> float:
        """Of play as it is, exactly."""
        hand, method = [softmax(row) for row in self.hand], [softmax(row) for row in self.method]
        return math.fsum(
            f * hand[k][m] * self.team.chances[m] * method[m][k]
            for k, f in enumerate(self.team.frequencies) for m in range(KINDS)
        )  # fmt: skip

    def left(self) -> float:
        """What is left of random play's regret."""
        by_chance = math.fsum(self.team.chances) / KINDS**2
        return (self.team.best - self.value()) / (self.team.best - by_chance)

    def largest_share(self) -> float:
        """Of all subtasks, what the agent who does most does."""
        hand = [softmax(row) for row in self.hand]
        shares = [
            math.fsum(f * hand[k][m] for k, f in enumerate(self.team.frequencies)) for m in range(KINDS)
        ]
        return max(shares)

    def step(self, term: Term, weight: float, entropy: float, rate: float) -> None:
        """One batch of subtasks, and a move of both tables."""
        hand, method = [softmax(row) for row in self.hand], [softmax(row) for row in self.method]
        moves = [[[0.0] * KINDS for _ in range(KINDS)] for _ in range(2)]
        asked = [0] * KINDS
        won = 0.0
        for _ in range(BATCH):
            kind = self._draw(self.team.frequencies)
            agent = self._draw(hand[kind])
            done = self._draw(method[agent])
            success = float(done == kind and self._random.random() < self.team.chances[agent])
            asked[agent] += 1
            won += success
            paid = success + self._paid(term, weight, hand[kind][agent], agent)
            self._score(moves[0][kind], hand[kind], agent, paid - self._mean(0, kind, paid))
            self._score(moves[1][agent], method[agent], done, success - self._mean(1, agent, success))
        for table, chances, move in ((self.hand, hand, moves[0]), (self.method, method, moves[1])):
            for row, now, step in zip(table, chances, move, strict=True):
                surprise = math.fsum(-p * math.log(p) for p in now)
                for option, p in enumerate(now):
                    row[option] += rate * (step[option] / BATCH + entropy * p * (-math.log(p) - surprise))
        self.shares = [FORGET * s + (1 - FORGET) * n / BATCH for s, n in zip(self.shares, asked, strict=True)]
        self.success = 0.9 * self.success + 0.1 * won / BATCH

    def _paid(self, term: Term, weight: float, chance: float, agent: int) -> float:
        if term == "none":
            return 0.0
        rare = -math.log(max(self.shares[agent], 1e-3))
        return weight * (rare if term == "even" else rare + math.log(max(chance, 1e-3)))

    def _mean(self, table: int, row: int, paid: float) -> float:
        """What is usual there, before this one counts."""
        usual = self._means[table][row]
        self._means[table][row] = 0.95 * usual + 0.05 * paid
        return usual

    def _draw(self, chances: list[float]) -> int:
        return bisect(list(accumulate(chances))[:-1], self._random.random())

    @staticmethod
    def _score(move: list[float], chances: list[float], choice: int, advantage: float) -> None:
        for option, p in enumerate(chances):
            move[option] += advantage * ((option == choice) - p)


def softmax(logits: list[float]) -> list[float]:
    top = max(logits)
    weights = [max(math.exp(each - top), 1e-12) for each in logits]
    total = math.fsum(weights)
    return [each / total for each in weights]


def learned(
    seed: int, lead: float, term: Term, weight: float, fade: Fade, entropy: float, rate: float, steps: int
) -> tuple[float, float]:
    """What is left of the regret, and the largest agent's share, after the last step.

    `entropy` is the bonus on both tables at first, falling to 0 at the last step.
    """
    learning = Learning(drawn(seed, lead), seed)
    for step in range(steps):
        share = step / steps
        now = {
            "constant": weight,
            "by step": weight * max(0.0, 1 - 2 * share),
            "by success": weight * max(0.0, 1 - learning.success),
        }[fade]
        learning.step(term, now, entropy * (1 - share), rate)
    return learning.left(), learning.largest_share()
