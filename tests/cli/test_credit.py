from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from cli_runs import made, traces
from talks import talk

from baton.cli import main
from baton.trace import Recorder, read_all
from baton.trace.formats import write


def scored(path: Path, *totals: float, task_id: str = "t") -> Path:
    """Rollouts of one task: a lead, one worker, one message."""
    for place, total in enumerate(totals):
        with Recorder(path, task_id=task_id, trace_id=f"{task_id}{place}") as team:
            lead = team.agent("lead", role="orchestrator")
            worker = lead.spawn("w1", role="worker", task="look")
            worker.returns(f"answer {place}")
            lead.stop("done")
            team.reward("shared", total)
            team.reward("process", total * 2, name="steps")
    return path


def credit(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    assert main(["credit", *map(str, args)]) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    assert main(["credit", *map(str, args)]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    return error


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    out = credit(capsys, "--list")
    assert "GRPO" in out
    only = credit(capsys, "--list", "--unit", "token")
    assert [line.split()[0] for line in only.splitlines()] == ["estimator", "token-gae"]
    found = json.loads(credit(capsys, "--list", "--json"))
    assert {"name", "units", "needs", "settings", "source", "evidence", "about", "estimand"} == set(found[0])
    assert "there is no unit 'tokn'" in refused(capsys, "--list", "--unit", "tokn")


def test_a_table_for_people(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = scored(tmp_path / "a.jsonl", 0.0, 1.0)
    out = credit(capsys, path, "--unit", "team", "--estimator", "mean", "--reward", "shared")
    rows = [line.split() for line in out.splitlines()]
    assert rows[1][:6] == ["t0", "team", "t0", "-0.5000", "not", "known"]  # one other tells no spread
    assert rows[2][3] == "+0.5000"
    assert rows[3][0] == "assumes:"


def test_json_and_channels(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = scored(tmp_path / "a.jsonl", 0.0, 1.0)
    args = (path, "--unit", "team", "--estimator", "mean", "--json")
    whole = json.loads(credit(capsys, *args))
    assert whole["estimator"]["evidence"] == "P"
    (record,) = whole["traces"][1]["credits"]
    assert record["value"] == pytest.approx(1.5)  # both channels
    assert record["cost_tokens"] == 0
    assert record["assumes"]
    steps = json.loads(credit(capsys, *args, "--reward", "steps"))
    assert steps["traces"][1]["credits"][0]["value"] == pytest.approx(1.0)
    assert "Did you mean 'steps'" in refused(capsys, *args, "--reward", "stepz")


def test_traces_with_their_credits(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path, out = scored(tmp_path / "a.jsonl", 0.0, 1.0), tmp_path / "b.jsonl"
    args = (path, "--estimator", "agent-group", "--out", out)
    credit(capsys, *args)
    kept = list(read_all(out))
    assert [c.target for c in kept[1].credits] == ["lead", "w1"]
    assert "--force" in refused(capsys, *args)
    credit(capsys, out, "--estimator", "agent-group", "--out", out, "--force")
    assert list(read_all(out)) == kept  # in place of the earlier ones, not beside them
    credit(capsys, out, "--estimator", "mean", "--out", out, "--force")
    assert {c.estimator for c in traces(out)[0].credits} == {"agent-group", "mean"}
    (tmp_path / "shards").mkdir()
    assert "only ever added to" in refused(
        capsys, path, "--estimator", "mean", "--out", f"{tmp_path}/shards/"
    )
    assert "does not say which format" in refused(
        capsys, path, "--estimator", "mean", "--out", tmp_path / "x.y"
    )


def test_groups(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    scored(tmp_path / "a.jsonl", 0.0, 1.0, task_id="t")
    path = scored(tmp_path / "a.jsonl", 5.0, 7.0, task_id="u")
    found = json.loads(credit(capsys, path, "--estimator", "mean", "--reward", "shared", "--json"))
    values = [trace["credits"][0]["value"] for trace in found["traces"]]
    assert values == [-0.5, 0.5, -1.0, 1.0]
    alone = refused(capsys, path, "--estimator", "mean", "--group-by", "none")
    assert "needs at least 2; there is 1 of t" in alone
    assert "role-ema" in credit(capsys, "--list")
    credit(capsys, path, "--estimator", "role-ema", "--group-by", "none")


def test_instances_of_one_task_can_be_one_group(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        made(tmp_path / "runs", "--seed", str(seed))
    capsys.readouterr()
    assert "there is 1 of" in refused(capsys, tmp_path / "runs", "--estimator", "mean")
    out = credit(capsys, tmp_path / "runs", "--estimator", "mean", "--group-by", "task")
    assert out.count("+0.0000") == 3


def test_settings(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = scored(tmp_path / "a.jsonl", 0.0, 1.0)
    (tmp_path / "own_values.py").write_text(
        "def value(prefix):\n    return 0.1 * prefix.num_events\n\n\nWRONG = 3\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    args = (path, "--estimator", "telescope", "--unit", "message")
    found = json.loads(credit(capsys, *args, "--set", "value=own_values:value", "--json"))
    assert found["traces"][0]["credits"][0]["value"] == pytest.approx(0.1)
    sys.modules.pop("own_values", None)
    for given, hint in (
        ("value=0.5", "module:function"),
        ("value=no_such_module:f", "PYTHONPATH"),
        ("value=own_values:valu", "no attribute"),
        ("value=own_values:WRONG", "not a function"),
        ("val=1", "Did you mean 'value'"),
        ("value", "not K=V"),
    ):
        assert hint in refused(capsys, *args, "--set", given)
    assert "expected a number" in refused(capsys, path, "--estimator", "group", "--set", "eps=big")
    credit(capsys, path, "--estimator", "group", "--set", "eps=1")


def test_a_setting_with_few_values_takes_no_other(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for seed in (1, 2):
        made(runs, "--seed", str(seed))
    capsys.readouterr()
    for name, given, hint in (
        ("turn-group", "state=contxt", "Did you mean 'context'"),
        ("return-to-go", "per=agnt", "Did you mean 'agent'"),
        ("message-replay", "level=egde", "Did you mean 'edge'"),
        ("shapley", "value=precedense", "Did you mean 'precedence'"),
        ("spawn-fork", "without=dropp", "Did you mean 'drop'"),
        ("spawn-fork", "rate=2.0", "above 0 and up to 1"),
        ("role-ema", "ema=3", "cannot be given on the command line"),
        ("stop-value", "fit=3", "module:function"),
        ("stop-value", "draft=3", "module:function"),
        ("spawn-doubly-robust", "cell=3", "module:function"),
    ):
        assert hint in refused(capsys, runs, "--estimator", name, "--group-by", "task", "--set", given), name
    args = (runs, "--estimator", "shapley", "--group-by", "task", "--set", "value=precedence", "--json")
    found = json.loads(credit(capsys, *args))
    assert "value: precedence" in found["traces"][0]["credits"][0]["assumes"]


def test_no_credit_at_all_is_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for seed in range(6):
        assert (
            main(["run", "game:voters", "--policy", "random", "--seed", str(seed), "--out", str(runs)]) == 0
        )
    capsys.readouterr()
    for name, hint in (
        ("message-replay", "nothing to replay"),
        ("spawn-fork", "choose whether to spawn"),
        ("spawn-doubly-robust", "choose whether to spawn"),
        ("spawn-combined", "choose whether to spawn"),
    ):
        assert hint in refused(capsys, runs, "--estimator", name, "--group-by", "task")
    assert "--set value=module:function" in refused(capsys, runs, "--estimator", "gae", "--group-by", "task")


def test_what_a_trace_cannot_support(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = scored(tmp_path / "a.jsonl", 0.0, 1.0)
    assert "names no calls" in refused(capsys, path, "--estimator", "return-to-go")
    assert "needs value=" in refused(capsys, path, "--estimator", "gae")
    with Recorder(tmp_path / "b.jsonl", task_id="t") as team:
        team.agent("x").stop()
    assert "no reward on the team" in refused(capsys, tmp_path / "b.jsonl", "--estimator", "role-ema")


def test_mistakes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = scored(tmp_path / "a.jsonl", 0.0, 1.0)
    assert "Did you mean 'group'" in refused(capsys, path, "--estimator", "gruop")
    assert "For message:" in refused(capsys, path, "--unit", "message")
    assert "not to 'agent'" in refused(capsys, path, "--unit", "agent", "--estimator", "mean")
    assert "Did you mean 'agent'" in refused(capsys, path, "--unit", "agnt", "--estimator", "mean")
    assert "no traces given" in refused(capsys, "--estimator", "mean")
    (tmp_path / "empty.jsonl").write_text("")
    assert "is empty" in refused(capsys, tmp_path / "empty.jsonl", "--estimator", "mean")
    assert "leave --reward out" in refused(capsys, path, "--estimator", "maporl", "--reward", "shared")


def test_names_from_a_trace_cannot_take_effect(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for _ in range(2):
        with Recorder(tmp_path / "a.jsonl", task_id="t") as team:
            team.agent("\x1b[31m").stop()
            team.reward("shared", 1.0)
    out = credit(capsys, tmp_path / "a.jsonl", "--estimator", "agent-group")
    assert out.replace("\n", "").isprintable()


def test_forks_are_siblings(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A real run, one message replaced, and the two compared where they part."""
    place = made(tmp_path / "run")
    (trace,) = traces(place)
    message = next(event for event in trace.events if event.type == "return")
    fork = tmp_path / "fork.jsonl"
    assert main(["fork", str(place), "--at", message.id, "--replace", "0", "--out", str(fork)]) == 0
    capsys.readouterr()
    found = json.loads(credit(capsys, place, fork, "--estimator", "siblings", "--json"))
    original, changed = found["traces"]
    assert [c["target"] for c in original["credits"]] == [message.id]
    assert original["credits"][0]["value"] == pytest.approx(1.0)
    assert changed["credits"] == []  # nobody chose what the fork says there


def test_credit_that_runs_the_trace_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Each trace is forked by the team and the seed that made it, and the cost is told."""
    for seed in ("1", "2"):
        assert (
            main(
                [
                    "run",
                    "game:spawn-bandit",
                    "--policy",
                    "table",
                    "--seed",
                    seed,
                    "--out",
                    str(tmp_path / "g"),
                ]
            )
            == 0
        )
    place = made(tmp_path / "run")
    capsys.readouterr()
    both = json.loads(
        credit(capsys, tmp_path / "g", "--group-by", "task", "--estimator", "spawn-fork", "--json")
    )
    assert [len(trace["credits"]) for trace in both["traces"]] == [1, 1]
    found = json.loads(credit(capsys, place, "--estimator", "message-replay", "--json"))
    assert sum(record["cost_tokens"] for record in found["traces"][0]["credits"]) > 0
    elsewhere = scored(tmp_path / "a.jsonl", 0.0, 1.0)
    assert "was not made by `baton run`" in refused(capsys, elsewhere, "--estimator", "message-replay")


def test_what_credit_grounds_on_is_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "talks.jsonl"
    plays = [("aa", "x"), ("bb", "x"), ("cc", "y"), ("dd", "y")]
    write([talk(f"t{i}", float(b == "x"), [("a", a), ("b", b)]) for i, (a, b) in enumerate(plays)], path)
    args = (path, "--estimator", "telescope", "--unit", "message")
    out = credit(capsys, *args)
    assert (
        "of 8 events: 0% without credit, 50% told by rollouts that are alike, 0% by the return alone" in out
    )
    assert json.loads(credit(capsys, *args, "--json"))["grounds"]["borrowed"] == 0.5
    plays = [(str(i), f"{i} {i}", f"and {i}x") for i in range(4)]
    write([talk(f"t{i}", i, list(zip("abc", said, strict=True))) for i, said in enumerate(plays)], path)
    assert "Warning: these groups tell hardly any event from another." in credit(capsys, *args)


def test_what_forks_may_cost_is_said_before_they_are_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """15 coalitions of four workers, each at most as dear as the trace: 4.3 times were 350,000 tokens before."""
    run = made(tmp_path / "sum")
    [trace] = traces(run)
    own = sum(event.tokens or 0 for event in trace.events)
    capsys.readouterr()
    assert main(["credit", str(run), "--estimator", "shapley"]) == 0
    said = capsys.readouterr()
    most = own * 15
    assert f"runs parts of 1 trace (~{own:,} tokens) again: up to about ~{most:,} tokens" in " ".join(
        said.err.split()
    )
    spent = [line.split()[-2] for line in said.out.splitlines() if line.endswith("tokens")]
    assert spent[0].startswith("~")  # as estimated as the trace's own
    assert 0 < int(spent[0].lstrip("~").replace(",", "")) < most


def test_shapley_is_capped_by_itself_and_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """2^8 coalitions would be run where nobody says otherwise; the cap is a setting, and one can ask for all."""
    run = made(tmp_path / "sum", "--set", "task.num_shards=8")
    [trace] = traces(run)
    own = sum(event.tokens or 0 for event in trace.events)
    capsys.readouterr()
    assert main(["credit", str(run), "--estimator", "shapley", "--json"]) == 0
    said = capsys.readouterr()
    assert f"up to about ~{64 * own:,} tokens" in said.err
    assert "bound by spend 64" in said.err
    assert "--set spend=null" in said.err
    found = json.loads(said.out)["traces"][0]["credits"]
    assert sum(credit["cost_tokens"] for credit in found) <= 64 * own
    assert any("bound by spend 64" in note for note in found[0]["assumes"])
    args = ("--estimator", "shapley", "--set", "spend=4", "--json")
    assert main(["credit", str(run), *args]) == 0
    said = capsys.readouterr()
    assert "bound by spend 4;" in said.err
    few = json.loads(said.out)["traces"][0]["credits"]
    assert sum(credit["cost_tokens"] for credit in few) < sum(credit["cost_tokens"] for credit in found)


def test_the_refusal_of_one_rollout_names_what_makes_a_group(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = scored(tmp_path / "a.jsonl", 0.5)
    assert "--rollouts N" in refused(capsys, path, "--estimator", "group")


def test_a_trace_that_has_nobody_to_credit_does_not_keep_the_others_from_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """As in a training folder, where some of the measured runs spawn nobody."""
    run = made(tmp_path / "sum")
    assert main(["run", "game:pandora", "--policy", "random", "--seed", "3", "--out", str(run)]) == 0
    capsys.readouterr()
    assert main(["credit", str(run), "--estimator", "shapley", "--json"]) == 0
    said = capsys.readouterr()
    credited, alone = json.loads(said.out)["traces"]
    assert len(credited["credits"]) == 4
    assert alone["credits"] == []
    assert f"no credit for {alone['trace_id']}: trace {alone['trace_id']} has no spawned agents" in said.err
    assert "rollouts of its task" not in said.err
