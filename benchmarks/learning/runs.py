"""Training runs for the results: each in its own process on one thread, its numbers as plain records.

A job is a recipe with changes and a seed. What comes back is a line for every step (tokens so far, return, regret by
decision, invalid answers, gradient norm) and the team before and after on held-out episodes. Records are kept as
JSON, so that a table can be printed again from them without a run. A command that was cut short goes on where it was.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

__all__ = [
    "RESULTS",
    "Job",
    "Record",
    "charged",
    "interval",
    "lost_value",
    "main",
    "markdown",
    "measure",
    "run_jobs",
    "shown",
    "train",
]

RESULTS = Path(__file__).parent / "results"
Job = dict[str, Any]
"""`arm`, `seed`, `recipe`, `changes`, and what a result's own worker wants."""
Record = dict[str, Any]
Worker = Callable[[Job], Record]
_T95 = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Student's t for 2 to 10 seeds."""


def measure(trainer: Any, recipe: Any, stage: Any = None) -> Record:
    """The policies as they are, on held-out episodes; on another stage than they were trained on, if given."""
    from baton.learn.run.evaluate import held_out, regrets
    from baton.trace.outcome import task_return

    stage = stage or trainer.stage
    traces = asyncio.run(stage.play(trainer.engines(), held_out(recipe, "measured", 0)))
    returns = [task_return(trace) for trace in traces]
    return {
        "return": float(np.mean(returns)),
        "regret": regrets(stage.game, traces),
        "invalid": sum(e.status == "invalid" for t in traces for e in t.events) / len(traces),
        "tokens": sum(trace.costs.get("tokens", 0.0) for trace in traces) / len(traces),
        "calls": sum(len(trace.calls) for trace in traces) / len(traces),
    }


def charged(found: Any, price: float) -> Any:
    """Records with invalid answers charged in their regret. Those from before regret charged them are charged from
    their count of such answers; what was lost where these ended play stands there with the decision it was lost at."""
    if isinstance(found, list):
        return [charged(each, price) for each in found]
    if not isinstance(found, dict):
        return found
    made = {key: charged(value, price) for key, value in found.items()}
    regret = made.get("regret")
    if isinstance(regret, dict) and "invalid" not in regret and "invalid" in made:
        charge = price * made["invalid"]
        made["regret"] = regret | {"invalid": charge, "total": regret["total"] + charge}
    return made


def lost_value(measured: Record, price: float) -> float:
    """What was lost in value: the regret without what is charged for invalid answers, which no return shows."""
    charge = price * measured["invalid"] if "invalid" in measured["regret"] else 0.0
    return float(measured["regret"]["total"]) - charge


def train(job: Job, after: Callable[[Any, Any], Record] | None = None) -> Record:
    """One run. `after(trainer, recipe)` adds what a result wants to know of the trained team."""
    from baton.compose.training import make_trainer
    from baton.learn.recipe import load
    from baton.learn.run.evaluate import regrets
    from baton.learn.trainer import Diverged

    began = time.process_time()
    recipe = load(job["recipe"], [*job["changes"], f"train.seed={job['seed']}"])
    trainer = make_trainer(recipe)
    record: Record = {"arm": job["arm"], "seed": job["seed"], "before": measure(trainer, recipe), "steps": []}
    try:
        while trainer.step_number < recipe.train.steps:
            made = trainer.step()
            told = made.metrics
            record["steps"].append(
                {
                    "tokens": told["total_tokens"],
                    "return": told["return"]["mean"],
                    "regret": regrets(trainer.stage.game, made.traces),
                    "invalid": told["sizes"]["invalid"],
                    "grad_norm": told["grad_norm"],
                }
            )
    except Diverged as error:
        record["diverged"] = str(error)
    record["after"] = measure(trainer, recipe)
    if after is not None:
        record |= after(trainer, recipe)
    return record | {"cpu_seconds": time.process_time() - began}


def run_jobs(jobs: Sequence[Job], worker: Worker, processes: int, part: Path | None = None) -> list[Record]:
    """All jobs, some at a time, with progress on standard error; records in the order of the jobs.

    Every record is in the file `part` as soon as it is there, and jobs that are in it already are not run again.
    """
    done = _done(part)
    found = {number: done[key] for number, job in enumerate(jobs) if (key := _key(job)) in done}
    left = [number for number in range(len(jobs)) if number not in found]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        waiting = {pool.submit(worker, jobs[number]): number for number in left}
        for each in as_completed(waiting):
            number = waiting[each]
            record = found[number] = each.result()
            if part is not None:
                with part.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([_key(jobs[number]), record]) + "\n")
            seconds = record.get("cpu_seconds", float("nan"))
            print(
                f"{len(found)}/{len(jobs)} {record['arm']}, seed {record['seed']}: {seconds:.0f} s of processor",
                file=sys.stderr, flush=True,
            )  # fmt: skip
    return [found[number] for number in range(len(jobs))]


def _key(job: Job) -> str:
    return json.dumps(job, sort_keys=True)


def _done(part: Path | None) -> dict[str, Record]:
    """Of an earlier call that was cut short; its last line may be half of one."""
    if part is None or not part.exists():
        return {}
    text = part.read_text("utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        part.write_text(whole, "utf-8")
    return dict(json.loads(line) for line in whole.splitlines())


def interval(values: Iterable[float]) -> tuple[float, float | None]:
    """Mean and half-width of the 95 % interval over seeds (Student's t); None for fewer than two."""
    found = [value for value in values if math.isfinite(value)]
    if not found:
        return float("nan"), None
    mean = math.fsum(found) / len(found)
    if len(found) < 2:
        return mean, None
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in found) / (len(found) - 1))
    return mean, _T95[min(len(found) - 2, len(_T95) - 1)] * spread / math.sqrt(len(found))


def shown(values: Iterable[float], form: str = ".3f") -> str:
    """`mean ± half`."""
    mean, half = interval(values)
    if math.isnan(mean):
        return "none"
    return f"{mean:{form}}" + ("" if half is None else f" ± {half:{form}}")


def markdown(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = ["| " + " | ".join(heading) + " |", "|" + "---|" * len(heading)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def main(
    about: str,
    name: str,
    jobs: Callable[[int, bool], list[Job]],
    worker: Worker,
    table: Callable[[list[Record]], str],
    *,
    num_seeds: int = 5,
) -> None:
    """The command of one result."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="two seeds, two steps: shows that it runs, no more"
    )
    parser.add_argument("--seeds", type=int, default=num_seeds)
    parser.add_argument("--processes", type=int, default=2, help="runs at a time, one thread each")
    parser.add_argument("--kept", action="store_true", help="print the table of the records kept in results/")
    args = parser.parse_args()
    place = RESULTS / f"{name}.json"
    if args.kept:
        print(table(json.loads(place.read_text("utf-8"))))
        return
    part = None if args.quick else RESULTS / f"{name}.part.jsonl"
    records = run_jobs(jobs(2 if args.quick else args.seeds, args.quick), worker, args.processes, part)
    if part is not None:
        place.write_text(json.dumps(rounded(records), separators=(",", ":")) + "\n", "utf-8")
        part.unlink(missing_ok=True)
    print(table(records))


def rounded(value: Any) -> Any:
    """Floats to five significant digits, so that records stay small."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list | tuple) else value
