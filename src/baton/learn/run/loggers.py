"""Loggers: where the figures of a run go besides its folder, which always has them (`metrics.jsonl`, `evals.jsonl`).

    [train]
    loggers = ["tensorboard", "wandb"]
    [train.logger_settings.wandb]
    project = "teams"

    tensorboard  the run's folder, `tensorboard/`; the default, and left out where its package is not installed
    wandb        Weights & Biases, into the run's folder and not over the network unless `mode = "online"`
    mlflow       MLflow, into the run's folder unless `tracking_uri` or MLFLOW_TRACKING_URI says where
    csv          the run's folder, `metrics.csv`: a row for each step, a column for each figure
    stdout       one JSON object a line, for a program that reads along

A logger of your own is what makes one: a class or a function that is called with a `LoggedRun` and its settings by
keyword, and gives something with `log(step, scalars)` and `close()`. `baton.testing.check_logger` checks it.

Invariant: a logger is made, called and closed behind a guard. Whatever it raises is said once and ends the logger, not
the run; and nothing goes over the network that was not asked for.
"""

from __future__ import annotations

import csv
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Protocol

from msgspec import Struct

from baton import registry
from baton.errors import MissingExtraError, UsageError, nearest
from baton.learn.recipe import Recipe, TrainPart
from baton.settings import arguments, plain
from baton.trace.formats.durable import naming


class LoggedRun(Struct, frozen=True, kw_only=True):
    """What a logger is told of the run when it is made."""

    folder: Path
    name: str
    """The recipe's name."""
    run_id: str
    """The same whenever the run goes on."""
    recipe: dict[str, Any]
    """All settings, as a table."""
    resumed_at: int | None = None
    """The step that the run goes on after; None: it begins. Later steps come again."""


class RunLogger(Protocol):
    """Takes a run's figures as they come."""

    def log(self, step: int, scalars: Mapping[str, float]) -> None:
        """The figures of a step, or of an evaluation after it (`eval/WHO/...`)."""
        ...

    def close(self) -> None:
        """No more will come."""
        ...


class TensorBoardLogger:
    """Scalars for TensorBoard, by tensorboardX."""

    package: ClassVar[str] = "tensorboardX"
    extra: ClassVar[str] = "train"

    def __init__(self, run: LoggedRun) -> None:
        from tensorboardX import SummaryWriter

        self._board = SummaryWriter(str(run.folder / "tensorboard"), flush_secs=10)

    def log(self, step: int, scalars: Mapping[str, float]) -> None:
        for name, value in scalars.items():
            self._board.add_scalar(name, value, step)

    def close(self) -> None:
        self._board.close()


class WandbLogger:
    """Weights & Biases. Offline unless told otherwise: `wandb sync FOLDER/wandb/offline-run-*` sends it later."""

    package: ClassVar[str] = "wandb"
    extra: ClassVar[str] = "wandb"

    def __init__(
        self,
        run: LoggedRun,
        *,
        mode: Literal["offline", "online"] | None = None,
        project: str = "baton",
        entity: str | None = None,
        name: str | None = None,
        group: str | None = None,
        tags: tuple[str, ...] = (),
    ) -> None:
        """`mode`: None is what WANDB_MODE says, else offline."""
        chosen = mode or os.environ.get("WANDB_MODE") or "offline"
        if chosen != "online":
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # it would report its own errors
        import wandb

        self._run = wandb.init(
            mode=chosen,
            project=project,
            entity=entity,
            name=name or run.name,
            group=group,
            tags=list(tags),
            id=run.run_id,
            resume="allow",
            dir=str(run.folder),
            config=run.recipe,
            settings={"silent": True, "console": "off"},  # the terminal is the run's own
        )
        # Steps of a run that goes on come again, and its own counter takes none that is lower.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def log(self, step: int, scalars: Mapping[str, float]) -> None:
        self._run.log({**scalars, "step": step})

    def close(self) -> None:
        self._run.finish()


class MlflowLogger:
    """MLflow, through its client: no state of the process is changed."""

    package: ClassVar[str] = "mlflow"
    extra: ClassVar[str] = "mlflow"

    def __init__(
        self,
        run: LoggedRun,
        *,
        tracking_uri: str | None = None,
        experiment: str = "baton",
        name: str | None = None,
    ) -> None:
        from mlflow.entities import Metric
        from mlflow.tracking import MlflowClient

        # Its newer versions keep no runs in plain files any more.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        here = f"sqlite:///{run.folder.resolve() / 'mlflow.db'}"
        place = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or here
        self._metric = Metric
        self._client = MlflowClient(tracking_uri=place)
        known = self._client.get_experiment_by_name(experiment)
        beside = {"artifact_location": (run.folder / "mlruns").resolve().as_uri()} if place == here else {}
        found = self._client.create_experiment(experiment, **beside) if known is None else known.experiment_id
        same = self._client.search_runs([found], f"tags.`baton.run` = '{run.run_id}'", max_results=1)
        if same:
            self._id = same[0].info.run_id
            return
        made = self._client.create_run(found, tags={"baton.run": run.run_id}, run_name=name or run.name)
        self._id = made.info.run_id
        for key, value in _flat_settings(run.recipe):
            self._client.log_param(self._id, key, value)

    def log(self, step: int, scalars: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        metrics = [self._metric(key, value, now, step) for key, value in scalars.items()]
        for first in range(0, len(metrics), _MLFLOW_BATCH):
            self._client.log_batch(self._id, metrics=metrics[first : first + _MLFLOW_BATCH])

    def close(self) -> None:
        self._client.set_terminated(self._id)


_MLFLOW_BATCH = 1000
_MLFLOW_VALUE = 500


def _flat_settings(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Settings by path, as text that MLflow takes."""
    found: list[tuple[str, str]] = []
    for key, value in table.items():
        if isinstance(value, Mapping):
            found += _flat_settings(value, f"{prefix}{key}.")
        else:
            found.append((f"{prefix}{key}", json.dumps(value)[:_MLFLOW_VALUE]))
    return found


class CsvLogger:
    """A table: a row for each step, a column for each figure, empty where it was not measured."""

    def __init__(self, run: LoggedRun, *, file: str = "metrics.csv") -> None:
        self._path = run.folder / file
        self._rows: list[dict[str, str]] = []
        if run.resumed_at is not None and self._path.is_file():
            with self._path.open(newline="", encoding="utf-8") as lines:
                kept = [row for row in csv.DictReader(lines) if int(row["step"]) <= run.resumed_at]
            self._rows = kept
        self._columns = list(self._rows[0]) if self._rows else ["step"]
        self._write()

    def log(self, step: int, scalars: Mapping[str, float]) -> None:
        row = {"step": str(step), **{name: repr(value) for name, value in scalars.items() if name != "step"}}
        if self._rows and self._rows[-1]["step"] == row["step"]:
            row = self._rows.pop() | row  # an evaluation after the step
        self._rows.append(row)
        self._columns += [name for name in row if name not in self._columns]
        self._write()

    def _write(self) -> None:
        """The whole table anew: columns may come later, and it has a row a step."""
        made = self._path.with_name(f"{self._path.name}.new")
        with naming(self._path), made.open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, self._columns, restval="")
            table.writeheader()
            table.writerows(self._rows)
        made.replace(self._path)

    def close(self) -> None:
        """Every row is written."""


class StdoutLogger:
    """One JSON object a line on standard output."""

    def __init__(self, run: LoggedRun, *, only: tuple[str, ...] = ()) -> None:
        """`only`: figures whose name begins so; empty: all."""
        self._run, self._only = run.name, only

    def log(self, step: int, scalars: Mapping[str, float]) -> None:
        wanted = {
            k: v for k, v in scalars.items() if k != "step" and (not self._only or k.startswith(self._only))
        }
        sys.stdout.write(json.dumps({"run": self._run, "step": step, **wanted}) + "\n")
        sys.stdout.flush()

    def close(self) -> None:
        """Nothing is held back."""


LOGGERS: Final[Mapping[str, Callable[..., RunLogger]]] = {
    "tensorboard": TensorBoardLogger,
    "wandb": WandbLogger,
    "mlflow": MlflowLogger,
    "csv": CsvLogger,
    "stdout": StdoutLogger,
}
"""What Baton ships, by name."""

_log = logging.getLogger("baton.loggers")


class Loggers:
    """All loggers of a run, behind a guard."""

    def __init__(
        self,
        recipe: Recipe,
        folder: Path,
        told: Callable[[], Mapping[str, Any]],
        note: Callable[[str], None] | None = None,
    ) -> None:
        """`told` is the run's run.json. Nothing is made before the first figure comes: a run that is only measured
        again logs nothing."""
        self._recipe, self._folder, self._told, self._note = recipe, folder, told, note
        self._open: dict[str, RunLogger] | None = None
        self.resumed_at: int | None = None
        """The step that the run goes on after."""

    def log(self, step: int, scalars: Mapping[str, float]) -> None:
        """Figures of a step, to all that still work."""
        if self._open is None:
            self._open = {}
            told = logged_run(self._folder, self._told(), self._recipe, self.resumed_at)
            for name in self._recipe.train.loggers:
                if made := self._guarded(name, lambda name=name: self._make(name, told)):  # type: ignore[misc]
                    self._open[name] = made
        for name, each in list(self._open.items()):
            self._guarded(name, lambda each=each: each.log(step, scalars))  # type: ignore[misc]

    def _make(self, name: str, run: LoggedRun) -> RunLogger | None:
        build = registry.resolve("logger", name)
        if _is_missing(build) and self._recipe.train.loggers == TrainPart().loggers:
            return None  # nobody asked for it
        made: RunLogger = build(run, **_settings(self._recipe, name, build))
        return made

    def _guarded(self, name: str, do: Callable[[], Any]) -> Any:
        """What `do` gives; where it fails, that is said and the logger is out."""
        try:
            return do()
        except Exception as error:  # a stranger's code, and a run is worth more than its curves
            if self._open is not None:
                self._open.pop(name, None)
            first = str(error).strip().partition("\n")[0]
            why = f"{type(error).__name__}: {''.join(c for c in first if c.isprintable())}"
            (self._note or _log.warning)(
                f"warning: logger {name} failed and is left out from here on ({why}). The run goes on; its figures are "
                "in metrics.jsonl."
            )
            return None

    def close(self) -> None:
        for name, each in list((self._open or {}).items()):
            self._guarded(name, each.close)
        self._open = None


def check_loggers(recipe: Recipe) -> None:
    """Refuse loggers that nobody knows, settings they do not have, and packages that are not installed."""
    part = recipe.train
    for name in part.logger_settings:
        if name not in part.loggers:
            raise UsageError(
                f"train.logger_settings.{name} would do nothing: train.loggers has no {name!r}. "
                + nearest(name, part.loggers or ("none",))
            )
    for name in part.loggers:
        build = registry.resolve("logger", name)
        if not callable(build):
            raise UsageError(f"logger {name!r} is a {type(build).__name__}; expected what makes one.")
        _settings(recipe, name, build)
        if _is_missing(build) and part.loggers != TrainPart().loggers:
            raise MissingExtraError(f"logger {name}", build.extra)


def asks_network(recipe: Recipe) -> Sequence[str]:
    """Settings of loggers by which a run's figures leave this machine."""
    told = recipe.train.logger_settings
    mode, uri = told.get("wandb", {}).get("mode"), told.get("mlflow", {}).get("tracking_uri")
    far = isinstance(uri, str) and "://" in uri and not uri.startswith(("file:", "sqlite:"))
    return [
        *(["train.logger_settings.wandb.mode"] if mode == "online" else []),
        *(["train.logger_settings.mlflow.tracking_uri"] if far else []),
    ]


def logged_run(folder: Path, told: Mapping[str, Any], recipe: Recipe, resumed_at: int | None) -> LoggedRun:
    """What loggers are told of the run in a folder, whose run.json is `told`."""
    from hashlib import blake2b

    begun = f"{told.get('started', '')} {told.get('recipe', '')} {recipe.train.seed} {folder.name}"
    return LoggedRun(
        folder=folder,
        name=str(told.get("recipe", "run")),
        run_id=blake2b(begun.encode(), digest_size=8).hexdigest(),
        recipe=plain(recipe),
        resumed_at=resumed_at,
    )


def _settings(recipe: Recipe, name: str, build: Callable[..., Any]) -> dict[str, Any]:
    """The settings of a logger; its first parameter is the run, and no setting."""
    given, at = recipe.train.logger_settings.get(name, {}), f"train.logger_settings.{name}"
    run = next(iter(signature(build).parameters), "run")
    if run in given:
        raise UsageError(f"{at} has no setting {run!r}: that is the run itself.")
    return arguments(build, given, "", at)


def _is_missing(build: Any) -> bool:
    """Whether a logger says which package it needs, and that is not installed."""
    package = getattr(build, "package", None)
    return package is not None and package not in sys.modules and find_spec(package) is None
