"""Traces as ATIF: by the format's own rules, and read back equal in everything that it can say."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import baton
from baton.cli import main
from baton.connect.assemble import assemble
from baton.connect.import_report import ImportReport
from baton.connect.readers.atif import AtifSource
from baton.connect.writers.atif import atif_document
from baton.trace.trace import Trace
from baton.trace.validation import validate

STEP = {
    "step_id", "timestamp", "source", "model_name", "reasoning_effort", "message", "reasoning_content", "tool_calls",
    "observation", "metrics", "is_copied_context", "llm_call_count", "extra",
}  # fmt: skip
METRICS = {
    "prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd", "prompt_token_ids", "completion_token_ids",
    "logprobs", "extra",
}  # fmt: skip


def recorded() -> Trace:
    """Everything at once: two levels, parallel children, messages, failures, ids, a person, an odd name."""
    with baton.Recorder(None, task_id="odd/task é", topology="hierarchical") as team:
        lead = team.agent("lead", role="orchestrator")
        lead.call(
            prompt=[{"speaker": "system", "text": "lead"}], completion="two of them", prompt_ids=[1, 2, 3],
            completion_ids=[4, 5], logprobs=[-0.5, -0.25], prompt_tokens=3, completion_tokens=2, policy="p",
        )  # fmt: skip
        first = lead.spawn("w 1", role="worker", task="count")
        second = lead.spawn("w/2", role="worker", task={"of": "boxes"})
        first.call(prompt_ids=[9], completion_ids=[8, 7, 6], prompt_tokens=1, completion_tokens=3)
        with first.tool("search", {"q": "é", "n": [1, None]}) as tool:
            tool.result("found")
        with pytest.raises(ValueError, match="no"), second.tool("search", {"q": 2}):
            raise ValueError("no")
        second.send(first, "mine failed")
        deep = first.spawn("deep", task="help")
        deep.returns("helped")
        first.returns("12")
        second.returns("")
        lead.record("human_intervention", "go on")
        lead.call(prompt_ids=[1, 2, 3, 4, 5, 6], completion_ids=[7], prompt_tokens=6, completion_tokens=1)
        lead.aggregate([first, second], "12", method="majority")
        lead.stop("12")
        team.reward("shared", 0.5)
    return team.trace()


def run_of(topology: str, seed: int, tmp_path: Path) -> Trace:
    out = tmp_path / f"{topology}-{seed}"
    args = ["run", "shard-sum", "--topology", topology, "--policy", "reference", "--seed", str(seed)]
    assert main([*args, "--out", str(out)]) == 0
    return baton.read(out)


def again(trace: Trace, tmp_path: Path) -> Trace:
    path = tmp_path / "out.atif.json"
    baton.write(trace, path)  # the name says which format
    report = ImportReport()
    assert AtifSource().recognises(path)
    (read,) = assemble(AtifSource().read(path, report), report, kind="atif")
    assert not report.skipped
    assert validate(read) == []
    return read


def said(trace: Trace) -> Counter[tuple[Any, ...]]:
    """Every event that somebody recorded, as it was."""
    return Counter(
        (e.agent, e.type, e.decision, e.to, e.tool, e.tokens, e.status, trace.text(e.content_ref), e.role)
        for e in trace.events
        if not e.inferred
    )


def edges(trace: Trace) -> Counter[tuple[str, ...]]:
    """Edges between recorded events that are not an agent's own line, by what their ends are."""
    known = {e.id: f"{e.agent} {e.type} {trace.text(e.content_ref)}" for e in trace.events if not e.inferred}
    return Counter(
        (known[edge.src], edge.type, known[edge.dst])
        for edge in trace.edges
        if edge.src in known and edge.dst in known and edge.type != "temporal" and not edge.inferred
    )


def calls(trace: Trace) -> Counter[tuple[Any, ...]]:
    return Counter(
        (
            c.agent, c.policy, c.prompt_tokens, c.completion_tokens, tuple(trace.prompt_ids(c) or ()),
            tuple(c.completion_ids or ()), tuple(c.logprobs or ()), trace.text(c.completion_ref) or "",
        )
        for c in trace.calls
    )  # fmt: skip


def check_equal(trace: Trace, tmp_path: Path) -> None:
    read = again(trace, tmp_path)
    assert said(read) == said(trace)
    assert calls(read) == calls(trace)
    assert edges(trace) - edges(read) == Counter()
    assert [(r.family, r.unit, r.value) for r in read.rewards] == [
        (r.family, r.unit, r.value) for r in trace.rewards
    ]
    assert read.header.topology == trace.header.topology


def test_everything_comes_back(tmp_path: Path) -> None:
    check_equal(recorded(), tmp_path)


@pytest.mark.parametrize(("topology", "seed"), [("hierarchical", 3), ("swarm", 1), ("debate", 2)])
def test_runs_come_back(topology: str, seed: int, tmp_path: Path) -> None:
    check_equal(run_of(topology, seed, tmp_path), tmp_path)


def test_the_formats_own_rules() -> None:
    """As Harbor's models check them, written down again."""

    def check(document: dict[str, Any]) -> None:
        assert document["schema_version"] == "ATIF-v1.8"
        assert document["agent"].keys() >= {"name", "version"}
        assert [step["step_id"] for step in document["steps"]] == list(range(1, len(document["steps"]) + 1))
        for step in document["steps"]:
            assert step.keys() <= STEP
            assert isinstance(step["message"], str)
            assert step["source"] in ("system", "user", "agent")
            if step["source"] != "agent":
                assert not step.keys() & {"model_name", "tool_calls", "metrics"}
            if step.get("llm_call_count") == 0:
                assert "metrics" not in step
            assert step.get("metrics", {}).keys() <= METRICS
            ids = {use["tool_call_id"] for use in step.get("tool_calls", ())}
            for use in step.get("tool_calls", ()):
                assert isinstance(use["arguments"], dict)
            for result in step.get("observation", {"results": []})["results"]:
                assert result["source_call_id"] in ids

    document = atif_document(recorded())
    check(document)
    children = document["subagent_trajectories"]
    for child in children:
        check(child)
    names = [child["trajectory_id"] for child in children]
    assert len(set(names)) == len(names) == 3
    referred = json.dumps(document).count('"subagent_trajectory_ref"')
    assert referred == 3  # each child by who spawned it
    metrics = next(step["metrics"] for step in document["steps"] if "metrics" in step)
    assert metrics["completion_token_ids"] == [4, 5]
    assert metrics["logprobs"] == [-0.5, -0.25]
    assert document["final_metrics"]["total_prompt_tokens"] == 3 + 1 + 6


def test_harbors_models_take_it() -> None:
    models = pytest.importorskip("harbor.models.trajectories")
    read = models.Trajectory.model_validate(atif_document(recorded()))
    assert len(read.subagent_trajectories) == 3


def test_a_trace_without_payloads_is_written_and_says_nothing(tmp_path: Path) -> None:
    document = atif_document(recorded().without_payloads())
    assert "mine failed" not in json.dumps(document)
    read = again(recorded().without_payloads(), tmp_path)
    assert Counter(e.type for e in read.events if not e.inferred) == Counter(
        e.type for e in recorded().events
    )


@pytest.mark.parametrize(
    "lie",
    [
        {"type": "explode"},
        {"type": "spawn", "event": 7},
        {"type": "message", "event": "e", "decision": "rule"},
        {"event": "e", "type": "message", "seq": 10**40},
        {"event": "e", "type": "message", "after": [["x"]]},
        {"event": "e", "type": "message", "status": "fine", "tokens": -4},
        {"prompt": {}},
        {"rewards": [{"value": "1"}]},
        [],
        "x",
        3,
    ],
)
def test_marks_of_a_stranger_are_not_believed(lie: Any, tmp_path: Path) -> None:
    """What Baton puts beside ATIF is checked when it comes back: a lie is none, and the file is read as ATIF."""

    def damaged(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: lie if key == "baton" else damaged(each) for key, each in value.items()}
        return [damaged(each) for each in value] if isinstance(value, list) else value

    path = tmp_path / "t.json"
    path.write_text(json.dumps(damaged(atif_document(recorded()))))
    report = ImportReport()
    for trace in assemble(AtifSource().read(path, report), report):
        assert validate(trace) == []
        assert len(trace.calls) >= 3
