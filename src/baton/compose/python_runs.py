"""Run, resume, replay, fork and credit for Python programs, as coroutines: what `baton.api` and `baton.aio` offer.

Names and objects mix freely: a task may be a `Task`, a name or `module:attr`; who answers may be an `Engine`, a
specification such as `openai:MODEL@URL`, or a function from a request to its answer. What is an object is written
into the trace by its name alone, so whoever runs that trace again gives it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

import msgspec

from baton.compose.again import as_played, recorded_team, team_again
from baton.compose.credit_traces import credited, credits_of
from baton.compose.reached import warn_of_caps, warn_of_estimates
from baton.compose.run_settings import Settings, name_of, parse_settings
from baton.compose.runs import caps_for, default_id, go_on, one_trace, run_into, traces_at, unfinished
from baton.compose.stores import store_to_resume, store_to_write
from baton.compose.team_from_settings import Given, make_team, task_named, usual_topology, with_room
from baton.credit import Estimator, find
from baton.engine.scripted import ScriptedEngine
from baton.errors import UsageError
from baton.tasks.task import Task
from baton.team import forks, running
from baton.team.action import EVERY_VERB, Action
from baton.team.aggregate import Aggregator
from baton.team.forking import Fork
from baton.team.guard.policy import Guard, guard_of
from baton.team.intervene import BarAgent, Drop, Force, Intervention, Replace
from baton.team.protocol import Engine, Request
from baton.team.running import Run, header_of
from baton.team.surface import Lines, Parsed, Surface
from baton.team.team import Assignment, Team, Topology
from baton.team.tools.tool import Tool
from baton.trace.trace import Trace

Answering = Engine | str | Callable[[Request], str]
"""Who answers: an engine, a specification of one, or a function from a request to its answer."""
Policy = Answering | Mapping[str, Answering]
"""For all roles, or by role; "default" stands for the others."""
TaskLike = Task | Assignment | str
Traces = Trace | str | Path
"""A trace, or the file or folder that holds one."""

T = TypeVar("T")


async def run(
    task: TaskLike,
    team: Team | None = None,
    *,
    topology: str | Topology | None = None,
    policy: Policy = "reference",
    seed: int = 0,
    instance: int | None = None,
    split: Literal["train", "test"] = "train",
    surface: str | Surface = "lines",
    tools: Sequence[str | Tool] = (),
    aggregators: Sequence[str | Aggregator] = (),
    clock: Literal["virtual", "real"] = "virtual",
    settings: Mapping[str, Any] | None = None,
    guard: Guard | Mapping[str, Any] | str | None = None,
    out: str | Path | None = None,
) -> Trace:
    """Let a team work on a task, and get the trace of everything it did.

    `seed` is of the draws; it names the task's instance too, unless `instance` does. Rollouts of one instance,
    which credit compares, are runs with the same instance and other seeds.

    Give a `Team`, or what it is made of: a topology and who answers (`policy`). `settings` are those of `baton run
    --set`, such as `{"limits.tokens": 5000, "rounds": 3}`. Without a topology it is the team that the task brings,
    else `centralized`. Where no limit is set, caps end a run that has gone astray (1,000 agents, 10,000,000 tokens,
    4 hours), with a warning. `guard` is a policy, its table or its file (docs/safety.md). With `out` the trace is
    kept in that folder as it grows, so that a run that is cut off can be resumed.
    """
    if team is not None:
        if guard is not None:
            raise UsageError("a guard is given beside a team: give it to the team, Team.of(..., guard=...).")
        assignment = _assignment(task, seed=team.seed, split=split)
        if out is not None:
            return _told(team, await run_into(store_to_write(str(out)), None, team, assignment))
        header = header_of(team, assignment, caps=caps_for(team.limits))
        return _told(team, await Run(team, assignment, header).go())
    if isinstance(task, Assignment):
        raise UsageError("an assignment is for a team that is there: give team=Team.of(...), or a task.")
    engines, specs = _policies(policy)
    written = parse_settings(settings or {})
    if topology is None:
        topology = usual_topology(task, written["task_settings"])
    told = Settings(
        task=name_of(task),
        topology=name_of(topology),
        policies=specs | {role: name_of(engine) for role, engine in engines.items()},
        tools=tuple(map(name_of, tools)),
        aggregators=tuple(map(name_of, aggregators)),
        split=split,
        seed=seed,
        instance=instance,
        clock=clock,
        surface=name_of(surface),
        guard=None if guard is None else guard_of(guard).table,
        **written,
    )
    given = Given(
        task=None if isinstance(task, str) else task,
        topology=None if isinstance(topology, str) else topology,
        engines=engines,
        surface=None if isinstance(surface, str) else surface,
        tools=tuple(each for each in tools if not isinstance(each, str)),
        aggregators=tuple(each for each in aggregators if not isinstance(each, str)),
    )
    told = with_room(told, given)
    made, assignment = make_team(told, given)
    if out is not None:
        name = default_id(told).translate({ord("<"): None, ord(">"): None})
        return _told(made, await run_into(store_to_write(str(out)), told, made, assignment, trace_id=name))
    header = header_of(made, assignment, caps=caps_for(made.limits), settings=msgspec.to_builtins(told))
    return _told(made, await Run(made, assignment, header).go())


async def replay(
    trace: Traces, team: Team | None = None, task: TaskLike | None = None, *, trust: bool = False
) -> Trace:
    """Run a trace again from its own answers; raises where it does not come out exactly as it was.

    No model is asked. The team and the task are needed where the trace does not name them: where they were objects.
    """
    found, path = _opened(trace)
    if team is None:
        given = Given(task=task if isinstance(task, Task) else None)
        team, assignment = recorded_team(path, found, trust=trust, given=given)
    else:
        assignment = _assignment_of(found, task)
    return as_played(await running.replay(found, team, assignment))


async def fork(
    trace: Traces,
    team: Team | None = None,
    task: TaskLike | None = None,
    *,
    replace: Mapping[str, str] | None = None,
    drop: str | Iterable[str] = (),
    force: Mapping[str, str | Action] | None = None,
    bar: str | Iterable[str] = (),
    person: str | None = None,
    replicate: int = 0,
    policy: Policy | None = None,
    allow_impure: bool = False,
    trust: bool = False,
) -> Fork:
    """Run a trace again with something different; only what depends on it is done anew.

    `replace` gives events another text (`{"worker1#1": "12"}`), `drop` takes their effect away, `force` another action
    (`{"orchestrator#1": "stop 42"}`), `bar` agents that cannot be spawned. `replicate` draws what is new anew.
    """
    found, path = _opened(trace)
    changes: list[Intervention] = [
        *(Replace(event, text, person) for event, text in (replace or {}).items()),
        *(Drop(event, person) for event in _several(drop)),
        *(Force(event, parse_action(action), person) for event, action in (force or {}).items()),
        *(BarAgent(agent) for agent in _several(bar)),
    ]
    if not changes:
        raise UsageError("nothing is different. Give replace, drop, force or bar.")
    team, assignment = _again(found, path, team, task, policy, trust=trust)
    return await forks.fork(found, team, assignment, changes, replicate=replicate, allow_impure=allow_impure)


async def resume(
    path: str | Path,
    team: Team | None = None,
    task: TaskLike | None = None,
    *,
    trace_id: str | None = None,
    policy: Policy | None = None,
    instruct: Mapping[str, str] | None = None,
    trust: bool = False,
) -> list[Trace]:
    """Go on with the runs in a folder that were cut off; what was done is not done again. Gives the finished traces.

    `instruct` is a person's word to agents: `{"orchestrator": "be quick"}`.
    """
    place = store_to_resume(str(path))

    def again(trace: Trace) -> tuple[Team, Assignment]:
        return _again(trace, str(place), team, task, policy, trust=trust)

    names, _ = unfinished(place, trace_id)
    return [(await go_on(place, name, again, instructions=instruct))[1] for name in names]


@overload
async def credit(
    traces: Trace, estimator: str | Estimator = "group", *, unit: str | None = None, **settings: Any
) -> Trace: ...
@overload
async def credit(
    traces: Iterable[Trace] | str | Path,
    estimator: str | Estimator = "group",
    *,
    unit: str | None = None,
    **settings: Any,
) -> list[Trace]: ...
async def credit(
    traces: Trace | Iterable[Trace] | str | Path,
    estimator: str | Estimator = "group",
    *,
    unit: str | None = None,
    group_by: Literal["instance", "task", "none"] = "instance",
    reward: str | Callable[[Trace], float] | None = None,
    team: Team | None = None,
    task: TaskLike | None = None,
    trust: bool = False,
    **settings: Any,
) -> Trace | list[Trace]:
    """Say who earned a team's return: the traces with credit records on them.

    `estimator` is a name of `baton credit --list`, `module:attr`, or an `Estimator`; `settings` are its own. `reward`
    says what the return is: a channel's name, or a function of a trace. Estimators that run traces again need the team
    and the task where these were objects.
    """
    many = traces_in(traces)
    chosen = find(estimator) if isinstance(estimator, str) else estimator
    found = await credits_of(
        chosen,
        many,
        unit=unit,
        group_by=group_by,
        reward=reward,
        settings=settings,
        trust=trust,
        team=team,
        assignment=None if team is None or task is None else _assignment_of(many[0], task),
        paths=[str(traces)] * len(many) if isinstance(traces, str | Path) else None,
    )
    return as_given(traces, list(map(credited, many, found)))


def _told(team: Team, trace: Trace) -> Trace:
    """A new run's trace, with a warning where a cap cut it short that nobody set, or a server did not count."""
    warn_of_caps(trace)
    warn_of_estimates(team)
    return trace


def traces_in(given: Trace | Iterable[Trace] | str | Path) -> list[Trace]:
    """Traces as a list: one, several, or those in a file."""
    if isinstance(given, Trace):
        return [given]
    if isinstance(given, str | Path):
        return traces_at(given)
    if not (found := list(given)):
        raise UsageError("the list: no trace in there.")
    return found


def as_given(given: object, found: list[T]) -> T | list[T]:
    """Results in the form that traces were given in: one for one, a list for several."""
    return found[0] if isinstance(given, Trace) else found


def parse_action(action: str | Action) -> Action:
    """One command of the lines surface, such as `stop 42`."""
    if not isinstance(action, str):
        return action
    (parsed, *more) = Lines().parse(action, frozenset(EVERY_VERB))
    if more or not isinstance(parsed, Parsed):
        why = f"it has {1 + len(more)} commands" if more else getattr(parsed, "message", "")
        raise UsageError(f"force {action!r}: expected one command. {why}")
    return parsed.action


def _policies(given: Policy) -> tuple[dict[str, Engine], dict[str, str]]:
    """Engines that were given, and specifications to make others of, by role."""
    by_role = given if isinstance(given, Mapping) else {"default": given}
    specs = {role: one for role, one in by_role.items() if isinstance(one, str)}
    engines = {role: as_engine(one) for role, one in by_role.items() if not isinstance(one, str)}
    return engines, specs


def as_engine(given: Engine | Callable[[Request], str]) -> Engine:
    """An engine, or a function that answers as one."""
    if isinstance(given, Engine):
        return given
    if not callable(given):
        raise UsageError(
            f"{given!r} answers nobody: expected an engine, its name, or a function of a request."
        )
    return ScriptedEngine(getattr(given, "__name__", type(given).__name__), given)


def _assignment(task: TaskLike, *, seed: int, split: Literal["train", "test"]) -> Assignment:
    if isinstance(task, Assignment):
        return task
    if isinstance(task, str):
        task = task_named(task, {}, "task")
    return task.assignment(task.instance(seed, split))


def _assignment_of(trace: Trace, task: TaskLike | None) -> Assignment:
    """The assignment that a trace worked on."""
    if task is None:
        raise UsageError("a team is given and no task. Give the task as well, as it was run.")
    spec = trace.header.meta.get("run", {}).get("task", {})
    return _assignment(task, seed=spec.get("seed", 0), split=spec.get("split", "train"))


def _again(
    trace: Trace,
    path: str | None,
    team: Team | None,
    task: TaskLike | None,
    policy: Policy | None,
    *,
    trust: bool,
) -> tuple[Team, Assignment]:
    """The team that is given, on the trace's own assignment; else the one that the trace names."""
    if team is not None:
        return team, _assignment_of(trace, task)
    engines, specs = _policies({} if policy is None else policy)
    given = Given(task=task if isinstance(task, Task) else None, engines=engines)
    return team_again(trace, specs, path=path, trust=trust, given=given)[:2]


def _opened(given: Traces) -> tuple[Trace, str | None]:
    """A trace, and where it is kept; None: nowhere."""
    return (given, None) if isinstance(given, Trace) else (one_trace(str(given), None), str(given))


def _several(given: str | Iterable[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)
