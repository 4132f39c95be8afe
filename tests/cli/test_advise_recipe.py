"""`baton advise TRACES` ends in a recipe: adapted to what the traces show, valid, and honest about what is missing."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import httpx
import pytest

import baton
from baton.cli import main
from baton.learn.recipe import Recipe, load, parse
from baton.serve.backends.scripted import ScriptedBackend
from baton.serve.server import Serving
from baton.testing import check_recipe
from baton.trace.recorder import Recorder

Drafted = dict[str, Any]


def ran(out: Path, *words: str) -> Path:
    assert main(["run", *words, "--out", str(out)]) in (0, 1)
    return out


def drafted(capsys: pytest.CaptureFixture[str], *words: object) -> Drafted:
    capsys.readouterr()
    assert main(["advise", *map(str, words), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    tomllib.loads(found["drafted"]["toml"])  # always TOML, whatever is missing
    assert all(len(line) <= 80 for line in found["drafted"]["toml"].splitlines() if line.startswith("#"))
    return dict(found["drafted"]) | {"advice": found["advice"]["recipe"], "type": found["type"]}


def checked(found: Drafted) -> Recipe:
    """The recipe, held to all that a run of it would be held to."""
    assert found["missing"] == []
    pytest.importorskip("torch")
    return check_recipe(parse(found["toml"], "advised"))


@pytest.mark.parametrize(
    ("words", "topology"),
    [
        (("shard-sum",), "centralized"),
        (("shard-sum", "--topology", "debate", "--instances", "0:2", "--rollouts", "3"), "debate"),
        (("shard-sum", "--topology", "planner_executor_critic"), "planner_executor_critic"),
        (("shard-sum", "--topology", "swarm", "--set", "peers=3"), "swarm"),
        (("shard-sum", "--topology", "hierarchical", "--surface", "tools"), "hierarchical"),
        (("shard-sum", "--topology", "harness", "--set", "task.num_shards=1"), "harness"),
        (("voters", "--topology", "swarm", "--set", "peers=5", "--instances", "0:3"), "swarm"),
        (
            ("game:parallel-pandora", "--policy", "random", "--instances", "0:2", "--rollouts", "5"),
            "centralized",
        ),
        (("game:stopping-chain", "--policy", "random"), "centralized"),
        (("kuhn-poker",), "debate"),
    ],
)
def test_traces_of_baton_give_a_recipe_that_can_be_trained_by(
    words: tuple[str, ...], topology: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = drafted(capsys, ran(tmp_path / "run", *words), "--bottleneck", "yes")
    recipe = checked(found)
    assert (recipe.task.name, recipe.team.topology) == (words[0], topology)
    assert recipe.rollout.group_size == 5 or "5" not in words
    other = checked(drafted(capsys, tmp_path / "run", "--bottleneck", "no", "--long", "yes"))
    assert other.task == recipe.task


def test_what_was_set_is_taken_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--set", "task.num_shards=300", "--set", "task.per_shard=1", "--set", "limits.agents=400")
    found = drafted(capsys, ran(tmp_path / "run", "shard-sum", *words))
    recipe = checked(found)
    assert recipe.task.settings == {"num_shards": 300, "per_shard": 1}
    assert recipe.team.limits["agents"] == 400
    (trace,) = (baton.read(tmp_path / "run"),)
    longest = max(len(trace.text(call.completion_ref) or "") for call in trace.calls)
    assert recipe.team.max_tokens > longest / 4  # all 300 commands have room
    assert "301 agents" in found["toml"]


def test_rules_on_the_traces_become_its_reward(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran(tmp_path / "run", "shard-sum")
    paid = baton.score(baton.read(tmp_path / "run"), "parl")
    baton.write(paid, tmp_path / "paid.jsonl")
    recipe = checked(drafted(capsys, tmp_path / "paid.jsonl"))
    assert [rule["rule"] for rule in recipe.reward.rules] == ["hybrid"]
    assert len(recipe.reward.rules[0]["terms"]) == 3


def test_forks_are_no_rollouts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran(tmp_path / "run", "shard-sum")
    assert (
        main(
            [
                "fork",
                str(tmp_path / "run"),
                "--at",
                "worker2#2",
                "--replace",
                "0",
                "--out",
                str(tmp_path / "run"),
            ]
        )
        == 0
    )
    found = drafted(capsys, tmp_path / "run")
    assert "From 1 trace in" in found["toml"]
    assert "One rollout of each instance" in found["toml"]


def test_a_budget_that_cut_runs_off_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran(tmp_path / "run", "shard-sum", "--set", "limits.tokens=700")
    found = drafted(capsys, tmp_path / "run", "--bottleneck", "yes")
    assert "A budget ended 1 of 1 runs" in " ".join(found["toml"].replace("\n# ", " ").split())
    assert checked(found).team.limits == {"tokens": 700}


@pytest.mark.parametrize("rewarded", [False, True])
def test_a_strangers_traces_say_what_is_missing(
    rewarded: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "their trace.jsonl"
    with Recorder(place, task_id='odd "id"\n[task]', topology="unknown") as team:
        lead = team.agent("lead", role="boss")
        for name in ("one", "two", "three"):
            lead.spawn(name, role="hand", task="dig").returns("dug")
        lead.stop("done")
        if rewarded:
            team.reward("shared", 0.5)
    found = drafted(capsys, place, "--bottleneck", "no", "--roles", "alike")
    said = " ".join(found["missing"])
    assert "a task." in said
    assert "baton init" in said
    assert "a topology: 'unknown'" in said
    assert ("who scores: Rewards on the traces: shared 1" in said) == rewarded
    assert ("a reward: no trace has one" in said) == (not rewarded)
    assert tomllib.loads(found["toml"])["task"] == {"name": "my_task:MyTask"}
    assert "runs traces again, and these cannot be" in found["toml"] or "runtime" not in found["toml"]
    assert (
        main(
            [
                "advise",
                str(place),
                "--bottleneck",
                "no",
                "--roles",
                "alike",
                "--out",
                str(tmp_path / "x.toml"),
            ]
        )
        == 0
    )
    assert "fill in what is missing, then: baton train" in " ".join(capsys.readouterr().out.split())


def test_it_is_written_once_and_says_how_to_train(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran(Path("run"), "game:stopping-chain", "--policy", "random")
    assert main(["advise", "run", "--out", "mine.toml"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.endswith("baton train mine.toml --out runs/mine")
    before = Path("mine.toml").read_text()
    for words, told in {
        ("run", "--out", "mine.toml"): "nothing is overwritten",
        ("run", "--out", "mine.txt"): "ends in .toml",
        ("--out", "x.toml"): "none are given",
    }.items():
        assert main(["advise", *words]) == 2
        assert told in capsys.readouterr().err
    assert Path("mine.toml").read_text() == before
    assert main(["advise", "run"]) == 0
    shown = capsys.readouterr().out
    assert before.splitlines()[1] in shown
    assert "baton advise run --out advised.toml" in shown


@pytest.mark.parametrize("shards", [1, 4, 90])
def test_the_longest_context_of_the_traces_fits_the_model(
    shards: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All that an agent read and said, but for instructions, which the recipe leaves out: a byte is a token or less."""
    words = ("--set", f"task.num_shards={shards}", "--set", "limits.agents=400")
    run = ran(tmp_path / "run", "shard-sum", *words)
    recipe = checked(drafted(capsys, run, "--bottleneck", "yes"))
    trace = baton.read(run)
    read: dict[str, int] = {}
    for call in trace.calls:
        entries = json.loads(trace.text(call.prompt_ref) or "[]")
        new = sum(len(entry["text"].encode()) for entry in entries if entry["speaker"] != "system")
        said = len((trace.text(call.completion_ref) or "").encode())
        read[call.agent] = read.get(call.agent, 0) + new + said
    context = recipe.policies["main"].tiny.context
    assert context >= max(read.values()) + recipe.team.max_tokens
    assert context <= max(2048, 4 * (max(read.values()) + recipe.team.max_tokens))


def test_a_program_that_was_served_is_trained_as_a_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    backend, about = ScriptedBackend(lambda _: "forty-two"), {"engine": "scripted:x"}
    with Serving(tmp_path / "out", backend, about=about) as served:
        said = [{"role": "user", "content": "how many bees?"}]
        address = f"{served.address}/s/bees.1/v1/chat/completions"
        assert httpx.post(address, json={"model": "m", "messages": said}).status_code == 200
    answers = ("--roles", "alike", "--dynamic", "yes", "--bottleneck", "yes")
    assert main(["advise", "out/bees.1.jsonl", *answers, "--out", "advised.toml"]) == 0
    assert "baton credit out/bees.1.jsonl --estimator spawn-replay -- COMMAND" in capsys.readouterr().out
    told = (tmp_path / "advised.toml").read_text()
    assert "baton run" not in told
    assert "[team]" not in told
    (tmp_path / "my_agent.py").write_text("")
    (tmp_path / "questions.jsonl").write_text('{"question": "how many?", "answer": "3"}\n' * 4)
    recipe = load("advised.toml", trust=True)
    assert recipe.program is not None
    assert recipe.program.command[-1] == "{question}"
    assert recipe.policies["main"].model == "smollm2"
    capsys.readouterr()
    assert main(["credit", "out/bees.1.jsonl", "--unit", "team", "--estimator", "group"]) == 2
    assert "baton serve --engine SPEC --out DIR -- COMMAND" in capsys.readouterr().err
