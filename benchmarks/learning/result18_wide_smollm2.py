"""Result 18: results 14 and 16 again with a model that can read: SmolLM2-135M-Instruct on a GPU.

python benchmarks/learning/result18_wide_smollm2.py [--device cuda] [--processes 4] [--kept] [--draw FILE.svg]

Written before any of its test seeds was run; docs/learning/wide.md is its page. In results 14 and 16 nobody did better
than a guess: the start of `tiny` erred on a page too often. Task, arms, loss, credit, metrics and bar are those of
result 14, and so is the code. What differs:

pages         24 of three facts (16 there), a reader of the team's scripted start is given four (two there), because the
              bar could not be met otherwise: by scripted play in this model's tokens the team takes 1.24 times what the
              folding agent does (1.47 with 16 pages and two each) and makes 7 calls in a row, the folding agent 25
model         SmolLM2-135M-Instruct, all weights trained, float32
start         made once, the same for all arms: supervised, on scripted play of all three arms (1,000 episodes of the
              team, 300 of each single agent; the lead's, the reader's and the two single agents' calls are drawn
              equally often), 64 calls a step, learning rate 0.0002 falling to a tenth over each block of 200 steps.
              After each block: how likely is it to say, at temperature 1, just what the script says? It ends by itself
              when the mean over at most 200 calls it never saw, on training facts, is 0.99 or more for each of the four
              roles; or after 2,000 steps; or with the block in which 240 seconds are over. Shares and steps stand in
              the records
phases        first all runs at their start, which is the comparison without RL; then RL, measured again on the same
              instances. So something whole is there whatever is cut short
training      300,000 tokens a run; learning rate 0.00001 for all arms, set beforehand
tuning        none, for any arm
test          seeds 10 to 14, in this order, all arms of a seed before the next; 64 instances each, three tries. What
              the machine's time does not allow is not run, and the table after training is of the seeds that have all
              arms. Intervals are over training runs and instances, not over starts
bar           as there: the team's success is not below the better single agent's (the paired interval of the
              difference is not wholly below 0), at a third of its path and at most 1.3 times its tokens (means of
              paired ratios). Said beside it: whether the interval lies above -0.05, and where the ratios' intervals end

After it had run: a table of fewer than five seeds says that the bar is not judged (the interval of two is wide enough
for anything). The start was found to have hardly ever drawn a reader's first call, because distinct calls are drawn
alike and not as often as they come up. That is against the team; the page says what came of it, and nothing was run
again.

`--part FILE` keeps each record as it is made, and the command goes on from there; `--gather FILE` makes kept records of
what is in such a file. `--quick` is with `tiny`, short, on seeds that are no test's: it shows that it runs.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from result14_wide import ARMS, START, TRIES, hash_of, measured, of, table, whole_tokens
from runs import RESULTS, Job, Record, interval, markdown, rounded, run_jobs

KEPT = RESULTS / "result18_wide_smollm2.json"
PAGES = [
    "task.settings.documents=24",
    "task.settings.people=72",
    "task.settings.pages_each=4",
    "team.max_tokens=80",
]
FIRST = 10
"""The first test seed."""
NUM_SEEDS = 5
RATE = 1e-5
TOKENS = 300_000
"""Of one run."""
WARM: dict[str, Any] = {
    "model": "smollm2", "device": None, "episodes": {"team": 1000, "fold": 300, "worked": 300}, "rows": 64,
    "learning_rate": 2e-4, "block": 200, "most_steps": 2000, "most_seconds": 240, "enough": 0.99, "unseen": 200,
}  # fmt: skip
SHORT: dict[str, Any] = WARM | {
    "model": "tiny", "episodes": {"team": 20, "fold": 10, "worked": 10}, "rows": 32, "learning_rate": 5e-3,
    "block": 30, "most_steps": 60, "unseen": 10,
}  # fmt: skip
"""Of `--quick`."""


def start_of(warm: dict[str, Any]) -> Path:
    """The folder of the weights that every run begins with, kept for later ones."""
    from baton.learn.models.local import kept

    return kept(f"wide18-start-{START}-{hash_of(warm)}", lambda place: make_start(place, warm))


def calls_of(warm: dict[str, Any]) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """What scripted play says, by role: calls to learn from, and calls that are in none of these."""
    from baton.compose.stage_from_recipe import make_stage
    from baton.learn.models.start import scripted_traces, spoken_in
    from baton.learn.recipe import load

    seen: dict[str, list[Any]] = {}
    unseen: dict[str, list[Any]] = {}
    for arm, name in ARMS.items():
        count = warm["episodes"][arm]
        recipe = load(name, [*PAGES, f"warm.episodes={count + warm['unseen']}"])
        stage = make_stage(recipe)
        traces = scripted_traces(recipe, stage)
        for role in stage.roles:
            mine = spoken_in(traces[:count], [role])
            seen[role] = list(mine)
            unseen[role] = [each for each in spoken_in(traces[count:], [role]) if each not in mine]
    return seen, unseen


def make_start(place: Path, warm: dict[str, Any]) -> None:
    """The model, trained on what all arms say in scripted play until it says so itself."""
    import numpy as np

    from baton.learn.loss import Loss
    from baton.learn.models.start import spoken_rows, warm_rows
    from baton.learn.update import Gradients

    seen, unseen = calls_of(warm)
    model, tokenizer = first_model(warm, seen)
    rows = {role: spoken_rows(tokenizer, calls) for role, calls in seen.items()}
    tests = {}
    for role, calls in unseen.items():
        order = np.random.default_rng(START).permutation(len(calls))[: warm["unseen"]]
        tests[role] = spoken_rows(tokenizer, [calls[int(k)] for k in order])
    every = [row for mine in rows.values() for row in mine]
    # Each role is drawn equally often, however many calls it has.
    weights = [1 / len(mine) for mine in rows.values() for _ in mine]
    judge = Gradients(model, Loss(kind="reinforce", correction="off"))
    began = time.monotonic()
    curve: list[Record] = []
    while True:
        shares = {
            role: float(np.exp(judge.row_logprobs(model, mine)).mean())
            for role, mine in tests.items()
            if mine
        }
        steps, seconds = len(curve) * warm["block"], time.monotonic() - began
        curve.append({"steps": steps, "seconds": seconds, "shares": shares})
        print(f"start: {steps} steps, {seconds:.0f} s, {rounded(shares)}", file=sys.stderr, flush=True)
        enough = min(shares.values()) >= warm["enough"]
        if enough or steps >= warm["most_steps"] or seconds >= warm["most_seconds"]:
            break
        warm_rows(
            model, every, weights,
            steps=warm["block"], rows=warm["rows"], learning_rate=warm["learning_rate"], seed=START + len(curve),
        )  # fmt: skip
    model.save_pretrained(place)
    tokenizer.save_pretrained(place)
    (place / "start.json").write_text(json.dumps(rounded(curve)), "utf-8")


def first_model(warm: dict[str, Any], seen: dict[str, list[Any]]) -> tuple[Any, Any]:
    """The named model as it comes; `tiny` untrained, with words of what will be said."""
    from baton.learn.models import load_model
    from baton.learn.models.start import texts_of
    from baton.learn.models.tiny import Tiny, make_tiny

    if warm["model"] != "tiny":
        return load_model(warm["model"], device=warm["device"])
    every = [each for calls in seen.values() for each in calls]
    return make_tiny(texts_of(every), Tiny(width=64, vocabulary=640, context=512), seed=START)


def worker(job: Job) -> Record:
    """One run at its start, or trained until its tokens are spent and measured again."""
    from msgspec import structs

    from baton.compose.training import make_trainer
    from baton.learn.recipe import load

    start = start_of(job["start"])
    began, clock = time.process_time(), time.monotonic()
    changes = [f"policies.main.model={start}", f"train.seed={job['seed']}", f"train.learning_rate={RATE}"]
    if job["start"]["device"]:
        changes.append(f"policies.main.device={job['start']['device']}")
    recipe = structs.replace(load(job["recipe"], [*changes, *job["changes"]]), warm=None)
    trainer = make_trainer(recipe)
    record: Record = {key: job[key] for key in ("arm", "seed", "phase")}
    if job["phase"] == "start":
        record["start"] = json.loads((start / "start.json").read_text("utf-8"))
        record["before"] = measured(trainer, recipe, TRIES)
    else:
        record["curve"] = trained(trainer, job["tokens"])
        record["after"] = measured(trainer, recipe, TRIES)
    del trainer
    freed()
    return record | {"cpu_seconds": time.process_time() - began, "seconds": time.monotonic() - clock}


def trained(trainer: Any, tokens: int) -> list[list[float]]:
    """Steps until the tokens are spent: of each the tokens so far, the mean return and invalid answers an episode."""
    curve: list[list[float]] = []
    while not curve or curve[-1][0] < tokens:
        made = trainer.step()
        spent = (curve[-1][0] if curve else 0) + sum(map(whole_tokens, made.traces))
        curve.append([spent, made.metrics["return"]["mean"], made.metrics["sizes"]["invalid"]])
        print(f"step {len(curve)}: {rounded(curve[-1])}", file=sys.stderr, flush=True)
    return curve


def freed() -> None:
    """A GPU's memory given back, which others use too."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def jobs(num_seeds: int, quick: bool, warm: dict[str, Any] = WARM) -> list[Job]:
    """All runs at their start, then all of RL, a seed after the other."""
    first = START + 1 if quick else FIRST
    changes = [*PAGES, "pack.max_tokens=8192", f"eval.episodes={4 if quick else 64}"]
    if quick:
        changes += ["rollout.groups=2", "rollout.group_size=2"]
    return [
        {
            "arm": arm, "seed": seed, "phase": phase, "recipe": recipe, "tokens": 4_000 if quick else TOKENS,
            "start": warm, "changes": changes,
        }
        for phase in ("start", "rl") for seed in range(first, first + num_seeds) for arm, recipe in ARMS.items()
    ]  # fmt: skip


def joined(found: Sequence[Record]) -> list[Record]:
    """A record for every seed and arm of what its phases gave; the start's own curve stands in the first alone."""
    made: dict[tuple[int, str], Record] = {}
    for each in found:
        whole = made.setdefault((each["seed"], each["arm"]), {})
        times = {f"{key}_{each['phase']}": each[key] for key in ("cpu_seconds", "seconds") if key in each}
        whole |= {key: each[key] for key in each if key not in ("phase", "cpu_seconds", "seconds")} | times
    order = list(ARMS)
    ready = [made[key] for key in sorted(made, key=lambda key: (key[0], order.index(key[1])))]
    for each in ready[1:]:
        each.pop("start", None)
    return ready


def at_start(records: Sequence[Record]) -> list[Record]:
    """As if nobody had been trained further."""
    return whole_seeds([{**each, "after": each["before"]} for each in records if "before" in each])


def whole_seeds(records: Sequence[Record]) -> list[Record]:
    """Those of seeds that were measured in all arms."""
    there = [(each["seed"], each["arm"]) for each in records if "before" in each and "after" in each]
    whole = {seed for seed, _ in there if all((seed, arm) in there for arm in ARMS)}
    return [each for each in records if each["seed"] in whole]


def bar(records: Sequence[Record]) -> str:
    """Whether the bar was reached, against the better single agent."""
    mine = list(records)
    better = max(("fold", "worked"), key=lambda arm: sum(of(mine, arm, 1, "success")))
    pairs = {
        key: list(zip(of(mine, "team", 1, key), of(mine, better, 1, key), strict=True))
        for key in ("success", "path", "tokens")
    }
    gap, half = interval(a - b for a, b in pairs["success"])
    path, path_half = interval(a / b for a, b in pairs["path"])
    tokens, tokens_half = interval(a / b for a, b in pairs["tokens"])
    if half is None or path_half is None or tokens_half is None:
        return "bar: one seed tells nothing"
    few = f"not judged on {len(pairs['path'])} of {NUM_SEEDS} seeds" if len(pairs["path"]) < NUM_SEEDS else ""
    held = {"success": gap + half >= 0, "path": path <= 1 / 3, "tokens": tokens <= 1.3}
    missed = [key for key, ok in held.items() if not ok]
    return (
        f"bar, against {better}: " + (few or ("reached" if not missed else f"missed by {', '.join(missed)}"))
        + f". Success {gap - half:+.3f} to {gap + half:+.3f}" + ("" if gap - half > -0.05 else " (not above -0.05)")
        + f"; path up to {path + path_half:.2f}, tokens up to {tokens + tokens_half:.2f}"
    )  # fmt: skip


def started(records: Sequence[Record]) -> str:
    """How sure the start is of what the script says, by role and steps."""
    curve = next((each["start"] for each in records if "start" in each), [])
    roles = list(curve[0]["shares"]) if curve else []
    return markdown(
        ("steps of the start", *roles),
        ((str(each["steps"]), *(f"{each['shares'][role]:.3f}" for role in roles)) for each in curve),
    )


def report(records: list[Record]) -> str:
    """The start, the arms at it, and the arms after RL."""
    parts = [started(records)]
    for title, found in (("At the start", at_start(records)), ("After training", whole_seeds(records))):
        seeds = sorted({each["seed"] for each in found})
        if found:
            parts.append(
                f"{title}, seeds {', '.join(map(str, seeds))}:\n\n{table(found, PAGES)}\n\n{bar(found)}"
            )
    return "\n\n".join(parts)


def gathered(part: Path) -> list[Record]:
    """Records of a file that a run appended to; its last line may be half of one."""
    text = part.read_text("utf-8")
    return joined([json.loads(line)[1] for line in text[: text.rfind("\n") + 1].splitlines()])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="tiny, two seeds, a few steps: shows that it runs"
    )
    parser.add_argument("--seeds", type=int, default=NUM_SEEDS)
    parser.add_argument("--processes", type=int, default=2, help="runs at a time, one thread each")
    parser.add_argument("--model", default=WARM["model"], help="smollm2, or the folder it is in")
    parser.add_argument("--device", help="cuda, cpu; the GPU if there is one")
    parser.add_argument("--part", type=Path, help="where records are kept as they are made")
    parser.add_argument("--gather", type=Path, help="make kept records of such a file")
    parser.add_argument(
        "--kept", action="store_true", help="print the tables of the records kept in results/"
    )
    parser.add_argument(
        "--draw",
        metavar="FILE.svg",
        type=Path,
        help="draw the pictures of the records kept; FILE_start.svg: without RL",
    )
    args = parser.parse_args()
    if args.gather:
        keep(gathered(args.gather))
    elif not (args.kept or args.draw):
        warm = (SHORT if args.quick else WARM | {"model": args.model}) | {"device": args.device}
        asked = jobs(2 if args.quick else args.seeds, args.quick, warm)
        part = args.part or (None if args.quick else KEPT.with_suffix(".part.jsonl"))
        records = joined(run_jobs(asked, worker, args.processes, part))
        if args.quick:
            print(report(records))
            return
        keep(records)
    records = json.loads(KEPT.read_text("utf-8"))
    if args.draw:
        from result14_wide import guessing
        from wide_picture import draw

        start = args.draw.with_stem(f"{args.draw.stem}_start")
        for file, found in ((args.draw, whole_seeds(records)), (start, at_start(records))):
            draw(found, file, guessing(found, PAGES))
        return
    print(report(records))


def keep(records: list[Record]) -> None:
    KEPT.write_text(json.dumps(rounded(records), separators=(",", ":")) + "\n", "utf-8")


if __name__ == "__main__":
    main()
