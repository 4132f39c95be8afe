"""What the runtime costs per step, how that grows, and what other frameworks cost for the same fan-out.

A step is one model call and one tool call of an agent; the model and the tool answer at once, so what
is measured is the framework. Everything runs in one process, one after the other, several times; the
median counts. Journal on means a SQLite journal, committed before anything that was started begins.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from baton.engine.scripted import ScriptedEngine
from baton.team.forks import fork
from baton.team.intervene import Replace
from baton.team.protocol import Request
from baton.team.recording import StoreJournal
from baton.team.running import header_of, resume, run
from baton.team.team import Assignment, Team
from baton.team.tools.sandbox import protection, run_python
from baton.team.tools.sandbox_levels import LAYERS, SandboxLimits
from baton.team.tools.tool import Registry, tool
from baton.team.topology import make_topology
from baton.trace.formats import read
from baton.trace.formats.sqlite.store import Store
from baton.trace.formats.sqlite.store_write import Durability
from table import machine, print_table, row

Row = tuple[str, ...]
WHERE = machine()
ASSIGNMENT = Assignment(task_id="fan-out", prompt="do it")


@tool(pure=True, instant=True)
def look(q: int) -> str:
    """Look something up."""
    return "ok"


def fan_out(num_agents: int, num_steps: int, *, clock: str = "real") -> Team:
    """An orchestrator that spawns everyone at once; each worker calls a tool at every step but its last."""

    def script(request: Request) -> str:
        turn = int(request.call.rpartition(":")[2]) - 1
        if request.role == "orchestrator":
            if turn == 0:
                return "\n".join([*(f"spawn worker: part {k}" for k in range(num_agents)), "wait all"])
            return "stop done"
        return 'call look {"q": 1}' if turn < num_steps - 1 else "return done"

    topology = make_topology("centralized", tools=("look",), max_turns=10**9, max_tokens=10**6)
    return Team.of(topology, ScriptedEngine("instant", script), tools=Registry([look]), clock=clock)


def run_baton(num_agents: int, num_steps: int, journal: Durability) -> tuple[float, int]:
    """Seconds it ran, and the bytes of its journal. Making the store is not part of a step."""
    team = fan_out(num_agents, num_steps)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.db"
        with Store.open(path, durability=journal) as store:
            writer = store.begin(header_of(team, ASSIGNMENT))
            began = time.perf_counter()
            asyncio.run(run(team, ASSIGNMENT, journal=StoreJournal(store, writer)))
            took = time.perf_counter() - began
        return took, path.stat().st_size


def per_step_us(work: Callable[[], float], num_steps: int, repeats: int) -> float:
    """`work` gives the seconds that count."""
    times = []
    for _ in range(repeats):
        gc.collect()
        times.append(work())
    return statistics.median(times) / num_steps * 1e6


def growth(sizes: list[tuple[int, int]], repeats: int) -> list[Row]:
    rows: list[Row] = []
    base: float | None = None
    for num_agents, num_steps in sizes:
        steps = num_agents * num_steps
        size = 0

        def work(agents: int = num_agents, each: int = num_steps) -> float:
            nonlocal size
            took, size = run_baton(agents, each, "process")
            return took

        cost = per_step_us(work, steps, repeats)
        base = base or cost
        rows.append(
            row(
                f"{num_agents:,} agents x {num_steps:,} steps, journal on",
                f"{cost:.0f} us/step, {size / steps:,.0f} B/step",
                f"{sizes[0][0]:,} x {sizes[0][1]:,}",
                f"{base:.0f} us/step",
                base / cost,
                WHERE,
            )
        )
    return rows


def big(num_agents: int, num_steps: int) -> list[Row]:
    """One journal with everyone in it: time, memory, resume, fork."""
    process = psutil.Process()
    gc.collect()
    before = process.memory_info().rss
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.db"
        team = fan_out(num_agents, num_steps, clock="virtual")
        began = time.perf_counter()
        with Store.open(path, durability="process") as store:
            writer = store.begin(header_of(team, ASSIGNMENT))
            trace = asyncio.run(run(team, ASSIGNMENT, journal=StoreJournal(store, writer)))
        took = time.perf_counter() - began
        peak = process.memory_info().rss - before
        size = path.stat().st_size
    steps = num_agents * num_steps
    name = f"{num_agents:,} agents, {steps:,} steps, {len(trace.events):,} events in one journal"
    each = len(trace.events)
    return [
        row(name, f"{took:.1f} s", "per step", f"{took / steps * 1e6:.0f} us", None, WHERE),
        row(
            "its memory, trace and runtime",
            f"{peak / 2**20:,.0f} MiB",
            "per event",
            f"{peak / each:,.0f} B",
            None,
            WHERE,
        ),
        row(
            "its journal on disk",
            f"{size / 2**20:,.0f} MiB",
            "per event",
            f"{size / each:,.0f} B",
            None,
            WHERE,
        ),
    ]


class Cut(Exception):
    """The run is cut off here."""


def resuming(num_events: int) -> Row:
    """How long it takes to be where a run of this many events was cut off."""
    num_agents = 100
    num_steps = num_events // (2 * num_agents)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.db"
        team = fan_out(num_agents, num_steps, clock="virtual")

        class Cutting(StoreJournal):
            def end(self, end: Any) -> None:
                raise Cut

        with Store.open(path, durability="process") as store:
            writer = store.begin(header_of(team, ASSIGNMENT))
            try:
                asyncio.run(run(team, ASSIGNMENT, journal=Cutting(store, writer)))
            except Cut:
                store.commit()
        began = time.perf_counter()
        trace = read(path)
        with Store.open(path, durability="process") as store:
            team = fan_out(num_agents, num_steps, clock="virtual")
            asyncio.run(resume(trace, team, ASSIGNMENT, StoreJournal(store, store.writer(trace.trace_id))))
        took = time.perf_counter() - began
    return row(
        f"resume of {len(trace.events):,} events", f"{took:.2f} s", "the target", "2 s", 2 / took, WHERE
    )


def forking(num_agents: int, num_steps: int) -> Row:
    """One worker's answer changed, among many workers, against running everything again."""
    team = fan_out(num_agents, num_steps, clock="virtual")
    began = time.perf_counter()
    trace = asyncio.run(run(team, ASSIGNMENT))
    whole = time.perf_counter() - began
    last = next(e.id for e in trace.events if e.type == "return")
    team = fan_out(num_agents, num_steps, clock="virtual")
    began = time.perf_counter()
    made = asyncio.run(fork(trace, team, ASSIGNMENT, [Replace(last, "otherwise")]))
    took = time.perf_counter() - began
    usage = made.usage
    again, total = usage.calls_run, usage.calls_run + usage.calls_reused
    return row(
        f"fork of {num_agents:,} agents x {num_steps} steps at one message",
        f"{again} calls asked again, {took:.2f} s of our own time",
        "running it all again",
        f"{total:,} calls, {whole:.2f} s",
        total / max(again, 1),
        WHERE,
    )


def sandboxes(repeats: int) -> list[Row]:
    """From a call of the sandbox to its result, for an empty program, in turns with Python started plainly."""
    levels: dict[str, SandboxLimits] = {}
    for layers in (LAYERS, LAYERS[1:]):
        found = protection(layers).level
        if found is not None:
            levels[found] = SandboxLimits(layers=layers, least=found)
    times: dict[str, list[float]] = {name: [] for name in ("plain", *levels)}
    for _ in range(repeats):
        for name in times:
            began = time.perf_counter()
            if name == "plain":
                subprocess.run([sys.executable, "-S", "-s", "-P", "-B", "-c", ""], check=True)
            else:
                assert run_python("", levels[name]).exit_code == 0
            times[name].append((time.perf_counter() - began) * 1000)
    middle = {name: statistics.median(each) for name, each in times.items()}
    shown = {name: f"{middle[name]:.0f} ms (least {min(each):.0f})" for name, each in times.items()}
    return [
        row(
            f"start of the Python sandbox, level {level}, an empty program",
            shown[level],
            "python -c ''",
            shown["plain"],
            middle["plain"] / middle[level],
            WHERE,
        )
        for level in levels
    ]


def peers(num_agents: int, num_steps: int, repeats: int) -> list[Row]:
    """The same fan-out in other frameworks."""
    from peers import autogen_team, langgraph_team, openai_agents_team

    def langgraph(chat: bool, checkpoint: bool) -> float:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "c.db" if checkpoint else None
            return langgraph_team.run(num_agents, num_steps, chat=chat, checkpoint=place)

    steps = num_agents * num_steps
    journals: tuple[Durability, ...] = ("power", "process")
    ours = {
        journal: per_step_us(
            partial(lambda j: run_baton(num_agents, num_steps, j)[0], journal), steps, 3 * repeats
        )
        for journal in journals
    }
    others: list[tuple[str, Callable[[], float]]] = [
        ("LangGraph, fake chat model, SQLite checkpointer", lambda: langgraph(True, True)),
        ("LangGraph, bare nodes, SQLite checkpointer", lambda: langgraph(False, True)),
        ("openai-agents, no journal", lambda: openai_agents_team.run(num_agents, num_steps)),
        ("AutoGen AgentChat, no journal", lambda: autogen_team.run(num_agents, num_steps)),
        ("LangGraph, fake chat model, no journal", lambda: langgraph(True, False)),
        ("LangGraph, bare nodes, no journal", lambda: langgraph(False, False)),
    ]
    rows: list[Row] = []
    for name, work in others:
        cost = per_step_us(work, steps, repeats)
        rows.append(
            row(
                f"{num_agents} agents x {num_steps} steps, journal on",
                f"{ours['process']:.0f} us/step ({ours['power']:.0f} with fsync)",
                name,
                f"{cost:,.0f} us/step",
                cost / ours["process"],
                WHERE,
            )
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--no-peers", action="store_true", help="leave out the other frameworks")
    parser.add_argument("--sandbox", action="store_true", help="only what the Python sandbox costs to start")
    args = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    if args.smoke:
        print_table([*growth([(2, 5), (4, 5)], 1), *big(4, 5), resuming(400), forking(5, 3), *sandboxes(1)])
        return
    if args.sandbox:
        print_table(sandboxes(25))
        return
    print("### Cost per step, and how it grows\n")
    print_table(growth([(10, 20), (100, 20), (1_000, 20), (1, 200), (1, 2_000), (1, 20_000)], 3))
    print("\n### Scale\n")
    print_table([*big(1_000, 20), resuming(20_000), forking(1_000, 5), *sandboxes(25)])
    if not args.no_peers:
        print("\n### Against other frameworks\n")
        print_table([r for agents, steps in ((10, 20), (100, 20), (1, 200)) for r in peers(agents, steps, 3)])


if __name__ == "__main__":
    main()
