"""Forks, replays and repeats beside rollouts: never a draw of their own, and always said to be what they are."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import stdev

import pytest
from cli_runs import made, traces

from baton.cli import main
from baton.trace import Recorder
from baton.trace.formats import write
from baton.trace.trace import Trace, is_fork


def rollouts(place: Path, *totals: float) -> Path:
    """Rollouts of one task by a lead and a worker, each of which earns a total."""
    for number, total in enumerate(totals):
        with Recorder(place, task_id="add up", trace_id=f"run {number}") as team:
            lead = team.agent("lead", role="orchestrator")
            lead.spawn("w1", role="worker", task="look").returns(f"answer {number}")
            lead.stop("done")
            team.reward("shared", total)
    return place


def with_fork(place: Path, of: str, total: float) -> Path:
    """The same, with a fork of one of them among them that earns another total."""
    import msgspec

    every = traces(place)
    [whole] = [trace for trace in every if trace.trace_id == of]
    header = msgspec.structs.replace(
        whole.header, trace_id=f"{of}~fork", meta={**whole.header.meta, "forked_from": of}
    )
    rewards = tuple(
        msgspec.structs.replace(each, value=total, target=header.trace_id) for each in whole.rewards
    )
    forked: Trace = msgspec.structs.replace(whole, header=header, rewards=rewards)
    out = place.with_name("with-fork.jsonl")
    write([every[0], forked, *every[1:]], out)
    return out


def credits(capsys: pytest.CaptureFixture[str], *args: object) -> dict[str, list[tuple[float, float | None]]]:
    assert main(["credit", *map(str, args), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    return {
        each["trace_id"]: [(credit["value"], credit.get("stderr")) for credit in each["credits"]]
        for each in found["traces"]
    }


def test_a_running_mean_does_not_take_forks_in(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A = R - b, b <- 0.95 b + 0.05 R over the rollouts in their order, as SPIRAL has it; the fork is not of them."""
    totals = (1.0, 0.0, 3.0)
    place = rollouts(tmp_path / "a.jsonl", *totals)
    forked = with_fork(place, "run 0", 100.0)
    found = credits(capsys, forked, "--estimator", "role-ema")
    baseline = 0.0
    for number, total in enumerate(totals):
        assert [value for value, _ in found[f"run {number}"]] == pytest.approx([total - baseline] * 2)
        baseline = 0.95 * baseline + 0.05 * total
    assert found["run 0~fork"] == []
    assert main(["credit", str(forked), "--estimator", "role-ema"]) == 0
    said = capsys.readouterr()
    assert "a fork is no rollout of its own: run 0~fork" in said.err
    assert (
        main(["credit", str(with_only_forks(forked)), "--estimator", "role-ema"]) == 0
    )  # they are what is asked


def with_only_forks(place: Path) -> Path:
    out = place.with_name("forks.jsonl")
    write([trace for trace in traces(place) if is_fork(trace)], out)
    return out


def test_a_spread_over_rollouts_does_not_count_forks(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The error of a cost-aware return is the spread of its like over the rollouts; forks are judged by themselves."""
    place = rollouts(tmp_path / "a.jsonl", 1.0, 2.0, 4.0)
    alone = credits(capsys, place, "--estimator", "reinforce-cost")
    beside = credits(capsys, with_fork(place, "run 0", 100.0), "--estimator", "reinforce-cost")
    assert {name: beside[name] for name in alone} == alone
    assert beside["run 0~fork"] == [(99.0, None), (100.0, None)]
    # Of the two others, 2 and 4: their spread, widened by Student's t for one degree of freedom.
    assert alone["run 0"][1][1] == pytest.approx(stdev([2.0, 4.0]) * 12.7062 / 1.95996, rel=1e-4)


def test_rewards_mark_forks(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = made(tmp_path / "sum")
    assert main(["fork", str(run), "--at", "worker2#2", "--replace", "0", "--out", str(run)]) == 0
    names = [trace.trace_id for trace in traces(run)]
    capsys.readouterr()
    assert main(["reward", str(run), "--recipe", "parl"]) == 0
    heads = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    assert heads == [
        f"{names[0]}  shard-sum/train/0",
        f"{names[1]}  shard-sum/train/0, a fork of {names[0]}",
    ]
    assert main(["reward", str(run), "--recipe", "parl", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["traces"]
    assert [each["forked_from"] for each in found] == [None, names[0]]


def test_a_process_model_is_learned_from_rollouts_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Forks among them would be learned from, and held out, as if they were draws."""
    run = made(tmp_path / "sum", "--rollouts", "5", "--instances", "0:2")
    gold = tmp_path / "gold.json"
    names = [trace.trace_id for trace in traces(run)]
    gold.write_text(json.dumps({name: {"answer": "no"} for name in names[::2]}))
    learned = tmp_path / "model.json", tmp_path / "again.json"
    assert main(["reward", str(run), "--learn", str(learned[0]), "--gold", str(gold)]) == 0
    at = ["--trace", names[3], "--at", "worker2#2"]
    assert main(["fork", str(run), *at, "--replace", "0", "--out", str(run)]) == 0
    capsys.readouterr()
    assert main(["reward", str(run), "--learn", str(learned[1]), "--gold", str(gold)]) == 0
    assert "1 fork left out" in capsys.readouterr().err
    assert learned[0].read_bytes() == learned[1].read_bytes()


def test_a_list_of_traces_says_which_are_forks(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    place = with_fork(rollouts(tmp_path / "a.jsonl", 1.0, 0.0), "run 1", 0.5)
    assert main(["show", str(place)]) == 0
    marked = [line for line in capsys.readouterr().out.splitlines() if "a fork of run 1" in line]
    assert len(marked) == 1
    assert marked[0].strip().startswith("run 1~fork")
