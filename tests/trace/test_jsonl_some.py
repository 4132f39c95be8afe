"""Some traces of a JSON Lines file: what is given is what reading all of it gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import arbitrary_traces

from baton.errors import BatonError
from baton.trace.formats.jsonl import encode_trace, read_jsonl
from baton.trace.formats.jsonl_some import read_some
from baton.trace.recorder import Recorder
from baton.trace.trace import Trace


def lines(name: str, said: str = "x") -> bytes:
    with Recorder(None, task_id="t", trace_id=name) as team:
        team.agent("lead").stop(said)
    return b"".join(encode_trace(team.trace()))


def check(path: Path, *wanted: str) -> list[Trace]:
    whole = [trace for trace in read_jsonl(path, tolerate_torn_tail=True) if trace.trace_id in wanted]
    assert list(read_some(path, wanted)) == whole
    return whole


A, B, C = lines("a"), lines("b", '{"kind":"trace","trace_id":"fake"}\n"trace_id"'), lines("c")


@pytest.mark.parametrize(
    "content",
    # Names that do not vary: how long a trace is does, with the seconds in it.
    [
        A + B + C,
        b"\xef\xbb\xbf" + A + B,
        A + B.rstrip(b"\n"),
        A + B[: B.rindex(b"{") + 9],
        A + B + C[:30],
        A + B + b"\n\n" + C,
        (A + B + C).replace(b"\n", b"\r\n"),
        A + B.replace(b'"kind":"trace",', b'"kind" : "trace" ,', 1) + C,
        A + B.replace(b'"trace_id":"b"', b'"trace\\u005fid":"b"', 1) + C,
        A + B + A + C,
        C + lines("trace_id") + B,
    ],
    ids=[
        "three",
        "byte-order mark",
        "no newline at the end",
        "cut off in the second",
        "cut off in the third",
        "blank line",
        "carriage returns",
        "gaps",
        "escaped",
        "one twice",
        "named as a key",
    ],
)
def test_it_is_what_reading_the_file_gives(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "some.jsonl"
    path.write_bytes(content)
    for wanted in (("a",), ("b",), ("c", "a"), ("a", "b", "c"), ("none",), ()):
        check(path, *wanted)


def test_what_is_wrong_is_said_as_always(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_bytes(A + B.replace(b'"stop"', b'"sxop"') + C)
    with pytest.raises(BatonError) as whole:
        list(read_jsonl(path))
    with pytest.raises(BatonError) as some:
        list(read_some(path, {"b"}))
    assert str(some.value) == str(whole.value)
    assert [trace.trace_id for trace in read_some(path, {"a"})] == ["a"]


@given(st.lists(arbitrary_traces(), max_size=4), st.data())
def test_any_traces(
    tmp_path_factory: pytest.TempPathFactory, traces: list[Trace], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("some") / "t.jsonl"
    content = b"".join(b"".join(encode_trace(trace)) for trace in traces)
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        whole = [trace.trace_id for trace in read_jsonl(path, tolerate_torn_tail=True)]
    except BatonError:
        return
    check(path, *data.draw(st.sets(st.sampled_from(whole))) if whole else ())
