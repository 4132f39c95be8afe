"""Traces that `baton train` kept, set up to be run again: the team by the run's recipe, new answers by its checkpoints.

Both stand in the run's folder, so a trace can be run again where training put it: DIR/traces/run.db.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import structs

from baton.cli.train import need_torch
from baton.compose.trust import check_trusted, team_again
from baton.errors import TraceError, UsageError
from baton.learn.run.folder import read_recipe
from baton.learn.stage import Stage
from baton.tasks.task import Split
from baton.team.protocol import Answer, Engine, EngineError, Entry, Request
from baton.team.team import Assignment, Team
from baton.trace.numbers import Ints
from baton.trace.records import Call
from baton.trace.trace import Trace, meta_as


def kept_in(path: str) -> str:
    """A run's folder stands for its traces."""
    place = Path(path) / "traces" / "run.db"
    return str(place) if (Path(path) / "run.json").is_file() and place.is_file() else path


def is_trained(trace: Trace) -> bool:
    """Whether `baton train` made it."""
    return "train" in trace.header.meta


def as_played(trace: Trace) -> Trace:
    """Without what training added when it was over: rewards by the recipe, and credits."""
    return structs.replace(trace, rewards=(), credits=())


def recorded_team(path: str, trace: Trace) -> tuple[Team, Assignment]:
    """The team that made a trace, knowing nothing but its own answers. No model is loaded."""
    stage = Stage(read_recipe(_run_of(path, trace)))
    names = meta_as(trace.header, dict[str, str], "run", "policies") or {}
    return _set_up(stage, trace, {role: _Recorded(trace, names.get(role, role)) for role in stage.roles})


def playing_team(path: str, trace: Trace, *, trust: bool) -> tuple[Team, Assignment, str]:
    """The same with the weights of the checkpoint nearest to those that played it, whose name comes third."""
    from baton.learn.run import checkpoint
    from baton.learn.run.session import Session

    need_torch()
    run = _run_of(path, trace)
    if not trust:
        recipe = read_recipe(run)
        named = {name: part.model for name, part in recipe.policies.items()}
        check_trusted(named, f"the recipe beside trace {trace.trace_id!r}")
    place = _nearest(run, trace)
    print(f"loading {place}", file=sys.stderr)
    session = Session.open(run)
    checkpoint.load_weights(place, session.trainer.policies)
    session.trainer.rollouts.publish()
    policies = session.trainer.policies.values()
    engines = {role: _Playing(policy.engine) for policy in policies for role in policy.roles}
    return *_set_up(session.trainer.stage, trace, engines), place.name


def team_of(
    path: str, trace: Trace, policies: Mapping[str, str], *, trust: bool
) -> tuple[Team, Assignment, str | None]:
    """Whoever can run a trace again; of one that `baton train` made, with the checkpoint that answers."""
    if not is_trained(trace):
        return *team_again(trace, policies, trust=trust), None
    if policies:
        raise UsageError(
            f"trace {trace.trace_id} was made by `baton train`: new answers are by the run's checkpoints. "
            "Leave --policy out."
        )
    return playing_team(path, trace, trust=trust)


def _set_up(stage: Stage, trace: Trace, engines: Mapping[str, Engine]) -> tuple[Team, Assignment]:
    told = _told(trace)
    assignment = stage.assignment(told.instance, told.split)
    return stage.team(engines, assignment, meta_as(trace.header, int, "run", "seed") or 0), assignment


class _Told(msgspec.Struct, frozen=True, kw_only=True):
    """What training writes into a trace's header of where it comes from."""

    step: int
    instance: int
    split: Split


def _told(trace: Trace) -> _Told:
    found = meta_as(trace.header, _Told, "train")
    if found is None:
        raise TraceError(f"trace {trace.trace_id} does not say which step of training it is of.")
    return found


def _run_of(path: str, trace: Trace) -> Path:
    """The folder of the run, beside the trace."""
    place = Path(path).resolve()
    for folder in (place, *place.parents[:2]):
        if (folder / "recipe.toml").is_file() and (folder / "run.json").is_file():
            return folder
    raise TraceError(
        f"trace {trace.trace_id} was made by `baton train`, and the run's recipe is not beside {path}. Give the trace "
        "where training put it: DIR/traces/run.db, in the run's folder."
    )


def _nearest(run: Path, trace: Trace) -> Path:
    """The checkpoint nearest to the weights that played a trace: of a step, those before it."""
    step = _told(trace).step - bool(re.match(r"step-\d", trace.trace_id))
    found = sorted(path for path in (run / "checkpoints").glob("step-*") if path.is_dir())
    if not found:
        raise UsageError(f"{run} has no checkpoint, so nobody could answer anew.")
    return min(found, key=lambda place: abs(int(place.name.removeprefix("step-")) - step))


class _Recorded:
    """Reads what was read, by its record. It is never asked for an answer."""

    def __init__(self, trace: Trace, name: str) -> None:
        self.name = name
        self._ids = {
            (trace.text(call.prompt_ref), _said(trace, call)): call.prompt_ids for call in trace.calls
        }

    def encode(self, entries: Sequence[Entry], after: Answer | None) -> Ints | None:
        text = msgspec.json.encode(list(entries)).decode()
        return self._ids.get((text, None if after is None else after.completion_ids))

    async def answer(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
        return [EngineError("this was not recorded") for _ in requests]


def _said(trace: Trace, call: Call) -> Ints | None:
    """What its agent had said before, on top of which it read."""
    return None if call.parent is None else trace.call_by_id[call.parent].completion_ids


class _Playing:
    """An engine that does not say which weights it has: what is on record is reused, whoever said it."""

    def __init__(self, engine: Engine) -> None:
        self.name = engine.name
        self.encode = engine.encode
        self.answer = engine.answer
