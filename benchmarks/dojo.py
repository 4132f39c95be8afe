"""AgentDojo with and without Baton's guards, on all 949 pairs and 97 plans, with agents that are scripts.

    python benchmarks/dojo.py                    # the table, from the records
    python benchmarks/dojo.py --run banking      # run a suite again, and say whether the records hold
    python benchmarks/dojo.py --run all --keep   # run everything (about ten minutes on one core), and keep it
    python benchmarks/dojo.py --why              # what the guard refused of the users' own tasks

Attack success is of an agent that obeys every injection it reads. No model is easier to talk into something, and none
was asked: the figures say what the runtime lets happen, and nothing of any model.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from baton.engine.scripted import ScriptedEngine
from baton.measure.figure import proportion
from baton.tasks.agentdojo.bench import TUNED_ON, PairRow, rows_of, summed
from baton.tasks.agentdojo.labels import TOOLS
from baton.tasks.agentdojo.package import SUITES
from baton.team.topology import make_topology

RECORDS = Path(__file__).parent / "dojo_results"


def records(team: str) -> list[PairRow]:
    """What was kept of a team; beside handles, which need a guard, the single agent without one."""
    found = [row for row in records("single") if not row.guarded] if team == "handles" else []
    for path in sorted((RECORDS / team).glob("*.jsonl")):
        found += [msgspec.json.decode(line, type=PairRow) for line in path.read_bytes().splitlines()]
    return found


def outcomes(
    rows: Iterable[PairRow],
) -> dict[tuple[str, str, str | None, bool], tuple[bool | None, bool | None]]:
    """What came of each run; how a refusal is put may change."""
    return {
        (row.suite, row.user_task, row.injection_task, row.guarded): (row.utility, row.achieved)
        for row in rows
    }


def table(rows: Iterable[PairRow]) -> str:
    """One row a suite."""
    cells = summed(rows)
    lines = [
        "| suite | plans | done, no guard | done, guard | pairs | attack success, no guard | attack success, guard |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in (*SUITES, "all"):
        free, held = cells.get((name, False)), cells.get((name, True))
        if free is None or held is None:
            continue
        tuned = " (tuned on)" if name in TUNED_ON else ""
        lines.append(
            f"| {name}{tuned} | {held['plans']} | {free['useful']} | {held['useful']} | {held['pairs']} | "
            f"{_share(free['achieved'], free['pairs'])} | {_share(held['achieved'], held['pairs'])} |"
        )
    return "\n".join(lines)


def _share(part: int, whole: int) -> str:
    figure = proportion(part, whole)
    if figure.value is None:
        return "-"
    return f"{part} = {figure.value:.3f} [{figure.low or 0:.3f}, {figure.high or 0:.3f}]"


def refused_plans(rows: Iterable[PairRow]) -> str:
    """The users' own tasks that the guard did not let through, each with the reason."""
    lines = ["| suite | task | refused |", "|---|---|---|"]
    lines += [
        f"| {row.suite} | {row.user_task} | {row.why or 'nothing'} |"
        for row in rows
        if row.injection_task is None and row.guarded and row.utility is not True
    ]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", choices=[*SUITES, "all"])
    parser.add_argument("--team", choices=["single", "centralized", "handles"], default="single")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--guarded", action="store_true", help="run again only what the guard has a say in")
    parser.add_argument("--why", action="store_true")
    args = parser.parse_args(argv)
    if args.run is None:
        kept = records(args.team)
        print(refused_plans(kept) if args.why else table(kept))
        return 0
    same = True
    for suite in SUITES if args.run == "all" else (args.run,):
        handles = args.team == "handles"
        topology = (
            make_topology(args.team, tools=(*TOOLS[suite], "plan")) if args.team == "centralized" else None
        )
        before = [row for row in records(args.team) if row.suite == suite]
        rows = [row for row in before if (args.guarded or handles) and not row.guarded]
        rows += rows_of(
            suite,
            topology=topology,
            engine=lambda task: ScriptedEngine("script", task.reference_play()),
            guards=(True,) if args.guarded or handles else (False, True),
            handles=handles,
        )
        print(table(rows), flush=True)
        path = RECORDS / args.team / f"{suite}.jsonl"
        if args.keep:
            path.parent.mkdir(parents=True, exist_ok=True)
            kept = [row for row in rows if row.guarded or not handles]
            path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in kept))
        else:
            same = same and outcomes(rows) == outcomes(before)
    if not args.keep:
        print("the records hold" if same else "the records say something else")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
