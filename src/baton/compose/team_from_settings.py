"""The one place where names and settings become a team and its work: for `baton run`, for training, for Python.

`baton run` and a trace's header have `Settings`; a recipe has its own tables (`stage_from_recipe`); a program may give
objects in place of names (`Given`). All three end in the functions here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from inspect import signature
from typing import Any

from msgspec import Struct, field, structs

from baton import registry
from baton.compose.any_play import any_play
from baton.compose.run_settings import Settings, is_given
from baton.engine import ENGINES, is_engine, make_engine
from baton.engine.scripted import ScriptedEngine
from baton.errors import UsageError, nearest
from baton.games.game import Game, Policy, State
from baton.games.reference import REFERENCE as GAME_POLICIES
from baton.learn.models import MODELS, model_engine
from baton.settings import Chance, Count, NotNegative, arguments, convert, decode
from baton.tasks.catalog import find_task
from baton.tasks.game_task import GameTask
from baton.tasks.reasoning import PLAYS, ReasoningTask
from baton.tasks.task import Task
from baton.tasks.translate import translated
from baton.team.aggregate import Aggregator
from baton.team.budget import Budget, Limits
from baton.team.clock import Latency
from baton.team.credentials import NO_CREDENTIALS, Credentials
from baton.team.protocol import Engine
from baton.team.shared_memory import SharedMemory
from baton.team.surface import Surface, make_surface
from baton.team.team import Assignment, Team, Topology
from baton.team.tools.tool import Registry, Tool
from baton.team.topology import make_topology
from baton.trace.records import Sampling

_SAMPLED: dict[str, Any] = {
    "temperature": NotNegative,
    "top_p": Chance,
    "top_k": Count | None,
    "max_tokens": Count | None,
}
"""What may be asked for; a trace from elsewhere may hold anything."""

_SPAWN_WEIGHT = 4.0


class Given(Struct, frozen=True, kw_only=True):
    """What a program hands over as objects, in the place of names."""

    task: Task | None = None
    topology: Topology | None = None
    engines: Mapping[str, Engine] = field(default_factory=dict)
    """Role, or "default" -> engine."""
    surface: Surface | None = None
    tools: tuple[Tool, ...] = ()
    aggregators: tuple[Aggregator, ...] = ()
    credentials: Credentials = NO_CREDENTIALS
    """Never part of settings: a file of somebody else's must not say which secrets are read."""


NOTHING = Given()


def make_team(
    settings: Settings, given: Given = NOTHING, make: Callable[[str], Engine] = make_engine
) -> tuple[Team, Assignment]:
    """The team and the assignment that settings describe.

    `make` gives an engine for its specification: code, files and servers are its concern.
    """
    task = given.task or task_of(settings)
    assignment = task.assignment(task.instance(settings.instance_number, settings.split))
    assignment = assignment.with_tools((*_looked_up(settings.tools), *given.tools))
    if settings.fusion:
        assignment = structs.replace(assignment, fusion={**assignment.fusion, **settings.fusion})
    chosen = given.topology or settings.topology
    topology = topology_for(task, chosen, settings.topology_settings, assignment.tools, "topology")
    topology = _sampled(topology, settings.sampling)
    surface = given.surface or settings.surface
    limits = limits_of(settings.limits, "limits")
    latency = decode(Latency, settings.latency, "", "latency")
    roles = {role.name for role in topology.roles} | {"default"}
    for name in (*settings.policies, *given.engines):
        if name not in roles:
            raise UsageError(f"topology {topology.name!r} has no role {name!r}. {nearest(name, roles)}")
    engines = {
        name: engine_for(spec, task, surface, assignment.tools, make)
        for name, spec in settings.policies.items()
        if name not in given.engines
    } | dict(given.engines)
    team = Team.of(
        topology,
        nature(task, topology) | engines,
        surface=surface,
        tools=assignment.tools,
        aggregators=(*_looked_up(settings.aggregators), *given.aggregators),
        seed=settings.seed,
        clock=settings.clock,
        limits=limits,
        latency=latency,
        shared_memory=shared_memory_of(settings.shared_memory, "shared_memory"),
        guard=settings.guard,
        credentials=given.credentials,
    )
    return team, assignment


def with_room(settings: Settings, given: Given = NOTHING) -> Settings:
    """The settings of a new run with room for the longest answer of the scripted play, where no limit is set.

    Only where that play answers for everybody: a server may refuse as many tokens.
    The room is written into the settings, so that a trace is run again with what it had, whatever the rule was then.
    """
    if given.engines or set(settings.policies.values()) != {"reference"}:
        return settings
    task = given.task or task_of(settings)
    needed = task.longest_answer()
    told = "max_tokens" in settings.topology_settings or any(
        key.rpartition(".")[2] == "max_tokens" for key in settings.sampling
    )
    own = task.topology() is not None or given.topology is not None
    if needed is None or told or own or is_given(settings.topology):
        return settings
    build = registry.resolve("topology", settings.topology)
    usual = signature(build).parameters.get("max_tokens") if callable(build) else None
    if usual is None or not isinstance(usual.default, int) or needed <= usual.default:
        return settings
    return structs.replace(settings, topology_settings={**settings.topology_settings, "max_tokens": needed})


def usual_topology(task: str | Task, settings: Mapping[str, Any]) -> str:
    """Who works on a task where nobody says: the team that it brings, else an orchestrator with workers."""
    made = task if isinstance(task, Task) else task_named(task, settings, "task")
    own = made.topology()
    return "centralized" if own is None else own.name


def task_of(settings: Settings) -> Task:
    """The task that a run's settings name."""
    return task_named(settings.task, settings.task_settings, "task")


def task_named(name: str, settings: Mapping[str, Any], at: str) -> Task:
    """A task by name. `at` is where its settings stand, for messages."""
    refuse_given("task", name)
    build = find_task(name)
    made = build if isinstance(build, Task) else build(**arguments(build, settings, "", at))
    if not isinstance(made, Task):
        raise UsageError(f"task {name!r} gives a {type(made).__name__}; expected a Task.")
    return made


def topology_for(
    task: Task, chosen: str | Topology, settings: Mapping[str, Any], tools: Registry, at: str
) -> Topology:
    """Who works on a task: those it brings itself, or the topology that was chosen."""
    own = task.topology()
    if own is not None:
        name = chosen if isinstance(chosen, str) else chosen.name
        if name != own.name:
            raise UsageError(
                f"{task.name} brings its own team, which is {own.name}; it is not played by {name!r}. Leave the "
                "topology out."
            )
        for setting in settings:
            how = (
                f"type: --set task.{setting}=VALUE" if at == "topology" else "write it under [task.settings]."
            )
            raise UsageError(
                f"{task.name} brings its own team, which has no setting {setting!r}. For a parameter of the task, {how}"
            )
        return own
    if isinstance(chosen, Topology):
        return chosen
    refuse_given("topology", chosen)
    build = registry.resolve("topology", chosen)
    if not callable(build):
        return make_topology(chosen, **settings)
    given = arguments(build, settings, "", at)
    if tools and "tools" in signature(build).parameters:
        given.setdefault("tools", tuple(tools))
    return make_topology(chosen, **given)


def limits_of(given: Mapping[str, Any], at: str) -> Limits:
    """Limits that make sense; one that does not is an error before anything is written or played."""
    limits = decode(Limits, given, "", at)
    Budget(limits)
    return limits


def shared_memory_of(given: Mapping[str, Any] | None, at: str) -> SharedMemory | None:
    """A team's shared memory, where it is to have one."""
    return None if given is None else decode(SharedMemory, given, "", at)


def nature(task: Task, topology: Topology) -> dict[str, Engine]:
    """Who answers for a game's own agents: all but the orchestrator are part of the game."""
    if not isinstance(task, GameTask):
        return {}
    rest = [role.name for role in topology.roles if role.name != topology.root]
    return {name: ScriptedEngine("nature", lambda _: "return done") for name in rest}


def engine_for(
    spec: str,
    task: Task,
    surface: str | Surface,
    tools: Registry,
    make: Callable[[str], Engine] = make_engine,
) -> Engine:
    """Who answers, by a specification: scripted play of the task, a model by name, or any engine."""
    refuse_given("policy", spec)
    if spec.partition("?")[0] in MODELS:
        return model_engine(spec)
    if spec == "reference" or (isinstance(task, GameTask) and not is_engine(spec)):
        return scripted_play(task, spec, surface, tools)
    if spec in GAME_POLICIES:
        raise UsageError(
            f"{spec} plays games, such as game:pandora; {task.name} is none. Type: --policy reference"
        )
    meant = get_close_matches(spec, [*ENGINES, *MODELS, "reference"], n=1)
    if meant and meant[0] not in ENGINES:
        raise UsageError(f"there is no policy {spec!r}. Did you mean {meant[0]!r}?")
    return make(spec)


def _looked_up(names: Iterable[str]) -> list[str]:
    """Names that stand for themselves, and not for an object that is given."""
    return [name for name in names if not is_given(name)]


def scripted_play(
    task: Task, name: str, surface: str | Surface, tools: Registry, topology: Topology | None = None
) -> Engine:
    """Scripted play of a task: a reference policy of a game, or the task's own, written as the surface wants it.

    With a topology, a task that has none is played at random.
    """
    if isinstance(task, GameTask):
        name = "optimal" if name == "reference" else name
        own = {"eager": eager(task.game), "logged": getattr(task.game, "logging_policy", None)}.get(name)
        return ScriptedEngine(name, task.script(name) if own is None else task.script_of(own, name))
    if isinstance(task, ReasoningTask) and name in PLAYS:
        return ScriptedEngine(name, translated(PLAYS[name](task.family), _surface(surface, tools)))
    play = task.reference_play()
    if play is None and topology is None:
        raise UsageError(
            f"task {task.name!r} has no scripted play. Give it a `reference_play`, or name another policy."
        )
    if play is None:
        assert topology is not None
        name, play = "any", any_play(task, topology)
    else:
        name = "reference"
    return ScriptedEngine(name, translated(play, _surface(surface, tools)))


def eager(game: Game) -> Policy:
    """Random play that spawns readily: all that can be decided comes up, so all of it can be learned."""

    def policy(state: State) -> dict[str, float]:
        weights = {o: _SPAWN_WEIGHT if o.startswith("spawn") else 1.0 for o in game.options(state)}
        total = sum(weights.values())
        return {option: weight / total for option, weight in weights.items()}

    return policy


def refuse_given(kind: str, name: str) -> None:
    """What a program gave as an object has to be given again: a file keeps only its name."""
    if is_given(name):
        raise UsageError(
            f"the {kind} {name} was given as an object by a Python program, so it cannot be set "
            f"up from a file. Run it again from Python and give the same {kind}."
        )


def _surface(chosen: str | Surface, tools: Registry) -> Surface:
    return make_surface(chosen, tools) if isinstance(chosen, str) else chosen


def _sampled(topology: Topology, given: Mapping[str, Any]) -> Topology:
    """The topology with other sampling settings, for all roles or for those named."""
    roles = {role.name: role for role in topology.roles}
    # What is said of one role goes over what is said of all.
    for key in sorted(given, key=lambda key: "." in key):
        role, dot, name = key.rpartition(".")
        if dot and role not in roles:
            raise UsageError(f"topology {topology.name!r} has no role {role!r}. {nearest(role, roles)}")
        kinds = {each.name: each.type for each in structs.fields(Sampling)} | _SAMPLED
        if name not in kinds:
            raise UsageError(f"sampling has no setting {name!r}. {nearest(name, kinds)}")
        changed = convert(kinds[name], given[key], "", f"sampling.{key}")
        for each in [role] if dot else list(roles):
            sampling = structs.replace(roles[each].sampling, **{name: changed})
            roles[each] = structs.replace(roles[each], sampling=sampling)
    return structs.replace(topology, roles=tuple(roles.values()))
