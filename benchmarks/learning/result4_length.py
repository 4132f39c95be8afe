"""Result 4: credit diffusion. Success against the trace's length, 10, 100 and 1,000, by kind of credit.

python benchmarks/learning/result4_length.py [--quick] [--seeds 20] [--kept]

The length ladder: at one step of the trace following a sign earns 1, and every step adds luck of ±0.1. The policy is
a softmax table, trained by plain policy gradient, 16 rollouts an update:

uniform                 (R - mean) / std of the update's rollouts, to every choice of a rollout
decision, own luck      the choice against the other one, run again from there with new luck
decision, same luck     the same under common random numbers, as Baton's forks run it

Rows of a table do not share weights, so only the pivotal step's rows bear on success and only they are simulated,
with the luck of the whole trace; in a network the other steps' noise comes on top. A fork runs the rest of the trace
again, so a rollout with every choice forked plays about length/2 rollouts' tokens: `at equal tokens` gives uniform
credit that many more rollouts. Learning rates are the best of five for each kind and length, on seeds of their own.
"""

from __future__ import annotations

import numpy as np
from runs import Job, Record, interval, main, markdown, shown

from baton.games.library.length_ladder import LengthLadder

LENGTHS = (10, 100, 1000)
KINDS = ("uniform", "decision, own luck", "decision, same luck")
RATES = (0.1, 0.3, 1.0, 3.0, 10.0)
BATCH = 16
ROLLOUTS = 1600
LEVEL = 0.9
_TUNING = range(1000, 1010)


def learn(game: LengthLadder, kind: str, rate: float, seed: int, num_rollouts: int) -> list[float]:
    """P(right at the pivot) after every update."""
    random = np.random.default_rng(seed)
    logits = np.zeros(2)
    """For following the sign, by sign."""
    found = []
    for _ in range(num_rollouts // BATCH):
        right = 1 / (1 + np.exp(-logits))
        sign = random.integers(0, 2, BATCH)
        hit = random.random(BATCH) < right[sign]
        luck = _luck(game, random)
        credit = _credit(game, kind, hit, luck, right[sign], random)
        step = credit * (hit - right[sign])
        logits = logits + rate * np.bincount(sign, step, 2) / BATCH
        found.append(float(np.mean(1 / (1 + np.exp(-logits)))))
    return found


def _luck(game: LengthLadder, random: np.random.Generator) -> np.ndarray:
    return game.noise * (2.0 * random.binomial(game.length, 0.5, BATCH) - game.length)


def _credit(
    game: LengthLadder,
    kind: str,
    hit: np.ndarray,
    luck: np.ndarray,
    right: np.ndarray,
    random: np.random.Generator,
) -> np.ndarray:
    if kind == "uniform":
        value = hit + luck
        return np.asarray((value - value.mean()) / (value.std() + 1e-6))
    chance = np.where(hit, right, 1 - right)
    other = luck if kind == "decision, same luck" else _luck(game, random)
    return np.asarray((1 - chance) * ((hit + luck) - (1.0 - hit + other)))


def jobs(num_seeds: int, quick: bool) -> list[Job]:
    """One job a length: the whole of it takes seconds."""
    size = {"seeds": 3 if quick else num_seeds, "rollouts": 160 if quick else ROLLOUTS}
    return [{"arm": f"length {length}", "seed": 0, "length": length, **size} for length in LENGTHS]


def worker(job: Job) -> Record:
    """All kinds of credit at one length, every seed."""
    game = LengthLadder(length=job["length"], pivot=job["length"] // 2)
    record: Record = {"arm": job["arm"], "seed": 0, "length": job["length"], "rollouts": job["rollouts"]}
    for kind in KINDS:
        rate = max(RATES, key=lambda rate, kind=kind: _tuned(game, kind, rate, job["rollouts"]))
        paths = [learn(game, kind, rate, seed, job["rollouts"]) for seed in range(job["seeds"])]
        early = min(len(paths[0]), 160 // BATCH) - 1
        record[kind] = {
            "rate": rate,
            "early": [path[early] for path in paths],
            "late": [path[-1] for path in paths],
            "until": [_until(path) for path in paths],
        }
        if kind == "uniform":
            more = min(job["rollouts"] * job["length"] // 2, 40 * ROLLOUTS)
            record["equal"] = [learn(game, kind, rate, seed, more)[-1] for seed in range(job["seeds"])]
            record["more"] = more
    return record


def _tuned(game: LengthLadder, kind: str, rate: float, num_rollouts: int) -> float:
    return float(np.mean([learn(game, kind, rate, seed, num_rollouts) for seed in _TUNING]))


def _until(path: list[float]) -> float:
    """Rollouts after which success stays at the level; more than were played: never."""
    below = [number for number, value in enumerate(path) if value < LEVEL]
    last = below[-1] + 1 if below else 0
    return float("nan") if last == len(path) else BATCH * (last + 1.0)


def table(records: list[Record]) -> str:
    """Success by length and kind of credit."""
    rows = []
    for record in records:
        for kind in KINDS:
            mine = record[kind]
            reached = sum(value == value for value in mine["until"])
            until = (
                f"{interval(mine['until'])[0]:.0f} ({reached} of {len(mine['until'])})"
                if reached
                else "never"
            )
            length, seeds = f"{record['length']:,}", str(len(mine["late"]))
            success = [shown(mine["early"]), shown(mine["late"])]
            rows.append([length, kind, seeds, f"{mine['rate']:g}", *success, until])
        more = f"uniform, {record['more']:,} rollouts"
        rows.append(
            [f"{record['length']:,}", more, str(len(record["equal"])), "", "", shown(record["equal"]), ""]
        )
    heading = ["length", "credit", "seeds", "learning rate", "success after 160 rollouts"]
    return markdown(
        [*heading, f"after {records[0]['rollouts']:,}", f"rollouts until {LEVEL:.0%} for good"], rows
    )


if __name__ == "__main__":
    main(__doc__, "result4_length", jobs, worker, table, num_seeds=20)
