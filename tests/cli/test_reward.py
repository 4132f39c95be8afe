from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runs import made, traces

from baton.cli import main
from baton.trace.formats import read_all
from baton.trace.validation import validate

GOLDEN = Path(__file__).parents[1] / "golden" / "v1"


def typed(capsys: pytest.CaptureFixture[str], *args: object, code: int = 0) -> str:
    capsys.readouterr()
    assert main(["reward", *map(str, args)]) == code
    out, err = capsys.readouterr()
    assert len(err.splitlines()) == (1 if code else 0)
    return err if code else out


def test_a_table_for_each_trace(capsys: pytest.CaptureFixture[str]) -> None:
    out = typed(capsys, GOLDEN / "centralized.jsonl", GOLDEN / "swarm.jsonl", "--recipe", "orchestration")
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["golden-centralized", "port-of-the-service"]
    assert rows[1] == ["channel", "unit", "target", "value"]
    assert ["finish_rate", "team", "golden-centralized", "1"] in rows
    assert ["finish_rate", "team", "golden-swarm", "0.6"] in rows


@pytest.mark.parametrize("form", ["out.jsonl", "out.db", "shards/"])
def test_out_holds_the_records(capsys: pytest.CaptureFixture[str], tmp_path: Path, form: str) -> None:
    paths = sorted(GOLDEN.glob("*.jsonl"))
    out = f"{tmp_path}/{form}"
    found = json.loads(typed(capsys, *paths, "--recipe", "parl", "--json", "--out", out))
    written = {trace.trace_id: trace for trace in read_all(out)}
    assert len(written) == 6
    for entry in found["traces"]:
        trace = written[entry["trace_id"]]
        (reward,) = [r for r in trace.rewards if r.name == "parl"]
        assert [reward.value] == [record["value"] for record in entry["rewards"]]
        assert validate(trace) == []
    again = json.loads(typed(capsys, out, "--recipe", "parl", "--json"))
    assert sorted(again["traces"], key=str) == sorted(found["traces"], key=str)
    assert "is there already" in typed(capsys, *paths, "--recipe", "parl", "--out", out, code=2)


def test_the_task_of_a_run_gives_the_gold(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = made(tmp_path / "run", "--seed", "3", "--set", "task.num_shards=3")
    recipe = tmp_path / "own.toml"
    recipe.write_text('[[rules]]\nrule = "success"\n[[rules]]\nrule = "milestones"\n')
    (entry,) = json.loads(typed(capsys, run, "--recipe", recipe, "--json"))["traces"]
    assert entry["rewards"][0]["by"].endswith("# verified")
    assert entry["rewards"][0]["value"] == traces(run)[0].rewards[0].value == 1.0
    assert [record["value"] for record in entry["rewards"][1:]] == [1 / 3] * 3


def test_a_game_is_worth_its_return(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["run", "game:pandora", "--out", str(tmp_path / "run")]) == 0
    (entry,) = json.loads(typed(capsys, tmp_path / "run", "--recipe", "shared", "--json"))["traces"]
    (recorded,) = traces(tmp_path / "run")[0].rewards
    assert entry["rewards"][0]["value"] == recorded.value != 0.0


def test_gold_from_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    gold = tmp_path / "gold.json"
    for content, value in (({"answer": "9090"}, 0.0), ({"golden-centralized": {"answer": "8080"}}, 1.0)):
        gold.write_text(json.dumps(content))
        out = typed(capsys, GOLDEN / "centralized.jsonl", "--recipe", "shared", "--gold", gold, "--json")
        assert json.loads(out)["traces"][0]["rewards"][0]["value"] == value
    for wrong, said in (
        ('{"anwser": "x"}', "Did you mean 'answer'"),
        ('{"solo": "x"}', "solo: Expected `float | null`"),
        ("[1]", "expected an object"),
        ("{", "not valid JSON"),
    ):
        gold.write_text(wrong)
        err = typed(capsys, GOLDEN / "centralized.jsonl", "--recipe", "shared", "--gold", gold, code=2)
        assert said in err


def test_monitors(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    out = typed(capsys, run, "--recipe", "shared", "--monitor")
    assert out.count("quiet") == 3
    assert out.count("not measured  ") == 8  # what nobody could look at is not quiet
    assert "not measured  communication_padding\n       Nothing of that kind is in these traces." in out
    assert "Type: baton run TASK --topology debate --out DIR" in out
    out = typed(capsys, GOLDEN / "debate.jsonl", "--recipe", "shared", "--monitor")
    assert "FIRED  pseudo_parallelism" in out
    found = json.loads(typed(capsys, run, "--recipe", "shared", "--monitor", "--json"))["findings"]
    assert [finding["fired"] for finding in found] == [False] * 11


def test_mistakes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace = GOLDEN / "debate.jsonl"
    assert "Did you mean 'parl'" in typed(capsys, trace, "--recipe", "prl", code=2)
    assert "needs a judge" in typed(capsys, trace, "--recipe", "m-grpo", code=2)
    assert "there is no file" in typed(capsys, trace, "--recipe", tmp_path / "none.toml", code=2)
    (tmp_path / "empty.jsonl").write_text("")
    typed(capsys, tmp_path / "empty.jsonl", "--recipe", "shared", code=2)


def test_names_from_a_trace_cannot_take_effect(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from baton.trace.recorder import Recorder

    with Recorder(tmp_path / "a.jsonl", task_id="\x1b[31m", trace_id="a\nb") as team:
        team.agent("\x07").stop("x")
        team.reward("shared", 1.0)
    out = typed(capsys, tmp_path / "a.jsonl", "--recipe", "shared")
    assert out.replace("\n", "").isprintable()
    assert "a\\nb" in out


def test_gold_of_a_trace_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    gold = tmp_path / "gold.json"
    asked = ["reward", str(GOLDEN / "centralized.jsonl"), "--recipe", "shared", "--gold", str(gold)]
    gold.write_text(json.dumps({"golden-centralised": {"answer": "8080"}}))
    assert main(asked) == 2
    error = capsys.readouterr().err
    assert "no trace 'golden-centralised'" in error
    assert "Did you mean 'golden-centralized'?" in error
    gold.write_text(json.dumps({"golden-centralized": {"answer": "8080"}, "golden-swarm": {"answer": "x"}}))
    assert main(asked) == 0  # a file of more traces than are looked at


def test_what_is_there_is_replaced_only_with_force(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The rule of `credit --out`: text is replaced whole, a store is only ever added to."""
    one, out = GOLDEN / "centralized.jsonl", tmp_path / "out.jsonl"
    typed(capsys, one, GOLDEN / "swarm.jsonl", "--recipe", "parl", "--out", out)
    before = out.read_bytes()
    assert "Type --force to replace it" in typed(capsys, one, "--recipe", "parl", "--out", out, code=2)
    assert out.read_bytes() == before
    typed(capsys, one, "--recipe", "shared", "--out", out, "--force")
    (trace,) = read_all(out)
    assert trace.trace_id == "golden-centralized"
    store = tmp_path / "out.db"
    typed(capsys, one, "--recipe", "parl", "--out", store)
    error = typed(capsys, one, "--recipe", "parl", "--out", store, "--force", code=2)
    assert "only ever added to" in error
