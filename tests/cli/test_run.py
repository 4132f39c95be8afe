"""`baton run`, as it is typed: every topology, every kind of mistake, more than one run in a place."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runs import SLOW_RUN, made, slow_environment, started, traces

from baton.cli import main
from baton.team.topology import TOPOLOGIES
from baton.trace.formats import read
from baton.trace.validation import validate


@pytest.mark.parametrize("surface", ["lines", "tools"])
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_every_topology_solves_the_example(
    topology: str, surface: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path / "out", "--surface", surface, topology=topology)
    out = capsys.readouterr().out
    assert "reward   shared 1" in out
    assert "forced" not in out
    assert main(["validate", str(tmp_path / "out")]) == 0
    (trace,) = traces(tmp_path / "out")
    assert trace.header.topology == topology
    assert trace.finished


def test_a_new_user_types_it_in_a_shell(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "baton", "run", "shard-sum", "--out", "runs/sum"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "Type: baton show runs/sum"


@pytest.mark.parametrize("limit", ["tokens=600", "calls=3", "seconds=3"])
def test_a_used_up_budget_is_said_to_have_forced_the_end(
    limit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path, "--set", f"limits.{limit}")
    assert "(forced: " in capsys.readouterr().out
    (trace,) = traces(tmp_path)
    assert validate(trace) == []
    assert [e.status for e in trace.events if e.decision == "stop"] == ["forced"]
    name, _, value = limit.partition("=")
    assert any(e.extra.get("budget") == name for e in trace.events)
    assert trace.costs["wall_clock_s" if name == "seconds" else name] <= float(value)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ("shard-sun", "there is no task 'shard-sun'. Did you mean 'shard-sum'?"),
        ("shard-sum --topology centralised", "Did you mean 'centralized'?"),
        ("shard-sum --policy wroker=reference", "has no role 'wroker'. Did you mean 'worker'?"),
        ("shard-sum --policy scripte:echo", "there is no engine 'scripte'. Did you mean 'scripted'?"),
        ("shard-sum --policy smolm2", "there is no policy 'smolm2'. Did you mean 'smollm2'?"),
        ("shard-sum --policy referense", "there is no policy 'referense'. Did you mean 'reference'?"),
        ("shard-sum --policy smollm2?devise=cpu", "there is no option 'devise'. Did you mean 'device'?"),
        ("shard-sum --policy scripted:ecko", "Did you mean 'echo'?"),
        ("shard-sum --policy scripted:baton.tasks.shard_sum:pley", "Did you mean 'play'?"),
        ("shard-sum --policy scripted:no_such_module:play", "No module named 'no_such_module'"),
        ("shard-sum --policy reference --policy table", "given twice"),
        ("shard-sum --set limits.token=5", "limits has no setting 'token'. Did you mean 'tokens'?"),
        ("shard-sum --set limit.tokens=5", "there is no group 'limit'. Did you mean 'limits'?"),
        ("shard-sum --set max_turn=5", "Did you mean 'max_turns'?"),
        ("shard-sum --set task.num_shard=3", "Did you mean 'num_shards'?"),
        ("shard-sum --set rounds", "Type: --set rounds=VALUE"),
        ("shard-sum --set limits.tokens=many", "limits.tokens is 'many'; expected a whole number."),
        ("shard-sum --set limits.tokens=-5", "expected zero or more"),
        ("shard-sum --set task.num_shards=1.5", "task.num_shards is 1.5; expected a whole number."),
        ("shard-sum --set max_turns=abc", "topology.max_turns is 'abc'; expected a whole number."),
        ("shard-sum --set tools=read_shard", "tools is 'read_shard'; expected a list of text."),
        ('shard-sum --set tools=["read_shart"]', "Did you mean 'read_shard'?"),
        ("shard-sum --topology debate --set method=majoriti", "Did you mean 'majority'?"),
        ("shard-sum --topology swarm --set method=majoriti", "Did you mean 'majority'?"),
        ("shard-sum --topology hierarchical --set levels=1", "at least 2 levels"),
    ],
)
def test_a_mistake_is_one_clear_line(
    args: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *args.split(), "--out", str(tmp_path / "out")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("baton run: ")
    assert told in line
    assert not (tmp_path / "out").exists()  # nothing is begun by a mistake


def test_a_place_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["run", "shard-sum", "--out", str(tmp_path / "file" / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(tmp_path / "file") in line


def test_a_place_holds_many_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(tmp_path)
    made(tmp_path)
    made(tmp_path, "--seed", "1")
    assert [trace.trace_id for trace in traces(tmp_path)] == [
        "shard-sum-centralized-0",
        "shard-sum-centralized-0.2",
        "shard-sum-centralized-1",
    ]
    said = capsys.readouterr().out.splitlines()[-1]
    assert said == f"Type: baton show {tmp_path} --trace shard-sum-centralized-1"
    assert main(said.removeprefix("Type: baton ").split()) == 0  # what it says to type works
    assert main(["validate", str(tmp_path)]) == 0


def test_the_same_seed_gives_the_same_run_and_another_another(tmp_path: Path) -> None:
    first, again, other = (
        traces(made(tmp_path / name, "--seed", seed))[0]
        for name, seed in (("a", "3"), ("b", "3"), ("c", "4"))
    )
    assert first == again
    assert first.calls != other.calls


def test_one_policy_for_a_role_and_another_for_the_rest(tmp_path: Path) -> None:
    made(tmp_path, "--policy", "reference", "--policy", "worker=scripted:echo")
    (trace,) = traces(tmp_path)
    assert {call.role: call.policy for call in trace.calls} == {"orchestrator": "reference", "worker": "echo"}
    assert trace.rewards[0].value == 0.0
    assert validate(trace) == []


def test_ctrl_c_keeps_what_there_is_and_says_how_to_go_on(tmp_path: Path) -> None:
    process = started(tmp_path, SLOW_RUN, until_events=3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert out == ""
    assert err.strip() == "Stopped; everything so far is kept. Type: baton resume out --trust"
    (trace,) = traces(tmp_path / "out")
    assert not trace.finished
    assert len(trace.events) >= 3
    done = subprocess.run(
        [sys.executable, "-m", "baton", "resume", "out", "--trust"],
        cwd=tmp_path,
        env=slow_environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "reward   shared 1" in done.stdout


def test_sampling_for_all_roles_and_for_one(tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    given = ["--set", "sampling.worker.temperature=0", "--set", "sampling.temperature=0.7"]
    assert main(["run", "shard-sum", "--out", out, *given]) == 0
    found = {call.role: call.sampling.temperature for call in read(out).calls if call.sampling is not None}
    assert found == {"orchestrator": 0.7, "worker": 0.0}


@pytest.mark.parametrize(
    "setting", ["sampling.temprature=1", "sampling.wroker.top_p=1", "sampling.temperature=hot"]
)
def test_wrong_sampling_is_one_line(setting: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "shard-sum", "--out", str(tmp_path), "--set", setting]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--set", "latency.jitter=-1"), "latency.jitter is -1; expected 0 to 1,000."),
        (("--set", "latency.jitter=1e308"), "expected 0 to 1,000"),
        (("--set", "sampling.temperature=-1"), "sampling.temperature is -1; expected 0 or more"),
        (("--set", "sampling.worker.top_p=7"), "top_p is 7; expected above 0 and up to 1"),
        (("--set", "sampling.max_tokens=0"), "max_tokens is 0; expected 1 or more"),
        (("--set", "task.num_shards=1000000000"), "expected at most 1,000,000 numbers"),
        (("--seed", "-1"), "--seed -1: expected a whole number from 0"),
        (("--seed", "99999999999999999999999999"), "expected a whole number from 0"),
        (("--policy", "optimal"), "optimal plays games, such as game:pandora; shard-sum is none"),
        (("--policy", "openai:m@http://127.0.0.1:1/v1"), "cannot be reached"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    given: tuple[str, str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "shard-sum", *given, "--out", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not (tmp_path / "out").exists()


def test_a_policy_that_breaks_is_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken_play.py").write_text("def play(request):\n    raise RuntimeError('no more')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    out = str(tmp_path / "out")
    assert main(["run", "shard-sum", "--policy", "scripted:broken_play:play", "--out", out]) == 1
    said = capsys.readouterr()
    assert "3 of 3 calls were not answered, so the reward tells nothing of the team" in said.err
    assert "no more" in said.err
    assert main(["validate", out]) == 0  # what happened is kept


def test_a_model_plays_a_game(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    given = ["--policy", "tiny", "--set", "sampling.max_tokens=8"]
    for task in ("game:pandora", "shard-sum"):
        assert main(["run", task, *given, "--out", str(tmp_path / task.replace(":", "-"))]) == 0
        assert "answers in a row were invalid" in capsys.readouterr().out  # it is untrained, and was asked


def test_a_folder_of_training_is_not_run_into(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.json").write_text("{}")
    assert main(["run", "shard-sum", "--out", str(tmp_path)]) == 2
    assert "holds a training run. Give another --out." in capsys.readouterr().err
    assert not (tmp_path / "run.db").exists()


def test_a_run_takes_no_name_that_is_sealed_beside_it(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    place = str(made(tmp_path / "out"))
    assert main(["seal", place, place]) == 0
    made(tmp_path / "out")
    assert [trace.trace_id for trace in traces(tmp_path / "out")] == [
        "shard-sum-centralized-0.2",
        "shard-sum-centralized-0",
    ]


@pytest.mark.parametrize("odd", [5, "x", [1], {"settings": 3}, {"settings": {"task": 7}}])
def test_a_header_that_says_odd_things_of_its_run_is_one_line(
    odd: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "t.jsonl"
    assert main(["convert", str(made(tmp_path / "out")), str(file)]) == 0
    first, *rest = file.read_text("utf-8").splitlines()
    header = json.loads(first)
    header["meta"]["run"] = odd
    file.write_text("\n".join([json.dumps(header), *rest]) + "\n", "utf-8")
    capsys.readouterr()
    fork = ["fork", "--bar", "worker1", "--out", str(tmp_path / "fork.jsonl")]
    for command in (["replay"], ["credit", "--estimator", "shapley"], fork):
        assert main([command[0], str(file), *command[1:]]) != 0
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"baton {command[0]}: ")


REFUSED = {
    "--policy tiny --set limits.tokens=-1": "Limit tokens=-1: expected zero or more",
    "--policy tiny --set latency.jitter=x": "latency.jitter",
    "--policy nobody=tiny": "has no role 'nobody'",
    "--policy tiny?device=foo": "device 'foo' is not known. Expected cpu, cuda or cuda:N.",
    "--policy torch:/nope": "there is no folder '/nope'. Give the folder",
    "--policy torch:/nope?template=x": "template 'x' is not known",
}


def test_what_needs_no_model_is_refused_before_torch_is_loaded(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom baton.cli import main\n"
        "for words in sys.argv[1:]:\n"
        "    main(['run', 'shard-sum', *words.split(), '--out', 'out'])\n"
        "    print('torch' in sys.modules)\n"
    )
    command = [sys.executable, "-c", code, *REFUSED]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    for told, said in zip(REFUSED.values(), done.stderr.splitlines(), strict=True):
        assert told in said
    assert done.stdout.split() == ["False"] * len(REFUSED)
