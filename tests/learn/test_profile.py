"""A profile of a run: parts that add up, the same numbers as without it, a file that opens, and going on in it."""

from __future__ import annotations

import json
import random
import selectors
from pathlib import Path
from typing import Any

import pytest
from small_run import GROUP, small

from baton.cli import main
from baton.compose.training import begin, go_on
from baton.learn.run.profile_parts import FILE, TimedSpan, parts, read_events, steps_of, table

TIMES = ("seconds", "rollout_seconds", "update_seconds", "tokens_per_second", "idle")


def by_ticks(spans: list[TimedSpan], whole: TimedSpan) -> dict[str, float]:
    """The same by looking at every nanosecond: what the training thread is in, else what another one does."""

    def path(thread: int, tick: int) -> list[str]:
        inside = [s for s in spans if s.thread == thread and s is not whole and s.begin <= tick < s.end]
        names = [s.name for s in sorted(inside, key=lambda s: (s.begin, -s.end))]
        names = names[: names.index("wait") + 1] if "wait" in names else names
        return list(dict.fromkeys(names))

    found: dict[str, int] = {}
    for tick in range(whole.begin, whole.end):
        mine = path(0, tick)
        other = next((p for thread in (1, 2) if (p := path(thread, tick)) and p[-1] != "wait"), None)
        if mine and mine[-1] == "wait":
            mine = ["idle"] if other is None else [*mine[:-1], *(n for n in other if n not in mine)]
        elif other is not None:
            found["beside"] = found.get("beside", 0) + 1
        name = "/".join(mine) or "rest"
        found[name] = found.get(name, 0) + 1
    return {name: count / 1e9 for name, count in found.items()}


def nested(rng: random.Random, thread: int, begin: int, end: int, names: list[str]) -> list[TimedSpan]:
    """Spans that lie in each other as calls do."""
    found, at = [], begin
    while names and end - at > 4:
        a = rng.randint(at, end - 2)
        b = rng.randint(a + 1, end)
        name = rng.choice(names)
        found.append(TimedSpan(thread, a, b, name))
        if name != "wait":
            found += nested(rng, thread, a, b, [each for each in names if each != name])
        at = b
    return found


@pytest.mark.parametrize("seed", range(12))
def test_parts_are_what_every_moment_was_spent_on(seed: int) -> None:
    rng = random.Random(seed)
    whole = TimedSpan(0, 1000, 1000 + rng.randint(300, 700), "step")
    spans = nested(rng, 0, whole.begin, whole.end, ["rollout", "play", "update", "wait", "odd name"])
    # Other threads begin before the step and end after it; with two of them the order of threads must not matter.
    spans += nested(rng, 1, whole.begin - 50, whole.end + 50, ["engine", "decode", "wait"])
    found = parts([*spans, whole], whole)
    assert found == pytest.approx(by_ticks([*spans, whole], whole), abs=1e-6)
    assert sum(s for name, s in found.items() if name != "beside") == pytest.approx(
        (whole.end - whole.begin) / 1e9, abs=1e-5
    )


def test_two_threads_at_once_are_counted_once() -> None:
    whole = TimedSpan(0, 0, 10_000_000, "step")
    spans = [
        TimedSpan(0, 0, 10_000_000, "wait"),
        TimedSpan(1, 0, 6_000_000, "a"),
        TimedSpan(2, 4_000_000, 8_000_000, "b"),
    ]
    assert parts([whole, *spans], whole) == {"a": 0.006, "b": 0.002, "idle": 0.002}


def finished(session: Any) -> list[dict[str, Any]]:
    lines = list(session.steps())
    session.finish()
    session.close()
    return [{key: value for key, value in line.items() if key not in TIMES} for line in lines]


@pytest.mark.usefixtures("first_weights")
@pytest.mark.parametrize("changes", [{}, {"rollout__overlap": True, "rollout__staleness": 1}])
def test_a_profiled_run_gives_the_same_numbers(tmp_path: Path, changes: dict[str, Any]) -> None:
    recipe = small(GROUP, train__steps=2, eval__episodes=4, **changes)
    before = selectors.DefaultSelector.select
    plain = finished(begin(recipe, "small", tmp_path / "plain"))
    session = begin(recipe, "small", tmp_path / "profiled", profile=True)
    assert finished(session) == plain
    assert not (tmp_path / "plain" / FILE).exists()
    # Nothing is timed any more.
    assert selectors.DefaultSelector.select is before
    assert not {"step", "take", "_update", "observe"} & (
        vars(session.trainer).keys() | vars(session.trainer.rollouts).keys()
    )
    events = json.loads((tmp_path / "profiled" / FILE).read_text())
    threads = {each["args"]["name"] for each in events if each["ph"] == "M"}
    assert {"MainThread", "baton-main"} <= threads
    for event in (each for each in events if each["name"] == "step"):
        told = event["args"]["parts_s"]
        assert sum(s for name, s in told.items() if name != "beside") == pytest.approx(
            event["dur"] / 1e6, abs=1e-4
        )
        tops = {name.partition("/")[0] for name in told}
        assert {"rollout", "credit", "update", "watch", "write"} <= tops
        assert any("decode" in name for name in told) or changes
    assert {each["name"] for each in events} >= {"decode", "prefill", "gradients", "evaluation", "reward"}


@pytest.mark.usefixtures("first_weights")
def test_a_run_that_goes_on_goes_on_in_its_profile(tmp_path: Path) -> None:
    out = tmp_path / "run"
    session = begin(small(GROUP, eval__episodes=4), "small", out, profile=True)
    steps = session.steps()
    for _ in range(3):
        next(steps)
    assert (out / FILE).read_bytes().endswith(b",\n")  # as a kill leaves it, and readers take it
    assert sorted(steps_of(out)) == [1, 2, 3]
    killed = (out / FILE).read_bytes() + b'{"ph":"X","name":"st'
    session.close()
    (out / FILE).write_bytes(killed)
    session = go_on(out, profile=True)  # from the checkpoint after step 2
    assert sorted(steps_of(out)) == [1, 2]
    list(session.steps())
    session.close()
    assert sorted(steps_of(out)) == [1, 2, 3, 4]
    events = [each for each in json.loads((out / FILE).read_text()) if each["name"] == "step"]
    assert [each["args"]["step"] for each in events] == [1, 2, 3, 4]
    times = [each["ts"] for each in events]
    assert times == sorted(times)
    rows = table(out)
    assert rows[1][0] == "all (4 profiled)"
    share = [float(row[2].rstrip("%")) for row in rows if row[0].startswith("  ") and row[0][2] != " "]
    assert sum(share) == pytest.approx(100, abs=1.5)


@pytest.mark.usefixtures("first_weights")
def test_it_is_typed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    recipe = tmp_path / "small.toml"
    from small_run import BASE

    recipe.write_text(BASE + GROUP)
    given = ["--set", "train.steps=1", "--set", "eval.episodes=4", "--out", str(tmp_path / "run")]
    assert main(["train", str(recipe), *given, "--profile"]) == 0
    said = capsys.readouterr().out
    rows = said[said.index("part of a step") : said.index("profile  ")].splitlines()
    for word in ("rollout", "decode", "credit", "update", "idle", "processor time"):
        assert any(row.split()[:1] == word.split()[:1] for row in rows), word
    assert all(len(row) <= 80 and row.isascii() for row in rows)
    assert FILE in said
    assert read_events(tmp_path / "run" / FILE)


def test_a_folder_without_a_profile_has_no_table(tmp_path: Path) -> None:
    assert table(tmp_path) == []
    assert steps_of(tmp_path) == {}
