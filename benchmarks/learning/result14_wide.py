"""Result 14: a question over more pages than one agent can hold. A trained team against trained single agents.

python benchmarks/learning/result14_wide.py [--quick] [--seeds 5] [--kept] [--draw FILE.svg]

Written before any test seed was run; docs/learning/wide.md is its page.

task          `wide`, counts: how many people live in a town? Sixteen pages of three facts each, and an agent holds one
              page at a time. Facts of test instances are in no training instance
arms          team     a lead that spawns readers for pages, and readers
              fold     one agent that reads in turn and folds what it read into notes
              worked   the same, which writes down what it found on a page before its notes
model         `tiny` (width 48, two layers), one set of weights for all roles. All runs begin with the same weights,
              made once: a supervised start on scripted play of all three arms, a third of the episodes each
training      recipes wide, wide-fold, wide-worked: the group's advantage, six instances of eight rollouts a step, the
              reward is 1/(1 + how far the count is off). Every run has the same budget of tokens, prompts and answers,
              of all agents; invalid answers are paid for like others. There are no forks
tuning        none, for any arm: the learning rate is 0.001 for all, set beforehand
test          seeds 0 to 4 in this order, all arms of a seed before the next, as many whole seeds as the hour of
              processor allows that this was given; 64 instances of the test split each, sampled at temperature 1.
              Intervals are Student's 95 % over seeds, that is over training runs and instances, not over starts;
              differences and ratios are paired by seed
metrics       success: share of right answers. tokens: whole prompts and answers of all calls of an episode. path:
              seconds of the trace's critical path on the virtual clock (0.2 a call, 0.01 a token said, 0.1 a page,
              jitter 0.2)
best of n     n tries side by side, the majority's answer (of equals the first); tokens add up, the path is the longest
              try's. Beside it the share in which any try was right: a bound that needs to know the answer
same tokens   the single agents with as many tries as come nearest to the team's tokens; same path: what stands in their
              notes when the team's mean path is over
bar           the team has at least the success of the better single agent (the paired interval of the difference is not
              below 0), at a third of its path and at most 1.3 times its tokens; or the page says that it did not
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from runs import RESULTS, Job, Record, interval, markdown, rounded, run_jobs, shown
from wide_picture import draw

ARMS = {"team": "wide", "fold": "wide-fold", "worked": "wide-worked"}
RATE = 1e-3
START = 1000
"""The seed of the start, which is no test's."""
TOKENS = 250_000
"""Of one run."""
WARM: dict[str, Any] = {"episodes": 240, "stages": ((1, 200), (3, 800)), "rows": 32, "learning_rate": 5e-3}
"""Of the start: facts on a page and steps, first of easy pages."""
TRIES = (1, 3)
EPISODES = 64
EPISODE = ("answer", "right", "tokens", "path", "invalid")
"""What is kept of each try, all tries at an instance before the next, so that every figure can be summed up again."""
KEPT = RESULTS / "result14_wide.json"


def start_of(seed: int, warm: dict[str, Any]) -> str:
    """The folder of the weights that every run begins with, kept for later ones."""
    from baton.learn.models.local import kept

    return str(kept(f"wide-start-{seed}-{abs(hash_of(warm))}", lambda place: make_start(seed, place, warm)))


def hash_of(value: Any) -> int:
    from hashlib import blake2b

    return int.from_bytes(blake2b(json.dumps(value).encode(), digest_size=6).digest())


def make_start(seed: int, place: Path, warm: dict[str, Any]) -> None:
    """`tiny`, warmed up on what all arms say in scripted play."""
    from baton.compose.stage_from_recipe import make_stage
    from baton.learn.models.start import scripted_traces, spoken_in, spoken_rows, texts_of, warm_rows
    from baton.learn.models.tiny import make_tiny
    from baton.learn.recipe import load

    stages: list[tuple[Counter[Any], int]] = []
    for facts, steps in warm["stages"]:
        spoken: Counter[Any] = Counter()
        for name in ARMS.values():
            changes = [f"task.settings.facts={facts}", f"warm.episodes={warm['episodes'] // len(ARMS)}"]
            recipe = load(name, [*changes, *warm.get("changes", ()), f"train.seed={seed}"])
            stage = make_stage(recipe)
            spoken.update(spoken_in(scripted_traces(recipe, stage), stage.roles))
        stages.append((spoken, steps))
    model, tokenizer = make_tiny(texts_of(stages[-1][0]), recipe.policies["main"].tiny, seed=seed)
    for spoken, steps in stages:
        warm_rows(
            model,
            spoken_rows(tokenizer, spoken),
            list(spoken.values()),
            steps=steps,
            rows=warm["rows"],
            learning_rate=warm["learning_rate"],
            seed=seed,
        )
    model.save_pretrained(place)
    tokenizer.save_pretrained(place)


def worker(job: Job) -> Record:
    """One run: the start measured, trained until its tokens are spent, measured again."""
    from msgspec import structs

    from baton.compose.training import make_trainer
    from baton.learn.recipe import load

    start = start_of(START, job.get("start", WARM))
    began = time.process_time()
    changes = [
        f"policies.main.model={start}",
        f"train.seed={job['seed']}",
        f"train.learning_rate={RATE}",
    ]
    recipe = structs.replace(load(job["recipe"], [*changes, *job["changes"]]), warm=None)
    trainer = make_trainer(recipe)
    record: Record = {key: job[key] for key in ("arm", "seed")}
    record["before"] = measured(trainer, recipe, (1,))
    curve: list[list[float]] = []
    while not curve or curve[-1][0] < job["tokens"]:
        made = trainer.step()
        spent = (curve[-1][0] if curve else 0) + sum(map(whole_tokens, made.traces))
        curve.append([spent, made.metrics["return"]["mean"], made.metrics["sizes"]["invalid"]])
    record |= {"curve": curve, "after": measured(trainer, recipe, TRIES)}
    return record | {"cpu_seconds": time.process_time() - began}


def whole_tokens(trace: Any) -> int:
    """Prompts and answers of all calls. The trace's own cost leaves out what a prompt has in common with the call
    before, which is in the lead's favour alone: single agents forget, so their prompts begin anew."""
    return sum((call.prompt_tokens or 0) + (call.completion_tokens or 0) for call in trace.calls)


def measured(trainer: Any, recipe: Any, tries: tuple[int, ...]) -> Record:
    """The policy as it is on held-out instances, and the best of several tries at each."""
    from baton.learn.run.evaluate import held_out

    most = max(tries)
    traces = asyncio.run(trainer.stage.play(trainer.engines(), held_out(recipe, "measured", 0, tries=most)))
    every = [tried(trainer.stage.task, trace) for trace in traces]
    groups = [every[at : at + most] for at in range(0, len(every), most)]
    return {str(n): best_of(groups, n) for n in tries} | {
        "invalid": sum(each["invalid"] for each in every) / len(every),
        "notes": notes_over_time(every),
        "episodes": [[each[key] for key in EPISODE] for each in every],
    }


def tried(task: Any, trace: Any) -> Record:
    """What is needed of one episode."""
    from baton.trace.graph.timing import span_seconds
    from baton.trace.outcome import answer_of, task_return

    told = trace.header.meta["train"]
    gold = task.instance(told["instance"], told["split"]).gold
    notes = []
    for event in trace.events:
        if event.type == "tool_call" and event.status == "ok" and event.agent == trace.calls[0].agent:
            args = json.loads(trace.text(event.content_ref) or "{}")
            notes.append([event.t, args.get("notes") == gold])
    right = task_return(trace) == 1.0
    seconds = span_seconds(trace)
    return {
        "right": right,
        "answer": answer_of(trace),
        "tokens": whole_tokens(trace),
        "path": seconds,
        "invalid": sum(event.status == "invalid" for event in trace.events),
        "notes": [*notes, [trace.events[-1].t, right]],
    }


def best_of(groups: list[list[Record]], n: int) -> Record:
    """Shares and means over instances of the first n tries at each."""
    found = []
    for group in groups:
        tries = group[:n]
        common = Counter(each["answer"] for each in tries).most_common(1)[0][0]
        found.append(
            {
                "success": next(each["right"] for each in tries if each["answer"] == common),
                "any": any(each["right"] for each in tries),
                "tokens": sum(each["tokens"] for each in tries),
                "path": max(each["path"] for each in tries),
            }
        )
    return {key: sum(each[key] for each in found) / len(found) for key in found[0]}


def notes_over_time(every: list[Record]) -> list[list[float]]:
    """[seconds, share in which what stood in the notes then, or the answer, was right], every half second."""
    last = max(each["notes"][-1][0] for each in every)
    found = []
    for half in range(int(2 * last) + 2):
        stand = [[right for t, right in each["notes"] if t <= half / 2] for each in every]
        found.append([half / 2, sum(bool(each and each[-1]) for each in stand) / len(every)])
    return found


def jobs(num_seeds: int, quick: bool) -> list[Job]:
    """A run for every seed and arm; to see that it runs, seeds that are no test's."""
    seeds = range(START + 1, START + 1 + num_seeds) if quick else range(num_seeds)
    return [
        {
            "arm": arm, "seed": seed, "recipe": recipe, "tokens": 20_000 if quick else TOKENS,
            "changes": [f"eval.episodes={8 if quick else EPISODES}"],
        }
        for seed in seeds for arm, recipe in ARMS.items()
    ]  # fmt: skip


def of(records: list[Record], arm: str, n: int, key: str) -> list[float]:
    """One figure of every seed, in their order."""
    mine = sorted((each for each in records if each["arm"] == arm), key=lambda each: each["seed"])
    return [each["after"][str(n)][key] for each in mine]


def in_notes(record: Record, seconds: float) -> float:
    """Success of what stood in the notes at a time."""
    return next((share for t, share in reversed(record["after"]["notes"]) if t <= seconds), 0.0)


def paired(mine: list[float], theirs: list[float], *, ratio: bool = False) -> str:
    if ratio:
        return shown((a / b for a, b in zip(mine, theirs, strict=True)), ".2f")
    mean, half = interval(a - b for a, b in zip(mine, theirs, strict=True))
    return f"{mean:+.3f}" + ("" if half is None else f" ± {half:.3f}")


def guessing(records: list[Record], changes: Sequence[str] = ()) -> tuple[str, list[float]]:
    """What a guess gets in every seed's test: the commonest answer of training questions. Added after the tests ran."""
    from baton.compose.stage_from_recipe import make_stage
    from baton.learn.recipe import load

    task = make_stage(load(ARMS["team"], changes)).task
    guess = Counter(task.instance(k, "train").gold for k in range(500)).most_common(1)[0][0]
    num = len(records[0]["after"]["episodes"]) // max(TRIES)
    shares = [
        sum(task.instance(seed * 1_000_003 + n, "test").gold == guess for n in range(num)) / num
        for seed in sorted({each["seed"] for each in records})
    ]
    return guess, shares


def table(records: list[Record], changes: Sequence[str] = ()) -> str:
    """Every arm and number of tries; the single agents at the team's tokens and path; the bar.

    `changes` to the recipe: of a result that asks over other pages.
    """
    team = {key: of(records, "team", 1, key) for key in ("success", "tokens", "path")}
    rows = []
    for arm in ARMS:
        before = [each["before"]["1"]["success"] for each in records if each["arm"] == arm]
        for n in sorted(int(key) for key in records[0]["after"] if key.isdigit()):
            cells = [
                shown(of(records, arm, n, key), form) for key, form in (("success", ".3f"), ("any", ".3f"))
            ]
            costs = [
                shown(of(records, arm, n, key), form) for key, form in (("tokens", ".0f"), ("path", ".2f"))
            ]
            rows.append((arm, str(n), shown(before) if n == 1 else "", *cells, *costs))
    guess, shares = guessing(records, changes)
    rows.append((f"none, always {guess}", "", "", shown(shares), "", "", ""))
    first = markdown(
        (
            "arm",
            "tries",
            "success before training",
            "success, majority",
            "any try right",
            "tokens",
            "path, s",
        ),
        rows,
    )
    versus = []
    for arm in ARMS:
        if arm == "team":
            continue
        mine = {key: of(records, arm, 1, key) for key in team}
        fit = round(sum(team["tokens"]) / sum(mine["tokens"])) or 1
        near = min((n for n in TRIES), key=lambda n: abs(n - fit))
        late = sorted((each for each in records if each["arm"] == arm), key=lambda each: each["seed"])
        then = [in_notes(each, path) for each, path in zip(late, team["path"], strict=True)]
        versus.append(
            (
                arm,
                paired(team["success"], mine["success"]),
                paired(team["path"], mine["path"], ratio=True),
                paired(team["tokens"], mine["tokens"], ratio=True),
                f"{paired(team['success'], of(records, arm, near, 'success'))} ({near} tries)",
                shown(then),
            )
        )
    second = markdown(
        (
            "team against", "success, difference", "path, ratio", "tokens, ratio",
            "success at the same tokens, difference", "its notes after the team's path, success",
        ),
        versus,
    )  # fmt: skip
    return f"{first}\n\n{second}"


def main(
    about: str | None = __doc__, kept: Path = KEPT, asked: Callable[[int, bool], list[Job]] = jobs
) -> None:
    """The command: of this result, and of one that differs in its jobs alone."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="two seeds, two steps: shows that it runs, no more"
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2, help="runs at a time, one thread each")
    parser.add_argument(
        "--kept", action="store_true", help="print the tables of the records kept in results/"
    )
    parser.add_argument("--draw", metavar="FILE.svg", type=Path, help="draw the pictures of the records kept")
    args = parser.parse_args()
    if args.draw:
        records = json.loads(kept.read_text("utf-8"))
        draw(records, args.draw, guessing(records))
        return
    if not args.kept:
        found = asked(2 if args.quick else args.seeds, args.quick)
        part = None if args.quick else kept.with_suffix(".part.jsonl")
        records = run_jobs(found, worker, args.processes, part)
        if args.quick:
            print(table(records))
            return
        kept.write_text(json.dumps(rounded(records), separators=(",", ":")) + "\n", "utf-8")
        if part is not None:
            part.unlink(missing_ok=True)
    print(table(json.loads(kept.read_text("utf-8"))))


if __name__ == "__main__":
    main()
