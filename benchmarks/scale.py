"""Past one process, measured and carried on: step time, tokens/s, idle shares and time to a regret by workers and lag;
what handing a step to a worker costs; and a simulation, fed with what was measured, to a thousand workers.

    python benchmarks/scale.py --measure     # trains; keeps records in benchmarks/scale_results
    python benchmarks/scale.py --missing     # trains what has no record yet; service times are left as they are
    python benchmarks/scale.py               # prints the tables from the records
    python benchmarks/scale.py --picture     # draws benchmarks/scale.svg from them
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scale_model import Service, simulate

RESULTS = Path(__file__).parent / "scale_results"
RUNS, SERVICE = RESULTS / "runs.json", RESULTS / "service.json"
SETTINGS = ((0, 0), (1, 0), (2, 0), (2, 1), (4, 0), (0, 1), (2, 2), (2, 4), (1, 1), (4, 1), (4, 4), (2, 3),
            (1, 2), (1, 3), (1, 4), (4, 2), (4, 3))  # fmt: skip
"""Rollout workers and lag of the runs; no workers: the process that trains plays."""
STEPS = 8
RECIPE = (
    "flagship",
    "rollout.groups=32",
    "scale.batch=4",
    f"train.steps={STEPS}",
    "eval.episodes=1",
    "eval.best_of=1",
)
REGRET = 0.28
"""Time is taken until three steps in a row, played by trained weights, have less on average."""
WORKERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
LAGS = (0, 1, 2, 4)
NETWORK = 1.25e9
"""Bytes a second at which weights are handed to one worker after the other: ten gigabits. Assumed, not measured."""
KEPT = (
    "seconds", "rollout_seconds", "update_seconds", "rollout_tokens", "busy_seconds", "idle", "regret", "worker_deaths",
)  # fmt: skip


def measure(*, missing: bool = False) -> None:
    """Train with every setting, one after the other, and keep what the runs told; `missing`: those without a record."""
    RESULTS.mkdir(exist_ok=True)
    runs = json.loads(RUNS.read_text())["runs"] if missing else []
    known = {(run["workers"], run["lag"]) for run in runs}
    for workers, lag in [each for each in SETTINGS if each not in known]:
        began, load = time.monotonic(), os.getloadavg()[0]
        lines = trained([f"scale.rollout_workers={workers}", f"scale.lag={lag}"])
        kept = [{name: line[name] for name in KEPT if name in line} for line in lines]
        whole = time.monotonic() - began
        runs.append({"workers": workers, "lag": lag, "load": load, "whole_seconds": whole, "steps": kept})
        RUNS.write_text(json.dumps({"recipe": RECIPE, "cores": os.cpu_count(), "runs": runs}, indent=1))
        print(f"{workers} workers, lag {lag}: {whole:.0f} s", flush=True)
    if not missing:
        SERVICE.write_text(json.dumps(service_times(), indent=1))


def trained(changes: Sequence[str]) -> list[dict[str, Any]]:
    """What each step of a run tells: the loop of `baton train` without its folder and its evaluations."""
    from baton.compose.training import make_trainer
    from baton.learn.recipe import load
    from baton.learn.run.evaluate import regrets

    trainer = make_trainer(load(RECIPE[0], [*RECIPE[1:], *changes]))
    began, lines = time.monotonic(), []
    try:
        for _ in range(STEPS):
            made = trainer.step()
            seconds = time.monotonic() - began
            lines.append(
                {**made.metrics, "seconds": seconds, "regret": regrets(trainer.stage.game, made.traces)}
            )
    finally:
        trainer.close()
    return lines


def service_times() -> dict[str, Any]:
    """Processor seconds of each part of a step, by a process that plays, hands over and trains in turn."""
    from scale_service import parts

    return parts(RECIPE)


# -- what the records say ---------------------------------------------------------------------------


def per_step(run: Mapping[str, Any]) -> dict[str, float | None]:
    """A run in figures; its first step, in which workers start, is left out."""
    steps = run["steps"][1:]
    took = [after["seconds"] - before["seconds"] for before, after in itertools.pairwise(run["steps"])]
    idle = [step["idle"] for step in steps if "idle" in step]
    return {
        "step_seconds": statistics.median(took),
        "tokens_per_second": sum(step["rollout_tokens"] for step in steps) / sum(took),
        "trainer_idle": statistics.mean(each["trainer"] for each in idle) if idle else None,
        "players_idle": statistics.mean(each["players"] for each in idle) if idle else None,
        "seconds_to_regret": to_regret(run["steps"], run["lag"]),
    }


def to_regret(steps: Sequence[Mapping[str, Any]], lag: int) -> float | None:
    """Seconds since the first step ended until three steps in a row were better than `REGRET`; None: not reached.

    The first 1 + lag steps are played by the untrained team, and what it reaches by luck was not learned.
    """
    for last in range(lag + 3, len(steps)):
        if statistics.mean(step["regret"]["total"] for step in steps[last - 2 : last + 1]) < REGRET:
            return float(steps[last]["seconds"] - steps[0]["seconds"])
    return None


def measured_table(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A row for each run."""
    yield f"| workers | lag | step | tokens/s | trainer idle | players idle | to regret {REGRET} | load before |"
    yield "|" + "---|" * 8
    for run in runs:
        told = per_step(run)
        shares = [_share(told["trainer_idle"]), _share(told["players_idle"])]
        regret = told["seconds_to_regret"]
        yield (
            f"| {run['workers'] or 'none'} | {run['lag']} | {told['step_seconds']:.2f} s | "
            f"{told['tokens_per_second']:,.0f} | {' | '.join(shares)} | "
            f"{'not reached' if regret is None else f'{regret:.1f} s'} | {run['load']:.0f} |"
        )


def _share(value: float | None) -> str:
    return "not told" if value is None else f"{value:.0%}"


def service_of(told: Mapping[str, Any]) -> Service:
    """Measured times as the simulation takes them."""
    known = {name: told[name] for name in Service.__struct_fields__ if name in told}
    return Service(**known, store=told["weights_bytes"] / NETWORK)


def service_table(told: Mapping[str, Any]) -> Iterator[str]:
    """What each part takes, of a step and of a call."""
    yield "| part of a step | processor seconds |"
    yield "|---|---|"
    names = {
        "lots": f"play of {len(told['lots'])} lots, in all",
        "encode": "a lot's traces written by its worker",
        "decode": "a lot's traces read by the trainer",
        "publish": "weights written and hashed",
        "load": "weights read and checked by a worker",
        "train": "score, credit, update",
    }
    for name, about in names.items():
        value = sum(told[name]) if name == "lots" else told[name]
        yield f"| {about} | {value:.4f} |"
    over = told["encode"] + told["decode"]
    episodes, calls = told["episodes_per_lot"], told["calls_per_lot"]
    yield f"| handing over, an episode | {over / episodes:.6f} |"
    yield f"| handing over, a call | {over / calls:.6f} |"


def curve(told: Mapping[str, Any], *, lots_per_worker: int | None) -> Iterator[tuple[int, int, Any]]:
    """(workers, lag, what the simulation says) for each; `lots_per_worker`: the step grows with the workers."""
    service = service_of(told)
    for workers in WORKERS:
        lots = len(service.lots) if lots_per_worker is None else lots_per_worker * workers
        for lag in LAGS:
            yield workers, lag, simulate(service, workers=workers, lag=lag, lots=lots, steps=12, seed=7)


def simulated_table(told: Mapping[str, Any], *, lots_per_worker: int | None) -> Iterator[str]:
    """Lots a second by workers and lag, and the part that is busiest."""
    yield "| workers | " + " | ".join(f"lag {lag}" for lag in LAGS) + " | limit at the last lag |"
    yield "|" + "---|" * (len(LAGS) + 2)
    rows: dict[int, list[Any]] = {}
    for workers, _, found in curve(told, lots_per_worker=lots_per_worker):
        rows.setdefault(workers, []).append(found)
    for workers, found in rows.items():
        cells = " | ".join(f"{each.lots_per_second:.2f}" for each in found)
        last = found[-1]
        yield f"| {workers:,} | {cells} | {last.limit} ({last.busy[last.limit]:.0%} busy) |"


def against_measured(runs: Sequence[Mapping[str, Any]], told: Mapping[str, Any], cores: int) -> Iterator[str]:
    """Step times of the simulation, on as many cores as there were, beside the measured ones; and both against one
    worker without lag, in which the work of others on the machine cancels if it stays the same."""
    yield "| workers | lag | measured step | simulated step | measured, of 1 worker's | simulated, of 1 worker's |"
    yield "|" + "---|" * 6
    service = service_of(told)
    lots = len(service.lots)
    found = {
        (run["workers"], run["lag"]): (
            per_step(run)["step_seconds"] or 0.0,
            simulate(
                service, workers=run["workers"], lag=run["lag"], lots=lots, steps=STEPS, seed=7, cores=cores
            ).step_seconds,
        )
        for run in runs
        if run["workers"]
    }
    first = found[1, 0]
    for (workers, lag), (measured, simulated) in found.items():
        shares = f"{measured / first[0]:.2f} | {simulated / first[1]:.2f}"
        yield f"| {workers} | {lag} | {measured:.2f} s | {simulated:.2f} s | {shares} |"


def tables() -> Iterator[str]:
    """Everything that benchmarks/README.md prints of it."""
    kept, told = json.loads(RUNS.read_text()), json.loads(SERVICE.read_text())
    yield from measured_table(kept["runs"])
    yield ""
    yield from service_table(told)
    yield ""
    yield from against_measured(kept["runs"], told, kept["cores"])
    yield ""
    yield "Simulated, the same step for all (lots a second):"
    yield ""
    yield from simulated_table(told, lots_per_worker=None)
    yield ""
    yield "Simulated, four lots a worker, so that the step grows with the workers (lots a second):"
    yield ""
    yield from simulated_table(told, lots_per_worker=4)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--measure", action="store_true", help="train, and keep new records")
    parser.add_argument("--missing", action="store_true", help="train what has no record yet")
    parser.add_argument("--picture", action="store_true", help="draw scale.svg from the records")
    args = parser.parse_args()
    if args.measure:
        measure()
    elif args.missing:
        measure(missing=True)
    if args.picture:
        from scale_picture import draw

        told = json.loads(SERVICE.read_text())
        curves = {
            name: list(curve(told, lots_per_worker=each)) for name, each in (("fixed", None), ("growing", 4))
        }
        (Path(__file__).parent / "scale.svg").write_text(draw(curves), "utf-8")
    print("\n".join(tables()))


if __name__ == "__main__":
    main()
