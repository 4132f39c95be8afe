"""Group chats: Who&When, MAST, Magentic-One, counted by hand."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

from baton.connect.assemble import assemble
from baton.connect.import_report import ImportReport
from baton.connect.readers.magentic_one import MagenticOneSource
from baton.connect.readers.mast import MastSource
from baton.connect.readers.who_and_when import WhoAndWhenSource
from baton.connect.source import Source
from baton.trace.outcome import answer_of
from baton.trace.trace import Trace
from baton.trace.validation import validate

GOLDEN = Path(__file__).parents[1] / "golden" / "connect"


def read(source: Source, place: Path) -> tuple[list[Trace], ImportReport]:
    report = ImportReport()
    traces = assemble(source.read(place, report), report, kind=source.kind)
    assert [problem for trace in traces for problem in validate(trace)] == []
    return traces, report


def test_who_and_when_keeps_the_blame_and_every_entry() -> None:
    place = GOLDEN / "who-and-when-crafted.json"
    (trace,), report = read(WhoAndWhenSource(), place)
    history = json.loads(place.read_text())["history"]
    assert report.entries == len(history)
    # The person's question is the task; every other entry is one event, and names its place in the history.
    assert [event.extra["source"] for event in trace.events] == [str(n) for n in range(1, len(history))]
    blamed = [event for event in trace.events if "who_and_when" in event.extra]
    assert [(event.agent, event.extra["source"]) for event in blamed] == [("WebSurfer", "4")]
    kept = trace.header.meta["who_and_when"]
    assert (kept["mistake_agent"], kept["mistake_step"]) == ("WebSurfer", "4")
    assert trace.header.meta["gold"] == {"answer": "Louvre"}
    delegated = {
        (event.agent, event.to, event.inferred) for event in trace.events if event.decision == "delegate"
    }
    assert delegated == {("Orchestrator", "WebSurfer", False), ("Orchestrator", "ComputerTerminal", False)}
    assert answer_of(trace) == "Max rounds reached."


def test_who_and_when_as_one_list_or_lines(tmp_path: Path) -> None:
    runs = [
        json.loads((GOLDEN / f"who-and-when-{half}.json").read_text()) for half in ("crafted", "generated")
    ]
    (tmp_path / "all.json").write_text(json.dumps(runs))
    (tmp_path / "all.jsonl").write_text("\n".join(json.dumps(run) for run in reversed(runs)))
    as_list, _ = read(WhoAndWhenSource(), tmp_path / "all.json")
    as_lines, _ = read(WhoAndWhenSource(), tmp_path / "all.jsonl")
    assert as_list == as_lines
    assert [len(trace.events) for trace in as_list] == [7, 4]


def test_mast_keeps_the_annotation_and_the_outcome() -> None:
    (trace,), _ = read(MastSource(), GOLDEN / "mast-ag2.json")
    assert Counter(event.agent for event in trace.events) == {
        "Agent_Verifier": 2, "chat_manager": 1, "Agent_Problem_Solver": 1,
    }  # fmt: skip
    assert trace.header.meta["mast"]["note"]["options"] == {"Step repetition": "no"}
    assert [reward.value for reward in trace.rewards] == [1.0]
    (row,), _ = read(MastSource(), GOLDEN / "mast-dataset.json")
    assert row.header.meta["mast"]["note"]["mast_annotation"] == {"1.1": 0, "1.3": 1}


def test_a_log_in_any_order_and_doubled_is_the_same(tmp_path: Path) -> None:
    place = GOLDEN / "magentic-one-log.jsonl"
    lines = place.read_text().splitlines()
    head, rest = lines[0], lines[1:]  # a session is named by how its file begins
    there, _ = read(MagenticOneSource(), place)
    for seed in range(5):
        shuffled = rest + rest[:3]
        random.Random(seed).shuffle(shuffled)
        folder = tmp_path / str(seed) / "golden" / "connect"
        folder.mkdir(parents=True)
        (folder / place.name).write_text("\n".join([head, *shuffled]))
        again, _ = read(MagenticOneSource(), folder / place.name)
        assert [(e.id, e.agent, e.type, e.to) for e in again[0].events] == [
            (e.id, e.agent, e.type, e.to) for e in there[0].events
        ]
        assert again[0].metrics == {"prompt_tokens": 320.0, "completion_tokens": 41.0}


def test_a_console_log_that_grows_keeps_its_name(tmp_path: Path) -> None:
    text = (GOLDEN / "magentic-one-console.txt").read_text()
    names = set()
    for end in ("I typed", "Run the code", "FINAL"):
        path = tmp_path / "console_log.txt"
        path.write_text(text[: text.index(end) + len(end)])
        (trace,), report = read(MagenticOneSource(), path)
        names.add(trace.trace_id)
        assert report.skipped == {"a line that nobody said": 2}
    assert len(names) == 1


def test_an_empty_or_foreign_file_is_told(tmp_path: Path) -> None:
    for source, name in (
        (WhoAndWhenSource(), "a.json"),
        (MastSource(), "b.json"),
        (MagenticOneSource(), "c.txt"),
    ):
        path = tmp_path / name
        path.write_text("")
        assert not source.recognises(path)
        assert read(source, path)[0] == []
        path.write_text('{"something": ["else"]}')
        assert not source.recognises(path)
        traces, report = read(source, path)
        assert traces == []
        assert sum(report.skipped.values()) == 1
