"""Unmodified agent programs with SmolLM2-135M-Instruct behind them, trained: before, after, and a single agent.

python benchmarks/learning/trained_programs.py --kept               # the tables of the records that were kept
python benchmarks/learning/trained_programs.py --out FOLDER         # trains (a GPU; the programs' packages, see docs)

This is the protocol; it was written before any of its seeds was run.

Question. Does an agent program that knows nothing of Baton earn more on held-out questions after it was trained than
before, when a language model that was trained by others stands behind it? And than a single agent at equal tokens?

Task. The help desk of examples/programs: 48 questions (eight things, six wordings), 16 of them held out by their
wording. The reward is 1 where the program's last line is the right aisle, else 0. Nobody is told what a department has.

Arms, each `baton train examples/programs/desk_NAME_smollm2.toml --trust` with a seed and the rate below:
  plain    two agents in plain Python
  handoff  OpenAI Agents SDK, handoffs
  tools    OpenAI Agents SDK, agents as tools
  graph    LangGraph
  alone    the single agent of desk_plain.py (`--alone`), told all four aisles. It reads 44 tokens a rollout where plain
           reads about 148, so it has 20 questions a step and not 6: 160 rollouts, 7,040 tokens against 48 and 7,104.

Model. SmolLM2-135M-Instruct in float32, LoRA of rank 16; by itself it writes no tool call and names no aisle (arm `raw`
measures it, on seed 1: the held-out questions without any start). So every arm starts by supervision on scripted play
(`desk_script:form`, the recipe's `[warm]`: 160 plays of the training questions, 32 steps of 16 rows at 1e-3), which
shows how a call and an answer are written and takes a desk by chance: it tells nothing of which desk is right. The
"untrained" program of the tables is the one after that start. A desk by chance earns 0.25.

Training. 16 steps of 48 rollouts (alone: 160), 6 questions of 8 tries (alone: 20), 4 updates a step, credit
`input-group`, temperature 1, answers of at most 24 tokens; everything else is the recipe's.

Rate. Two rates, 2e-4 and 6e-4, are tried on seed 100 with `plain` and with `alone`, 12 steps each; what has the higher
mean return of rollouts in the last four steps (the lower rate if they are equal) is taken, that of `plain` for all four
programs, that of `alone` for the single agent: two tries for either. No held-out question is looked at for it.

Seeds. 1, 2, 3, ...: all arms of a seed before those of the next, as many whole seeds as the time allows (`--minutes`);
a seed that is not whole is in no table. Every run goes to its last step.

Measures, on 48 held-out rollouts (each of the 16 questions three times) before training and after, another draw each;
beside them `finish`'s own two: the untrained program at the trained one's tokens (best of n by true score), and the
single agent with the program's trained weights at its tokens (likewise, an upper bound on what tries can buy). The arm
`alone` is measured with eight tries of each held-out question as well, from which the tables take as many as come
nearest to a program's tokens: the best of them by true score (an upper bound), and the most frequent answer (what one
could do without knowing the score; of equally frequent ones the first).

A program "earns more" if the 95 % interval (Student) over seeds of after minus before lies above 0.

What was otherwise than planned, added afterwards. Two seeds were whole when the time was over. The measurement before
training drew without the start's adapter, by a fault on GPUs that is put right since: those lines of the kept records
tell of the model without a start (they are what `raw` measured, to the digit). "After the start" is therefore taken
from one try of `finish`'s untrained program, which has the start: the same held-out rollouts, drawn anew. `raw` of
`tools` found no memory on the GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runs import RESULTS, interval, markdown, shown
from trained_programs_picture import panels_of, picture

HERE = Path(__file__).resolve()
PROGRAMS = HERE.parents[2] / "examples" / "programs"
KEPT = RESULTS / "programs_smollm2"
TITLES = {
    "plain": "plain Python",
    "handoff": "openai-agents, handoffs",
    "tools": "openai-agents, agents as tools",
    "graph": "LangGraph",
}
ARMS = ("tools", "handoff", "graph", "alone", "plain")
"""The longest first, so that a seed ends soon."""
RATES = (2e-4, 6e-4)
RATE_SEED = 100
RATE_STEPS, RATE_LAST = 12, 4
TRIES = 8
ALONE_GROUPS = 20
Line = dict[str, Any]
Job = dict[str, Any]
"""kind (rate, arm, raw), arm, seed; rate, where it is known."""


def lines_of(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.is_file() else []


def add(path: Path, line: Line) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def name_of(job: Job) -> str:
    return {"rate": f"rate-{job['arm']}-{job.get('rate', 0):g}", "raw": f"raw-{job['arm']}"}.get(
        job["kind"], f"{job['arm']}{job['seed']}"
    )


# --- one run, in a process of its own ---------------------------------------------------------------------------------


def changes_of(job: Job, options: Line) -> list[str]:
    """What a run changes of its recipe."""
    arm, python = job["arm"], options["python"]
    file = f"desk_{'plain' if arm == 'alone' else arm}.py"
    commands = {
        "command": [python, file, *(["--alone"] if arm == "alone" else []), "{question}"],
        "alone": [] if arm == "alone" else [python, file, "--alone", "{question}"],
    }
    found = [f"program.{key}={json.dumps(words)}" for key, words in commands.items()]
    found += [f"train.seed={job['seed']}", "train.checkpoint_every=1000", "train.loggers=[]"]
    if options["packages"]:
        found.append(f"program.env.PYTHONPATH={json.dumps(options['packages'])}")
    for place, value in (("model", options["model"]), ("device", options["device"])):
        found += [f"policies.main.{place}={value}"] if value else []
    if arm == "alone":
        found.append(f"rollout.groups={ALONE_GROUPS}")
    if job["kind"] == "rate":
        found += [f"train.steps={RATE_STEPS}", "eval.episodes=1"]
    if job["kind"] == "raw":
        found += ["warm.steps=0", "warm.episodes=4"]
    else:
        found.append(f"train.learning_rate={job['rate']}")
    return [*found, *options["set"]]


def one(job: Job, options: Line) -> None:
    """Run it; its lines go to the folder of results as they come."""
    from baton.compose.training import begin
    from baton.learn.recipe import load

    recipe_name = "desk_plain" if job["arm"] == "alone" else f"desk_{job['arm']}"
    recipe = load(str(PROGRAMS / f"{recipe_name}_smollm2.toml"), changes_of(job, options), trust=True)
    place = Path(options["out"]) / name_of(job)
    for left in ("evals", "metrics"):  # of a try that broke
        place.with_name(f"{place.name}.{left}.jsonl").unlink(missing_ok=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as work:
        session = begin(recipe, job["arm"], Path(work) / "run", print if options["tell"] else None)
        try:
            told = lines_of(session.folder.path / "evals.jsonl")
            if job["kind"] != "rate":
                add(place.with_name(place.name + ".evals.jsonl"), told[-1])
            if job["kind"] == "raw":
                return
            for line in session.steps():
                kept = ("step", "episodes", "rollout_tokens", "total_tokens", "return", "program", "seconds")
                add(place.with_name(place.name + ".metrics.jsonl"), {key: line[key] for key in kept})
                print(name_of(job), line["step"], round(line["return"]["mean"], 3), flush=True)
            if job["kind"] == "arm":
                for line in session.finish():
                    add(place.with_name(place.name + ".evals.jsonl"), line)
            if job["kind"] == "arm" and job["arm"] == "alone":
                add(place.with_name(place.name + ".evals.jsonl"), tried(session))
        finally:
            session.close()
    print(f"{name_of(job)}: {time.monotonic() - began:.0f} s", flush=True)


def tried(session: Any) -> Line:
    """The trained single agent with several tries of each held-out question: what each earned, and what it said."""
    from baton.learn.run.evaluate import best_of, mean_tokens
    from baton.trace.outcome import answer_of, task_return

    trainer = session.trainer
    trainer.rollouts.publish()
    traces, returns = best_of(trainer.stage, trainer.engines(), trainer.recipe, TRIES, task_return)
    said = [answer_of(trace) or "" for trace in traces]
    return {
        "step": trainer.step_number,
        "who": "tries",
        "episodes": len(returns),
        "tokens": mean_tokens(traces),
        "returns": returns,
        "answers": [said[at : at + TRIES] for at in range(0, len(said), TRIES)],
    }


# --- all runs, some at a time -----------------------------------------------------------------------------------------


def chosen_rate(out: Path, arm: str) -> float:
    """The rate with the higher return of the last steps' rollouts; the lower one where they are equal."""
    found = []
    for rate in RATES:
        lines = lines_of(out / f"rate-{arm}-{rate:g}.metrics.jsonl")
        last = [line["return"]["mean"] for line in lines[-RATE_LAST:]] if len(lines) == RATE_STEPS else []
        found.append((sum(last) / len(last) if last else -1.0, -rate))
    return -max(found)[1]


def all_jobs(seeds: int) -> tuple[list[Job], list[Job]]:
    """Those that find the rates, and those after them."""
    first = [
        {"kind": "rate", "arm": arm, "seed": RATE_SEED, "rate": rate}
        for arm in ("plain", "alone")
        for rate in RATES
    ]
    rest: list[Job] = []
    for seed in range(1, seeds + 1):
        rest += [{"kind": "arm", "arm": arm, "seed": seed} for arm in ARMS]
        if seed == 1:
            rest += [{"kind": "raw", "arm": arm, "seed": 1} for arm in ARMS]
    return first, rest


def run_all(jobs: Sequence[Job], options: Line, processes: int, until: float) -> None:
    """Every job in a process of its own, so many at a time, until the time is over; one that breaks is tried again."""
    waiting, running = deque(jobs), {}
    broken: list[str] = []
    try:
        while waiting or running:
            while waiting and len(running) < processes and time.monotonic() < until:
                job = waiting.popleft()
                command = [sys.executable, str(HERE), "--one", json.dumps(job), json.dumps(options)]
                running[subprocess.Popen(command, start_new_session=True)] = job
            time.sleep(0.2)
            for process in [each for each in running if each.poll() is not None]:
                job = running.pop(process)
                print(f"{name_of(job)} ended with {process.returncode}", flush=True)
                if process.returncode and name_of(job) not in broken:
                    broken.append(name_of(job))
                    waiting.appendleft(job)
            if time.monotonic() >= until:
                print(f"time is over; not done: {[name_of(job) for job in [*running.values(), *waiting]]}")
                return
    finally:
        for process in running:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


# --- tables -----------------------------------------------------------------------------------------------------------


def measured(out: Path, run: str) -> dict[str, Line]:
    """Who -> its line; empty where the run did not end."""
    found = {line["who"].partition("-")[0]: line for line in lines_of(out / f"{run}.evals.jsonl")}
    return found if {"untrained", "team", "best"} <= set(found) else {}


def whole_seeds(out: Path) -> list[int]:
    return [
        seed
        for seed in range(1, 100)
        if all(measured(out, f"{arm}{seed}") for arm in ARMS) and "tries" in measured(out, f"alone{seed}")
    ]


def by_tries(line: Line, tries: int) -> tuple[float, float]:
    """What so many tries are worth: the best of them, and the most frequent answer."""
    best, most = [], []
    for returns, answers in zip(line["returns"], line["answers"], strict=True):
        best.append(max(returns[:tries]))
        said = Counter(answers[:tries]).most_common(1)[0][0]
        most.append(returns[answers.index(said)])
    return sum(best) / len(best), sum(most) / len(most)


def mean_of(line: Line) -> float:
    return float(line["return"]["mean"])


def earned(out: Path, arm: str, title: str, seeds: Sequence[int]) -> list[str]:
    """A row: what it earned before the start, after it, and after training."""
    before, after = held_out(out, arm, seeds)
    pairs = list(zip(before, after, strict=True))
    raw = lines_of(out / f"raw-{arm}.evals.jsonl")
    return [
        title,
        f"{mean_of(raw[0]):.2f}" if raw else "–",
        shown(before, ".2f"),
        shown(after, ".2f"),
        shown([b - a for a, b in pairs], ".2f"),
        ", ".join(f"{a:.2f} → {b:.2f}" for a, b in pairs),
    ]


def beside(out: Path, arm: str, title: str, seeds: Sequence[int]) -> list[str]:
    """A row: a program and what its tokens buy otherwise."""
    runs = [measured(out, f"{arm}{seed}") for seed in seeds]
    singles = [measured(out, f"alone{seed}")["tries"] for seed in seeds]
    after, tokens = [mean_of(run["team"]) for run in runs], [run["team"]["tokens"] for run in runs]
    tries = [
        max(1, min(TRIES, round(count / each["tokens"]))) for count, each in zip(tokens, singles, strict=True)
    ]
    worth = [by_tries(each, count) for each, count in zip(singles, tries, strict=True)]
    return [
        title,
        f"{interval(tokens)[0]:.0f}",
        shown(after, ".2f"),
        shown([mean_of(run["best"]) for run in runs], ".2f"),
        shown([mean_of(run["alone"]) for run in runs], ".2f"),
        "/".join(str(each) for each in sorted(set(tries))),
        shown([most for _, most in worth], ".2f"),
        shown([best for best, _ in worth], ".2f"),
        shown([a - most for a, (_, most) in zip(after, worth, strict=True)], ".2f"),
    ]


def table(out: Path) -> str:
    """Both tables."""
    seeds = whole_seeds(out)
    rates = ", ".join(f"{arm} {chosen_rate(out, arm):g}" for arm in ("plain", "alone"))
    head = ["program", "before the start", "after the start", "after training", "difference", "seed by seed"]
    other = [
        "program", "tokens", "trained", "untrained, best of n", "single agent, same weights, best of n",
        "n of the single agent trained alike", "its most frequent answer", "its best of n", "trained − most frequent",
    ]  # fmt: skip
    rows = [earned(out, arm, title, seeds) for arm, title in {**TITLES, "alone": "single agent"}.items()]
    more = [beside(out, arm, title, seeds) for arm, title in TITLES.items()]
    return f"whole seeds: {seeds}; rates: {rates}\n\n{markdown(head, rows)}\n\n{markdown(other, more)}"


def held_out(out: Path, arm: str, seeds: Sequence[int]) -> tuple[list[float], list[float]]:
    """What an arm earned with its start, one try, and after training, seed by seed."""
    runs = [measured(out, f"{arm}{seed}") for seed in seeds]
    return [float(run["best"]["one_try"]) for run in runs], [mean_of(run["team"]) for run in runs]


def drawn(out: Path) -> str:
    """The picture."""
    seeds = whole_seeds(out)
    found = {arm: held_out(out, arm, seeds) for arm in ARMS}
    return picture(panels_of(out, {**TITLES, "alone": "single agent"}, seeds, found))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kept", action="store_true", help="print the tables of the kept records")
    parser.add_argument("--picture", type=Path, help="with --kept: where to draw them")
    parser.add_argument("--out", type=Path, help="where a run's records go")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--minutes", type=float, default=600.0, help="what is not done by then is not")
    parser.add_argument("--model", default="", help="a folder of SmolLM2; empty: the recipe's")
    parser.add_argument("--device", default="", help="cuda or cpu; empty: a GPU if there is one")
    parser.add_argument("--python", default=sys.executable, help="that has the programs' packages")
    parser.add_argument("--packages", default="", help="the programs' PYTHONPATH")
    parser.add_argument(
        "--set", action="append", default=[], help="another setting of every run; to try it out"
    )
    parser.add_argument("--tell", action="store_true", help="say more")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        one(*map(json.loads, args.one))
        return
    if args.kept:
        print(table(KEPT))
        if args.picture is not None:
            args.picture.write_text(drawn(KEPT), "utf-8")
        return
    if args.out is None:
        parser.error("give --out FOLDER, or --kept")
    until = time.monotonic() + 60 * args.minutes
    args.out.mkdir(parents=True, exist_ok=True)
    options = {
        "out": str(args.out.resolve()), "model": args.model, "device": args.device, "python": args.python,
        "packages": args.packages, "set": args.set, "tell": args.tell,
    }  # fmt: skip
    first, rest = all_jobs(args.seeds)
    run_all(first, options, args.processes, until)
    for job in rest:
        job["rate"] = chosen_rate(args.out, "alone" if job["arm"] == "alone" else "plain")
    print("rates:", {job["arm"]: job["rate"] for job in rest}, flush=True)
    run_all(rest, options, args.processes, until)
    print(table(args.out))


if __name__ == "__main__":
    main()
