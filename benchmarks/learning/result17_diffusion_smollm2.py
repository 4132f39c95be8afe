"""Result 17: result 13 with a pretrained language model, SmolLM2-135M-Instruct, on a GPU.

python benchmarks/learning/result17_diffusion_smollm2.py [--quick] [--processes 6] [--model FOLDER] [--kept]
                                                         [--gather] [--draw FILE.svg]

Written before any of its test seeds was run; docs/learning/credit_diffusion.md is its page. Task, team, four kinds of
credit, reports a step, skill, speed, prediction and what is measured at the start are those of result 13, and so is
the code. What differs:

model         SmolLM2-135M-Instruct in float32, all weights learn (--model: a folder of it, or of another model)
start         supervised, made once: right reports until a worker is right in 0.95 of cases whether it holds the fact
              or not (at most 200 steps), then reports of which three quarters are tossed between `no` and the number
              that was read, until both chances of being right lie between 0.58 and 0.68 (at most 300 steps; then it is
              taken as it is, and said so). 64 reports a step; both are looked at every 10 steps, on 100 training
              instances that are no run's
budget        160,000 tokens a run: prompts are about twice as long in this model's tokens, so as many reports as there
tuning        the learning rate, one of three (3e-6, 1e-5, 3e-5), for every credit at n = 8 and at n = 32, by one run
              each, on seed 1001. Each credit takes the rate of its best speed: that of n = 8 for 2 and 8 workers, that
              of n = 32 for 32 and 128. Where these three lie was set after agent credit with 2 workers had taken nine
              steps of 32 reports on a CPU at two rates, on seed 1001 and from a shorter start
test          seeds 0 to 4, all credits and n = 2, 8 and 32 of a seed before the next; then n = 128 likewise; then
              seeds 5 to 9 of n = 2, 8 and 32: as many whole seeds as 17 minutes of one H200 allow, shared by six
              processes. A seed that is not whole is left out
expected      as derived: agent credit not faster than uniform at n = 2, faster at 32; fork never faster than uniform
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import result13_diffusion as there
from diffusion_picture import draw
from diffusion_snr import CREDITS
from runs import RESULTS, Job, Record, markdown, rounded, run_jobs

KEPT = RESULTS / "result17_diffusion_smollm2.json"
PART = KEPT.with_suffix(".part.jsonl")
SMALL, LARGE = (2, 8, 32), (128,)
TOKENS = 160_000
RATES = (3e-6, 1e-5, 3e-5)
TUNED = (8, 32)
START, TUNING = 1000, 1001
"""Seeds that are no test's."""
TRIES, WAIT = 4, 20.0
"""Of a run that the GPU has no room for, and seconds between them."""
FIRST, MORE = 5, 5
"""Test seeds of all sizes, and those that come after, of the smaller ones."""
WARM: dict[str, Any] = {
    "instances": 4_000,
    "rows": 64,
    "chunk": 10,
    "looked_at": 100,
    "stages": [
        {"tossed": 0.0, "most": 200, "rate": 5e-5, "between": [0.95, 1.0]},
        {"tossed": 0.75, "most": 300, "rate": 3e-5, "between": [0.58, 0.68]},
    ],
}
"""Of the start: the share of reports that are tossed, steps at most, learning rate, when it is enough."""


def start_of(model: str, warm: dict[str, Any]) -> str:
    """The folder of the weights that every run begins with, kept for later ones."""
    from hashlib import blake2b

    from baton.learn.models.local import kept

    key = blake2b(json.dumps([model, START, warm]).encode(), digest_size=6).hexdigest()
    return str(kept(f"needle-start-{START}-{key}", lambda place: make_start(model, warm, place)))


def make_start(given: str, warm: dict[str, Any], place: Path) -> None:
    """The model, taught what workers say until it knows who holds the fact, and then to waver."""
    from baton.learn.models import load_model
    from baton.learn.models.start import spoken_rows, warm_rows

    model, tokenizer = load_model(given)
    told: list[list[float]] = []
    for stage in warm["stages"]:
        spoken = there.reports_tossed(START, stage["tossed"], warm["instances"])
        rows, counts = spoken_rows(tokenizer, spoken), list(spoken.values())
        low, high = stage["between"]
        for steps in range(warm["chunk"], stage["most"] + 1, warm["chunk"]):
            warm_rows(
                model, rows, counts, steps=warm["chunk"], rows=warm["rows"], learning_rate=stage["rate"],
                seed=START + steps,
            )  # fmt: skip
            found = there.chances(model, tokenizer, away(warm["looked_at"]), "train")
            told.append([stage["tossed"], steps, *found])
            say(f"start, {stage['tossed']} tossed, step {steps}: right in {found}")
            if all(low <= each <= high for each in found):
                break
    facts = {"looked": told, "device": device_of(model), "dtype": str(model.dtype)}
    # On a GPU weights are views of each other's neighbours, which files do not keep.
    model.to("cpu").save_pretrained(place)
    tokenizer.save_pretrained(place)
    (place / "start.json").write_text(json.dumps(facts), "utf-8")


def say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def away(count: int) -> range:
    """Instances that are no run's, and that skill is not measured on."""
    return range(2 * there.AWAY, 2 * there.AWAY + count)


def device_of(model: Any) -> str:
    import torch

    return torch.cuda.get_device_name(model.device) if model.device.type == "cuda" else "cpu"


def worker(job: Job) -> Record:
    """One run of result 13's, and what it took. Where a GPU that is shared has no room for it, it begins anew later.

    What breaks a run is its record: others go on.
    """
    for tries_left in reversed(range(TRIES)):
        try:
            record = timed(job)
            if not record["failed"]:
                return record
            broken = f"{record['failed']} calls failed"
        except Exception as error:
            broken = f"{type(error).__name__}: {error}"
        say(f"{job['arm']}, seed {job['seed']}: {broken}")
        if "CUDA error" in broken and "out of memory" not in broken:
            os._exit(1)  # this process can compute nothing more; the command goes on where it was
        if not tries_left or not ("memory" in broken or "failed" in broken):
            break
        tidy()
        time.sleep(WAIT)
    return {key: job[key] for key in ("arm", "seed", "n", "credit", "still", "rate")} | {"broken": broken}


def timed(job: Job) -> Record:
    """One run, of which nothing stays on the GPU."""
    import torch

    began = time.monotonic()
    record = there.worker(job)
    took = {"rate": job["rate"], "seconds": time.monotonic() - began}
    if torch.cuda.is_available():
        took["gigabytes"] = torch.cuda.max_memory_reserved() / 1e9
        tidy()
        torch.cuda.reset_peak_memory_stats()
    return record | took


def tidy() -> None:
    import gc

    import torch

    gc.collect()
    torch.cuda.empty_cache()


def job_of(
    seed: int, n: int, credit: str, rate: float, quick: bool, start: str, is_still: bool = False
) -> Job:
    """A run; to see that one runs, of two steps of eight reports."""
    told = f"{credit}, n = {n}, rate {rate:g}" + (", still" if is_still else "")
    return {
        "arm": told, "seed": seed, "n": n, "credit": credit, "still": is_still, "rate": rate, "model": start,
        "tokens": 400 if quick else TOKENS, "episodes": 4 if quick else 400, "reports": 8 if quick else there.REPORTS,
    }  # fmt: skip


def first_jobs(start: str, quick: bool) -> list[Job]:
    """What is measured at the start, and the runs that rates are chosen by."""
    sizes, rates = (SMALL[:1], RATES[:1]) if quick else (SMALL, RATES)
    return [
        *(job_of(there.STILL, n, c, 0.0, quick, start, is_still=True) for n in sizes for c in CREDITS),
        *(job_of(TUNING, n, c, r, quick, start) for n in TUNED[: len(rates)] for c in CREDITS for r in rates),
    ]


def test_jobs(start: str, rates: dict[tuple[int, str], float], quick: bool) -> list[Job]:
    """The test seeds with the rates chosen, in the order in which they are run."""
    if quick:
        parts = [(range(1), SMALL[:1])]
    else:
        parts = [(range(FIRST), SMALL), (range(FIRST), LARGE), (range(FIRST, FIRST + MORE), SMALL)]
    found = [
        job_of(seed, n, credit, rates[tuned_at(n), credit], quick, start)
        for seeds, sizes in parts for seed in seeds for n in sizes for credit in CREDITS
    ]  # fmt: skip
    large = next((k for k, job in enumerate(found) if job["seed"] == FIRST), len(found))
    resting = (
        [] if quick else [job_of(there.STILL, n, c, 0.0, quick, start, True) for n in LARGE for c in CREDITS]
    )
    return [*found[:large], *resting, *found[large:]]


def jobs(num_seeds: int, quick: bool) -> list[Job]:
    """All runs but those whose rates are chosen only then."""
    del num_seeds
    return first_jobs("smollm2", quick)


def tuned_at(n: int) -> int:
    """The size whose rate a team of n takes."""
    return max((size for size in TUNED if size <= n), default=TUNED[0])


def chosen(tuning: Sequence[Record]) -> dict[tuple[int, str], float]:
    """The rate of the best speed, by size and credit."""
    found: dict[tuple[int, str], Record] = {}
    for each in tuning:
        key = each["n"], each["credit"]
        if key not in found or fast(each) > fast(found[key]):
            found[key] = each
    return {key: each["rate"] for key, each in found.items()}


def fast(record: Record) -> float:
    return there.speed(record, TOKENS)


def whole(records: Sequence[Record]) -> list[Record]:
    """Seeds of which every credit and size has been run, and what was measured at the start."""
    tests = [each for each in records if not each["still"]]
    kept = [each for each in records if each["still"]]
    for sizes in (SMALL, LARGE):
        for seed in sorted({each["seed"] for each in tests}):
            mine = [each for each in tests if each["seed"] == seed and each["n"] in sizes]
            if len(mine) == len(sizes) * len(CREDITS):
                kept += mine
    return kept


def gathered(records: Sequence[Record], start: dict[str, Any]) -> dict[str, Any]:
    """What is kept: how the start came about, the runs that rates were chosen by, and whole test seeds."""
    broken = [each for each in records if "broken" in each]
    sound = [each for each in records if "broken" not in each]
    tuning = [each for each in sound if each["seed"] == TUNING]
    tests = whole([each for each in sound if each["seed"] != TUNING])
    left_out = [each for each in sound if each["seed"] != TUNING and each not in tests]
    return {"start": start, "tuning": tuning, "test": tests, "left_out": left_out, "broken": broken}


def table(kept: dict[str, Any]) -> str:
    """The start, the rates, and result 13's table."""
    looked, rates = kept["start"]["looked"], chosen(kept["tuning"])
    taught = {tossed: (steps, p, q) for tossed, steps, p, q in looked}
    told = [
        f"{steps} steps with {tossed:g} of the reports tossed, then right in {p:.3f} (holds the fact) and {q:.3f}"
        for tossed, (steps, p, q) in taught.items()
    ]
    by_rate = {(each["n"], each["credit"], each["rate"]): f"{fast(each):.3f}" for each in kept["tuning"]}
    tried = sorted({each["rate"] for each in kept["tuning"]})
    lines = [
        (str(n), credit, *(by_rate.get((n, credit, rate), "–") for rate in tried), f"{best:g}")
        for (n, credit), best in rates.items()
    ]
    tuned = markdown(("n", "credit", *(f"speed at {rate:g}" for rate in tried), "taken"), lines)
    told += [f"broken: {each['arm']}, seed {each['seed']}, {each['broken']}" for each in kept["broken"]]
    return f"{there.table(kept['test'], TOKENS)}\n\n{tuned}\n\nThe start: {'; '.join(told)}."


def read_part() -> list[Record]:
    """Records of a run that was cut."""
    return [json.loads(line)[1] for line in PART.read_text("utf-8").splitlines() if line.endswith("]")]


def keep(kept: dict[str, Any]) -> None:
    KEPT.write_text(json.dumps(rounded(kept), separators=(",", ":")) + "\n", "utf-8")


def begin(model: str, quick: bool) -> tuple[str, dict[str, Any]]:
    """The start, made in a process of its own, so that this one holds no GPU; its folder and how it came about."""
    warm = WARM
    if quick:
        short = [stage | {"most": 2} for stage in WARM["stages"]]
        warm = WARM | {"rows": 4, "chunk": 2, "looked_at": 4, "instances": 20, "stages": short}
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        start = pool.submit(start_of, model, warm).result()
    return start, json.loads((Path(start) / "start.json").read_text("utf-8"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one seed, two small steps: shows that it runs")
    parser.add_argument("--processes", type=int, default=1, help="runs at a time")
    parser.add_argument("--model", metavar="FOLDER", help="where the model is; smollm2, with --quick tiny")
    parser.add_argument(
        "--kept", action="store_true", help="print the tables of the records kept in results/"
    )
    parser.add_argument("--gather", action="store_true", help="keep the whole seeds of a run that was cut")
    parser.add_argument("--draw", metavar="FILE.svg", type=Path, help="draw the picture of the records kept")
    args = parser.parse_args()
    if args.draw:
        kept = json.loads(KEPT.read_text("utf-8"))
        args.draw.write_text(draw(there.rows(kept["test"]), fast), "utf-8")
        return
    if args.kept:
        print(table(json.loads(KEPT.read_text("utf-8"))))
        return
    start, facts = begin(args.model or ("tiny" if args.quick else "smollm2"), args.quick)
    if args.gather:
        records = read_part()
    else:
        part = None if args.quick else PART
        records = run_jobs(first_jobs(start, args.quick), worker, args.processes, part)
        rates = chosen(gathered(records, facts)["tuning"])
        records += run_jobs(test_jobs(start, rates, args.quick), worker, args.processes, part)
    kept = gathered(records, facts)
    if args.quick:
        print(table(kept | {"test": [each for each in records if "broken" not in each]}))
        return
    keep(kept)
    if not args.gather:  # who gathers may do so while runs still write there
        PART.unlink(missing_ok=True)
    print(table(kept))


if __name__ == "__main__":
    main()
