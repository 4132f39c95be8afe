"""Result 7: rewards on one task. Rich against sparse, a schedule tied to progress, weights that balance themselves.

python benchmarks/learning/result7_shaping.py [--quick] [--seeds 10] [--kept]

Scouts: a prize is behind one of two doors, two scouts may be spawned to listen, and the team stops with a door. Which
door is likelier is told; when to spawn and to stop is learned. The prize is drawn: 0 or 1. A softmax table over
the game's states is trained by policy gradient, 32 episodes an update, 120 updates; advantages are over a moving mean
by state, and a bonus for entropy falls from 0.02 to 0. What is left of the regret is exact: (V* - V)/(V* - V of random
play), 0 optimal, 1 random play, by the true reward, whatever was trained on. Rates are the better of two for each arm,
on seeds of their own.

rich or sparse   sparse: the return at the end, to every choice. dense: prize and costs as they come, what follows a
                 choice to the choice. process: dense, and how the value of stopping now changes (a scorer's
                 differences, which add up). process alone: that, and each choice gets its own step's alone. by the
                 step: dense + 0.05 for each step taken, which is not what the team is for
schedule         dense + w x parallel, parallel = min(1, scouts/2): w is 0, 0.3, 0.3 to 0 over the first half of the
                 updates (as PARL), or 0.3 to 0 as success rises (the reward recipe parl-progress); where scouts pay
                 and where they do not (a scout costs 0.3)
balance          prize and cost are meant to move the sum as 1 to 0.03, and the cost comes in a unit 1,000 times too
                 large: weighed as set, by the true weight, by variance or gradient (rule hybrid with balance), and as
                 set but without conflicts (PCGrad)
"""

from __future__ import annotations

import math
import random
from bisect import bisect
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import numpy as np
from runs import Job, Record, main, markdown, shown

from baton.games.game import State, lottery
from baton.games.library.scouts import Scouts
from baton.games.solve import Evaluation, evaluate, solve
from baton.reward import load_reward_recipe
from baton.reward.conflict import without_conflict
from baton.reward.hybrid import Hybrid, Linear, Term
from baton.reward.rules.orchestration import Parallel
from baton.reward.rules.shared import RunCost, Success

EPISODES = 32
UPDATES = 120
RATES = (4.0, 16.0)
ENTROPY = 0.02
TUNING = (1000, 1001)
ARMS: dict[str, tuple[str, ...]] = {
    "rich or sparse": ("sparse", "dense", "process", "process alone", "by the step"),
    "schedule, scouts pay": ("none", "constant", "linear", "progress"),
    "schedule, scouts do not pay": ("none", "constant", "linear", "progress"),
    "balance": ("as set", "true weight", "variance", "gradient", "PCGrad"),
}
UNIT = 1000.0
"""How many times too large the cost is."""
MEANT = {"prize": 1.0, "cost": 0.03}
"""In what proportion the two terms are meant to move the sum; by their spread, prize and true cost do so."""
Step = tuple[State, int, dict[str, float]]
"""State, choice, and what each term gave for it."""


def open_options(game: Scouts, state: State) -> tuple[str, ...]:
    """The options without the less likely door."""
    options = game.options(state)
    if not any(option.startswith("stop") for option in options):
        return options
    return tuple(o for o in options if not o.startswith("stop") or o == game.quit(state))


def by_chance_of(game: Scouts) -> Evaluation:
    """Playing at random among them."""
    return evaluate(game, lambda state: dict.fromkeys(found := open_options(game, state), 1 / len(found)))


class Table:
    """A softmax policy by state, and the moving means that are its baseline."""

    def __init__(self, game: Scouts, seed: int) -> None:
        self.game = game
        self.random = random.Random(seed)
        self.logits: dict[State, np.ndarray] = {}
        self.means: dict[State, float] = {}
        self.term_means: dict[str, dict[State, float]] = {}
        self.entropy = ENTROPY
        self._options: dict[State, tuple[str, ...]] = {}
        self._chances: dict[State, list[float]] = {}
        self._branches: dict[tuple[State, str], tuple[list[float], Any]] = {}

    def options(self, state: State) -> tuple[str, ...]:
        """What the team chooses among: which door is likelier it is told."""
        if state not in self._options:
            self._options[state] = open_options(self.game, state)
        return self._options[state]

    def chances(self, state: State) -> list[float]:
        """As they are until the next move."""
        if state not in self._chances:
            logits = self.logits.setdefault(state, np.zeros(len(self.options(state))))
            weights = np.exp(logits - logits.max())
            self._chances[state] = (weights / weights.sum()).tolist()
        return self._chances[state]

    def policy(self, state: State) -> dict[str, float]:
        return dict(zip(self.options(state), self.chances(state), strict=True))

    def move(self, gradient: dict[State, np.ndarray], rate: float) -> None:
        for state, step in gradient.items():
            self.logits[state] = self.logits[state] + rate * step
        self._chances = {}

    def play(self, potential: Callable[[State], float] | None, by_step: float) -> list[Step]:
        """One episode."""
        state, _ = self._drawn(lottery(self.game.start()))
        steps: list[Step] = []
        scouts = 0
        while options := self.options(state):
            chances = self.chances(state)
            choice = min(bisect(list(accumulate(chances)), self.random.random()), len(options) - 1)
            scouts += options[choice].startswith("spawn")
            key = state, options[choice]
            if key not in self._branches:
                self._branches[key] = lottery(self.game.step(*key))
            after, reward = self._drawn(self._branches[key])
            prize = float(self.random.random() < reward) if reward > 0 else 0.0  # the game gives its mean
            terms = {"prize": prize, "cost": min(reward, 0.0), "shape": by_step, "parallel": 0.0}
            terms["entropy"] = -self.entropy * math.log(chances[choice])
            if potential is not None:
                terms["shape"] += potential(after) - potential(state)
            steps.append((state, choice, terms))
            state = after
        steps[-1][2]["parallel"] = min(1.0, scouts / 2)
        return steps

    def _drawn(self, of: tuple[list[float], Any]) -> tuple[State, float]:
        ends, branches = of
        one = branches[bisect(ends, self.random.random())]
        return one.state, one.reward

    def gradient(
        self, episodes: list[list[Step]], weights: dict[str, float], credit: str = "to go"
    ) -> dict[State, np.ndarray]:
        """The mean over episodes of advantage times the score of each choice; moves the baselines."""
        found: dict[State, list[float]] = {}
        for steps in episodes:
            values = [sum(weight * terms[name] for name, weight in weights.items()) for _, _, terms in steps]
            left = whole = sum(values)
            for (state, choice, _), value in zip(steps, values, strict=True):
                worth = left if credit == "to go" else whole if credit == "whole" else value
                left -= value
                mean = self.means.get(state, worth)
                self.means[state] = 0.95 * mean + 0.05 * worth
                advantage = (worth - mean) / len(episodes)
                mine = found.setdefault(state, [0.0] * len(self.options(state)))
                for k, chance in enumerate(self.chances(state)):
                    mine[k] += advantage * ((k == choice) - chance)
        return {state: np.array(step) for state, step in found.items()}


def flat(parts: list[dict[State, np.ndarray]], states: list[State], table: Table) -> list[np.ndarray]:
    """Gradients of several terms as vectors over the same states."""
    zero = {state: np.zeros(len(table.options(state))) for state in states}
    return [np.concatenate([part.get(state, zero[state]) for state in states]) for part in parts]


def hybrid_of(group: str, arm: str, updates: int) -> Hybrid | None:
    """The rule that weighs the terms; None: they are weighed as set."""
    if group.startswith("schedule"):
        if arm == "progress":
            recipe = load_reward_recipe("parl-progress").rules[0]
            assert isinstance(recipe, Hybrid)
            return Hybrid(terms=(Term(of=Success()), Term(of=Parallel(), weight=recipe.terms[1].weight)))
        fixed: dict[str, Any] = {
            "none": 0.0,
            "constant": 0.3,
            "linear": Linear(start=0.3, end=0.0, steps=updates // 2),
        }
        return Hybrid(terms=(Term(of=Success()), Term(of=Parallel(), weight=fixed[arm])))
    if arm in ("variance", "gradient"):
        terms = (Term(of=Success(name="prize")), Term(of=RunCost(name="cost"), weight=MEANT["cost"]))
        return Hybrid(terms=terms, balance="variance" if arm == "variance" else "gradient")
    return None


def learned(job: Job, seed: int, rate: float) -> float:
    """Train one table; what is left of the regret."""
    group, arm, updates = job["group"], job["arm"], job["updates"]
    cost = 0.3 if group.endswith("not pay") else 0.01
    game = Scouts(num_scouts=2, horizon=4, spawn_cost=cost)
    best, by_chance = solve(game).value, by_chance_of(game)
    table = Table(game, seed)
    known: dict[State, float] = {}
    potential = (lambda state: game.quit_value(state, known)) if arm.startswith("process") else None
    credit = {"sparse": "whole", "process alone": "alone"}.get(arm, "to go")
    rule = hybrid_of(group, arm, updates)
    generator = np.random.default_rng(seed)
    for update in range(updates):
        table.entropy = ENTROPY * (1 - update / updates)
        episodes = [table.play(potential, 0.05 if arm == "by the step" else 0.0) for _ in range(EPISODES)]
        if group == "balance":
            for steps in episodes:
                for _, _, terms in steps:
                    terms["cost"] *= UNIT
            rule = balanced(table, episodes, rule, arm, rate, generator)
            continue
        weights = {"prize": 1.0, "cost": 1.0, "shape": 1.0, "entropy": 1.0}
        if rule is not None:
            weights["parallel"] = rule.weights()["parallel"]
            won = sum(steps[-1][2]["prize"] for steps in episodes) / EPISODES
            rule = rule.observe(success=won)
        table.move(table.gradient(episodes, weights, credit), rate)
    value = evaluate(game, table.policy).value
    return (best - value) / (best - by_chance.value)


def balanced(
    table: Table,
    episodes: list[list[Step]],
    rule: Hybrid | None,
    arm: str,
    rate: float,
    generator: np.random.Generator,
) -> Hybrid | None:
    """One update on two terms, weighed or projected."""
    kept = table.means
    parts = []
    for term in ("prize", "cost"):
        # Each term has its own baseline.
        table.means = table.term_means.setdefault(term, {})
        parts.append(table.gradient(episodes, {term: 1.0}))
    table.means = kept
    states = sorted({state for part in parts for state in part}, key=repr)
    vectors = flat(parts, states, table)
    weights = {"prize": 1.0, "cost": 1 / UNIT} if arm == "true weight" else dict(MEANT)
    if rule is not None:
        totals = [{term: math.fsum(t[term] for _, _, t in steps) for term in weights} for steps in episodes]
        norms = {term: float(np.linalg.norm(v)) for term, v in zip(weights, vectors, strict=True)}
        rule = rule.observe(totals, gradient_norms=norms)
        weights = rule.weights()
    weighed = [weights[term] * vector for term, vector in zip(weights, vectors, strict=True)]
    vector = without_conflict(weighed, generator) if arm == "PCGrad" else sum(weighed)
    bonus = table.gradient(episodes, {"entropy": 1.0})
    places = np.cumsum([0, *(len(table.options(state)) for state in states)])
    found = {
        state: vector[a:b] + bonus[state] for state, a, b in zip(states, places, places[1:], strict=False)
    }
    table.move(found, rate)
    return rule


def jobs(num_seeds: int, quick: bool) -> list[Job]:
    """A job an arm: its rate is chosen first, on other seeds."""
    return [
        {
            "arm": arm, "group": group, "seed": 0, "seeds": num_seeds, "updates": 4 if quick else UPDATES,
            "rates": RATES[:1] if quick else RATES,
        }
        for group, arms in ARMS.items() for arm in arms
    ]  # fmt: skip


def worker(job: Job) -> Record:
    """The best rate, and every seed with it."""
    tuning = {rate: sum(learned(job, seed, rate) for seed in TUNING) for rate in job["rates"]}
    rate = min(tuning, key=lambda each: tuning[each])
    left = [learned(job, seed, rate) for seed in range(job["seeds"])]
    return {"arm": job["arm"], "group": job["group"], "seed": 0, "rate": rate, "left": left}


def table(records: list[Record]) -> str:
    """Regret left by arm."""
    rows = [
        (one["group"], one["arm"], shown(one["left"]), f"{one['rate']:g}", str(len(one["left"])))
        for one in records
    ]
    return markdown(("", "reward", "of the regret left", "rate", "seeds"), rows)


if __name__ == "__main__":
    main(__doc__ or "", "result7_shaping", jobs, worker, table, num_seeds=10)
