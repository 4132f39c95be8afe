"""Where a run's figures go besides its folder: each logger by what arrives at its far end, and what never happens."""

from __future__ import annotations

import csv
import importlib.machinery
import json
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from baton import registry
from baton.cli import main
from baton.compose.trust import check_recipe
from baton.errors import MissingExtraError, UsageError
from baton.installed import install_hint
from baton.learn.recipe import Recipe, parse
from baton.learn.run import loggers as module
from baton.learn.run.loggers import LoggedRun, Loggers, asks_network, check_loggers
from baton.settings import plain
from baton.testing import CheckFailed, check_logger

RECIPE = 'about = "x"\n[task]\nname = "game:pandora"\n[[credit]]\nestimator = "group"\n[train]\n'
STEPS: list[tuple[int, dict[str, float]]] = [
    (0, {"eval/untrained/return/mean": 0.25}),
    (1, {"return/mean": 0.5, "step": 1.0}),
    (2, {"return/mean": -1e-9, "kl": 3.0, "step": 2.0}),
    (2, {"eval/team/return/mean": 0.75}),
]


def recipe(train: str) -> Recipe:
    return parse(RECIPE + train, "test")


def going(folder: Path, train: str, resumed_at: int | None = None) -> tuple[Loggers, list[str]]:
    said: list[str] = []
    told = {"started": "2026-01-01", "recipe": "grpo"}
    made = Loggers(recipe(train), folder, lambda: told, said.append)
    made.resumed_at = resumed_at
    return made, said


def played(folder: Path, train: str, resumed_at: int | None = None) -> list[str]:
    """All steps to the loggers of a recipe, and what was said of it."""
    all_of_them, said = going(folder, train, resumed_at)
    for step, scalars in STEPS:
        if resumed_at is None or step > resumed_at:
            all_of_them.log(step, scalars)
    all_of_them.close()
    return said


def fake(monkeypatch: pytest.MonkeyPatch, name: str, **inside: Any) -> types.ModuleType:
    """A package that is not installed, at the outermost edge: what Baton imports."""
    found = types.ModuleType(name)
    found.__spec__ = importlib.machinery.ModuleSpec(name, None)
    for key, value in inside.items():
        setattr(found, key, value)
    monkeypatch.setitem(sys.modules, name, found)
    return found


class FakeWandb:
    """What `wandb.init` gives, and a book of what it was told."""

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}
        self.logged: list[dict[str, float]] = []
        self.metrics: list[tuple[str, str | None]] = []
        self.finished = False

    def init(self, **given: Any) -> FakeWandb:
        self.given = given
        return self

    def define_metric(self, name: str, step_metric: str | None = None) -> None:
        self.metrics.append((name, step_metric))

    def log(self, values: dict[str, float]) -> None:
        self.logged.append(values)

    def finish(self) -> None:
        self.finished = True


def test_wandb_is_offline_unless_somebody_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)  # a key is no wish to send
    book = FakeWandb()
    fake(monkeypatch, "wandb", init=book.init)
    options = 'loggers = ["wandb"]\nlogger_settings = {wandb = {project = "teams", tags = ["a", "b"]}}'
    assert played(tmp_path, options) == []
    assert (book.given["mode"], book.given["project"], book.given["tags"]) == ("offline", "teams", ["a", "b"])
    assert book.given["dir"] == str(tmp_path)
    assert book.given["config"] == plain(recipe(options))
    assert book.logged == [{**scalars, "step": step} for step, scalars in STEPS]
    assert ("*", "step") in book.metrics  # steps that come again after a resume are not dropped
    assert book.finished
    first = book.given["id"]
    played(tmp_path, options.replace("teams", "teams2"), resumed_at=1)
    assert (book.given["id"], book.given["resume"]) == (first, "allow")
    played(tmp_path, 'loggers = ["wandb"]\nlogger_settings = {wandb = {mode = "online"}}')
    assert book.given["mode"] == "online"
    monkeypatch.setenv("WANDB_MODE", "disabled")
    played(tmp_path, 'loggers = ["wandb"]')
    assert book.given["mode"] == "disabled"


class FakeClient:
    """An MLflow server in memory."""

    places: dict[str, dict[str, Any]] = {}  # noqa: RUF012  # one server for the test

    def __init__(self, tracking_uri: str) -> None:
        self.book = self.places.setdefault(
            tracking_uri, {"runs": {}, "metrics": [], "params": {}, "ended": []}
        )

    def get_experiment_by_name(self, name: str) -> Any:
        return types.SimpleNamespace(experiment_id="7") if self.book.get("experiment") == name else None

    def create_experiment(self, name: str, artifact_location: str = "") -> str:
        self.book["artifacts"] = artifact_location
        self.book["experiment"] = name
        return "7"

    def search_runs(self, places: list[str], wanted: str, max_results: int) -> list[Any]:
        assert (places, max_results) == (["7"], 1)
        return [run for run_id, run in self.book["runs"].items() if f"'{run_id}'" in wanted]

    def create_run(self, place: str, tags: dict[str, str], run_name: str) -> Any:
        made = types.SimpleNamespace(info=types.SimpleNamespace(run_id=f"{place}-{run_name}"))
        self.book["runs"][tags["baton.run"]] = made
        return made

    def log_param(self, run_id: str, key: str, value: str) -> None:
        assert key not in self.book["params"], "MLflow takes a parameter once"
        assert run_id == "7-grpo"
        self.book["params"][key] = value

    def log_batch(self, run_id: str, metrics: list[Any]) -> None:
        assert run_id == "7-grpo"
        self.book["metrics"] += [(m.step, m.key, m.value) for m in metrics]

    def set_terminated(self, run_id: str) -> None:
        self.book["ended"].append(run_id)


def test_mlflow_keeps_a_run_in_its_folder_and_finds_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(FakeClient, "places", {})

    def metric(key: str, value: float, timestamp: int, step: int) -> Any:
        assert timestamp > 10**12  # milliseconds
        return types.SimpleNamespace(key=key, value=value, step=step)

    fake(monkeypatch, "mlflow")
    fake(monkeypatch, "mlflow.entities", Metric=metric)
    fake(monkeypatch, "mlflow.tracking", MlflowClient=FakeClient)
    assert played(tmp_path, 'loggers = ["mlflow"]') == []
    ((place, book),) = FakeClient.places.items()
    assert place == f"sqlite:///{tmp_path.resolve()}/mlflow.db"
    expected = [(step, key, value) for step, scalars in STEPS for key, value in scalars.items()]
    assert book["metrics"] == expected
    assert book["artifacts"] == (tmp_path / "mlruns").resolve().as_uri()  # not where somebody stands
    assert book["params"]["task.name"] == '"game:pandora"'
    assert played(tmp_path, 'loggers = ["mlflow"]', resumed_at=1) == []
    assert len(book["runs"]) == 1
    assert book["ended"] == ["7-grpo"] * 2
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///elsewhere.db")
    played(tmp_path, 'loggers = ["mlflow"]')
    assert "sqlite:///elsewhere.db" in FakeClient.places


def test_csv_is_a_table_that_a_resume_goes_on_with(tmp_path: Path) -> None:
    played(tmp_path, 'loggers = ["csv"]')
    with (tmp_path / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["0", "1", "2"]
    assert float(rows[2]["return/mean"]) == -1e-9
    assert rows[1]["kl"] == ""
    assert float(rows[2]["eval/team/return/mean"]) == 0.75
    going_on, _ = going(tmp_path, 'loggers = ["csv"]', resumed_at=1)
    going_on.log(2, {"return/mean": 9.0, "odd, name\n": 1.0})
    going_on.close()
    with (tmp_path / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["step"], row["return/mean"]) for row in rows] == [("0", ""), ("1", "0.5"), ("2", "9.0")]
    assert rows[2]["odd, name\n"] == "1.0"


def test_stdout_is_one_object_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    played(tmp_path, 'loggers = ["stdout"]\nlogger_settings = {stdout = {only = ["return", "kl"]}}')
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[2] == {"run": "grpo", "step": 2, "return/mean": -1e-9, "kl": 3.0}
    assert [line["step"] for line in lines] == [0, 1, 2, 2]


class Failing:
    """Fails where it is told to."""

    closed: list[str] = []  # noqa: RUF012  # of all that were made

    def __init__(self, run: LoggedRun, *, at: str = "make") -> None:
        del run
        self.at, self.calls = at, 0
        if at == "make":
            raise OSError("no such server\nand more")

    def log(self, step: int, scalars: Mapping[str, float]) -> None:
        del scalars
        self.calls += 1
        if self.at == "log" and step >= 1:
            raise ValueError("figures \x1b[2J")

    def close(self) -> None:
        self.closed.append(self.at)
        if self.at == "close":
            raise RuntimeError


@pytest.mark.parametrize(
    ("at", "told"), [("make", "OSError: no such server)"), ("log", "ValueError"), ("close", "")]
)
def test_a_logger_that_fails_is_said_once_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str, told: str
) -> None:
    monkeypatch.setattr(registry, "_registered", registry._registered | {"logger": {"odd": Failing}})
    monkeypatch.setattr(Failing, "closed", [])
    said = played(tmp_path, f'loggers = ["odd", "csv"]\nlogger_settings = {{odd = {{at = "{at}"}}}}')
    assert len(said) == 1
    assert "logger odd failed" in said[0]
    assert told in said[0]
    assert said[0].isprintable()
    assert Failing.closed == (["close"] if at == "close" else [])
    with (tmp_path / "metrics.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 3


def test_ctrl_c_in_a_logger_is_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(run: LoggedRun) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(registry, "_registered", registry._registered | {"logger": {"stop": stop}})
    with pytest.raises(KeyboardInterrupt):
        played(tmp_path, 'loggers = ["stop"]')


def test_what_cannot_be_is_refused_before_anything_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    for name in ("wandb", "mlflow"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        with pytest.raises(MissingExtraError, match="not installed") as refused:
            check_loggers(recipe(f'loggers = ["{name}"]'))
        assert install_hint(name) in str(refused.value)
    monkeypatch.delitem(sys.modules, "tensorboardX", raising=False)
    check_loggers(recipe(""))  # nobody asked for the default
    with pytest.raises(MissingExtraError):
        check_loggers(recipe('loggers = ["csv", "tensorboard"]'))
    for train, words in {
        'loggers = ["wanbd"]': "Did you mean 'wandb'",
        'loggers = ["csv"]\nlogger_settings = {csv = {fil = "x"}}': "Did you mean 'file'",
        'loggers = ["csv"]\nlogger_settings = {csv = {run = "x"}}': "that is the run itself",
        'loggers = ["csv"]\nlogger_settings = {wandb = {project = "x"}}': "would do nothing",
        'loggers = ["wandb"]\nlogger_settings = {wandb = {mode = "on"}}': "mode",
    }.items():
        with pytest.raises(UsageError, match=words):
            check_loggers(recipe(train))


def test_typed_mistakes_are_answered_without_torch(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "grpo", "--set", 'train.loggers=["tensorbord"]']) == 2
    assert "Did you mean 'tensorboard'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("train", "setting"),
    [
        (
            'loggers = ["wandb"]\nlogger_settings = {wandb = {mode = "online"}}',
            "train.logger_settings.wandb.mode",
        ),
        (
            'loggers = ["mlflow"]\nlogger_settings = {mlflow = {tracking_uri = "https://a.example"}}',
            "train.logger_settings.mlflow.tracking_uri",
        ),
    ],
)
def test_a_file_that_sends_figures_away_needs_leave(train: str, setting: str) -> None:
    made = recipe(train)
    assert asks_network(made) == [setting]
    with pytest.raises(UsageError, match="type: --trust"):
        check_recipe(made, "recipe x")
    check_recipe(made, "recipe x", [f"{setting}=typed"])
    with pytest.raises(UsageError, match="type: --trust"):
        check_recipe(made, "recipe x", [f"{setting}_not=typed"])


def test_local_places_need_none() -> None:
    uri = 'loggers = ["mlflow"]\nlogger_settings = {{mlflow = {{tracking_uri = "{}"}}}}'
    for place in ("sqlite:///x.db", "file:///tmp/x", "mlruns"):
        assert asks_network(recipe(uri.format(place))) == []


def test_the_check_tells_a_logger_from_what_is_none() -> None:
    check_logger("csv")
    check_logger("stdout", only=("return",))
    with pytest.raises(CheckFailed, match="without log"):
        check_logger(lambda _: object())  # type: ignore[arg-type, return-value]

    def broken(run: LoggedRun) -> Callable[[], None]:
        if run.resumed_at is not None:
            raise KeyError("x")
        return types.SimpleNamespace(log=lambda *_: None, close=lambda: None)  # type: ignore[return-value]

    with pytest.raises(CheckFailed, match="goes on after step 1"):
        check_logger(broken)  # type: ignore[arg-type]
