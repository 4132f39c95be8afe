"""`baton steer`, typed beside a run that goes on in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gated_run import Gated

from baton.cli import main
from baton.compose import steering
from baton.team.people import Act
from baton.trace.trace import Trace


@pytest.fixture
def going(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gated]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    made = Gated(tmp_path)
    yield made
    made.close()


def steer(*words: str) -> int:
    return main(["steer", "runs", *words, "--wait", "60"])


def people(trace: Trace) -> list[tuple[str, str]]:
    return [(e.extra["do"], e.status) for e in trace.events if e.type == "human_intervention"]


def test_a_run_is_paused_spoken_to_and_goes_on(going: Gated, capsys: pytest.CaptureFixture[str]) -> None:
    assert steer("pause") == 0
    assert "paused   human#1" in capsys.readouterr().out
    going.until(lambda: steering.now(going.store).runs[going.trace().trace_id].paused)  # type: ignore[union-attr]
    assert steer() == 0
    assert "worker1 (worker)" in capsys.readouterr().out
    assert steer("say", "be quick", "--team", "--by", "ann") == 0
    assert steer("stop", "worker2", "too dear") == 0
    assert steer("say", "x", "--to", "worker9") == 1
    assert "there is no agent 'worker9'" in capsys.readouterr().err
    assert steer("go") == 0
    trace = going.end()
    assert people(trace) == [
        ("pause", "ok"), ("say", "ok"), ("stop", "ok"), ("say", "invalid"), ("go", "ok"),
    ]  # fmt: skip
    assert not steering.now_path(going.store).exists()
    capsys.readouterr()
    assert steer("pause") == 2
    assert "nothing to steer" in capsys.readouterr().err


def test_a_run_that_was_killed_while_paused_is_paused_when_it_goes_on(going: Gated) -> None:
    assert steer("pause") == 0
    going.kill()
    assert steering.now(going.store) is None
    assert steer("say", "while you were dead") == 0
    going.open()
    going.start("resume", "runs", "--trust")
    going.until(lambda: len(people(going.trace())) == 2)
    time.sleep(0.3)
    assert not going.trace().finished
    assert steer("go") == 0
    assert people(going.end()) == [("pause", "ok"), ("say", "ok"), ("go", "ok")]


def test_who_steers_is_killed_in_the_middle_of_a_word(going: Gated) -> None:
    trace_id = going.trace().trace_id
    steering.send(going.store, trace_id, Act(id="a", text="whole"))
    with steering.acts_path(going.store).open("ab") as file:
        file.write(b'{"trace":"' + trace_id.encode() + b'","act":{"id":"b","text":"ha')
    assert steer("say", "after") == 0
    said = [going.trace().text(e.content_ref) for e in going.end().events if e.type == "human_intervention"]
    assert said == ["whole", "after"]


def test_others_may_not_steer(going: Gated, capsys: pytest.CaptureFixture[str]) -> None:
    path = steering.acts_path(going.store)
    line = {"trace": going.trace().trace_id, "act": {"id": "x", "do": "stop", "to": "orchestrator"}}
    path.write_text(json.dumps(line) + "\n")
    path.chmod(0o666)
    assert steer("pause") == 2
    assert "others may write it" in capsys.readouterr().err
    path.rename(going.folder / "elsewhere")
    path.symlink_to(going.folder / "elsewhere")
    assert steer("pause") == 2
    assert people(going.end()) == []


def test_acts_are_for_their_owner_alone(tmp_path: Path) -> None:
    store = tmp_path / "run.db"
    before = os.umask(0)
    try:
        steering.send(store, "t", Act(text="x"))
    finally:
        os.umask(before)
    assert steering.acts_path(store).stat().st_mode & 0o077 == 0


def test_a_new_run_is_not_told_what_an_old_one_was(tmp_path: Path) -> None:
    store = tmp_path / "run.db"
    for trace in ("old", "other", "old"):
        steering.send(store, trace, Act(text=trace))
    steering.forget(store, "old")
    desk = steering.Desk(store)
    assert [act.text for act in desk.heard("other")] == ["other"]
    assert desk.heard("old") == []


def test_many_who_steer_at_once_lose_nothing(tmp_path: Path) -> None:
    store = tmp_path / "run.db"

    async def all_at_once() -> None:
        await asyncio.gather(
            *(asyncio.to_thread(steering.send, store, "t", Act(text="ü" * 5000 + str(n))) for n in range(40))
        )

    asyncio.run(all_at_once())
    assert len(steering.Desk(store).heard("t")) == 40


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["jump"], "there is no act 'jump'"),
        (["say"], "expected baton steer"),
        (["edit", "worker1#1"], "expected baton steer"),
        (["pause", "--to", "worker1"], "--to and --team are for say"),
        (["say", "a", "b"], "Put a text in quotes"),
        (["pause", "--trace", "nothing"], "has no trace 'nothing'"),
    ],
)
def test_a_mistake_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], why: str
) -> None:
    out = str(tmp_path / "runs")
    assert main(["run", "shard-sum", "--out", out]) == 0
    steering.now_path(tmp_path / "runs" / "run.db").write_text("{torn")
    from baton.trace.formats.sqlite.store import Store

    with Store.open(tmp_path / "runs" / "run.db") as store:
        from baton.trace.trace import Header

        store.begin(Header(trace_id="live", task_id="t"))
        store.commit()
    capsys.readouterr()
    assert main(["steer", out, *words]) == 2
    told = capsys.readouterr().err
    assert why in told
    assert told.count("\n") == 1
