"""A full disk at every write: what was acknowledged is there, what was refused is not, the error says so, and with room
again everything goes on.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from zlib import crc32

from baton.cli import main
from baton.errors import BatonError
from baton.trace.formats import read_all, write
from baton.trace.recorder import Recorder
from baton.trace.trace import Trace
from baton.trace.validation import validate
from campaigns.campaign import Died, Row, Tally, is_traceback, run_child, warm
from campaigns.full_disk import can_fill, run_on_full_disk

_EVENTS = 10
_NEVER = 10**9
_WORDS = ("full", "No space", "no room")
COMMANDS: dict[str, tuple[list[str], str]] = {
    "convert to JSON Lines": (["convert", "IN", "OUT"], "x.jsonl"),
    "convert to SQLite": (["convert", "IN", "OUT"], "x.db"),
    "convert to Parquet": (["convert", "IN", "OUT"], "shards/"),
    "export html": (["export", "html", "IN", "--out", "OUT"], "x.html"),
    "reward --out": (["reward", "IN", "--recipe", "shared", "--out", "OUT"], "x.jsonl"),
    "fork --out": (["fork", "IN", "--bar", "worker3", "--out", "OUT"], "x.jsonl"),
}


def full_disks(count: int, seed: int, folder: Path) -> Row:
    """At every write of each of these, or at `count` of them, evenly chosen."""
    tally = Tally("full disk at every write")
    if not can_fill():
        return tally.row()
    warm(*(f"baton.cli.{name}" for name in ("run", "resume", "convert", "export", "reward", "fork")))
    source = folder / "source.jsonl"
    made = folder / "made"
    assert not run_child(lambda _: main(["run", "shard-sum", "--out", str(made)]), folder / "said").code
    write(list(read_all(made)), source)
    for suffix in (".jsonl", ".db"):
        for full_for in (2, _NEVER):
            _recorders(tally, count, folder, suffix, full_for)
    _runs(tally, count, folder, made)
    for what, (command, name) in COMMANDS.items():
        _commands(tally, count, folder, source, what, command, name)
    return tally.row()


def _moments(writes: int, count: int) -> list[int]:
    return sorted({round(k * (writes - 1) / max(1, count - 1)) for k in range(min(count, writes))})


def _recorders(tally: Tally, count: int, folder: Path, suffix: str, full_for: int) -> None:
    moments = [_NEVER]
    for moment in moments:
        where = f"recorder {suffix}, full from write {moment} for {full_for}"
        place = folder / f"recorder{suffix}{full_for}-{moment}"
        place.mkdir()
        path = place / f"run{suffix}"
        died, writes = run_on_full_disk(
            lambda pipe, path=path: _record(path, pipe),
            place,
            place.with_suffix(".said"),
            full_from=moment,
            full_for=full_for,
        )
        if moment == _NEVER:  # tells how many writes there are
            moments += _moments(writes, count)
        else:
            tally.tries += 1
            tally.faults += 1
        _check_recorder(tally, where, path, died)


def _record(path: Path, pipe: int) -> int:
    """Record some events, whatever comes; acknowledge what was accepted and what was refused."""
    try:
        team = Recorder(path, task_id="disk", trace_id="t")
    except BatonError as error:
        os.write(pipe, f"refused {error}\n".encode())
        return 0
    lead = team.agent("lead")
    for number in range(_EVENTS):
        text = f"event {number} " + "x" * 700
        try:
            event = lead.decide("delegate", text)
        except BatonError as error:
            os.write(pipe, f"refused {error}\n".encode())
        else:
            os.write(pipe, f"{event} {crc32(text.encode())}\n".encode())
    try:
        team.close()
    except BatonError as error:
        os.write(pipe, f"refused {error}\n".encode())
    return 0


def _check_recorder(tally: Tally, where: str, path: Path, died: Died) -> None:
    if died.code or is_traceback(died.said):
        tally.wrong(f"{where}: {died.said.strip()[-300:]}")
        return
    lines = died.lines()
    refused = [line for line in lines if line.startswith("refused")]
    kept = [line for line in lines if not line.startswith("refused")]
    if len(kept) + len(refused) < _EVENTS and not refused:
        tally.silent(f"{where}: nobody was told")
    for line in dict.fromkeys(refused):
        if not any(word in line for word in _WORDS) or path.name not in line:
            tally.unclear(f"{where}: {line[8:]}")
    traces = _read(tally, where, path) if path.exists() and path.stat().st_size and kept else []
    found = [
        f"{event.id} {crc32((trace.text(event.content_ref) or '').encode())}"
        for trace in traces
        for event in trace.events
    ]
    if set(kept) - set(found):
        tally.lost(f"{where}: {len(set(kept) - set(found))} of {len(kept)} acknowledged events")
    elif found != kept:
        tally.wrong(f"{where}: {len(found)} events are there, {len(kept)} were acknowledged")


def _read(tally: Tally, where: str, path: Path) -> list[Trace]:
    try:
        return list(read_all(path))
    except Exception as error:
        tally.wrong(f"{where}: what is there cannot be read: {error!r}")
        return []


def _runs(tally: Tally, count: int, folder: Path, made: Path) -> None:
    """`baton run` on a disk that fills, then with room: resumed, or run again where nothing was kept."""
    (whole,) = read_all(made)

    def command(out: Path) -> list[str]:
        return ["run", "shard-sum", "--out", str(out)]

    def again(out: Path) -> list[str]:
        kept = out.exists() and (out / "run.db").exists()
        try:
            begun = kept and bool(list(read_all(out)))
        except BatonError:
            begun = False
        return ["resume", str(out)] if begun else command(out)

    def check(where: str, out: Path) -> None:
        traces = _read(tally, where, out)
        if [trace.events for trace in traces] != [whole.events] or traces[0].costs != whole.costs:
            tally.wrong(f"{where}: not what it is with room")
        elif problems := validate(traces[0]):
            tally.wrong(f"{where}: {problems[0]}")

    _typed(tally, count, folder, "run", "out", command, again, check)


def _commands(
    tally: Tally, count: int, folder: Path, source: Path, what: str, words: list[str], name: str
) -> None:
    def command(out: Path) -> list[str]:
        target = f"{out}/" if name.endswith("/") else str(out)
        return [str(source) if word == "IN" else target if word == "OUT" else word for word in words]

    whole: list[bytes] = []

    def check(where: str, out: Path) -> None:
        traces = what != "export html"
        found = repr(_read(tally, where, out)).encode() if traces else out.read_bytes()
        if whole and found != whole[0]:
            tally.wrong(f"{where}: with room again, not what it is on an empty disk")
        whole[:] = [found]

    before = blake2b(source.read_bytes()).digest()
    _typed(tally, count, folder, what, name, command, command, check)
    if blake2b(source.read_bytes()).digest() != before:
        tally.lost(f"{what}: the file that was read has changed")


def _typed(
    tally: Tally,
    count: int,
    folder: Path,
    what: str,
    name: str,
    command: Callable[[Path], list[str]],
    again: Callable[[Path], list[str]],
    check: Callable[[str, Path], None],
) -> None:
    """A command on a disk that is full from some write on, and once more with room."""
    moments = [_NEVER]
    for moment in moments:
        where = f"{what}, full from write {moment}"
        place = folder / f"{what.replace(' ', '-')}-{moment}"
        place.mkdir()
        out, said = place / name.strip("/"), place.with_suffix(".said")
        typed = command(out)
        died, writes = run_on_full_disk(lambda _, typed=typed: main(typed), place, said, full_from=moment)
        if moment == _NEVER:
            moments += _moments(writes, count)
            if died.code:
                tally.wrong(f"{what} fails on an empty disk: {died.said.strip()[-300:]}")
                return
            check(where, out)
            continue
        tally.tries += 1
        tally.faults += 1
        if not died.code:  # what could not be written was not needed, if all of it is there
            check(where, out)
            continue
        _check_message(tally, where, place, died)
        typed = again(out)
        died = run_child(lambda _, typed=typed: main(typed), said)
        if died.code or is_traceback(died.said):
            tally.wrong(f"{where}: with room again {typed[0]} says: {died.said.strip()[-300:]}")
        else:
            check(where, out)


def _check_message(tally: Tally, where: str, place: Path, died: Died) -> None:
    if is_traceback(died.said):
        tally.wrong(f"{where}: a traceback: {died.said.strip().splitlines()[-1]}")
    elif died.killed:
        tally.wrong(f"{where}: hung")
    else:
        last = died.said.strip().splitlines()[-1]
        if not any(word in last for word in _WORDS) or str(place) not in last:
            tally.unclear(f"{where}: {last}")
