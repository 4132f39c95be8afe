"""The trace: durable append, read, validate, graph, memory and growth, against json, jsonschema and networkx.

Everything at one size runs in one process on one synthetic trace (team_trace.py); how it is timed: contest.py.
Durable append waits for the disk and is wall time; all else is processor time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import jsonschema
import msgspec
import networkx as nx
import psutil

from baton.trace import Graph, Header, Trace, read, write
from baton.trace.formats.sqlite.store import Store
from baton.trace.formats.survey.survey_write import to_survey
from baton.trace.validation import Level, validate_file
from contest import Bench, cpu, growth, ready, shown
from survey_schema import schema_from_vocabulary
from table import machine, print_table, row
from team_trace import records, team_trace

SCHEMA = Path(__file__).resolve().parents[2] / "shared" / "data" / "survey" / "trace_schema.json"
SAMPLE_EVENTS = 20_000
SMALL_CONE = range(80, 121)
HOLD = """
import gc, json, sys
import psutil
from baton.trace import read
process = psutil.Process()
before = process.memory_info().rss
if sys.argv[1] == "json":
    with open(sys.argv[2]) as file:
        held = [json.loads(line) for line in file]
else:
    held = read(sys.argv[2])
gc.collect()
print(process.memory_info().rss - before)
"""


class Files(NamedTuple):
    """One trace in every form."""

    trace: Trace
    folder: Path
    jsonl: Path
    sqlite: Path
    parquet: Path
    survey: Path
    num_sampled: int
    """Events in the survey's form: all, or the first of them."""


def append(bench: Bench, files: Files) -> None:
    """Each commit is on the disk before the next event is appended."""
    together = list(records(files.trace))
    plain = [[msgspec.to_builtins(record) for record in each] for each in together]
    runs = 1 if bench.num_events > 100_000 else min(bench.runs, 5)  # a long run is many commits already
    for size in (100, 1_000):
        ours, theirs = [], []
        for run in range(runs):
            ours.append(_append_to_store(files.folder / f"{size}-{run}.sqlite", together, size, num_traces=1))
            theirs.append(_append_to_file(files.folder / f"{size}-{run}.jsonl", plain, size))
        what = f"durable append, {size:,} events a commit"
        bench.add_rate(what, median(ours), "json, append and fsync", median(theirs))
    num_traces = min(1_000, bench.num_events // 10)
    spread = [
        _append_to_store(files.folder / f"many-{run}.sqlite", together, 1_000, num_traces)
        for run in range(runs)
    ]
    what = f"durable append to {num_traces:,} traces in turns, 1,000 events a commit"
    bench.add_rate(what, median(spread), "json, append and fsync, one file", median(theirs))
    synced = shown(_fsync_seconds(files.folder / "synced"))
    bench.rows.append(row("fsync of 40 kB, for scale", synced, "none", "not measured", None, bench.where))


def _append_to_store(path: Path, together: list[list[Any]], size: int, num_traces: int) -> float:
    start = time.perf_counter()
    with Store.open(path, durability="power") as store:
        writers = [
            store.begin(Header(trace_id=f"trace-{index}", task_id="synthetic")) for index in range(num_traces)
        ]
        for index, each in enumerate(together):
            writers[index % num_traces].extend(each)
            if index % size == size - 1:
                store.commit()
    taken = time.perf_counter() - start
    path.unlink()
    return taken


def _append_to_file(path: Path, together: list[list[Any]], size: int) -> float:
    start = time.perf_counter()
    with path.open("w") as file:
        for batch in _batches(together, size):
            file.writelines(json.dumps(record) + "\n" for each in batch for record in each)
            file.flush()
            os.fsync(file.fileno())
    taken = time.perf_counter() - start
    path.unlink()
    return taken


def _fsync_seconds(path: Path) -> float:
    taken = []
    with path.open("wb") as file:
        for _ in range(30):
            file.write(bytes(40_000))
            file.flush()
            start = time.perf_counter()
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - start)
    return median(taken)


def _batches(items: list[Any], size: int) -> Iterator[list[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def reading(bench: Bench, files: Files) -> None:
    def parse() -> list[Any]:
        with files.jsonl.open() as file:
            return [json.loads(line) for line in file]

    places = {"JSON Lines": files.jsonl, "SQLite": files.sqlite, "sealed Parquet": files.parquet}
    ours = [ready(lambda place=place: read(place)) for place in places.values()]
    *times, theirs = cpu(bench.runs, *ours, ready(parse))
    for name, taken in zip(places, times, strict=True):
        bench.add(f"read {name}", taken, "json, the JSON Lines file, no checks", theirs)


def validating(bench: Bench, files: Files, schema: dict[str, Any], schema_name: str) -> None:
    validator = jsonschema.Draft202012Validator(schema)

    def peer() -> list[Any]:
        return list(validator.iter_errors(json.loads(files.survey.read_bytes())))

    def own(path: Path, level: Level) -> Callable[[], Any]:
        return ready(lambda: _sound(validate_file(path, level)))

    contenders = {
        "validate JSON Lines, all three levels": own(files.jsonl, "meaning"),
        "validate JSON Lines, shape": own(files.jsonl, "shape"),
    }
    scale = bench.num_events / files.num_sampled
    against = f"json + jsonschema ({schema_name}), shape alone"
    if scale == 1:
        contenders["validate the survey's JSON, Baton's own, all three levels"] = own(files.survey, "meaning")
        content = json.loads(files.survey.read_bytes())
        del content["events"][0]["baton"]  # now it is anybody's
        foreign = files.folder / "foreign.json"
        foreign.write_text(json.dumps(content))
        contenders["validate the survey's JSON, another system's, all three levels"] = own(foreign, "meaning")
    else:
        against += f", {files.num_sampled:,} events times {scale:g}"
    *times, theirs = cpu(min(bench.runs, 3), *contenders.values(), ready(peer))
    for what, taken in zip(contenders, times, strict=True):
        bench.add(what, taken, against, theirs * scale)


def _sound(report: Any) -> Any:
    if report.unreadable or report.problems:
        raise SystemExit(f"{report.path} should be valid: {report.unreadable or report.problems[:3]}")
    return report


def graph(bench: Bench, files: Files) -> None:
    trace = files.trace

    def peer_build() -> Any:
        built = nx.DiGraph()
        built.add_nodes_from(event.id for event in trace.events)
        built.add_edges_from((edge.src, edge.dst) for edge in trace.edges)
        return built

    def own_build() -> Callable[[], Any]:
        unseen = msgspec.structs.replace(trace)  # a trace keeps its index of ids
        return lambda: Graph.of(unseen)

    bench.add("build graph", *_pair(cpu(bench.runs, own_build, ready(peer_build)), "networkx"))
    ours, theirs = Graph.of(trace), peer_build()
    ids = [event.id for event in trace.events]
    _check_cones(ours, theirs, ids)

    def fresh() -> Callable[[], Any]:
        built = Graph.of(trace)
        return lambda: built.descendants(0)

    peer = ready(lambda: nx.descendants(theirs, ids[0]))
    bench.add("first cone, the whole trace", *_pair(cpu(bench.runs, fresh, peer), "networkx"))
    middle, last = len(ids) // 2, len(ids) - 1
    for what, own, other in (
        ("next cone, the whole trace", lambda: ours.descendants(0), lambda: nx.descendants(theirs, ids[0])),
        (
            "cone, half the trace",
            lambda: ours.descendants(middle),
            lambda: nx.descendants(theirs, ids[middle]),
        ),
        ("past of the last event", lambda: ours.ancestors(last), lambda: nx.ancestors(theirs, ids[last])),
    ):
        bench.add(what, *_pair(cpu(bench.runs, ready(own), ready(other)), "networkx"))
    _small_cones(bench, ours, theirs, ids)
    _critical_path(bench, ours, theirs)


def _pair(times: list[float], against: str) -> tuple[float, str, float]:
    return times[0], against, times[1]


def _check_cones(ours: Graph, theirs: Any, ids: list[str]) -> None:
    for index in (0, len(ids) // 2, len(ids) - 1):
        if {ids[i] for i in ours.descendants(index)} != nx.descendants(theirs, ids[index]):
            raise SystemExit(f"Baton and networkx disagree on what follows {ids[index]}.")


def _small_cones(bench: Bench, ours: Graph, theirs: Any, ids: list[str]) -> None:
    late = range(len(ids) - 1, max(-1, len(ids) - 2_000), -1)
    starts = list(islice((i for i in late if len(ours.descendants(i)) in SMALL_CONE), 20))
    if not starts:
        return
    names = [ids[start] for start in starts]
    times = cpu(
        max(bench.runs, 5),
        ready(lambda: [ours.descendants(start) for start in starts]),
        ready(lambda: [nx.descendants(theirs, name) for name in names]),
    )
    each = [taken / len(starts) for taken in times]
    bench.add("cone of about 100 events", *_pair(each, "networkx"), grows=False)


def _critical_path(bench: Bench, ours: Graph, theirs: Any) -> None:
    trace = ours.trace
    duration = {event.id: event.duration_s for event in trace.events}
    for _, follower, data in theirs.edges(data=True):
        data["weight"] = duration[follower]
    path = nx.dag_longest_path(theirs)
    length = sum(duration[event] for event in path)
    if abs(ours.critical_path().length - length) > 1e-6 * length:
        raise SystemExit("Baton and networkx disagree on the critical path.")

    def fresh() -> Callable[[], Any]:
        return Graph.of(trace).critical_path

    times = cpu(bench.runs, fresh, ready(lambda: nx.dag_longest_path(theirs)))
    bench.add("critical path, first call", *_pair(times, "networkx, weights put there before"))


def memory(bench: Bench, files: Files) -> None:
    ours, theirs = (
        int(
            subprocess.run(
                [sys.executable, "-c", HOLD, kind, str(files.jsonl)],
                capture_output=True,
                check=True,
                text=True,
            ).stdout
        )
        for kind in ("baton", "json")
    )
    bench.add_bytes("resident, events and edges, no payloads", ours, "json, as dicts", theirs)


def prepare(folder: Path, num_events: int, sample: int) -> Files:
    made = team_trace(num_events)
    sampled = min(num_events, sample)
    files = Files(
        made, folder, *(folder / f"trace{end}" for end in (".jsonl", ".sqlite", "", "-survey.json")), sampled
    )
    for path, form in ((files.jsonl, "jsonl"), (files.sqlite, "sqlite"), (files.parquet, "parquet")):
        write(made, path, form)
    part = made if sampled == num_events else made.prefix(made.events[sampled - 1].seq)
    files.survey.write_text(json.dumps(to_survey(part)))
    # As a user has it: read from a file, not fresh from the generator.
    return files._replace(trace=read(files.jsonl))


def _file_system(folder: Path) -> str:
    """What durable append waits for; a fsync into memory costs nothing and proves nothing."""
    inside = [part for part in psutil.disk_partitions(all=True) if folder.is_relative_to(part.mountpoint)]
    return max(inside, key=lambda part: len(part.mountpoint)).fstype if inside else "unknown file system"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, nargs="+", default=[20_000, 1_000_000], metavar="N")
    parser.add_argument("--schema", type=Path, help="the survey's trace_schema.json")
    parser.add_argument(
        "--folder", type=Path, help="where to write; its disk is what durable append measures"
    )
    parser.add_argument("--smoke", action="store_true", help="tiny, in seconds: does it still run?")
    args = parser.parse_args()
    sizes = [500, 1_000] if args.smoke else sorted(args.events)
    given = args.schema or (SCHEMA if SCHEMA.exists() else None)
    schema = json.loads(given.read_bytes()) if given else schema_from_vocabulary()
    schema_name = "the survey's schema" if given else "a schema like the survey's"
    benches = []
    for size in sizes:
        with TemporaryDirectory(dir=args.folder) as name:
            folder = Path(name).resolve()
            runs = 1 if args.smoke else 7 if size <= 100_000 else 3
            bench = Bench(size, runs, machine(_file_system(folder)))
            files = prepare(folder, size, SAMPLE_EVENTS)
            memory(bench, files)  # first: a large parent slows its children's start
            reading(bench, files)
            validating(bench, files, schema, schema_name)
            graph(bench, files)
            append(bench, files)
            benches.append(bench)
    print_table([each for bench in benches for each in bench.rows] + growth(benches))


if __name__ == "__main__":
    main()
