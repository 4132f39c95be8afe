"""Result 21: stopping and spawning again, with credit as it is now: games and a language model.

python benchmarks/learning/result21_again.py --part games [--quick] [--seeds 10] [--processes 4] [--out DIR]
python benchmarks/learning/result21_again.py --part model [--quick] [--seeds 5] [--processes 3] [--model PATH]
    [--minutes 15]
python benchmarks/learning/result21_again.py --kept

Written before any test seed was run; docs/learning/stop_and_spawn.md is its page. Results 2 and 3 and the real task's
stopping and spawning were made before credit and the charge for invalid answers were repaired, with three or five
seeds, some runs cut short, uniform credit not trained on stopping, and no single agent beside it on the same task.

question      Does credit by decision leave less than uniform credit (one advantage for all) and than a single agent, at
              equal tokens? What share of events that agents chose has no credit, or one of exactly zero, and why?
every run     goes to its last step; one that is cut off is not shown, nor is a game or seed of which an arm is missing

games
  which       result 3's spawn-bandit, whose start spawns when it is hard; result 2's four stopping games. `tiny` (text)
  metric      regret after the last step on 512 held-out episodes, each invalid answer charged at the game's price of an
              answer (`Solution.answer_price`)
  arms        by decision                  recipes `spawn` (paired forks) and `stop` (COMA's advantage of a critic that
                                           counts, all options trained)
              by decision, taken options   stopping: the same credit as a policy gradient on the options taken
              uniform                      the mean over the step taken from the return, for all decisions alike, as a
                                           policy gradient on the options taken. Differs from the arm above in credit
                                           alone
              single agent                 not trained: the exact value of the best play that adds the fewest agents;
                                           where the game spawns nobody (stopping-chain) that is the optimum, so the
                                           best fixed number of rounds, exact or over 20,000 plays, stands beside it
  budget      the first arm has the recipe's steps (20; 30; 40 of sequential-test), and uniform credit goes on until it
              has spent its tokens, forks' tokens charged. The arm of taken options has the recipe's steps, since its
              critic's schedules follow them; its tokens are reported
  tuning      the learning rate, of 1e-4, 3e-4 and 1e-3, by the mean regret of seeds 1000 and 1001: six runs for every
              arm on a game (three, of seed 1000 alone, on pandora). Credits are brought to one size where options taken
              are trained; two passes over a step's rollouts there, the recipe's four or eight where all options are
  test        seeds 0 to 9; differences are paired by seed; Student's 95 %
  cost        sized for 55 minutes of processor; the dearest games come last, and one that is not whole is left out
  expected    by decision below uniform on sequential-test, pandora and the bandit (.010 against .052 before);
              little between them on stopping-chain and batch-search, which are nearly solved by anything. Taken options
              with decision credit between the two. By decision below the single agent on every game but stopping-chain.
              Zero credit: none of uniform's but where a step's returns are all alike; of counting credit the invalid
              answers, which it says nothing about

model
  which       SmolLM2-135M-Instruct with adapters, bfloat16: `reasoning-stop` (which statement names the culprit, parts
              handed to workers one by one, 2 per 1,000 tokens) and `reasoning-spawn` (sums of four terms, 0.5 per 1,000
              tokens), starts of their own for every seed
  metric      reward after the last step on 128 test questions x 2 tries: success, less the price of tokens (those of
              invalid answers are in it), less 0.2 for every invalid answer
  arms        by decision          `telescope` as it is now
              uniform              `group`: one advantage for the team
              single, at once      one agent with as many adapter weights, which answers at once; `group`
              single, with working one agent that writes down a team's parts and results first; `group`
              scripts              stopping, not trained: fixed-1, -2, -3 and `found`, with the first arm's workers
  budget      the same tokens for all four arms, from starts of as many supervised rows (100 steps of 32 for each of a
              team's roles on stopping, 60 on spawning; 200 and 120 for a single agent). Sixteen instances x 8 rollouts
              a step for teams; 40 and 24 instances for the single agents. The number of tokens is set by a rule before
              any test seed runs: three runs on seed 1000 are timed side by side, and the longest of the lengths in
              `LENGTHS` is taken whose runs fit into the minutes that are left (`planned`). Spawning is run if 22 steps
              of stopping leave time for it; if not, it is not
  tuning      none, for any arm: learning rate 1e-4, as the recipes have it
  test        seeds 0 to 4; differences are paired by seed; Student's 95 %
  zero credit also of the estimator as it was in 0.1 (`compare = "prefix"`), on the same rollouts of the first arm, at
              every fifth step
  expected    stopping: both teams gain, and by decision more, since a stop is one choice among many calls; in far
              fewer steps than the hundred of the recipe neither comes near `found`. A single agent reads six statements
              in one prompt and is well ahead of both at these prices. Spawning: both learn to split at once and hardly
              differ; the agent with working is ahead. Zero credit: near none now, and most events in 0.1
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import again_games
import again_model
from runs import RESULTS, Job, Record, rounded, run_jobs

NAME = "result21_again"
LEAVES = 0.95
"""Of the minutes that are left after the timing."""


def games(args: argparse.Namespace, part: Path | None) -> list[Record]:
    """Tuning, then the test with what was tuned."""
    if args.quick:
        asked = again_games.jobs(again_games.GAMES, 1, True, again_games.quick_rates())
        return run_jobs(asked[: args.few], again_games.worker, args.processes)
    found: list[Record] = []
    for together in again_games.ORDER:
        tuned = run_jobs(again_games.jobs(together, 0, False), again_games.worker, args.processes, part)
        rates = again_games.best_rates(tuned)
        asked = again_games.jobs(together, args.seeds, False, rates)
        found += [*tuned, *run_jobs(asked, again_games.worker, args.processes, part)]
    return found


def model(args: argparse.Namespace, part: Path | None) -> list[Record]:
    """The timing, then as many tokens of stopping as fit, then of spawning."""
    began = time.monotonic()
    about: Job = {"model": args.model, "device": args.device, "dtype": args.dtype, "changes": []}
    if args.quick:
        about |= {"model": "tiny", "device": None, "dtype": None}
        few = [
            each | {"tokens_asked": 1}
            for task in again_model.LENGTHS
            for each in again_model.jobs(task, 1, 1, about)
        ]
        return run_jobs(few[: args.few], again_model.worker, args.processes)
    timed = run_jobs(again_model.timing_jobs(about), again_model.worker, args.processes, part)
    left = LEAVES * (60 * args.minutes - (time.monotonic() - began))
    lengths = again_model.planned(timed, left, args.seeds, args.processes)
    print(f"{left:.0f} s for steps of a team: {lengths}", flush=True)
    asked = [
        job
        for task, length in lengths.items()
        if length
        for job in again_model.jobs(task, length, args.seeds, about)
    ]
    return [*timed, *run_jobs(asked, again_model.worker, args.processes, part)]


PARTS: dict[
    str, tuple[Callable[[argparse.Namespace, Path | None], list[Record]], Callable[[list[Record]], str]]
]
PARTS = {"games": (games, again_games.table), "model": (model, again_model.table)}


def jobs(num_seeds: int, quick: bool) -> list[Job]:
    """The games' recipes with what every arm changes."""
    asked = [(game, arm) for game in again_games.GAMES for arm in again_games.arms_of(game)]
    return [
        {
            "recipe": again_games.recipe_name(game),
            "changes": again_games.changes_of(game, arm, again_games.RATES[0], quick),
            "seed": seed,
        }
        for game, arm in asked
        for seed in range(num_seeds)
    ]


def main() -> None:
    args = _arguments()
    place = args.out / f"{NAME}.json"
    known = json.loads(place.read_text("utf-8")) if place.exists() else {}
    if args.kept or args.gather:
        for part, (_, table) in PARTS.items():
            if args.gather and (left := args.gather / f"{NAME}.{part}.part.jsonl").exists():
                known[part] = rounded(_gathered(left))
            if part in known:
                print(table(known[part]), end="\n\n")
        if args.gather:
            _write(place, known)
        return
    run, table = PARTS[args.part]
    part = None if args.quick else args.out / f"{NAME}.{args.part}.part.jsonl"
    records = run(args, part)
    if part is not None:
        _write(place, known | {args.part: records})
        part.unlink()
    print(table(records))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=[*PARTS], default="games")
    parser.add_argument(
        "--quick", action="store_true", help="one seed, a few steps: shows that it runs, no more"
    )
    parser.add_argument("--few", type=int, default=None, help="with --quick: so many of its jobs")
    parser.add_argument("--seeds", type=int, default=None, help="10 of games, 5 of the model")
    parser.add_argument("--processes", type=int, default=2, help="runs at a time, one thread each")
    parser.add_argument("--model", default="smollm2", help="or a Hugging Face folder")
    parser.add_argument("--device", default=None)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument(
        "--minutes", type=float, default=15.0, help="of the model's part, by which it is sized"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="DIR", help="where records go")
    parser.add_argument(
        "--kept", action="store_true", help="print the tables of the records kept in results/"
    )
    parser.add_argument(
        "--gather", type=Path, metavar="DIR", help="keep what a run that was ended left in DIR"
    )
    args = parser.parse_args()
    args.seeds = args.seeds or {"games": 10, "model": 5}[args.part]
    return args


def _gathered(part: Path) -> list[Record]:
    """Records of a run that was ended; its last line may be half of one."""
    text = part.read_text("utf-8")
    return [json.loads(line)[1] for line in text[: text.rfind("\n") + 1].splitlines()]


def _write(place: Path, records: dict[str, list[Record]]) -> None:
    """Both parts; one that runs at the same time reads what was there before it began, so give each its own --out."""
    place.write_text(json.dumps(rounded(records), separators=(",", ":")) + "\n", "utf-8")


if __name__ == "__main__":
    main()
