"""A run's folder: what was asked for, what happened, and everything needed to go on.

    recipe.toml    the resolved recipe
    run.json       what this is, and how it stands
    metrics.jsonl  one line per step; a half-written last line is ignored
    evals.jsonl    what was measured before, between and after
    traces/run.db  every rollout
    checkpoints/   weights and all else a run goes on from; `latest` names the newest good one
    tensorboard/   the same scalars, and what other loggers keep here (`baton.learn.run.loggers`)

Invariant: a line is written after the step it tells of is done, and a checkpoint counts once it is whole.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, cast

import baton
from baton.errors import FormatError, UsageError
from baton.learn.recipe import Recipe, load, resolved
from baton.trace.formats.durable import naming
from baton.trace.formats.recognition import stores_in
from baton.trace.formats.sqlite.store import Store
from baton.trace.formats.sqlite.store_read import list_traces
from baton.trace.trace import Trace

_OF_STEP = re.compile(r"step-(\d+)/")


class Folder:
    """Writes a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._store: Store | None = None

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def traces(self) -> Path:
        return self.path / "traces" / "run.db"

    def check_free(self) -> None:
        """Refuse a folder that holds a run, before anything is computed."""
        if (self.path / "run.json").exists():
            raise UsageError(
                f"{self.path} holds a run already. Type: baton train --resume --out {shlex.quote(str(self.path))}, or "
                "give another --out."
            )
        # `baton replay` and others would look for this run's traces in such stores.
        if stores := stores_in(self.path):
            raise UsageError(
                f"{self.path} holds runs of `baton run` in {stores[0].name}. Give another --out, such as "
                f"{self.path / 'trained'}"
            )

    def begin(self, recipe: Recipe, told: Mapping[str, Any]) -> None:
        """A new run."""
        self.check_free()
        self.path.mkdir(parents=True, exist_ok=True)
        self.traces.parent.mkdir(exist_ok=True)
        with naming(self.path / "recipe.toml"):
            (self.path / "recipe.toml").write_text(resolved(recipe), "utf-8")
        started = datetime.now(UTC).isoformat(timespec="seconds")
        self.tell({"baton": baton.__version__, "started": started, "status": "running", "why": "", **told})

    def tell(self, changes: Mapping[str, Any]) -> None:
        """Change run.json, whole or not at all."""
        known = self.told() if (self.path / "run.json").exists() else {}
        self._replace("run.json", json.dumps({**known, **changes}, indent=2) + "\n")

    def _replace(self, name: str, text: str) -> None:
        """Write a file anew, whole or not at all."""
        made = (self.path / name).with_suffix(".new")
        with self.writing(name):
            made.write_text(text, "utf-8")
            made.replace(self.path / name)

    def told(self) -> dict[str, Any]:
        place = self.path / "run.json"
        if not place.is_file():
            raise UsageError(
                f"{self.path} holds no training run: it has no run.json. Type: baton train RECIPE --out "
                f"{shlex.quote(str(self.path))}"
            )
        try:
            found = json.loads(place.read_bytes())
        except OSError as error:
            raise FormatError(f"{place} cannot be read: {error.strerror}.") from None
        except ValueError as error:  # no JSON, or no UTF-8
            raise FormatError(self._damaged(str(error))) from None
        for key in ("recipe", "status"):
            if not isinstance(found, dict) or not isinstance(found.get(key), str):
                raise FormatError(self._damaged(f"it does not say its {key}"))
        return cast("dict[str, Any]", found)

    def _damaged(self, how: str) -> str:
        """Only run.json itself is lost: what a run goes on from is its recipe and its checkpoints."""
        place, least = self.path / "run.json", '{"recipe": "recipe", "status": "stopped"}'
        return (
            f"{place} is damaged: {how}. The recipe, checkpoints and traces beside it are not touched. To go on, type: "
            f"echo '{least}' > {shlex.quote(str(place))}, then: baton train --resume --out "
            f"{shlex.quote(str(self.path))}"
        )

    def change(self, recipe: Recipe, step: int, changes: Sequence[str]) -> None:
        """A run goes on with other settings: run.json tells, since recipe.toml alone no longer gives the run."""
        if changes:
            self._replace("recipe.toml", resolved(recipe))
            earlier = self.told().get("changes", [])
            self.tell(
                {"steps": recipe.train.steps, "changes": [*earlier, {"step": step, "set": list(changes)}]}
            )

    def forget_after(self, step: int) -> None:
        """Of a run that goes on from a checkpoint: what came after it is done again, its last measurements too."""
        for name in ("metrics.jsonl", "evals.jsonl"):
            place = self.path / name
            if place.exists():
                until = step if name == "metrics.jsonl" else min(step, max(0, step - 1))
                lines = [json.dumps(line) for line in read_lines(place) if _is_until(line, until)]
                self._replace(name, "".join(f"{line}\n" for line in lines))
        if self.traces.exists():
            late = [each.trace_id for each in list_traces(self.traces) if _is_after(each.trace_id, step)]
            if late:
                with self.writing("traces/run.db"):
                    self._opened().drop(late)

    def add(self, name: str, line: Mapping[str, Any]) -> None:
        """One line of metrics or evals."""
        with self.writing(f"{name}.jsonl"), (self.path / f"{name}.jsonl").open("ab+") as file:
            file.write(_line_end(file) + json.dumps(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def keep(self, traces: Sequence[Trace]) -> None:
        """All of a step's traces, in one commit. One that is there already is left as it is."""
        with self.writing("traces/run.db"):
            store = self._opened()
            for trace in traces:
                if trace.trace_id not in store:
                    store.add(trace)
            store.commit()

    def _opened(self) -> Store:
        if self._store is None:
            self.traces.parent.mkdir(parents=True, exist_ok=True)
            self._store = Store.open(self.traces, durability="process")
        return self._store

    @contextmanager
    def writing(self, name: str) -> Iterator[None]:
        """A full disk ends the run with what to do about it; the last checkpoint is whole."""
        try:
            yield
        except (OSError, sqlite3.OperationalError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            raise UsageError(
                f"{self.path / name} cannot be written: {reason or error}. The last checkpoint is good. Make room, "
                f"then type: baton train --resume --out {shlex.quote(str(self.path))}"
            ) from error

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None


def _is_after(trace_id: str, step: int) -> bool:
    """Whether a trace is of a later step, or an example of what the team did in the end."""
    found = _OF_STEP.match(trace_id)
    return trace_id.startswith("after-") if found is None else int(found[1]) > step


def _is_until(line: Mapping[str, Any], step: int) -> bool:
    """Whether a line is of this step or one before. One that does not say is of none."""
    found = line.get("step")
    return isinstance(found, int) and found <= step


def _line_end(file: BinaryIO) -> bytes:
    """What a half-written last line still needs, so that the next one is not lost with it."""
    if file.seek(0, os.SEEK_END) == 0:
        return b""
    file.seek(-1, os.SEEK_END)
    return b"" if file.read(1) == b"\n" else b"\n"


def read_lines(path: Path) -> list[dict[str, Any]]:
    """What was written whole."""
    found = []
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            one = json.loads(line)
        except ValueError:  # cut off, or no text at all
            continue
        if isinstance(one, dict):
            found.append(one)
    return found


def read_recipe(out: Path, changes: Sequence[str] = (), *, trust: bool = False) -> Recipe:
    """The recipe of the run in a folder, changed by `--set`. Code that it names is imported only with `trust`."""
    place = out / "recipe.toml"
    if not place.is_file():
        raise UsageError(
            f"{out} has no recipe.toml, by which its run could go on. Put it back, or train anew: "
            "baton train RECIPE --out OTHER"
        )
    return load(str(place), changes, trust=trust)
