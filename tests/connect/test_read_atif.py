"""ATIF: what refers to what, what is missing, what must not be followed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from baton.connect.assemble import assemble
from baton.connect.import_report import ImportReport
from baton.connect.readers.atif import AtifSource
from baton.trace.trace import Trace
from baton.trace.validation import validate

GOLDEN = Path(__file__).parents[1] / "golden" / "connect"


def read(*places: Path) -> tuple[list[Trace], ImportReport]:
    report = ImportReport()
    seen = [each for place in places for each in AtifSource().read(place, report)]
    traces = assemble(seen, report, kind="atif")
    assert [problem for trace in traces for problem in validate(trace)] == []
    return traces, report


def trajectory(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    numbered = [{"step_id": number, **step} for number, step in enumerate(steps, 1)]
    return {"schema_version": "ATIF-v1.7", "agent": {"name": "a", "version": "1"}, "steps": numbered, **more}


def user(text: str) -> dict[str, Any]:
    return {"source": "user", "message": text}


def agent(text: str, **more: Any) -> dict[str, Any]:
    return {"source": "agent", "message": text, **more}


def referring(path: str) -> dict[str, Any]:
    return agent(
        "delegate",
        tool_calls=[{"tool_call_id": "t", "function_name": "task", "arguments": {}}],
        observation={
            "results": [
                {
                    "source_call_id": "t",
                    "content": "r",
                    "subagent_trajectory_ref": [{"trajectory_path": path}],
                }
            ]
        },
    )


def test_one_run_in_three_files_is_one_trace_however_it_is_given() -> None:
    folder = GOLDEN / "atif-1.6"
    (whole,), _ = read(folder)
    (by_root,), _ = read(folder / "trajectory.json")
    assert by_root == whole
    files = sorted(folder.iterdir())
    (by_files,), _ = read(*files)
    (backwards,), _ = read(*reversed(files))
    assert by_files == backwards
    for again in (by_files, whole):
        assert [(event.agent, event.type) for event in again.events] == [
            (event.agent, event.type) for event in whole.events
        ]
    # By hand: three calls of terminus over two files, one of its summariser; copied steps count nowhere.
    assert [(call.agent, call.prompt_tokens, call.completion_tokens) for call in whole.calls] == [
        ("terminus", 10, 4), ("terminus-summary", 50, 7), ("terminus", 30, 6), ("terminus", 33, 2),
    ]  # fmt: skip
    assert whole.costs["tokens"] == 10 + 4 + 50 + 7 + 30 + 6 + 33 + 2


@pytest.mark.parametrize(
    "reference", ["../secret.json", "https://example.org/t.json", "{folder}/secret.json", "gone.json"]
)
def test_only_files_beside_are_followed(tmp_path: Path, reference: str) -> None:
    (tmp_path / "secret.json").write_text(json.dumps(trajectory(user("x"), agent("secret"), session_id="s")))
    (tmp_path / "run").mkdir()
    root = trajectory(user("go"), referring(reference.format(folder=tmp_path)), session_id="r")
    (tmp_path / "run" / "trajectory.json").write_text(json.dumps(root))
    traces, report = read(tmp_path / "run")
    assert report.skipped["a sub-agent's trajectory that is not there"] == 1
    assert not any(trace.text(call.completion_ref) == "secret" for trace in traces for call in trace.calls)


def test_two_agents_that_refer_to_each_other_end(tmp_path: Path) -> None:
    for name, other in (("a.json", "b.json"), ("b.json", "a.json")):
        document = trajectory(user("go"), referring(other), session_id=name)
        (tmp_path / name).write_text(json.dumps(document))
    traces, _ = read(tmp_path)
    assert sum(len(trace.calls) for trace in traces) >= 2


def test_runs_of_one_session_id_stay_apart(tmp_path: Path) -> None:
    for number in range(3):
        document = trajectory(user("go"), agent(f"answer {number}"), session_id="always-the-same")
        (tmp_path / f"{number}.json").write_text(json.dumps(document))
    traces, report = read(tmp_path)
    assert sorted(trace.text(trace.events[-1].content_ref) or "" for trace in traces) == [
        "answer 0",
        "answer 1",
        "answer 2",
    ]
    assert sum(report.joined.values()) == 2


def test_an_agent_that_is_sent_to_again_keeps_its_identity(tmp_path: Path) -> None:
    child = trajectory(user("one"), agent("1"), user("two"), agent("2"), trajectory_id="kid")
    steps = [
        agent(
            "ask", tool_calls=[{"tool_call_id": str(n), "function_name": "task", "arguments": {"n": n}}],
            observation={
                "results": [{"source_call_id": str(n), "subagent_trajectory_ref": [{"trajectory_id": "kid"}]}]
            },
        )
        for n in (1, 2)
    ]  # fmt: skip
    path = tmp_path / "t.json"
    path.write_text(json.dumps(trajectory(user("go"), *steps, session_id="s", subagent_trajectories=[child])))
    (trace,), _ = read(path)
    kinds = [event.type for event in trace.events]
    assert (kinds.count("spawn"), kinds.count("return")) == (1, 2)
    assert len({event.agent for event in trace.events}) == 2
    assert [event.decision for event in trace.events if event.type == "message"] == ["delegate"]


@pytest.mark.parametrize("share", range(1, 10))
def test_a_cut_file_gives_the_steps_that_are_whole(tmp_path: Path, share: int) -> None:
    text = (GOLDEN / "atif-1.4.json").read_text()
    (tmp_path / "t.json").write_text(text[: len(text) * share // 10])
    (whole,), _ = read(GOLDEN / "atif-1.4.json")
    traces, report = read(tmp_path / "t.json")
    assert report.skipped
    for trace in traces:
        found = [(event.type, event.tool, trace.text(event.content_ref)) for event in trace.events]
        assert set(found) <= {
            (event.type, event.tool, whole.text(event.content_ref)) for event in whole.events
        }


def test_a_trial_folder_of_harbor_brings_its_reward(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    shutil.copy(GOLDEN / "atif-1.4.json", tmp_path / "agent" / "trajectory.json")
    result = {"trial_name": "t", "verifier_result": {"rewards": {"reward": 0.5, "style": 1}}}
    (tmp_path / "result.json").write_text(json.dumps(result))
    for number in range(40):  # a job's folder is full of other JSON
        (tmp_path / f"{number}.json").write_text('{"config": 1}')
    assert AtifSource().recognises(tmp_path)
    (trace,), _ = read(tmp_path)
    assert [(reward.channel, reward.value) for reward in trace.rewards] == [("shared", 0.5), ("style", 1.0)]


def test_strange_steps_are_told_and_nothing_breaks(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    document = trajectory(user("go"), agent("fine"), session_id="s")
    document["steps"] += [
        7, {"source": "tool", "message": "?"}, {"source": "agent", "message": None, "tool_calls": ["x", {}]},
        {"source": "agent", "message": "", "metrics": {"prompt_tokens": -3, "completion_tokens": "4"}},
        {"source": "agent", "message": "", "metrics": {"completion_token_ids": [2**40, 1], "prompt_token_ids": [1.5]}},
        {"source": "system", "message": "m", "observation": {"results": [None, {"subagent_trajectory_ref": [{}]}]}},
    ]  # fmt: skip
    path.write_text(json.dumps(document))
    (trace,), report = read(path)
    assert report.entries == 8
    assert report.skipped["a step that is none"] == 1
    assert report.skipped["a step whose source is not known"] == 1
    assert all(call.prompt_tokens is None and call.completion_ids is None for call in trace.calls)
