"""A team set up once more from its trace, to replay it, fork it or go on with it.

Of `baton run` the header says how the team was set up. Of `baton train` the run's folder does: the team by its recipe,
new answers by its checkpoints; so such a trace is run again where training put it, DIR/traces/run.db.

Invariant: a replay loads no model and asks no server: all that is said comes from the record.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from baton.compose.run_settings import Settings, settings_of
from baton.compose.stage_from_recipe import make_stage
from baton.compose.team_from_settings import NOTHING, Given, make_team
from baton.compose.trust import check_named, check_settings, recipe_in
from baton.errors import MissingExtraError, TraceError, UsageError
from baton.learn.run.folder import read_recipe
from baton.learn.stage import Stage
from baton.tasks.task import Split
from baton.team.budget import charging_of
from baton.team.credentials import NO_CREDENTIALS, Credentials
from baton.team.guard.policy import check_guard_trusted
from baton.team.protocol import Answer, Engine, EngineError, Entry, Request
from baton.team.team import Assignment, Team
from baton.trace.formats.recognition import run_beside
from baton.trace.records import Call, Ints
from baton.trace.trace import Trace, meta_as

if TYPE_CHECKING:
    from baton.learn.run.session import Session


def is_trained(trace: Trace) -> bool:
    """Whether `baton train` made it."""
    return "train" in trace.header.meta


def as_played(trace: Trace) -> Trace:
    """Without what training added when it was over: rewards by the recipe, credits, and charges."""
    return structs.replace(trace, rewards=(), credits=(), charges=()) if is_trained(trace) else trace


def recorded_team(
    path: str | None, trace: Trace, *, trust: bool = False, given: Given = NOTHING
) -> tuple[Team, Assignment]:
    """The team that made a trace, knowing nothing but its own answers."""
    names = meta_as(trace.header, dict[str, str], "run", "policies") or {}
    if is_trained(trace):
        stage = make_stage(read_recipe(_run_of(path, trace), trust=trust), task=given.task)
        return _set_up(
            stage, trace, {role: _Recorded(trace, names.get(role, role), role) for role in stage.roles}
        )
    settings = settings_of(trace, {})
    if not trust:
        check_named(settings.named(), f"trace {trace.trace_id!r}")
        check_guard_trusted(settings.guard, f"trace {trace.trace_id!r}")
    if len(set(names.values())) == 1:  # one for all, whatever roles the settings have
        names = {"default": next(iter(names.values()))}
    engines: dict[str, Engine] = {role: _Recorded(trace, name, role) for role, name in names.items()}
    return make_team(structs.replace(settings, policies={}), structs.replace(given, engines=engines))


def team_again(
    trace: Trace,
    policies: Mapping[str, str] | None = None,
    *,
    path: str | None = None,
    trust: bool = False,
    given: Given = NOTHING,
) -> tuple[Team, Assignment, str | None]:
    """Whoever can run a trace again; of one that `baton train` made, with the checkpoint that answers.

    `policies`, typed now, and what is `given` take the place of the trace's own.
    """
    if not is_trained(trace):
        settings = settings_of(trace, policies or {})
        if not trust:
            typed = {*(policies or {}), *given.engines}
            check_settings(settings, f"trace {trace.trace_id!r}", typed)
        return *make_team(settings, given), None
    if policies or given.engines:
        raise UsageError(
            f"trace {trace.trace_id} was made by `baton train`: new answers are by the run's checkpoints. "
            "Leave --policy out."
        )
    runs = TrainedRuns(trust=trust, credentials=given.credentials)
    return *runs.team(path, trace), runs.checkpoint_of(path, trace).name


def own_settings(trace: Trace) -> Settings | None:
    """The settings of a trace of `baton run`; None: another system's, or training's."""
    try:
        return settings_of(trace, {})
    except (TraceError, UsageError):
        return None


def need_torch() -> None:
    """Training and what it made need its extra."""
    try:
        import tomli_w  # noqa: F401
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("training", "train") from error


class TrainedRuns:
    """Training runs, each opened once, to run their traces again by the weights that played them.

    A run's model holds the weights of one checkpoint at a time: those for the trace that was asked about last.
    """

    def __init__(self, *, trust: bool, credentials: Credentials = NO_CREDENTIALS) -> None:
        self._trust = trust
        self._credentials = credentials
        self._opened: dict[Path, Session] = {}
        self._loaded: dict[Path, Path] = {}

    def checkpoint_of(self, path: str | None, trace: Trace) -> Path:
        """The checkpoint nearest to the weights that played a trace, found in its run beside it."""
        return _nearest(_run_of(path, trace), trace)

    def team(self, path: str | None, trace: Trace) -> tuple[Team, Assignment]:
        """The team with these weights, which its model is given."""
        run, place = _run_of(path, trace), self.checkpoint_of(path, trace)
        session = self._session(run)
        if self._loaded.get(run) != place:
            from baton.learn.run import checkpoint

            checkpoint.load_weights(place, session.trainer.policies)
            session.trainer.rollouts.publish()
            self._loaded[run] = place
        engines: dict[str, Engine] = {
            role: _Playing(policy.engine)
            for policy in session.trainer.policies.values()
            for role in policy.roles
        }
        return _set_up(session.trainer.stage, trace, engines)

    def assignment(self, path: str | None, trace: Trace) -> Assignment:
        """What a trace of the run worked on."""
        return _assigned(self._session(_run_of(path, trace)).trainer.stage, trace)

    def _session(self, run: Path) -> Session:
        if run not in self._opened:
            recipe_in(run, trust=self._trust)
            need_torch()
            from baton.compose.training import Own, open_run

            own = Own(credentials=self._credentials)
            self._opened[run] = open_run(run, own=own, trust=self._trust)
        return self._opened[run]


def _assigned(stage: Stage, trace: Trace) -> Assignment:
    told = _told(trace)
    return stage.assignment(told.instance, told.split)


def _set_up(stage: Stage, trace: Trace, engines: Mapping[str, Engine]) -> tuple[Team, Assignment]:
    assignment = _assigned(stage, trace)
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


def _run_of(path: str | None, trace: Trace) -> Path:
    """The folder of the run, beside the trace."""
    if (found := run_beside(path)) is not None:
        return found
    raise TraceError(
        f"trace {trace.trace_id} was made by `baton train`, and the run's recipe is not beside {path or 'it'}. Give "
        "the trace where training put it: DIR/traces/run.db, in the run's folder."
    )


def _nearest(run: Path, trace: Trace) -> Path:
    """The checkpoint nearest to the weights that played a trace: of a step, those before it."""
    step = _told(trace).step - bool(re.match(r"step-\d", trace.trace_id))
    found = sorted(path for path in (run / "checkpoints").glob("step-*") if path.is_dir())
    if not found:
        raise UsageError(f"{run} has no checkpoint, so nobody could answer anew.")
    return min(found, key=lambda place: abs(int(place.name.removeprefix("step-")) - step))


class _Recorded:
    """Reads what was read, by its record. It is never asked for an answer.

    Two roles may read the same text through different tokenizers, so each knows what its own role read.
    """

    def __init__(self, trace: Trace, name: str, role: str) -> None:
        self.name = name
        calls = [call for call in trace.calls if role in (call.role, "default")]
        self._ids = {(trace.text(call.prompt_ref), _said(trace, call)): call.prompt_ids for call in calls}
        self._first = {
            trace.text(call.prompt_ref): call.prompt_ids for call in reversed(calls) if call.parent
        }
        """Of agents that begin with another's context: what they read stands after a call that is not their own."""

    def encode(self, entries: Sequence[Entry], after: Answer | None) -> Ints | None:
        text = msgspec.json.encode(list(entries)).decode()
        known = self._ids.get((text, None if after is None else after.completion_ids))
        return self._first.get(text) if known is None else known

    async def answer(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
        return [EngineError("this was not recorded") for _ in requests]


def _said(trace: Trace, call: Call) -> Ints | None:
    """What its agent had said before, on top of which it read."""
    return None if call.parent is None else trace.call_by_id[call.parent].completion_ids


class _Playing:
    """An engine that does not say which weights it has: what is on record is reused, whoever said it."""

    def __init__(self, engine: Engine) -> None:
        self.name = engine.name
        self.charging = charging_of(engine)
        self.encode = engine.encode
        self.answer = engine.answer
