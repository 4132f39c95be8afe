"""Who is to blame, and when: how often the right agent and the right turn are found.

    python benchmarks/blame.py                     planted faults, by topology: by forks, and by the trace alone
    python benchmarks/blame.py --who-and-when DIR  the trace alone on Who&When's failed runs (its folder of JSON files)
    python benchmarks/blame.py --kept              the kept records

Planted: a team plays `shard-sum` rightly but for one answer, in which a number is changed; all that follows comes of
it. Asked again, a turn is put in other words half of the time and is wrong a fifth of the time. Runs that fail are
kept, as in Who&When. Its own figures (arXiv 2505.00212, the best of its methods, language models that read the log):
agent 53.5 %, step 14.2 %. They are on people's judgements of 184 runs; planted faults are another task.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from baton.connect.importing import Importing
from baton.engine.scripted import ScriptedEngine
from baton.measure.blame.by_forks import blame_by_forks
from baton.measure.blame.by_trace import suspicions
from baton.measure.blame.state import bad_state
from baton.measure.figure import Figure, proportion
from baton.tasks.shard_sum import ShardSum, play
from baton.team.forks import Forks
from baton.team.protocol import Request
from baton.team.running import run
from baton.team.team import Assignment, Team
from baton.team.topology import make_topology
from baton.trace.formats import read_all
from baton.trace.outcome import task_score
from baton.trace.trace import Trace

KEPT = Path(__file__).with_name("blame_results.json")
TOPOLOGIES: dict[str, dict[str, Any]] = {
    "centralized": {}, "hierarchical": {}, "harness": {}, "planner_executor_critic": {}, "mixed": {},
    "swarm": {"first": True}, "debate": {},
}  # fmt: skip
"""With their settings: a swarm that votes would not fail for one voice."""
RUNS = 30
DRAWS = 3
WRONG, REWORDED = 0.2, 0.5
"""Of answers to what is asked again."""
_NUMBER = re.compile(r"-?\d+")


def wrong(text: str, seed: str) -> str:
    """The answer with one of its numbers changed: the last of what it says as a result, else any."""
    numbers = list(_NUMBER.finditer(text))
    if not numbers:
        return text
    drawn = random.Random(seed)
    at = numbers[-1] if text.startswith(("return", "stop")) else drawn.choice(numbers)
    return f"{text[: at.start()]}{int(at[0]) + drawn.choice((-1, 1, 10))}{text[at.end() :]}"


def faulty(key: str | None) -> Callable[[Request], str]:
    """The scripted play, but for the answer that is drawn by this key."""

    def say(request: Request) -> str:
        text, drawn = play(request), str(request.sampling.key)
        if drawn == key:
            return wrong(text, drawn)
        if drawn.count("/") > 1:  # a replicate stands behind the seed and the call: it is asked again
            luck = random.Random(drawn)
            text = wrong(text, drawn) if luck.random() < WRONG else text
            text = f"Let me see, once more.\n{text}" if luck.random() < REWORDED else text
        return text

    return say


def team_of(topology: str, key: str | None, seed: int) -> tuple[Team, Assignment]:
    task = ShardSum(num_shards=4)
    assignment = task.assignment(task.instance(seed))
    made = make_topology(topology, tools=tuple(assignment.tools), **TOPOLOGIES[topology])
    engine = ScriptedEngine("faulty", faulty(key))
    return Team.of(made, {"default": engine}, tools=assignment.tools, seed=seed), assignment


def planted(topology: str, wanted: int) -> Iterator[tuple[Trace, str, Team, Assignment]]:
    """Failed runs with the call whose answer was changed."""
    found = seed = 0
    while found < wanted and seed < 20 * wanted:
        seed += 1
        team, assignment = team_of(topology, None, seed)
        right = asyncio.run(run(team, assignment))
        call = random.Random(f"{topology}/{seed}").choice(right.calls)
        assert call.sampling is not None
        team, assignment = team_of(topology, call.sampling.key, seed)
        trace = asyncio.run(run(team, assignment))
        score = task_score(trace)
        if score is not None and score[0] < 1:
            found += 1
            yield trace, call.id, team, assignment


def of_topology(topology: str, wanted: int) -> dict[str, Any]:
    """Counts of one row."""
    row: dict[str, Any] = {"topology": topology, "runs": 0, "calls": 0, "tokens": 0.0}
    row |= dict.fromkeys(("forks_who", "forks_when", "trace_who", "trace_when"), 0)
    row |= {"chance_who": 0.0, "chance_when": 0.0}
    for trace, call, team, assignment in planted(topology, wanted):
        state = bad_state(trace, "failure")
        found = asyncio.run(blame_by_forks(trace, state, Forks(team, assignment), spend=20.0, draws=DRAWS))
        agent = trace.call_by_id[call].agent
        best = found.suspects[0] if found.suspects else None
        row["forks_who"] += best is not None and best.agent == agent
        row["forks_when"] += best is not None and best.call == call
        read = suspicions(trace, state)
        row["trace_who"] += bool(read) and read[0].agent == agent
        row["trace_when"] += bool(read) and trace.event(read[0].event).call == call
        row["chance_who"] += 1 / len({each.agent for each in trace.calls})
        row["chance_when"] += 1 / len(trace.calls)
        row["runs"] += 1
        row["calls"] += len(trace.calls)
        row["tokens"] += found.cost.tokens / max(1, found.own_tokens)
    return row


def of_who_and_when(folder: Path) -> list[dict[str, Any]]:
    """Counts by half of the benchmark. The rule was chosen on every other file, and is reported on the rest."""
    rows = []
    for half in sorted(path for path in folder.iterdir() if path.is_dir()):
        for part, name in ((0, "chosen on"), (1, "held out")):
            traces = _imported(half)[part::2]
            row: dict[str, Any] = {"half": half.name, "part": name, "runs": len(traces), "who": 0, "when": 0}
            for trace in traces:
                truth = next(event for event in trace.events if "who_and_when" in event.extra)
                (best, *_) = suspicions(trace, bad_state(trace, "failure"))
                row["who"] += best.agent == truth.agent
                row["when"] += best.event == truth.id
            rows.append(row)
    return rows


def _imported(half: Path) -> list[Trace]:
    """The runs of a half, in the order of their traces' names."""
    with tempfile.TemporaryDirectory() as out:
        Importing([str(half)], source="who-and-when", out=Path(out), redact=None, payloads=True).once()
        return [trace for path in sorted(Path(out).glob("*.jsonl")) for trace in read_all(path)]


def _share(successes: float, n: int) -> str:
    figure: Figure = proportion(successes, n)
    return "—" if figure.value is None else f"{figure.value:.1%} [{figure.low:.0%}, {figure.high:.0%}]"


def table(records: dict[str, Any]) -> Iterator[str]:
    """The figures as Markdown."""
    yield "| topology | failed runs | turns | forks: agent | turn | trace alone: agent | turn | by chance | cost |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for row in records.get("planted", ()):
        n = row["runs"]
        if not n:
            yield f"| {row['topology']} | 0 | no single wrong answer made it fail | | | | | | |"
            continue
        yield (
            f"| {row['topology']} | {n} | {row['calls'] / n:.1f} | {_share(row['forks_who'], n)} | "
            f"{_share(row['forks_when'], n)} | {_share(row['trace_who'], n)} | {_share(row['trace_when'], n)} | "
            f"{row['chance_who'] / n:.0%}, {row['chance_when'] / n:.0%} | {row['tokens'] / n:.1f} |"
        )
    if records.get("who_and_when"):
        yield ""
        yield "| Who&When | part | runs | agent | step |"
        yield "|---|---|---|---|---|"
        for row in records["who_and_when"]:
            who, when = _share(row["who"], row["runs"]), _share(row["when"], row["runs"])
            yield f"| {row['half']} | {row['part']} | {row['runs']} | {who} | {when} |"
        for part in ("held out", "all"):
            rows = [row for row in records["who_and_when"] if part in ("all", row["part"])]
            n = sum(row["runs"] for row in rows)
            who, when = (_share(sum(row[name] for row in rows), n) for name in ("who", "when"))
            yield f"| both | {part} | {n} | {who} | {when} |"
        yield "| the paper's best | | 184 | 53.5% | 14.2% |"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=RUNS, help=f"failed runs of each topology ({RUNS})")
    parser.add_argument(
        "--who-and-when", type=Path, metavar="DIR", help="the benchmark's folder of two halves"
    )
    parser.add_argument("--kept", action="store_true", help="print the kept records")
    parser.add_argument("--keep", action="store_true", help="keep what is found")
    args = parser.parse_args(arguments)
    records: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    if args.who_and_when is not None:
        records["who_and_when"] = of_who_and_when(args.who_and_when)
    elif not args.kept:
        records["planted"] = [of_topology(name, args.runs) for name in TOPOLOGIES]
    if args.keep:
        KEPT.write_text(json.dumps(records, indent=1) + "\n")
    sys.stdout.write("\n".join(table(records)) + "\n")


if __name__ == "__main__":
    main()
