"""What is said of runs that go on, of people who steer them, of a shared memory, and of the task of an instance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from starlette.testclient import TestClient

from baton.cli import main
from baton.cli.view import attached
from baton.compose import steering
from baton.team.shared_memory import KEY
from baton.trace.formats.sqlite.store import write_store
from baton.trace.recorder import Recorder
from baton.trace.records import Event
from baton.trace.trace import Header, Trace
from baton.view.headline import headline, titled
from baton.view.index.line import line_of, task_of
from baton.view.terminal.trace_tree import Options, page
from baton.view.web.diff import compare
from baton.view.web.picture import picture
from baton.view.web.server import make_app
from baton.view.web.traces import Library


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A store with a run that has no end."""
    store = tmp_path / "runs" / "run.db"
    store.parent.mkdir()
    with Recorder(None, task_id="shard-sum/train/3", trace_id="live") as team:
        team.agent("lead").spawn("w")
    write_store([structs.replace(team.trace(), finished=False)], store)
    return store


def show(capsys: pytest.CaptureFixture[str], path: Path) -> str:
    assert main(["show", str(path)]) == 0
    return capsys.readouterr().out


def test_a_run_that_goes_on_is_under_way_and_one_that_broke_off_is_unfinished(
    begun: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with steering.desk_of(begun) as desk:
        desk.seat("live")
        for path in (begun, begun.parent):
            out = show(capsys, path)
            assert "now  under way: the last event is e1, at " in out
            assert "unfinished" not in out.partition("\n\n")[0]
    assert "ended  unfinished: it breaks off after e1, at " in show(capsys, begun)


def test_the_page_hears_that_a_run_died(begun: Path) -> None:
    client = TestClient(make_app(Library([begun.parent]), attached()), base_url="http://127.0.0.1:8321")

    def ask(name: str) -> Any:
        return client.get(f"/api/{name}", params={"place": "runs", "id": "live"}).json()

    with steering.desk_of(begun) as desk:
        desk.seat("live")
        at_work = ask("stamp")["stamp"]
        assert ask("trace")["stamp"] == at_work
        assert ask("headline")["sentences"][0]["about"] == "now"
    assert ask("headline")["sentences"][0]["pieces"][0][0].startswith("unfinished")
    assert ask("stamp")["stamp"] != at_work
    assert ask("trace")["stamp"] == ask("stamp")["stamp"]


def test_nothing_has_happened_yet() -> None:
    trace = Trace(header=Header(trace_id="t", task_id=""), finished=False)
    assert headline(trace, working=True)[0].text == "under way: nothing has happened yet"


def steered() -> Trace:
    """Two agents, a person who speaks to them, and a tool that answers in its own name."""
    events = (
        Event(id="a", seq=1, t=0.0, type="spawn", agent="lead", to="w", role="worker"),
        Event(id="b", seq=2, t=1.0, type="human_intervention", agent="human", to="lead"),
        Event(id="c", seq=3, t=1.0, type="tool_result", agent="nature"),
        Event(id="d", seq=4, t=2.0, type="return", agent="w", to="lead"),
    )
    return Trace(header=Header(trace_id="t", task_id="t"), events=events)


def test_a_person_is_no_agent() -> None:
    told = picture(steered())["agents"]
    agents = dict(zip(told["name"], told["is_agent"], strict=True))
    assert agents == {"lead": True, "w": True, "human": False, "nature": False}
    assert dict(zip(told["name"], told["ending"], strict=True))["human"] is None
    alone = structs.replace(steered(), events=steered().events[:1])
    assert compare(alone, steered())["agents_added"] == []
    assert compare(steered(), alone)["agents_removed"] == []


def test_folded_agents_do_not_count_people() -> None:
    events = [
        Event(id=f"{name}{k}", seq=2 * k + (name == "p"), t=0.0, type=kind, agent=f"{name}{k}")
        for k in range(400)
        for name, kind in (("a", "message"), ("p", "human_intervention"))
    ]
    trace = Trace(header=Header(trace_id="t", task_id="t"), events=tuple(events))
    lines = page(trace, Options(depth=0)).lines
    left = next(text for line in lines for text, _ in line if "left out" in text)
    assert left == "… 370 agents with 740 events left out"  # as many people are left out as agents


def written(**told: Any) -> Event:
    return Event(id="e", seq=1, t=0.0, type="message", agent="a", decision="communicate", extra={KEY: told})


def test_what_was_written_to_a_shared_memory_is_shown_with_its_name() -> None:
    given = {
        "write to shared memory: plan (version 2)": written(name="plan", kind="value", version=2),
        "write to shared memory: pl\\nan": written(name="pl\nan"),
        "read shared memory: plan": structs.replace(
            written(name="plan"), type="orchestrator_decision", decision="none"
        ),
        "read the names in shared memory": structs.replace(
            written(name=""), type="orchestrator_decision", decision="none"
        ),
        "message": written(name=7),
    }
    for title, event in given.items():
        assert titled(event) == title
    trace = Trace(header=Header(trace_id="t", task_id="t"), events=tuple(given.values()))
    tree = ["".join(text for text, _ in line) for line in page(trace, Options()).lines]
    assert "message → shared memory: plan (version 2)" in tree[1]
    assert "orchestrator_decision reads shared memory: plan" in tree[3]
    assert picture(trace)["events"]["chosen"][:2] == list(given)[:2]


@pytest.mark.parametrize(
    ("instance", "told", "task"),
    [
        ("shard-sum/train/0", None, "shard-sum"),
        ("a/train/b/test/17", None, "a/train/b"),
        ("row-12", "jsonl", "jsonl"),
        ("row-12", None, "row-12"),
        ("x/train/", "", "x/train/"),
        ("", None, ""),
        ("x/dev/3", 7, "x/dev/3"),
    ],
)
def test_the_task_of_an_instance(instance: str, told: Any, task: str) -> None:
    assert task_of(instance, told) == task
    meta = {} if told is None else {"run": {"task": {"task": told}}}
    line = line_of(Trace(header=Header(trace_id="t", task_id=instance, meta=meta)))
    assert (line.task, line.instance) == (task, instance)
