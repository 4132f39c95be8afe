"""What `run`, `resume`, `replay` and `fork` share: settings to a team, a trace back to its settings, a live line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Literal

import msgspec
from msgspec import Struct, field, structs

from baton.engine import ENGINES, make_engine
from baton.engine.scripted import ScriptedEngine
from baton.errors import TraceError, UsageError, nearest
from baton.games.reference import REFERENCE as POLICIES
from baton.learn.models import MODELS, model_engine
from baton.settings import Chance, Count, NotNegative, arguments, convert, decode, read_change
from baton.tasks.catalog import TASKS, check_task_trusted, make_task
from baton.tasks.game_task import GameTask
from baton.tasks.task import Task
from baton.tasks.translate import translated
from baton.team.budget import Budget, Limits
from baton.team.clock import Latency
from baton.team.protocol import Engine
from baton.team.running import Run
from baton.team.surface import Lines, Tools
from baton.team.team import Assignment, Team, Topology
from baton.team.topology import TOPOLOGIES, make_topology
from baton.trace.formats import read_all
from baton.trace.outcome import final_event
from baton.trace.records import Sampling
from baton.trace.trace import Trace, meta_as

_SAMPLED: dict[str, Any] = {
    "temperature": NotNegative,
    "top_p": Chance,
    "top_k": Count | None,
    "max_tokens": Count | None,
}
"""What may be asked for; a trace from elsewhere may hold anything."""


class Settings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A whole run, as typed: enough to make the same one again."""

    task: str
    topology: str
    policies: dict[str, str]
    """Role, or "default" -> engine."""
    task_settings: dict[str, Any] = field(default_factory=dict)
    topology_settings: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)
    latency: dict[str, Any] = field(default_factory=dict)
    sampling: dict[str, Any] = field(default_factory=dict)
    """`temperature` for all roles, `worker.temperature` for one."""
    split: Literal["train", "test"] = "train"
    seed: int = 0
    clock: Literal["virtual", "real"] = "virtual"
    surface: Literal["lines", "tools"] = "lines"


def task_of(settings: Settings) -> Task:
    """The task that settings describe."""
    return make_task(settings.task, **_typed(TASKS, settings.task, settings.task_settings, "task"))


def make_team(
    settings: Settings, task: Task | None = None, make: Callable[[str], Engine] = make_engine
) -> tuple[Team, Assignment]:
    """The team and the assignment that settings describe; `task` where it is at hand.

    `make` gives an engine for its specification: code, files and servers are its concern.
    """
    task = task or task_of(settings)
    assignment = task.assignment(task.instance(settings.seed, settings.split))
    topology = _sampled(_topology(settings, task, assignment), settings.sampling)
    engines = {
        name: _engine(settings, task, assignment, spec, make) for name, spec in settings.policies.items()
    }
    if isinstance(task, GameTask):  # all but the orchestrator are the game's own
        for role in topology.roles:
            if role.name != topology.root:
                engines.setdefault(role.name, ScriptedEngine("nature", lambda _: "return done"))
    roles = {role.name for role in topology.roles} | {"default"}
    for name in engines:
        if name not in roles:
            raise UsageError(f"topology {settings.topology!r} has no role {name!r}. {nearest(name, roles)}")
    limits = _struct(Limits, settings.limits, "limits")
    Budget(limits)  # a limit that makes no sense is an error before anything is written
    team = Team.of(
        topology,
        engines,
        surface=settings.surface,
        tools=assignment.tools,
        seed=settings.seed,
        clock=settings.clock,
        limits=limits,
        latency=_struct(Latency, settings.latency, "latency"),
    )
    return team, assignment


def _topology(settings: Settings, task: Task, assignment: Assignment) -> Topology:
    own = task.topology()
    if own is None:
        params = _typed(TOPOLOGIES, settings.topology, settings.topology_settings, "topology")
        if assignment.tools:
            params.setdefault("tools", tuple(assignment.tools))
        return make_topology(settings.topology, **params)
    if settings.topology != own.name:
        raise UsageError(
            f"{settings.task} brings its own team; it is not played by {settings.topology!r}. "
            f"Leave --topology out, or type: --topology {own.name}"
        )
    if settings.topology_settings:
        name = next(iter(settings.topology_settings))
        raise UsageError(
            f"{settings.task} brings its own team, which has no setting {name!r}. "
            f"For a parameter of the game, type: --set task.{name}=VALUE"
        )
    return own


def _engine(
    settings: Settings, task: Task, assignment: Assignment, spec: str, make: Callable[[str], Engine]
) -> Engine:
    model = spec.partition("?")[0] in MODELS
    if isinstance(task, GameTask) and not model and spec.partition(":")[0] not in ENGINES:
        name = "optimal" if spec == "reference" else spec
        return ScriptedEngine(name, task.script(name))
    if spec == "reference":
        return _reference(settings, task, assignment)
    if model:
        return model_engine(spec)
    if spec in POLICIES:
        raise UsageError(
            f"{spec} plays games, such as game:pandora; {settings.task} is none. Type: --policy reference"
        )
    meant = get_close_matches(spec, [*ENGINES, *MODELS, "reference"], n=1)
    if meant and meant[0] not in ENGINES:
        raise UsageError(f"there is no policy {spec!r}. Did you mean {meant[0]!r}?")
    return make(spec)


def _sampled(topology: Topology, given: Mapping[str, Any]) -> Topology:
    """The topology with other sampling settings, for all roles or for those named."""
    roles = {role.name: role for role in topology.roles}
    for key in sorted(
        given, key=lambda key: "." in key
    ):  # what is said of one role goes over what is said of all
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


def _reference(settings: Settings, task: Task, assignment: Assignment) -> Engine:
    """The task's own scripted play, written as the surface wants it."""
    play = task.reference_play()
    if play is None:
        raise UsageError(f"task {settings.task!r} has no scripted play. Name another policy: --policy ENGINE")
    surface = Lines() if settings.surface == "lines" else Tools(assignment.tools)
    return ScriptedEngine("reference", translated(play, surface))


def _struct(kind: Any, given: Mapping[str, Any], what: str) -> Any:
    return decode(kind, given, "", what)


def _typed(builds: Mapping[str, Any], name: str, given: Mapping[str, Any], what: str) -> dict[str, Any]:
    """A name that is not known is refused by whoever is asked for it."""
    return arguments(builds[name], given, "", what) if name in builds else dict(given)


def parse_settings(pairs: Sequence[str]) -> dict[str, dict[str, Any]]:
    """`--set k=v`: `rounds=3` is the topology's; others name their group, such as `limits.tokens=5000`."""
    groups: dict[str, dict[str, Any]] = {
        "task": {},
        "topology": {},
        "limits": {},
        "latency": {},
        "sampling": {},
    }
    for pair in pairs:
        key, value = read_change(pair)
        group, dot, name = key.partition(".")
        if not dot:
            group, name = "topology", key
        if group not in groups:
            raise UsageError(f"--set {pair!r}: there is no group {group!r}. {nearest(group, groups)}")
        groups[group][name] = value
    return groups


def settings_of(trace: Trace, policies: Mapping[str, str], *, trust: bool = False) -> Settings:
    """The settings a trace was run with; `policies` given now take the place of its own.

    `trust`: the person vouches for the code that the trace names as its task.
    """
    settings = meta_as(trace.header, Settings, "run", "settings")
    if settings is None:
        raise TraceError(
            f"trace {trace.trace_id} was not made by `baton run`, so its team cannot be set up from here. "
            "Use replay, resume or fork of baton.team.running with the team that made it."
        )
    if not trust:
        check_task_trusted(settings.task, f"trace {trace.trace_id!r}")
    return msgspec.structs.replace(settings, policies={**settings.policies, **policies})


def one_trace(path: str, trace_id: str | None) -> Trace:
    """The trace a command is about."""
    ids: list[str] = []
    first: Trace | None = None
    for trace in read_all(path):
        if trace_id is None or trace.trace_id == trace_id:
            first = first or trace
        ids.append(trace.trace_id)
    if first is None:
        hint = nearest(trace_id, ids) if trace_id and ids else "It holds none."
        raise UsageError(f"{path} has no trace {trace_id or ''!r}. {hint}")
    if trace_id is None and len(ids) > 1:
        raise UsageError(f"{path} holds {len(ids)} traces. Type: --trace ID, for example --trace {ids[0]}")
    return first


def describe(trace: Trace) -> str:
    """One paragraph: what came out and what it took."""
    stop = final_event(trace)
    answer = trace.text(stop.content_ref) if stop else None
    lines = []
    if answer is not None:
        forced = f" (forced: {stop.extra.get('why', 'a limit')})" if stop and stop.status == "forced" else ""
        lines.append(f"answer   {_printable(answer)}{forced}")
    if trace.rewards:
        lines.append("reward   " + ", ".join(f"{r.channel} {r.value:g}" for r in trace.rewards))
    agents = 1 + sum(e.type == "spawn" for e in trace.events)
    costs = trace.costs
    lines.append(
        f"took     {agents} agents, {len(trace.calls)} calls, {len(trace.events)} events, "
        f"{costs.get('tokens', 0):,.0f} tokens, {costs.get('wall_clock_s', 0):.2f} s on the team's clock"
    )
    return "\n".join(lines)


def _printable(text: str, limit: int = 200) -> str:
    clean = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return clean if len(clean) <= limit else clean[:limit] + "…"


def at_work(run: Run) -> Callable[[float], str]:
    """What a team is doing, for `live_line`."""

    def tell(seconds: float) -> str:
        alive, steps = len(run.state.active), len(run.writer.calls)
        tokens = int(run.state.budget.used("tokens"))
        return (
            f"{alive} agents at work, {steps:,} calls, {tokens:,} tokens, {len(run.writer.events):,} events, "
            f"{seconds:.0f} s ({tokens / seconds:,.0f} tokens/s)"
        )

    return tell
