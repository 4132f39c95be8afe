"""Wide teams: hundreds of agents in one training rollout, a thousand in one trace; time, memory, and how both grow.

    python benchmarks/wide.py --measure     # keeps records in benchmarks/scale_results/wide.json
    python benchmarks/wide.py               # prints the tables from them

Times are of the processor, so that other work on the machine counts little. Every size is a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import inspect
import io
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

HERE = Path(__file__).parent
RECORDS = HERE / "scale_results" / "wide.json"
ROLLOUT, TRACE = (75, 150, 299, 598), (250, 500, 1000, 2000)
"""Workers; a lead comes to them."""
TRACE_ROUNDS = 10


def training_step(workers: int) -> dict[str, Any]:
    """One step of `crowd.toml`: two rollouts of so many agents, played, credited and learned from."""
    from baton.compose.training import make_trainer
    from baton.learn.recipe import load

    recipe = load(str(HERE / "crowd.toml"), [f"team.settings.workers={workers}"], trust=True)
    trainer = make_trainer(recipe)
    spent: dict[str, float] = {}
    for owner, name, part in (
        (trainer.rollouts, "take", "play"),
        (trainer, "_credited", "credit"),
        (trainer, "_update", "update"),
        (trainer.watch, "observe", "watch"),
    ):
        setattr(owner, name, timed(getattr(owner, name), part, spent))
    before, began = resident(), time.process_time()
    step = trainer.step()
    trace = step.traces[0]
    return {
        "agents": len({event.agent for event in trace.events}),
        "events": len(trace.events),
        "calls": len(trace.calls),
        "seconds": {"whole step": time.process_time() - began, **spent},
        "bytes": {"before the step": before, "most": peak()},
    }


def one_trace(workers: int) -> dict[str, Any]:
    """A trace of so many agents, by scripted play of words of their own, and what is done with traces."""
    import baton
    from baton.cli import main
    from baton.engine.scripted import ScriptedEngine
    from baton.team.running import replay, run
    from baton.team.team import Assignment, Team
    from baton.trace.formats import read, write
    from crowd import Anything, crowd

    draw = Random(workers)
    known = ["".join(draw.choices("abcdefghijklmnoprstuvw", k=6)) for _ in range(3000)]
    script = ScriptedEngine("words", lambda request: " ".join(Random(request.call).choices(known, k=6)))
    team = Team.of(crowd(workers=workers, rounds=TRACE_ROUNDS), script, clock="virtual", surface=Anything())
    assignment = Assignment(task_id="crowd", prompt="do")
    spent: dict[str, float] = {}
    before = resident()
    trace = timed(lambda: asyncio.run(run(team, assignment)), "run", spent)()
    held = resident() - before
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for name in ("t.jsonl", "t.db", "sealed/"):
            timed(lambda name=name: write(trace, f"{place}/{name}"), f"write {name}", spent)()
            timed(lambda name=name: read(f"{place}/{name}"), f"read {name}", spent)()
        timed(lambda: baton.validate(trace), "validate", spent)()
        timed(lambda: asyncio.run(replay(trace, team, assignment)), "replay", spent)()
        typed = ("show", "stats", "measure", "export html")
        for words in typed:
            rest = ["--out", f"{place}/page.html"] if words.startswith("export") else []
            line = [*words.split(), f"{place}/t.jsonl", *rest]
            timed(lambda line=line: quietly(main, line), f"baton {words}", spent)()
        sizes = {"jsonl": (place / "t.jsonl").stat().st_size, "page": (place / "page.html").stat().st_size}
    return {
        "agents": len({event.agent for event in trace.events}),
        "events": len(trace.events),
        "calls": len(trace.calls),
        "seconds": spent,
        "bytes": {"the trace, resident": held, "most": peak(), **sizes},
    }


def quietly(main: Callable[[Sequence[str]], int], line: Sequence[str]) -> None:
    """A command whose output nobody reads."""
    with contextlib.redirect_stdout(io.StringIO()):
        code = main(line)
    assert code == 0, line


def timed(work: Callable[..., Any], part: str, spent: dict[str, float]) -> Callable[..., Any]:
    """The same, and its processor seconds under `part`."""
    if inspect.iscoroutinefunction(work):

        async def later(*args: Any, **kwargs: Any) -> Any:
            began = time.process_time()
            found = await work(*args, **kwargs)
            spent[part] = spent.get(part, 0.0) + time.process_time() - began
            return found

        return later

    def now(*args: Any, **kwargs: Any) -> Any:
        began = time.process_time()
        found = work(*args, **kwargs)
        spent[part] = spent.get(part, 0.0) + time.process_time() - began
        return found

    return now


def resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def peak() -> int:
    """The most that it held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def growth(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The power with which values grow, from the second size to the last: 1 is linear."""
    return math.log(values[-1] / values[1]) / math.log(sizes[-1] / sizes[1])


def table(kept: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A row for each part, a column for each size, and the power of growth."""
    heads = [f"{each['agents']:,} agents, {each['events']:,} events" for each in kept]
    yield "| | " + " | ".join(heads) + " | power |"
    yield "|" + "---|" * (len(heads) + 2)
    events = [each["events"] for each in kept]
    for part in kept[0]["seconds"]:
        values = [each["seconds"][part] for each in kept]
        cells = " | ".join(f"{value:.2f} s" for value in values)
        yield f"| {part} | {cells} | {growth(events, values):.2f} |"
    for part in kept[0]["bytes"]:
        values = [each["bytes"][part] for each in kept]
        cells = " | ".join(f"{value / 1e6:,.0f} MB" for value in values)
        yield f"| {part} | {cells} | {growth(events, values):.2f} |"


def tables() -> Iterator[str]:
    """Everything that benchmarks/README.md prints of it."""
    kept = json.loads(RECORDS.read_text())
    yield from table(kept["training step"])
    yield ""
    yield from table(kept["trace"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--measure", action="store_true", help="measure, and keep new records")
    parser.add_argument("--one", nargs=2, metavar=("WHAT", "WORKERS"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        what, workers = args.one
        print(json.dumps((training_step if what == "training step" else one_trace)(int(workers))))
        return
    if args.measure:
        kept: dict[str, list[Any]] = {}
        for what, sizes in (("training step", ROLLOUT), ("trace", TRACE)):
            for workers in sizes:
                command = [sys.executable, __file__, "--one", what, str(workers)]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                kept.setdefault(what, []).append(json.loads(done.stdout.splitlines()[-1]))
                print(f"{what}, {workers} workers", flush=True)
        RECORDS.write_text(json.dumps(kept, indent=1))
    print("\n".join(tables()))


if __name__ == "__main__":
    main()
