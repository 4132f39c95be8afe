"""JSON Lines: what is written is read back equal; what cannot be read says where and why."""

from __future__ import annotations

import json
import random
import tracemalloc
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from strategies import arbitrary_traces, valid_traces

from baton.errors import CorruptError, FormatError, TraceError, UsageError
from baton.trace import Edge, Event, Floats, Header, Payload, Trace
from baton.trace.formats import jsonl
from baton.trace.formats.jsonl import encode_record, encode_records, encode_trace, read_jsonl, write_jsonl
from baton.trace.formats.jsonl_writer import JsonlWriter
from baton.trace.records import Call

HEADER = '{"kind":"trace","version":1,"trace_id":"t","task_id":"k"}'
EVENT = '{"kind":"event","id":"e","t":0,"type":"message","agent":"a","seq":0}'


def event(n: int, **fields: object) -> Event:
    return Event(id=f"e{n}", t=float(n), type="message", agent="a", seq=n, **fields)  # type: ignore[arg-type]


def small_trace(num_events: int = 3) -> Trace:
    return Trace(
        header=Header(trace_id="t", task_id="k"),
        events=tuple(event(n) for n in range(num_events)),
        edges=tuple(Edge(f"e{n}", f"e{n + 1}", "temporal") for n in range(num_events - 1)),
        costs={"tokens": 3.0},
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("jsonl")


@given(st.lists(arbitrary_traces() | valid_traces(), max_size=3))
def test_identity(folder: Path, traces: list[Trace]) -> None:
    write_jsonl(traces, folder / "x.jsonl")
    assert list(read_jsonl(folder / "x.jsonl")) == traces


def test_lines_written_many_at_a_time_are_those_written_one_by_one() -> None:
    texts = ["", "null", "né\u2028\n", "x" * 70_000, *(f"text {n}" * n for n in range(150))]
    payloads = [Payload.of(text) for text in texts]
    payloads.append(Payload(ref="large", size=200_000, data=bytes(200_000)))
    events = [event(n, extra={"word": "null" if n == 130 else n}) for n in range(200)]
    for records in (payloads, events, events[:64], events[:1]):
        whole = b"".join(encode_records(records))
        assert whole == b"".join(map(encode_record, records))
        assert whole.count(b"\n") == len(records)
    trace = structs.replace(small_trace(), events=tuple(events), payloads={p.ref: p for p in payloads})
    *lines, last = b"".join(encode_trace(trace)).splitlines()
    plain = {name: value for name, value in json.loads(last).items() if name != "crc"}
    end = json.dumps(plain, separators=(",", ":")).encode()
    assert json.loads(last)["crc"] == sum(map(zlib.crc32, [*lines, end])) % 2**32


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), object()])
def test_one_record_that_cannot_be_written_among_many_is_named(bad: object) -> None:
    events = [event(n, extra={"x": bad if n == 70 else 1.0}) for n in range(100)]
    with pytest.raises(TraceError, match="event 'e70'"):
        b"".join(encode_records(events))


@given(valid_traces(), st.randoms())
def test_order_of_records_does_not_matter(folder: Path, trace: Trace, chance: random.Random) -> None:
    first, *middle, last = b"".join(encode_trace(trace)).splitlines(keepends=True)
    chance.shuffle(middle)
    (folder / "x.jsonl").write_bytes(b"".join([first, *middle, last]))
    (back,) = read_jsonl(folder / "x.jsonl")
    assert (back.header, back.events, back.payloads) == (trace.header, trace.events, trace.payloads)
    for kind in ("edges", "calls", "rewards", "credits"):
        assert sorted(map(repr, getattr(back, kind))) == sorted(map(repr, getattr(trace, kind)))


def test_every_line_is_plain_json(tmp_path: Path) -> None:
    write_jsonl(small_trace(), tmp_path / "x.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["trace", *["event"] * 3, *["edge"] * 2, "end"]
    crc = lines[-1].pop("crc")
    assert lines[-1] == {"kind": "end", "costs": {"tokens": 3.0}, "counts": {"event": 3, "edge": 2}}
    *before, last = (tmp_path / "x.jsonl").read_bytes().splitlines()
    without = last.replace(f',"crc":{crc}'.encode(), b"")
    assert crc == sum(zlib.crc32(line) for line in (*before, without)) % 2**32


def test_a_flipped_bit_is_an_error_and_reformatting_is_not(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    write_jsonl(small_trace(), path)
    whole, expected = path.read_bytes(), next(read_jsonl(path))
    rng = random.Random(0)
    silent = 0
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            silent += list(read_jsonl(path)) != [expected]
        except FormatError:
            continue
    assert silent == 0
    # Another tool's spaces and line ends change nothing that was said; another order does not, either.
    header, *middle, end = (json.dumps(json.loads(line), indent=None) for line in whole.splitlines())
    path.write_text("\r\n".join([header, *reversed(middle), end, ""]), newline="")
    assert next(read_jsonl(path)).events == expected.events
    path.write_text("\n".join([header, *middle[1:], middle[0].replace("0", "1", 1), end, ""]))
    with pytest.raises(CorruptError, match="checksum"):
        list(read_jsonl(path))


def test_names_are_shared_in_memory(tmp_path: Path) -> None:
    write_jsonl(small_trace(), tmp_path / "x.jsonl")
    (back,) = read_jsonl(tmp_path / "x.jsonl")
    assert back.events[0].agent is back.events[2].agent
    assert back.edges[0].dst is back.events[1].id
    assert back.edges[0].dst is back.edges[1].src


def test_blocks_do_not_cut_lines(tmp_path: Path) -> None:
    trace = structs.replace(
        small_trace(), events=tuple(event(n, extra={"x": "y" * 3_000}) for n in range(900))
    )
    write_jsonl(trace, tmp_path / "x.jsonl")
    assert (tmp_path / "x.jsonl").stat().st_size > 2 * 2**20
    assert list(read_jsonl(tmp_path / "x.jsonl")) == [trace]


def test_a_payload_that_is_there_wins_over_one_withheld(tmp_path: Path) -> None:
    payload = Payload.of("hello")
    for pair in ([payload, payload.withheld()], [payload.withheld(), payload]):
        (tmp_path / "x.jsonl").unlink(missing_ok=True)
        with JsonlWriter(tmp_path / "x.jsonl", Header(trace_id="t", task_id="k")) as writer:
            writer.write(*pair)
        (back,) = read_jsonl(tmp_path / "x.jsonl")
        assert back.text(payload.ref) == "hello"


# --- Files that are not whole ---


def test_no_end_line_is_an_unfinished_trace(tmp_path: Path) -> None:
    lines = b"".join(encode_trace(small_trace())).splitlines(keepends=True)
    (tmp_path / "x.jsonl").write_bytes(b"".join(lines[:-1]) + b"".join(lines))
    first, second = read_jsonl(tmp_path / "x.jsonl")
    assert not first.finished
    assert second.finished
    assert first.events == second.events


@given(valid_traces(max_steps=2), st.data())
def test_a_cut_anywhere_is_noticed_and_loses_one_line(
    folder: Path, trace: Trace, data: st.DataObject
) -> None:
    whole = b"".join(encode_trace(trace))
    cut = data.draw(st.integers(1, len(whole) - 2))
    path = folder / "cut.jsonl"
    path.write_bytes(whole[:cut])
    torn = whole[cut - 1 : cut + 1].find(b"\n") < 0  # a newline alone may be missing: the line is whole
    if torn:
        with pytest.raises(FormatError, match=r"line [\d,]+ is cut off.*sed"):
            list(read_jsonl(path))
    kept = [back for back in read_jsonl(path, tolerate_torn_tail=True) if not back.finished]
    num_lines = whole[:cut].count(b"\n") + (not torn and whole[cut - 1 : cut] != b"\n")
    assert sum(1 + sum(map(len, _records(back))) for back in kept) == num_lines


def _records(trace: Trace) -> list[object]:
    return [trace.events, trace.edges, trace.calls, trace.payloads, trace.rewards, trace.credits]  # type: ignore[list-item]


def test_lost_lines_are_noticed(tmp_path: Path) -> None:
    lines = b"".join(encode_trace(small_trace())).splitlines(keepends=True)
    (tmp_path / "x.jsonl").write_bytes(b"".join(lines[:2] + lines[3:]))
    with pytest.raises(CorruptError, match="has 3 records of kind 'event'; the file holds 2"):
        list(read_jsonl(tmp_path / "x.jsonl"))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (f"{HEADER}\n{EVENT}\nnot json\n", "line 3 is not a record"),
        (f"{HEADER}\n\n\n{EVENT[:-1]}\n", "line 4 is not a record"),
        (f'{HEADER}\n{EVENT.replace("message", "shout")}\n', r"line 2 .*Invalid enum value 'shout'.*type"),
        (f'{HEADER}\n{EVENT.replace("seq", "sqe")}\n', "line 2 .*`sqe`"),
        (f'{HEADER}\n{{"kind":"verdict"}}\n', "line 2 .*verdict"),
        (f"{EVENT}\n", "line 1 is of kind 'event' but belongs to no trace"),
        (f'{HEADER}\n{{"kind":"end"}}\n\n{EVENT}\n', "line 4 is of kind 'event' but belongs to no trace"),
        (HEADER.replace('"version":1', '"version":2'), "format version 2.*Type: "),
        (HEADER.replace('"version":1', '"version":7,"colour":"red"') + "\n", "format version 7.*Type: "),
        (HEADER.replace('"version":1', '"version":0'), "format version 0; expected 1"),
        (f'{HEADER}\n{EVENT[:-1]},"extra":{{"x":{"[" * 100_000}\n', "line 2 .*nested too deep"),
        (f'{HEADER}\n{{"kind":"edge","src":"\udcff","dst":"b","type":"causal"}}\n', "line 2 .*utf-8"),
        (f'{HEADER}\n{{"kind":"call","id":"c","agent":"a","logprobs":["x"]}}\n', "line 2 .*array of numbers"),
        (f"{HEADER}\nplainly not a record", "line 2 is not a record"),
    ],
)  # fmt: skip
def test_malformed(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "x.jsonl").write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(FormatError, match=says) as caught:
        list(read_jsonl(tmp_path / "x.jsonl"))
    assert len(str(caught.value)) < 500


def test_a_line_without_end_is_given_up_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baton.trace.formats.jsonl.MAX_LINE_BYTES", 2**20)
    for ending in ("", "\n"):
        (tmp_path / "x.jsonl").write_text(f'{HEADER}\n{{"kind":"{"x" * 3 * 2**20}"}}{ending}')
        with pytest.raises(FormatError, match="line 2 is longer than"):
            list(read_jsonl(tmp_path / "x.jsonl"))


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="No such file"):
        list(read_jsonl(tmp_path / "none.jsonl"))
    with pytest.raises(FormatError, match="Is a directory"):
        list(read_jsonl(tmp_path))
    with pytest.raises(UsageError, match="mkdir -p"):
        write_jsonl(small_trace(), tmp_path / "no" / "x.jsonl")


# --- Writing ---


@pytest.mark.parametrize(
    "record",
    [
        event(0, propensity=float("nan")),
        event(0, extra={"deep": [{"x": float("inf")}]}),
        event(0, extra={"x": {1, 2, object()}}),
        event(0, role="\ud800"),
        Call(id="c", agent="a", logprobs=Floats([-0.1, float("-inf")])),
    ],
    ids=["nan", "deep infinity", "object", "lone surrogate", "infinite log-prob"],
)
def test_what_json_cannot_hold_is_refused(tmp_path: Path, record: Event | Call) -> None:
    with pytest.raises(TraceError, match=f"{'call' if isinstance(record, Call) else 'event'} '"):
        jsonl.encode_record(record)


def test_null_in_extra_is_kept(tmp_path: Path) -> None:
    trace = structs.replace(small_trace(), events=(event(0, extra={"x": None, "null": [None]}),), edges=())
    write_jsonl(trace, tmp_path / "x.jsonl")
    assert list(read_jsonl(tmp_path / "x.jsonl")) == [trace]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    write_jsonl(small_trace(), tmp_path / "x.jsonl")
    before = (tmp_path / "x.jsonl").read_bytes()
    with pytest.raises(TraceError):
        write_jsonl(
            [small_trace(), Trace(header=Header(trace_id="\ud800", task_id="k"))], tmp_path / "x.jsonl"
        )
    assert (tmp_path / "x.jsonl").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["x.jsonl"]


def test_too_long_a_line_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "MAX_LINE_BYTES", 1_000)
    with pytest.raises(TraceError, match="a line holds at most 1,000"):
        jsonl.encode_record(event(0, extra={"x": "y" * 1_000}))


@given(st.lists(valid_traces(max_steps=3), min_size=1, max_size=2), st.integers(1, 5))
def test_writer_gives_what_was_written(folder: Path, traces: list[Trace], flush_every: int) -> None:
    path = folder / "live.jsonl"
    path.unlink(missing_ok=True)
    for trace in traces:
        with JsonlWriter(path, trace.header, flush_every=flush_every) as writer:
            for records in (trace.payloads.values(), trace.calls, trace.events, trace.edges):
                writer.write(*records)  # type: ignore[arg-type]
            writer.write(*trace.rewards, *trace.credits)
            writer.end(costs=trace.costs, metrics=trace.metrics)
    assert list(read_jsonl(path)) == traces


def test_a_record_can_be_read_as_soon_as_it_is_written(tmp_path: Path) -> None:
    writer = JsonlWriter(tmp_path / "x.jsonl", Header(trace_id="t", task_id="k"))
    writer.write(event(0))
    (back,) = read_jsonl(tmp_path / "x.jsonl")
    assert back.events == (event(0),)
    assert not back.finished
    writer.end()
    with pytest.raises(UsageError, match="has ended"):
        writer.write(event(1))


def test_nothing_is_added_to_a_torn_file(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(f"{HEADER}\n{EVENT[:20]}")
    with pytest.raises(FormatError, match="cut off"):
        JsonlWriter(tmp_path / "x.jsonl", Header(trace_id="t", task_id="k"))
    assert (tmp_path / "x.jsonl").read_text() == f"{HEADER}\n{EVENT[:20]}"


def test_reading_takes_little_more_than_what_is_kept(tmp_path: Path) -> None:
    """It took a third more, which stayed with the process: 1,031 bytes an event of 20,000 where 738 are the trace."""
    path = tmp_path / "many.jsonl"
    write_jsonl([small_trace(6000)], path)
    list(read_jsonl(path))  # what is imported for it is nobody's event
    tracemalloc.start()
    try:
        [kept] = read_jsonl(path)
        now, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(kept.events) == 6000
    assert most - now < path.stat().st_size


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_lines_of_any_length_cross_blocks(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "long.jsonl"
    wide = structs.replace(small_trace(5), costs={"x" * 9000: 1.0, "y": 2.0})
    write_jsonl([wide, structs.replace(small_trace(2), header=Header(trace_id="u", task_id="k"))], path)
    expected = list(read_jsonl(path))
    monkeypatch.setattr(jsonl, "_BLOCK_BYTES", size)
    assert list(read_jsonl(path)) == expected
