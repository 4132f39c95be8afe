"""Validation of files: every form, every way of not being a trace, and the survey's schema as a referee."""

from __future__ import annotations

import gzip
import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import valid_traces

from baton.trace import Trace
from baton.trace.formats import encode, write
from baton.trace.validation import ValidationReport, validate_file

SURVEY = Path(__file__).parents[2] / ".." / "shared" / "data" / "survey"
INVALID = Path(__file__).parents[1] / "golden" / "invalid"
needs_survey = pytest.mark.skipif(
    not SURVEY.exists(), reason="the survey's data is not beside the repository"
)

HEADER = '{"kind":"trace","trace_id":"t","task_id":"k"}\n'
EVENT = '{"kind":"event","id":"e0","t":0,"type":"message","agent":"a","seq":0}\n'
END = '{"kind":"end"}\n'
GOOD = HEADER + EVENT + END

reuse_path = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


def report_on(tmp_path: Path, content: str | bytes, **options: Any) -> ValidationReport:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return validate_file(path, **options)


@reuse_path
@given(st.lists(valid_traces(max_steps=5), min_size=1, max_size=2, unique_by=lambda trace: trace.trace_id))
def test_valid_traces_are_valid_as_json_lines(tmp_path: Path, traces: list[Trace]) -> None:
    report = report_on(tmp_path, b"".join(encode(traces, "jsonl")))
    assert report.valid, report
    assert report.num_traces == len(traces)
    assert report.num_events == sum(len(trace.events) for trace in traces)


@reuse_path
@given(valid_traces(max_steps=5))
def test_a_valid_trace_is_valid_in_the_surveys_form(tmp_path: Path, trace: Trace) -> None:
    assert report_on(tmp_path, b"".join(encode(trace, "survey"))).valid


@pytest.mark.parametrize("name", ["store.db", "shards/"])
@settings(max_examples=1)
@given(trace=valid_traces())
def test_stores(tmp_path_factory: pytest.TempPathFactory, name: str, trace: Trace) -> None:
    path = tmp_path_factory.mktemp("stores") / name
    write(trace, str(path) + ("/" if name.endswith("/") else ""))
    report = validate_file(path)
    assert report.valid, report
    assert report.num_events == len(trace.events)


@pytest.mark.parametrize(
    "content",
    [
        GOOD.encode(),
        GOOD.rstrip("\n").encode(),
        GOOD.replace("\n", "\r\n").encode(),
        GOOD.replace("\n", "\n\n").encode(),
        b"\xef\xbb\xbf" + GOOD.encode(),
        ("\n" + GOOD).encode(),
    ],
    ids=["plain", "no last newline", "CRLF", "blank lines", "byte order mark", "blank first line"],
)
def test_ways_of_writing_the_same(tmp_path: Path, content: bytes) -> None:
    report = report_on(tmp_path, content)
    assert report.valid, report
    assert report.num_events == 1


@pytest.mark.parametrize("path", sorted(INVALID.glob("*.jsonl")), ids=lambda path: path.stem)
def test_line_by_line_says_the_same_as_whole_blocks(tmp_path: Path, path: Path) -> None:
    by_line = report_on(tmp_path, path.read_text().replace("\n", "\r\n"))
    assert by_line.problems == validate_file(path).problems


def test_two_records_on_one_line_and_one_on_two(tmp_path: Path) -> None:
    other = EVENT.replace("e0", "e1").replace('"seq":0', '"seq":1')
    split = other.replace(",", ",\n", 1)
    report = report_on(tmp_path, HEADER + EVENT.rstrip("\n") + split + END)  # as many newlines as records
    assert set(report.counts) == {"shape/not-json"}


def test_positions_are_line_numbers(tmp_path: Path) -> None:
    report = report_on(tmp_path, HEADER + "\n" + EVENT.replace('"t":0', '"t":-1') + END)
    assert report.positions == "line"
    assert [(problem.event_id, problem.position) for problem in report.problems] == [("e0", 3)]


def test_each_trace_is_checked_by_itself(tmp_path: Path) -> None:
    second = (EVENT + END).replace('"t":0', '"t":-1')
    report = report_on(tmp_path, GOOD + HEADER.replace('"t"', '"u"') + second)
    assert report.num_traces == 2
    assert [(problem.trace_id, problem.position) for problem in report.problems] == [("u", 5)]


def test_problems_are_counted_past_those_kept(tmp_path: Path) -> None:
    events = "".join(EVENT.replace("e0", f"e{i}").replace('"seq":0', f'"seq":{i}') for i in range(3000))
    report = report_on(tmp_path, HEADER + events.replace('"t":0', '"t":-1') + END)
    assert report.counts == {"shape/negative": 3000}
    assert len(report.problems) == 1000


def test_long_values_are_cut_in_reports(tmp_path: Path) -> None:
    long = "x" * 100_000
    report = report_on(tmp_path, HEADER + EVENT.replace('"e0"', f'"{long}"').replace("message", long) + END)
    (problem,) = report.problems
    assert all(
        len(str(value)) < 600 for value in (problem.record, problem.event_id, problem.found, problem.expected)
    )


UNREADABLE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "blank": (b" \n", "no trace"),
    "binary": (bytes(range(256)), "no trace"),
    "zeros": (bytes(4096), "no trace"),
    "compressed": (gzip.compress(GOOD.encode()), "gunzip"),
    "UTF-16": (GOOD.encode("utf-16"), "UTF-16"),
    "UTF-16 without a mark": (GOOD.encode("utf-16-le"), "UTF-16"),
    "UTF-32": (GOOD.encode("utf-32"), "UTF-32"),
    "Latin-1": (GOOD.replace('"a"', '"é"').encode("latin-1"), "line 2 is not UTF-8"),
    "cut in a record": ((HEADER + EVENT[:40]).encode(), "cut off in the middle of a record, at line 2"),
    "cut in a character": ((HEADER + '{"kind":"event","id":"é').encode()[:-1], "cut off"),
    "cut in the first line": (HEADER[:20].encode(), "cut off in the middle of a record, at line 1"),
    "brackets": (b"[" * 100_000, "no trace"),
    "deep document": (b'{"a":' * 100_000, "nested too deeply"),
    "deep record": (
        (HEADER + '{"kind":"event","extra":' + "[" * 100_000 + "\n" + END).encode(),
        "nested too deeply",
    ),
    "deep and whole": (
        (HEADER + EVENT[:-2] + ',"extra":{"a":' + "[" * 50_000 + "]" * 50_000 + "}}\n" + END).encode(),
        "nested too deeply",
    ),
    "newer": (
        GOOD.replace('"kind":"trace"', '"kind":"trace","version":2').encode(),
        "this Baton reads up to 1",
    ),
    "newer, with a new field": (
        GOOD.replace('"kind":"trace"', '"kind":"trace","version":2,"colour":1').encode(),
        "this Baton reads up to 1",
    ),
    "array": (b"[1]", "no trace"),
    "other lines": (b'{"a":1}\n{"a":2}\n', "no kind"),
    "cut document": (b'{"trace_id": "t", "events": [{"id"', "cut off"),
    "Latin-1 document": ('{\n"trace_id": "é"}'.encode("latin-1"), "not UTF-8"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_unreadable(tmp_path: Path, name: str) -> None:
    content, said = UNREADABLE[name]
    report = report_on(tmp_path, content)
    assert report.unreadable is not None
    assert said in report.unreadable
    assert "trace.jsonl" in report.unreadable
    assert "\n" not in report.unreadable
    assert not report.valid


def test_what_stands_before_the_cut_is_still_checked(tmp_path: Path) -> None:
    report = report_on(tmp_path, HEADER + EVENT.replace('"t":0', '"t":-1') + EVENT[:20])
    assert report.unreadable is not None
    assert report.counts == {"shape/negative": 1}  # and no word on the missing end


def test_a_line_without_end_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    with path.open("wb") as file:  # sparse: a gigabyte that takes no room
        file.write(HEADER.encode() + b'{"kind":"event","id":"')
        file.seek(10**9)
        file.write(b'"}\n')
    report = validate_file(path, max_line_bytes=2**20)
    assert report.unreadable is not None
    assert "line 2 is longer than 1 MiB" in report.unreadable


def test_a_document_without_end_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with path.open("wb") as file:
        file.write(b'{"trace_id":"')
        file.seek(10**9)
        file.write(b'"}\n')
    report = validate_file(path)
    assert report.unreadable is not None
    assert "more than 256 MiB" in report.unreadable


@needs_survey
def test_the_surveys_example_is_valid() -> None:
    report = validate_file(SURVEY / "example_trace.json")
    assert report.valid, report
    assert report.num_events == 8


_VALUES = st.sampled_from(
    [None, True, -1, 0, 1.5, "", "x", "spawn", [], {}, ["x"], {"x": 1}, {"x": "y"}, {"tokens": 1}]
)


@st.composite
def changed_documents(draw: st.DrawFn) -> dict[str, Any]:
    """The survey's example with one thing changed, added or taken away, anywhere in it."""
    document: dict[str, Any] = deepcopy(json.loads((SURVEY / "example_trace.json").read_text()))
    target: Any = document
    while draw(st.booleans()) and (
        inner := [key for key in keys(target) if isinstance(target[key], dict | list)]
    ):
        target = target[draw(st.sampled_from(inner))]
    key = draw(st.sampled_from(keys(target) or [0]))
    if isinstance(target, list):
        target[key : key + 1] = [draw(_VALUES)]
    elif draw(st.booleans()):
        target[draw(st.sampled_from([key, "trusted", "system", "metrics", "new"]))] = draw(_VALUES)
    else:
        target.pop(key, None)
    return document


def keys(value: Any) -> list[Any]:
    return list(value) if isinstance(value, dict) else list(range(len(value)))


@needs_survey
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(changed_documents())
def test_nothing_that_the_surveys_schema_rejects_is_valid(tmp_path: Path, document: dict[str, Any]) -> None:
    schema = json.loads((SURVEY / "trace_schema.json").read_text())
    report = report_on(tmp_path, json.dumps(document, indent=1))
    accepted = jsonschema.Draft202012Validator(schema).is_valid(document)
    if not accepted:
        assert not report.valid, document
    elif "new" not in document:
        assert not [problem for problem in report.problems if problem.level == "shape"], report.problems


@needs_survey
@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        ({"seq": "1"}, "shape/wrong-type", "seq"),
        ({"decision": "spwan"}, "shape/unknown-value", "decision"),
        ({"duration_s": -1}, "shape/negative", "duration_s"),
        ({"role": None}, "shape/wrong-type", "role"),
        ({"seq": 3}, "structure/partial-seq", "seq"),
        ({"anything": ["else"]}, None, None),
    ],
)
def test_known_names_in_the_surveys_form(
    tmp_path: Path, change: dict[str, Any], code: str, field: str
) -> None:
    document = json.loads((SURVEY / "example_trace.json").read_text())
    document["events"][0].update(change)
    problems = report_on(tmp_path, json.dumps(document, indent=1)).problems
    assert [(problem.code, problem.field) for problem in problems] == ([(code, field)] if code else [])


@needs_survey
def test_an_order_is_made_where_the_survey_has_none(tmp_path: Path) -> None:
    document = json.loads((SURVEY / "example_trace.json").read_text())
    document["events"].reverse()
    assert report_on(tmp_path, json.dumps(document, indent=1)).valid
    document["edges"].append({"src": "e8", "dst": "e1", "type": "causal"})
    assert set(report_on(tmp_path, json.dumps(document, indent=1)).counts) == {"structure/cycle"}
