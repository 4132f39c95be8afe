"""Bits flipped in files at rest: a reader gives exactly what was written, or says that it is damaged.

Each format is a row of its own, because what they promise differs: an unfinished JSON Lines file has no checksum yet,
the survey's JSON never has one, and SQLite itself takes a damaged log for one that was cut short.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from baton.errors import BatonError
from baton.trace.formats import read_all, write
from baton.trace.recorder import Recorder
from baton.trace.trace import Trace
from campaigns.campaign import Row, Tally

Make = Callable[[Path], list[Path]]


def flips(count: int, seed: int, folder: Path) -> Iterator[Row]:
    """A row for each format: one bit of one file, `count` times."""
    made: dict[str, tuple[str, Make]] = {
        "JSON Lines, finished": ("run.jsonl", _jsonl),
        "JSON Lines, unfinished (no checksum yet)": ("cut.jsonl", _unfinished),
        "SQLite": ("run.db", _store),
        "SQLite, its -wal": ("live.db", _live),
        "Parquet": ("shards", _parquet),
        "survey JSON (no checksum)": ("run.survey.json", _survey),
    }
    for number, (what, (name, make)) in enumerate(made.items()):
        place = folder / f"flips{number}" / name
        place.parent.mkdir()
        yield _format(f"flips: {what}", count, random.Random(seed + number), place, make)


def _format(what: str, count: int, draw: random.Random, place: Path, make: Make) -> Row:
    tally = Tally(what, is_checked="no checksum" not in what)
    files = make(place)
    whole = list(read_all(place))
    kept = place.parent / "kept"
    _copy(place, kept)
    sizes = {file: file.stat().st_size for file in files}
    for _ in range(count):
        tally.tries += 1
        file = draw.choices(files, [sizes[each] for each in files])[0]
        bit = draw.randrange(sizes[file] * 8)
        _restore(place, kept)
        _flip(file, bit)
        where = f"{file.name} bit {bit}"
        try:
            found = list(read_all(place))
        except BatonError as error:
            tally.faults += 1
            if place.name.partition(".")[0] not in str(error) or "\n" in str(error):
                tally.unclear(f"{where}: {error}")
        except Exception as error:
            tally.wrong(f"{where}: {error!r}")
        else:
            if found != whole:
                tally.faults += 1
                events = sum(len(trace.events) for trace in found), sum(len(t.events) for t in whole)
                tally.silent(f"{where}: read without a word, {events[0]} of {events[1]} events")
    return tally.row()


def _flip(file: Path, bit: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(bit // 8)
        (byte,) = opened.read(1)
        opened.seek(bit // 8)
        opened.write(bytes([byte ^ 1 << bit % 8]))


def _copy(place: Path, kept: Path) -> None:
    kept.mkdir()
    for each in place.parent.iterdir():
        if each == kept:
            continue
        if each.is_dir():
            shutil.copytree(each, kept / each.name)
        else:
            shutil.copy(each, kept / each.name)


def _restore(place: Path, kept: Path) -> None:
    for each in place.parent.iterdir():
        if each == kept:
            continue
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    shutil.copytree(kept, place.parent, dirs_exist_ok=True)


def _recorded(team: Recorder, events: int = 12) -> None:
    lead = team.agent("lead", role="orchestrator")
    worker = lead.spawn("worker", role="searcher", task="look for it, and say where it was: ünder a stone")
    for number in range(events):
        with worker.tool("search", {"query": f"stone {number}"}) as call:
            call.result(f"nothing under stone {number}" * (1 + number % 3))
    worker.returns("nowhere")
    lead.stop("nowhere")


def _traces(folder: Path) -> list[Trace]:
    traces = []
    for number in range(3):
        team = Recorder(folder / f"source{number}.jsonl", task_id="flips", trace_id=f"t{number}")
        with team:
            _recorded(team)
            team.reward("shared", 0.25 * number)
        traces.append(team.trace())
        (folder / f"source{number}.jsonl").unlink()
    return traces


def _jsonl(place: Path) -> list[Path]:
    write(_traces(place.parent), place)
    return [place]


def _unfinished(place: Path) -> list[Path]:
    team = Recorder(place, task_id="flips", trace_id="cut")
    _recorded(team)
    with closing(team._sink):
        pass
    return [place]


def _store(place: Path) -> list[Path]:
    write(_traces(place.parent), place)
    return [place]


def _live(place: Path) -> list[Path]:
    """A store whose writer died: everything is in its log."""
    from campaigns.campaign import run_child

    def work(_: int) -> None:
        import os
        import signal

        _recorded(Recorder(place, task_id="flips", trace_id="live"))
        os.kill(os.getpid(), signal.SIGKILL)

    run_child(work, place.parent / "said")
    (place.parent / "said").unlink()
    return [Path(f"{place}-wal")]


def _parquet(place: Path) -> list[Path]:
    write(_traces(place.parent), place, "parquet")
    return sorted(file for file in place.rglob("*") if file.is_file())


def _survey(place: Path) -> list[Path]:
    write(_traces(place.parent)[0], place)
    return [place]
