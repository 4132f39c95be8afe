"""Traces of 0.1 and 0.2 have the tokens they had: they are not counted anew, and not marked as estimates."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path

from baton.measure.metrics.scale import scale
from baton.trace.formats import read_all

HERE = Path(__file__).parent
TOKENS = {"shard-sum-hierarchical-3": 32_543}


def test_of_0_1(tmp_path: Path) -> None:
    with tarfile.open(HERE / "v0.1.tar.gz") as archive:
        # Python 3.11 before .4 knows no filters.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        archive.extractall(tmp_path)
    (expected,) = read_all(tmp_path / "0.1" / "unfinished-expected.jsonl")
    size = scale(expected)
    assert (size.tokens, size.estimated_tokens) == (TOKENS[expected.trace_id], 0)
    # New prompt and completion, in bytes: the rule of that time.
    bytes_ = sum(len(call.prompt_ids or ()) + len(call.completion_ids or ()) for call in expected.calls)
    assert size.tokens == bytes_


def test_of_0_2(tmp_path: Path) -> None:
    path = tmp_path / "games.jsonl"
    path.write_bytes(gzip.decompress((HERE / "games-0.2.jsonl.gz").read_bytes()))
    for trace in read_all(path):
        size = scale(trace)
        assert size.estimated_tokens == 0
        assert size.tokens == sum(event.tokens or 0 for event in trace.events)
