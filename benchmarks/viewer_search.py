"""Searches in what was said in 100,000 traces: by reading all of them, and with the viewer's index of words.

The traces lie in ten files: 500 teams that each say 240 words, drawn from 20,000 as often as words are in prose, again
and again under other names, and in each trace a sentence of its own. Searched for is what one trace says, and what some
hundreds do. The first search is right after the viewer has opened what it had read before; "by reading" leaves the
index of words out. What both find is compared.
"""

from __future__ import annotations

import base64
import random
import re
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from baton.trace.formats.jsonl import encode_trace
from baton.trace.recorder import Recorder
from baton.view.index.query import EVERYTHING
from baton.view.index.searching import ContentSearch
from baton.view.web.traces import Library
from table import row

FILES = 10
TEAMS = 500
TEXTS, WORDS, VOCABULARY = 5, 60, 20_000
NAME, OWN = b"name-of-it", b"what only this one says"
_REF = b"own"
_SYLLABLES = [a + b + c for a in "bdfgklmnprst" for b in "aeiou" for c in ("", "n", "r", "s")]


def measure(num_traces: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        place, cache = Path(folder) / "runs", Path(folder) / "cache"
        place.mkdir()
        told = write_files(place, num_traces)
        found["bytes"] = sum(path.stat().st_size for path in place.iterdir())
        start = time.monotonic()
        library = Library([place], cache=cache)
        _until_read(library)
        found["read"] = time.monotonic() - start
        library.index.close()
        found["index"] = sum(path.stat().st_size for path in cache.iterdir())
        for words, what in ((told, "one"), ("the plan of team 7", "many")):
            library = Library([place], cache=cache)
            _until_read(library)
            found[f"{what}, first"] = searched(library, words)
            found[f"{what}, second"] = searched(library, words)
            library.index._words.works = False
            found[f"{what}, by reading"] = searched(library, words)
            library.index.close()
    return found


def write_files(place: Path, num_traces: int) -> str:
    """The files; returns words that one trace says."""
    draw = random.Random(0)
    words = ["".join(draw.choices(_SYLLABLES, k=draw.randint(1, 4))) for _ in range(VOCABULARY)]
    often = [1 / (1 + rank) for rank in range(VOCABULARY)]
    teams = [_team(k, words, often, draw) for k in range(min(TEAMS, num_traces))]
    for number in range(FILES):
        with (place / f"part-{number}.jsonl").open("wb") as file:
            file.writelines(_traces(range(number, num_traces, FILES), teams))
    return f"number {num_traces // 2} of {num_traces}"


def _team(k: int, words: list[str], often: list[float], draw: random.Random) -> bytes:
    with Recorder(None, task_id="t", trace_id=NAME.decode(), topology="swarm") as team:
        lead = team.agent("lead")
        for number in range(TEXTS - 1):
            said = " ".join(draw.choices(words, often, k=WORDS))
            lead.spawn(f"w{number}", task=said).returns(f"the plan of team {k}")
        lead.stop(OWN.decode())
    lines = b"".join(encode_trace(team.trace()))
    plain = re.sub(rb',"crc":\d+', b"", lines)  # of one with other words there is no checksum
    mark = base64.b64encode(OWN)
    ref = re.search(rb'"ref":"([^"]+)","size":\d+,"data":"%s"' % re.escape(mark), plain)
    assert ref is not None
    return plain.replace(ref[1], _REF)


def _traces(numbers: range, teams: list[bytes]) -> Iterator[bytes]:
    for k in numbers:
        own = b"number %d of %d" % (k, numbers.stop)
        data = b'"ref":"own","size":%d,"data":"%s"' % (len(own), base64.b64encode(own))
        text = teams[k // FILES % len(teams)].replace(NAME, b"t-%06d" % k)
        yield re.sub(rb'"ref":"own","size":\d+,"data":"[^"]*"', data, text)


def _until_read(library: Library) -> None:
    library.filler.look(None, 3600.0)


def searched(library: Library, words: str) -> tuple[float, int, int]:
    """Seconds until a search is done, how many traces it read, and in how many it found the words."""
    start = time.monotonic()
    search = ContentSearch(words, partial(library.rounds, words, EVERYTHING, ""), library.every)
    while not search.done:
        time.sleep(0.002)
        search.asked = time.monotonic()
        assert search.done or not search.stopped.is_set(), search.problems
    return time.monotonic() - start, search.read, len(search.found)


def rows(found: dict[str, Any], num_traces: int, where: str) -> list[tuple[str, ...]]:
    size = f"{num_traces:,} traces, {found['bytes'] / 1e6:,.0f} MB in {FILES} files"
    told = [
        row(f"{size}: all read for the first time, words and all", f"{found['read']:.0f} s", "none", "not measured",
            None, where),
        row(f"{size}: the index, words and all", f"{found['index'] / 1e6:,.0f} MB", "none", "not measured", None,
            where),
    ]  # fmt: skip
    for what in ("one", "many"):
        slow, _, same = found[f"{what}, by reading"]
        for which in ("first", "second"):
            taken, read, hits = found[f"{what}, {which}"]
            assert hits == same
            about = f"{size}: words in {hits:,} of them, {which} time ({read:,} read)"
            told.append(
                row(about, f"{taken:.2f} s", "by reading all of them", f"{slow:.1f} s", slow / taken, where)
            )
    return told
