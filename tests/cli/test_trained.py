"""Traces that `baton train` kept: replayed without a model, and forked under the run's checkpoints."""

from __future__ import annotations

import json
import shutil
import sys
from itertools import product
from pathlib import Path

import pytest

from baton.cli import main
from baton.compose.advised_run import draft_from_run
from baton.corpus.advice import AdviceAnswers, advise
from baton.learn.recipe import load, parse
from baton.testing import check_recipe
from baton.trace.formats import read_all
from baton.trace.trace import Trace

pytest.importorskip("torch", reason="training needs torch: pip install 'baton-rl[train]'")

SMALL = [
    *(
        "--set",
        "warm.episodes=200",
        "--set",
        "warm.steps=80",
        "--set",
        "warm.rows=16",
        "--set",
        "train.steps=2",
    ),
    *("--set", "rollout.groups=2", "--set", "rollout.group_size=2", "--set", "eval.episodes=2"),
    *("--set", "eval.best_of=1", "--set", "train.checkpoint_every=1"),
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> object:
    """A game, a team of two policies whose contexts grow, and one whose acts are charged."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        places = {}
        for recipe in ("grpo", "dr-mas", "lagrangian"):
            places[recipe] = tmp_path_factory.mktemp("trained") / recipe
            assert main(["train", recipe, *SMALL, "--out", str(places[recipe])]) == 0
        yield places


def traces(run: Path) -> list[Trace]:
    return list(read_all(run / "traces" / "run.db"))


@pytest.mark.parametrize("recipe", ["grpo", "dr-mas", "lagrangian"])
def test_every_trace_of_a_run_is_replayed_without_its_model(
    recipe: str,
    runs: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    found = traces(runs[recipe])
    assert {trace.trace_id.partition("-")[0] for trace in found} == {"before", "after", "step"}
    assert any(trace.charges for trace in found) == (recipe == "lagrangian")
    for place, trace in zip(
        (runs[recipe], runs[recipe] / "traces" / "run.db") * len(found), found, strict=False
    ):
        assert main(["replay", str(place), "--trace", trace.trace_id]) == 0
        assert "identical" in capsys.readouterr().out


def test_a_trace_that_was_changed_is_not_repeated(
    runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = runs["grpo"]
    recipe = run / "recipe.toml"
    kept = recipe.read_text()
    recipe.write_text(kept.replace("num_boxes = 2", "num_boxes = 3"))
    try:
        assert main(["replay", str(run), "--trace", "after-0"]) == 2
    finally:
        recipe.write_text(kept)
    assert "does not repeat its trace" in capsys.readouterr().err


def test_a_fork_answers_by_the_checkpoint_that_played_it(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runs["grpo"]
    anew = set()
    for number, trace in enumerate(traces(run)):
        first = trace.events[0]
        if first.status != "ok" or first.options is None:
            continue
        out = tmp_path / f"{number}.jsonl"
        asked = ["fork", str(run), "--trace", trace.trace_id, "--at", first.id, "--out", str(out)]
        assert main([*asked, "--do", "spawn inspector: look"]) == 0
        step = int(trace.header.meta["train"]["step"])
        played = step - 1 if trace.trace_id.startswith("step") else step
        assert f"by checkpoint step-{played:05d}" in capsys.readouterr().out
        (made,) = read_all(out)
        new = [call for call in made.calls if call != trace.call_by_id.get(call.id)]
        anew |= {call.policy_version == str(played) for call in new}
    assert anew == {True}


def test_a_module_that_the_recipe_beside_it_names_is_not_imported(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run's folder may be a stranger's as well."""
    run = runs["grpo"]
    recipe = run / "recipe.toml"
    kept = recipe.read_text()
    assert kept.count('model = "tiny"') == 1
    recipe.write_text(kept.replace('model = "tiny"', 'model = "scripted:strange_play:f"'))
    out = ["--out", str(tmp_path / "f.jsonl")]
    try:
        assert main(["fork", str(run), "--trace", "after-0", "--at", "orchestrator#1", "--drop", *out]) == 2
        assert main(["replay", str(run), "--trace", "after-0"]) == 0
    finally:
        recipe.write_text(kept)
    (line,) = capsys.readouterr().err.splitlines()
    assert "'strange_play'" in line
    assert "--trust" in line


def test_away_from_its_run_it_says_where_to_look(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "elsewhere.db"
    place.write_bytes((runs["grpo"] / "traces" / "run.db").read_bytes())
    assert main(["replay", str(place), "--trace", "after-0"]) == 2
    assert "DIR/traces/run.db" in capsys.readouterr().err
    run = str(runs["grpo"])
    asked = ["fork", run, "--trace", "after-0", "--at", "orchestrator#1", "--drop", "--policy", "tiny"]
    assert main([*asked, "--out", str(tmp_path / "f.jsonl")]) == 2
    assert "Leave --policy out" in capsys.readouterr().err
    assert json.loads((runs["grpo"] / "run.json").read_text())["status"] == "finished"


def test_credit_by_forks_is_given_where_training_put_the_traces(
    runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """By the weights that played them, as `fork` has it; a copy elsewhere says where to look."""
    run = runs["dr-mas"]
    capsys.readouterr()
    assert main(["credit", str(run), "--estimator", "shapley", "--json"]) == 0
    said = capsys.readouterr()
    assert "shapley runs parts of" in said.err
    for each in json.loads(said.out)["traces"]:
        [trace] = [trace for trace in traces(run) if trace.trace_id == each["trace_id"]]
        spawned = [event.to for event in trace.events if event.type == "spawn"]
        assert [credit["target"] for credit in each["credits"]] == spawned
    elsewhere = run.parent / "copied.jsonl"
    assert main(["convert", str(run), str(elsewhere)]) == 0
    assert main(["credit", str(elsewhere), "--estimator", "shapley"]) == 2
    assert "DIR/traces/run.db" in capsys.readouterr().err


def test_two_training_runs_are_no_group(runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Weights differ from run to run: one rollout of each is not two of one team."""
    alike = runs["dr-mas"]
    twin = alike.parent / "twin"
    shutil.copytree(alike, twin)
    capsys.readouterr()
    args = ("--estimator", "mean", "--json")
    assert main(["credit", str(alike), *args]) == 0
    alone = json.loads(capsys.readouterr().out)["traces"]
    assert main(["credit", str(alike), str(twin), *args]) == 0
    assert json.loads(capsys.readouterr().out)["traces"] == alone * 2


def test_traces_of_training_are_run_again_for_measures(
    runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["measure", str(runs["dr-mas"]), "--trace", "after-0", "--replay"]) == 0
    said = capsys.readouterr()
    assert "was not made by `baton run`" not in said.out
    assert "counted together" not in said.err  # one was asked for


@pytest.mark.parametrize("command", [("credit", "--estimator", "shapley"), ("advise",)])
def test_a_strangers_training_run_is_run_again_only_with_leave(
    command: tuple[str, ...],
    runs: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs["dr-mas"], run)
    recipe = run / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("[task]\nname = ", "[task]\nname = 'strange_task:T' # ", 1))
    (tmp_path / "strange_task.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    capsys.readouterr()
    name, *more = command
    assert main([name, str(run), *more]) == 2
    assert "If you trust it, type: --trust" in capsys.readouterr().err


def test_a_training_run_is_sealed_whole_or_refused_with_what_to_type(
    runs: dict[str, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its store is what --resume, eval and the viewer read, so its traces are copied and stay."""
    run = tmp_path / "run"
    shutil.copytree(runs["grpo"], run)
    before = [trace.trace_id for trace in traces(run)]
    capsys.readouterr()
    assert main(["seal", str(run), str(tmp_path / "sealed")]) == 0
    said = capsys.readouterr().out
    assert f"Sealed {len(before)} traces" in said
    assert "a training run keeps its traces" in said
    assert [trace.trace_id for trace in traces(run)] == before
    assert sorted(trace.trace_id for trace in read_all(tmp_path / "sealed")) == sorted(before)
    assert main(["seal", str(run), str(run)]) == 2
    assert "Give another DIR" in capsys.readouterr().err


@pytest.mark.parametrize(("recipe", "long"), [("grpo", "yes"), ("dr-mas", "no")])
def test_advice_on_a_training_run_reads_its_recipe_and_can_be_trained_by(
    recipe: str, long: str, runs: dict[str, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Task, team, models, start and rates are the run's own; only how credit is given is advised."""
    out = tmp_path / "advised.toml"
    answers = ("--dynamic", "yes", "--bottleneck", long, "--long", long, "--roles", "alike")
    capsys.readouterr()
    assert main(["advise", str(runs[recipe]), *answers, "--out", str(out)]) == 0
    assert "missing" not in capsys.readouterr().out
    own, advised = load(str(runs[recipe] / "recipe.toml")), load(str(out))
    for part in ("task", "team", "policies", "warm", "reward", "eval"):
        assert getattr(advised, part) == getattr(own, part), part
    assert main(["train", str(out), *SMALL, "--set", "train.steps=1", "--out", str(tmp_path / "run")]) == 0


def test_advice_on_plain_runs_can_be_trained_by(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "advised.toml"
    odd = ("--set", "task.num_shards=3", "--instances", "4:6", "--rollouts", "3")
    assert main(["run", "shard-sum", *odd, "--out", str(tmp_path / "odd name")]) == 0
    assert main(["advise", str(tmp_path / "odd name"), "--out", str(out)]) == 0
    capsys.readouterr()
    assert main(["train", str(out), *SMALL, "--set", "train.steps=1", "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr()
    assert "context" not in said.err  # no prompt beyond what the model reads


@pytest.mark.parametrize(("run", "own"), [("grpo", "grpo"), ("grpo", "flagship"), ("dr-mas", "dr-mas")])
def test_whatever_is_advised_for_a_run_passes_all_that_training_checks(
    run: str, own: str, runs: dict[str, Path]
) -> None:
    """24 ways to answer the four questions. flagship learns from options not taken, which few others do."""
    found = traces(runs[run])
    for dynamic, bottleneck, long in product((True, False), repeat=3):
        for roles in ("alike", "heterogeneous", "debate"):
            answers = AdviceAnswers(dynamic=dynamic, bottleneck=bottleneck, long=long, roles=roles)
            drafted = draft_from_run(found, load(own), advise(answers), "odd name")
            check_recipe(parse(drafted.toml))
