"""P11: what a step that does not wait for its stragglers learns instead, and what its weights mend.

python benchmarks/stragglers.py             the tables of docs/scale/asynchrony.md (a minute)
python benchmarks/stragglers.py --out FILE  and everything measured, as JSON, with which --picture draws
python benchmarks/stragglers.py --smoke     the same at small sizes

The game is the stopping chain: each turn an agent may stop, or pay and wait for a worker who comes back by chance and
then earns. Waiting loses on average, so the optimum is to stop at once; who was lucky is done soon, and who was not
takes long. All is on a table, so that the value of a policy is exact. Who is taken and what it counts is decided by the
functions that training uses (`baton.learn.scale.stragglers`); what they are compared with is computed by enumeration
and does not call them.
"""

from __future__ import annotations

import argparse
import json
import math
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate, combinations_with_replacement, product
from pathlib import Path
from typing import Any

import numpy as np

from baton.games.game import Branch, State
from baton.games.library.stopping_chain import StoppingChain
from baton.learn.scale.stragglers import Closed, Lengths, closing_time, num_needed
from baton.measure.figure import student_t
from table import machine, print_table, row

GAME = StoppingChain(
    num_workers=1, num_steps=8, gain=0.9, good=1.0, back=0.15, step_cost=0.16, cancel_cost=0.0
)
GROUPS, SIZE, WAIT_FOR = 8, 2, 0.75
WAITING = 0.7
"""The chance to wait, of the policy whose value is estimated."""
METHODS = ("wait", "cut, plain", "cut, weighed", "carry, plain", "carry")
Policy = dict[State, float]
"""State -> the logit of waiting, where there is a choice; 0 where it was never met."""


# -- enumeration: nothing of Baton's but the game's rules ---------------------------------------------


def plays(
    state: State, chance: float = 1.0, earned: float = 0.0, calls: int = 1
) -> Iterator[tuple[float, float, int]]:
    """Every play from a state under the policy that waits by `WAITING`: its chance, its return, its calls."""
    options = GAME.options(state)
    for option in options:
        p = 1.0 if len(options) == 1 else WAITING if option == "wait any" else 1 - WAITING
        for branch in GAME.step(state, option):
            told = chance * p * branch.probability, earned + branch.reward
            if branch.state:
                yield from plays(branch.state, *told, calls + 1)
            else:
                yield *told, calls


def lengths_of_groups() -> dict[int, tuple[float, float]]:
    """Calls of a group's longest rollout -> how likely, and the mean return of such a group."""
    single: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for chance, earned, calls in plays(GAME.start()[0].state):
        single[calls][0] += chance
        single[calls][1] += chance * earned
    found: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for members in product(single, repeat=SIZE):
        chance = math.prod(single[c][0] for c in members)
        found[max(members)][0] += chance
        found[max(members)][1] += chance * sum(single[c][1] / single[c][0] for c in members) / SIZE
    return {length: (chance, total / chance) for length, (chance, total) in sorted(found.items())}


def expected() -> dict[str, float]:
    """What is said on average of the policy that waits by `WAITING`, by all the ways in which lengths can fall out.

    Weighed: where lengths are known, with weights up to ten and without a bound.
    """
    known = lengths_of_groups()
    need = math.ceil(WAIT_FOR * GROUPS)
    taken: dict[int, float] = defaultdict(float)
    """Length -> how many such groups are taken of a step."""
    plain = 0.0
    for lengths in combinations_with_replacement(known, GROUPS):
        ways = math.factorial(GROUPS) // math.prod(
            math.factorial(lengths.count(each)) for each in set(lengths)
        )
        chance = ways * math.prod(known[each][0] for each in lengths)
        first = [each for each in lengths if each <= lengths[need - 1]]
        plain += chance * sum(known[each][1] for each in first) / len(first)
        for each in first:
            taken[each] += chance
    chances = {length: taken[length] / (GROUPS * p) for length, (p, _) in known.items()}
    found = {"cut, plain": plain}
    for name, most in (("cut, weighed", 10.0), ("cut, weighed without a bound", math.inf)):
        counts = {length: taken[length] * min(most, 1 / chances[length]) for length in known}
        found[name] = sum(n * known[length][1] for length, n in counts.items()) / sum(counts.values())
    return found


# -- play on a table --------------------------------------------------------------------------------------


@cache
def outcomes(state: State, option: str) -> tuple[Sequence[Branch], list[float]]:
    """What may follow, and the running sums of how likely it is."""
    branches = GAME.step(state, option)
    return branches, list(accumulate(branch.probability for branch in branches))


class Rollout:
    """One play, a call at a time."""

    def __init__(self) -> None:
        self.state = GAME.start()[0].state
        self.earned = 0.0
        self.said: list[tuple[State, bool, float]] = []
        """Where there was a choice, whether it was to wait, and how likely that was when it was made."""

    def go_on(self, policy: Mapping[State, float], draw: np.random.Generator) -> None:
        options = GAME.options(self.state)
        waits = False
        if len(options) == 2:
            p = 1 / (1 + math.exp(-policy.get(self.state, 0.0)))
            waits = bool(draw.random() < p)
            self.said.append((self.state, waits, p if waits else 1 - p))
        branches, sums = outcomes(self.state, "wait any" if waits else "stop draft")
        at = min(bisect(sums, draw.random()), len(branches) - 1)
        self.earned += branches[at].reward
        self.state = branches[at].state


class Group:
    """Rollouts that are compared with each other, and for how many calls they have gone on."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.rollouts = [Rollout() for _ in range(SIZE)]
        self.length = 0

    @property
    def done(self) -> bool:
        return not any(each.state for each in self.rollouts)


class Pool:
    """Groups under way, by one of the methods."""

    def __init__(self, method: str, seed: int) -> None:
        self.method = method
        self.draw = np.random.default_rng(seed)
        self.groups: list[Group] = []
        self.lengths = Lengths()
        self.rounds = 0
        self.calls_cut = 0

    def step(self, number: int, policy: Mapping[State, float]) -> list[tuple[Group, float]]:
        """The groups that a step takes, and what each counts."""
        self.groups += [Group(number) for _ in range(GROUPS)]
        need = len(self.groups) if self.method == "wait" else num_needed(len(self.groups), WAIT_FOR)
        began = self.rounds
        ends: dict[int, float] = {}
        while (closed := closing_time(list(ends.values()), need)) is None:
            self.rounds += 1
            for group in self.groups:
                if not group.done:
                    group.length += 1
                    for each in group.rollouts:
                        if each.state:
                            each.go_on(policy, self.draw)
                if group.done:
                    ends.setdefault(id(group), self.rounds)
        taken = [group for group in self.groups if id(group) in ends]
        left = [group for group in self.groups if id(group) not in ends]
        assert closed >= began
        weights = [1.0] * len(taken)
        if self.method.startswith("cut"):
            ends_seen = tuple(float(group.length) for group in taken)
            seen = Closed(ends=ends_seen, left=tuple(float(group.length) for group in left))
            weighed = self.lengths.weigh(seen, GROUPS, need)
            weights = weighed if self.method == "cut, weighed" else weights
            self.calls_cut += sum(len(each.said) for group in left for each in group.rollouts)
        elif self.method == "carry":
            weights = [len(taken) / GROUPS] * len(taken)
        self.groups = [] if self.method.startswith(("cut", "wait")) else left
        return list(zip(taken, weights, strict=True))


# -- what is measured ------------------------------------------------------------------------------------


def estimated(method: str, seed: int, steps: int) -> float:
    """What a fixed policy is said to be worth: the mean of what steps say, each the mean of its groups by what they
    count, as a loss has it."""
    fixed = _Fixed(math.log(WAITING / (1 - WAITING)))
    pool, total, count = Pool(method, seed), 0.0, 0.0
    for number in range(steps):
        taken = pool.step(number, fixed)
        for group, weight in taken:
            total += weight * sum(each.earned for each in group.rollouts) / SIZE / len(taken)
            count += weight / len(taken)
    return total / count


class _Fixed(dict[State, float]):
    """The same logit everywhere."""

    def __init__(self, logit: float) -> None:
        super().__init__()
        self._logit = logit

    def get(self, key: State, default: Any = None) -> float:
        return self._logit


def value(policy: Mapping[State, float]) -> float:
    """What a policy is worth, exactly."""
    known: dict[State, float] = {}

    def of(state: State) -> float:
        if not state:
            return 0.0
        if state not in known:
            options = GAME.options(state)
            p = 1 / (1 + math.exp(-policy.get(state, 0.0)))
            chances = {"stop draft": 1.0} if len(options) == 1 else {"wait any": p, "stop draft": 1 - p}
            known[state] = sum(
                p * branch.probability * (branch.reward + of(branch.state))
                for option, p in chances.items()
                for branch in GAME.step(state, option)
            )
        return known[state]

    return of(GAME.start()[0].state)


def optimum() -> float:
    """What the best policy is worth."""
    known: dict[State, float] = {}

    def of(state: State) -> float:
        if state and state not in known:
            known[state] = max(
                sum(b.probability * (b.reward + of(b.state)) for b in GAME.step(state, option))
                for option in GAME.options(state)
            )
        return known[state] if state else 0.0

    return of(GAME.start()[0].state)


def trained(method: str, seed: int, steps: int, rate: float = 4.0) -> dict[str, Any]:
    """The exact value of a policy while it is trained by REINFORCE against the others of its group; what older weights
    drew is weighed by the truncated ratio of the chances of now to those of then, choice by choice."""
    policy: Policy = {}
    pool, values = Pool(method, seed), [value({})]
    for number in range(steps):
        slope: dict[State, float] = defaultdict(float)
        taken = pool.step(number, policy)
        for group, weight in taken:
            mean = sum(each.earned for each in group.rollouts) / SIZE
            for each in group.rollouts:
                advantage = (each.earned - mean) * SIZE / (SIZE - 1)
                for state, waits, drawn in each.said:
                    p = 1 / (1 + math.exp(-policy.get(state, 0.0)))
                    ratio = min(2.0, (p if waits else 1 - p) / drawn)
                    slope[state] += (
                        weight * ratio * advantage * ((1 - p) if waits else -p) / (len(taken) * SIZE)
                    )
        for state, each in slope.items():
            policy[state] = policy.get(state, 0.0) + rate * each
        if (number + 1) % max(1, steps // 40) == 0:
            values.append(value(policy))
    waits = 1 / (1 + math.exp(-policy.get(GAME.start()[0].state, 0.0)))
    return {"values": values, "rounds": pool.rounds, "calls_cut": pool.calls_cut, "waits_first": waits}


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean over seeds, and half the width of its 95 % interval."""
    size = len(values)
    return float(np.mean(values)), student_t(size - 1) * float(np.std(values, ddof=1)) / math.sqrt(size)


def measure(seeds: int, fixed_steps: int, steps: int) -> dict[str, Any]:
    """Everything that the page prints."""
    true = value(_Fixed(math.log(WAITING / (1 - WAITING))))
    found: dict[str, Any] = {
        "true": true,
        "optimum": optimum(),
        "expected": {"wait": true, **expected()},
        "settings": {"groups": GROUPS, "size": SIZE, "wait_for": WAIT_FOR, "seeds": seeds, "steps": steps},
        "estimated": {m: [estimated(m, seed, fixed_steps) for seed in range(seeds)] for m in METHODS},
        "trained": {m: [trained(m, seed, steps) for seed in range(seeds)] for m in METHODS},
    }
    return found


def rows(found: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """The table of every benchmark."""
    here = machine()
    for method in METHODS:
        mean, half = interval(found["estimated"][method])
        known = found["expected"].get(method)
        yield row(
            f"value of a fixed policy, {method}",
            f"{mean:.4f} ±{half:.4f}",
            "enumerated" if known is not None else "true value",
            f"{known if known is not None else found['true']:.4f}",
            None,
            here,
        )
    for method in METHODS:
        runs = found["trained"][method]
        mean, half = interval([run["values"][-1] for run in runs])
        first, _ = interval([run["waits_first"] for run in runs])
        rounds, _ = interval([run["rounds"] for run in runs])
        yield row(
            f"trained, {method}",
            f"{mean:.4f} ±{half:.4f}",
            "optimum",
            f"{found['optimum']:.4f}, waits first {first:.2f}, {rounds:.0f} rounds",
            None,
            here,
        )


HUES = ("#444444", "#c0392b", "#2471a3", "#b9770e", "#1e8449")
LEFT, TOP, WIDTH, HEIGHT = 60, 24, 560, 260


def text(x: float, y: float, said: str, anchor: str = "start") -> str:
    """Words in the picture."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{said}</text>'


def line(x: tuple[float, float], y: float, style: str) -> str:
    """A level line in the picture."""
    return f'<line x1="{x[0]:.1f}" x2="{x[1]:.1f}" y1="{y:.1f}" y2="{y:.1f}" {style}/>'


def picture(found: Mapping[str, Any]) -> str:
    """Exact values over training, by method, as SVG: means over seeds, with the band of their 95 % intervals."""
    curves = {m: np.array([run["values"] for run in found["trained"][m]]) for m in METHODS}
    low = min(float(each.mean(0).min()) for each in curves.values()) - 0.01
    high = found["optimum"] + 0.01
    count = next(iter(curves.values())).shape[1]
    across = [LEFT + WIDTH * k / (count - 1) for k in range(count)]

    def y(level: float) -> float:
        return TOP + HEIGHT * (high - level) / (high - low)

    drawn = [f'<rect width="{LEFT + WIDTH + 150}" height="{TOP + HEIGHT + 44}" fill="#ffffff"/>']
    for k in range(5):
        level = low + (high - low) * k / 4
        drawn.append(line((LEFT, LEFT + WIDTH), y(level), 'stroke="#dddddd"'))
        drawn.append(text(LEFT - 8, y(level) + 4, f"{level:.2f}", "end"))
    drawn.append(line((LEFT, LEFT + WIDTH), y(found["optimum"]), 'stroke="#444444" stroke-dasharray="4 3"'))
    drawn.append(text(LEFT + WIDTH - 60, y(found["optimum"]) - 5, "optimum"))
    for place, (method, each) in enumerate(curves.items()):
        half = student_t(len(each) - 1) * each.std(0, ddof=1) / math.sqrt(len(each))
        mean, hue = each.mean(0), HUES[place]
        band = [(x, y(m + h)) for x, m, h in zip(across, mean, half, strict=True)]
        band += [(x, y(m - h)) for x, m, h in reversed(list(zip(across, mean, half, strict=True)))]
        middle = list(zip(across, map(y, mean), strict=True))
        for points, style in (
            (band, f'stroke="none" fill="{hue}" opacity="0.15"'),
            (middle, f'fill="none" stroke="{hue}" stroke-width="2"'),
        ):
            places = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
            drawn.append(f'<{"polyline" if points is middle else "polygon"} points="{places}" {style}/>')
        at = TOP + 20 + 18 * place
        drawn.append(line((LEFT + WIDTH + 12, LEFT + WIDTH + 32), at, f'stroke="{hue}" stroke-width="3"'))
        drawn.append(text(LEFT + WIDTH + 38, at + 4, method))
    settings = found["settings"]
    drawn.append(text(LEFT, TOP + HEIGHT + 20, "step 0"))
    drawn.append(text(LEFT + WIDTH, TOP + HEIGHT + 20, f"step {settings['steps']}", "end"))
    what = f"exact value of the policy, mean of {settings['seeds']} seeds and 95 % interval"
    drawn.append(text(LEFT + WIDTH / 2, TOP + HEIGHT + 36, what, "middle"))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 150} {TOP + HEIGHT + 44}"'
    return "\n".join([f'{head} font-family="sans-serif" font-size="12">', *drawn, "</svg>"]) + "\n"


def main() -> None:
    """Measure, print, and write down."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="small sizes")
    parser.add_argument("--out", type=Path, help="write everything measured here, as JSON")
    parser.add_argument("--picture", type=Path, help="draw the curves of --out's file into this SVG")
    args = parser.parse_args()
    if args.picture is not None and args.out is not None and args.out.exists():
        args.picture.write_text(picture(json.loads(args.out.read_text())))
        return
    found = measure(2, 20, 20) if args.smoke else measure(20, 1000, 300)
    print_table(rows(found))
    if args.out is not None:
        args.out.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
