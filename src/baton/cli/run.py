"""`baton run TASK`: a team works on a task and leaves a complete trace."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
from pathlib import Path

import msgspec

from baton.compose.build import Settings, at_work, describe, make_team, parse_settings
from baton.compose.stores import resume_command, store_to_write
from baton.compose.trust import needs_trust
from baton.compose.waking import run_waking
from baton.engine import ENGINES
from baton.errors import UsageError
from baton.games.reference import REFERENCE as POLICIES
from baton.learn.models import MODELS
from baton.learn.stage import failures, first_line
from baton.tasks.catalog import TASKS
from baton.tasks.task import Task
from baton.team.protocol import EngineError
from baton.team.recording import StoreJournal
from baton.team.running import Run, header_of
from baton.team.team import Team
from baton.team.topology import TOPOLOGIES
from baton.trace.formats.parquet.manifest import has_shards
from baton.trace.formats.parquet.shard_read import sealed_ids
from baton.trace.formats.sqlite.store import Store
from baton.trace.formats.sqlite.store_read import list_traces
from baton.trace.trace import Trace
from baton.view.terminal.live import live_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    models = [f"{name}[?device=cuda&dtype=bfloat16] ({what})" for name, (_, what) in MODELS.items()]
    forms = "\n".join(f"  {form}" for form in (*(form for _, form in ENGINES.values()), *models))
    parser.epilog = (
        f"tasks: {', '.join(TASKS)}\ntopologies: {', '.join(TOPOLOGIES)}\n\n"
        f"policies:\n  reference (the task's own scripted play)\n"
        f"  {', '.join(POLICIES)} (of games)\n{forms}\n\n"
        "settings: rounds=3 (of the topology), task.num_shards=8, limits.tokens=5000, latency.jitter=0,\n"
        "  sampling.temperature=0.7, sampling.worker.max_tokens=64\n\n"
        "example:\n  baton run shard-sum --topology centralized --policy reference --out runs/sum"
    )
    parser.add_argument("task", metavar="TASK", help="what to work on")
    parser.add_argument(
        "--topology", metavar="T", default="centralized", help="who is in the team (centralized)"
    )
    parser.add_argument(
        "--policy",
        metavar="P",
        action="append",
        default=[],
        help="who answers: P for all, ROLE=P for one; repeatable",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the instance and all draws (0)")
    parser.add_argument("--split", choices=["train", "test"], default="train", help="which instances (train)")
    parser.add_argument("--set", action="append", default=[], metavar="K=V", help="a setting; repeatable")
    parser.add_argument(
        "--clock", choices=["virtual", "real"], default="virtual", help="how time passes (virtual)"
    )
    parser.add_argument(
        "--surface", choices=["lines", "tools"], default="lines", help="how actions are written (lines)"
    )
    parser.add_argument(
        "--out", metavar="DIR", required=True, help="where the trace goes; more runs may go there"
    )


def run(args: argparse.Namespace) -> int:
    if not 0 <= args.seed < 2**63:
        raise UsageError(f"--seed {args.seed}: expected a whole number from 0 to 2^63 - 1.")
    groups = parse_settings(args.set)
    settings = Settings(
        task=args.task,
        topology=args.topology,
        policies=parse_policies(args.policy) or {"default": "reference"},
        task_settings=groups["task"],
        topology_settings=groups["topology"],
        limits=groups["limits"],
        latency=groups["latency"],
        sampling=groups["sampling"],
        split=args.split,
        seed=args.seed,
        clock=args.clock,
        surface=args.surface,
    )
    path = store_to_write(args.out)
    trace = run_into(path, settings)
    if trace is None:
        go_on = resume_command(args.out, trust=any(map(needs_trust, settings.policies.values())))
        print(f"\nStopped; everything so far is kept. Type: {go_on}", file=sys.stderr)
        return 130
    print(describe(trace))
    count = len(list_traces(path))
    print(f"trace    {trace.trace_id} in {path}" + (f", which holds {count} now" if count > 1 else ""))
    show = ["baton", "show", args.out, *(("--trace", trace.trace_id) if count > 1 else ())]
    print(f"Type: {shlex.join(show)}")
    return _given_up(trace)


def _given_up(trace: Trace) -> int:
    """1 where an agent's last call was not answered: the reward then tells nothing of the team."""
    last = {call.agent: call for call in trace.calls}
    if all(call.finish_reason != "error" for call in last.values()):
        return 0
    errors = [error for _, error in failures(trace)]
    print(
        f"baton run: {len(errors)} of {len(trace.calls)} calls were not answered, so the reward tells nothing of the "
        f"team. The first error: {first_line(errors[0])}.",
        file=sys.stderr,
    )
    return 1


def run_into(path: Path, settings: Settings, task: Task | None = None) -> Trace | None:
    """Run what settings describe, into a store. None: it was interrupted; what there is is kept."""
    team, assignment = make_team(settings, task)
    if (path.parent / "run.json").is_file():
        raise UsageError(f"{path.parent} holds a training run. Give another --out.")
    asyncio.run(_reach(team))
    path.parent.mkdir(parents=True, exist_ok=True)
    header = header_of(team, assignment, _free_id(path, settings), settings=msgspec.to_builtins(settings))
    with Store.open(path, durability="process") as store:
        going = Run(team, assignment, header, journal=StoreJournal(store, store.begin(header)))
        store.commit()  # killed before its first answer, it is known by name
        try:
            with live_line(at_work(going)):
                return run_waking(going.go())
        except KeyboardInterrupt:
            store.commit()
            return None


async def _reach(team: Team) -> None:
    """Refuse a policy that says it cannot be reached, before anything is written."""
    for name, engine in team.engines.items():
        if (reach := getattr(engine, "reach", None)) is not None:
            try:
                await reach()
            except EngineError as error:
                raise UsageError(
                    f"the policy of {name} cannot be reached: {error}. Start the server, or name another: "
                    "--policy openai:MODEL@URL"
                ) from error


def parse_policies(given: list[str]) -> dict[str, str]:
    """`P` or `ROLE=P`, repeatable."""
    policies: dict[str, str] = {}
    for item in given:
        role, equals, spec = item.partition("=")
        name, spec = (role, spec) if equals and ":" not in role and "?" not in role else ("default", item)
        if name in policies:
            raise UsageError(f"--policy is given twice for {name!r}: {policies[name]!r} and {spec!r}.")
        policies[name] = spec
    return policies


def _free_id(path: Path, settings: Settings) -> str:
    """A name for this run that the store, and what was sealed beside it, do not have yet."""
    taken = {summary.trace_id for summary in list_traces(path)} if path.exists() else set()
    if has_shards(path.parent):
        taken |= set(sealed_ids(path.parent))
    base = f"{settings.task}-{settings.topology}-{settings.seed}"
    name, count = base, 1
    while name in taken:
        count += 1
        name = f"{base}.{count}"
    return name
