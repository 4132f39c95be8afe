"""What a run is made of: a team (topology, harness, engines, limits) and an assignment.

The harness is everything between the weights and the world that is frozen in training: pi(. | o) = LLM(. | harness(o)),
actions in A_harness (the survey's definition). Two runs with the same harness hash showed the policy the same prompts,
verbs and tools; the hash is written into every call, so a policy is never silently trained through one harness and run
in another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cached_property, lru_cache
from hashlib import blake2b
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

import msgspec
from msgspec import Struct, field

from baton.errors import UsageError, nearest
from baton.team.action import EVERY_VERB, SHARED_VERBS, Return
from baton.team.agent import Agent, Program, Role
from baton.team.aggregate import AGGREGATORS, Aggregator, make_aggregators
from baton.team.budget import Limits
from baton.team.clock import Latency
from baton.team.credentials import NO_CREDENTIALS, Credentials
from baton.team.protocol import Engine
from baton.team.shared_memory import SharedMemory
from baton.team.surface import SURFACES, Surface, make_surface
from baton.team.tools import make_tools
from baton.team.tools.tool import NO_TOOLS, Registry, Tool
from baton.trace.records import Reward, Sampling
from baton.trace.trace import Trace
from baton.trace.vocabulary import Topology as TopologyName

if TYPE_CHECKING:
    from baton.team.guard.policy import Guard

TEMPLATE = "You are {agent}, the {role} of a team. {instructions}\n{commands}"
_PLACES = ("agent", "role", "instructions", "commands")
"""What a template may name."""


def check_template(template: str) -> None:
    """Refuse a system entry that cannot be filled in."""
    try:
        template.format(**dict.fromkeys(_PLACES, ""))
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        places = ", ".join(f"{{{place}}}" for place in _PLACES)
        raise UsageError(
            f"the template {template!r} cannot be filled in ({error}). It may name {places}; a brace that is only text "
            "is written twice, {{ or }}."
        ) from None


class Harness(Struct, frozen=True, kw_only=True, dict=True):
    """What a policy is shown and may do: prompt template, surface, roles, tools and ways to aggregate."""

    roles: tuple[Role, ...]
    surface_name: str = "lines"
    template: str = TEMPLATE
    tools: Registry = NO_TOOLS
    aggregators: Mapping[str, Aggregator] = AGGREGATORS
    """All that this team may aggregate by. What a model says is looked up here and nowhere else."""
    own_surface: Surface | None = None
    """A surface that was given as an object; None: the one that `surface_name` stands for."""
    shared_memory: SharedMemory | None = None
    """None: the team has none."""

    def __post_init__(self) -> None:
        check_template(self.template)
        names = [role.name for role in self.roles]
        if len(set(names)) != len(names):
            raise UsageError(f"a harness needs roles with different names; given: {', '.join(names)}.")
        for role in self.roles:
            for verb in role.verbs:
                if verb not in EVERY_VERB:
                    raise UsageError(f"role {role.name!r} has verb {verb!r}. {nearest(verb, EVERY_VERB)}")
                if verb in SHARED_VERBS and self.shared_memory is None:
                    raise UsageError(
                        f"role {role.name!r} has verb {verb!r}, and the team has no shared memory. Type: "
                        "Team.of(..., shared_memory=SharedMemory())"
                    )
            for child in role.spawns:
                if child not in names:
                    raise UsageError(
                        f"role {role.name!r} may spawn {child!r}, which is no role. {nearest(child, names)}"
                    )
            for tool in role.tools:
                if tool not in self.tools:
                    raise UsageError(f"role {role.name!r} has tool {tool!r}. {nearest(tool, self.tools)}")

        for verb in SHARED_VERBS if self.shared_memory is not None else ():
            if verb in self.tools:
                raise UsageError(
                    f"the tool {verb!r} is called like a verb of the shared memory. Give it another name: "
                    "@tool(name=...)"
                )

    @cached_property
    def role_by_name(self) -> dict[str, Role]:
        """The roles by their names."""
        return {role.name: role for role in self.roles}

    def role(self, name: str) -> Role:
        """The role of this name, or an error with the nearest one."""
        try:
            return self.role_by_name[name]
        except KeyError:
            raise UsageError(f"there is no role {name!r}. {nearest(name, self.role_by_name)}") from None

    @cached_property
    def surface(self) -> Surface:
        """How actions are written, made for this team's tools."""
        return self.own_surface or make_surface(self.surface_name, self.tools)

    @cached_property
    def verbs(self) -> dict[str, frozenset[str]]:
        """Role -> the verbs open to it."""
        return {role.name: frozenset(role.verbs) for role in self.roles}

    @cached_property
    def commands(self) -> dict[str, str]:
        """Role -> what it is told about its verbs, tools, who it may spawn and how it may aggregate."""
        return {role.name: self._commands(role) for role in self.roles}

    def _commands(self, role: Role) -> str:
        lines = [self.surface.describe(self.verbs[role.name], [self.tools[name] for name in role.tools])]
        if "spawn" in role.verbs:
            lines.append(f"You may spawn: {', '.join(role.spawns) or 'nobody'}.")
        if "aggregate" in role.verbs:
            lines.append(f"You may aggregate by: {', '.join(role.aggregators or self.aggregators)}.")
        if self.shared_memory is not None and SHARED_VERBS.keys() & self.verbs[role.name]:
            lines.append(self.shared_memory.told)
        if role.confidence:
            shown = self.surface.render(Return("25", 0.8))
            lines.append(f"Say how sure you are of what you return, from 0 to 1: {shown}")
        return "\n".join(lines)

    @cached_property
    def schemas(self) -> dict[str, tuple[dict[str, Any], ...]]:
        """Role -> the same as tool schemas, for models that take them."""
        return {
            role.name: _asked_for_confidence(
                self.surface.schemas(
                    self.verbs[role.name], role.spawns, [self.tools[name] for name in role.tools]
                ),
                role,
            )
            for role in self.roles
        }

    def system(self, agent: str, role: Role) -> str:
        """The first entry of an agent's context."""
        return self.template.format(
            agent=agent, role=role.name, instructions=role.instructions, commands=self.commands[role.name]
        ).strip()

    @cached_property
    def hash(self) -> str:
        """Twelve bytes over everything a policy sees and may do. Policies and sampling are not part of it."""
        seen = [
            msgspec.to_builtins(msgspec.structs.replace(r, policy=None, sampling=Sampling()))
            for r in self.roles
        ]
        for role in seen:  # later than the rest: what was recorded before it keeps its hash
            if role["memory"] == "all":
                del role["memory"]
            if not role["confidence"]:
                del role["confidence"]
        body = [self.surface_name, self.template, seen, self.commands, self.tools.digest()]
        if self.aggregators is not AGGREGATORS:
            body.append(sorted(self.aggregators))
        if self.shared_memory is not None:
            body.append(msgspec.to_builtins(self.shared_memory))
        return blake2b(msgspec.json.encode(body, order="deterministic"), digest_size=12).hexdigest()


def _asked_for_confidence(schemas: tuple[dict[str, Any], ...], role: Role) -> tuple[dict[str, Any], ...]:
    """The schemas with a place for how sure a role is of what it returns, where it is asked for that."""
    if role.confidence:
        for schema in schemas:
            if schema["function"]["name"] == "return":
                schema["function"]["parameters"]["properties"]["confidence"] = {
                    "type": "number",
                    "minimum": 0,
                    "maximum": 1,
                }
    return schemas


class Topology(Struct, frozen=True, kw_only=True):
    """Who is in the team and how it runs."""

    name: TopologyName
    root: str
    """Role of the agent the run starts with."""
    roles: tuple[Role, ...]
    programs: Mapping[str, Program] = field(default_factory=dict)
    """Role -> its program, where the policy does not decide everything by itself."""
    asks: tuple[str, ...] = ()
    """Roles whose program asks their policy for what they decide, and only carries it out."""
    aggregators: tuple[str, ...] = ()
    """Methods that its programs aggregate by. A team that lacks one of them is refused before it runs."""
    built_from: dict[str, Any] = field(default_factory=dict)
    """Name and settings, so that a trace can be run again."""


class Assignment(Struct, frozen=True, kw_only=True):
    """One thing to do, as a task hands it to a team."""

    task_id: str
    prompt: str
    """What the root agent reads first."""
    untrusted: str | None = None
    """What it reads besides and strangers wrote, such as a customer's mail: an event of its own, labelled so."""
    tools: Registry = NO_TOOLS
    """May also be given as a list of tools, of typed functions, or of names."""
    verify: Callable[[str], float] | None = None
    """Scores the final answer."""
    score: Callable[[Trace], Iterable[Reward]] | None = None
    """Rewards read off the whole run, where the answer alone does not tell."""
    options: Callable[[Agent], tuple[str, ...] | None] | None = None
    """The finite set of answers open to an agent now, where the task has one."""
    state: Callable[[Agent], str | None] | None = None
    """Key of an agent's information state, for tabular policies."""
    fusion: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Aggregator -> what it may know: accuracies by agent, covariance, number of classes."""
    spec: dict[str, Any] = field(default_factory=dict)
    """Name and parameters, so that a trace can be run again."""

    def __post_init__(self) -> None:
        given: Any = self.tools
        if not isinstance(given, Registry):
            msgspec.structs.force_setattr(self, "tools", make_tools(given))

    def with_tools(self, more: Iterable[str | Tool | Callable[..., Any]]) -> Assignment:
        """The same with tools beside those of the task."""
        if not (several := tuple(more)):
            return self
        added = make_tools(several)
        return msgspec.structs.replace(self, tools=Registry((*self.tools.values(), *added.values())))


AnyEngine = Engine | str | Callable[..., Any]
"""An engine, its specification (`openai:MODEL@URL`), or a plain function from a request to the text to say."""


class Team(Struct, frozen=True, kw_only=True, dict=True):
    """Everything about a run but the assignment."""

    topology: Topology
    harness: Harness
    engines: Mapping[str, Engine]
    """Policy name -> engine. A role's policy is looked up by its `policy`, its name, then "default"."""
    limits: Limits = field(default_factory=Limits)
    seed: int = 0
    clock: Literal["virtual", "real"] = "virtual"
    latency: Latency = field(default_factory=Latency)
    credentials: Credentials = NO_CREDENTIALS
    """Where the secrets are that tools need, and who may use them; values are never part of a team."""
    hold_back_tokens: int = 256
    """Of a token limit, kept for the root, so that it can still stop by itself when workers have used the rest."""
    guard: Guard | None = None
    """What may be done once somebody has read what strangers wrote; None: nothing is refused."""

    @classmethod
    def of(
        cls,
        topology: Topology | str,
        engines: Mapping[str, AnyEngine] | AnyEngine,
        *,
        surface: str | Surface = "lines",
        template: str = TEMPLATE,
        tools: Registry | Iterable[str | Tool | Callable[..., Any]] | None = None,
        aggregators: Iterable[str | Aggregator] = (),
        shared_memory: SharedMemory | None = None,
        guard: Guard | Mapping[str, Any] | str | None = None,
        **settings: Any,
    ) -> Team:
        """A team from a topology and engines (or one engine for all).

        Topology, surface, tools, aggregators and engines are objects or names: shipped, registered, of an installed
        package, or module:attr. A topology given by name gets the tools that are given. A guard is one, its table, or
        the path of its file.
        """
        registry = tools if tools is None or isinstance(tools, Registry) else make_tools(tools)
        if isinstance(topology, str):
            topology = _named_topology(topology, registry)
        if shared_memory is not None:
            topology = msgspec.structs.replace(topology, roles=shared_memory.given_to(topology.roles))
        named = {*topology.aggregators, *(method for role in topology.roles for method in role.aggregators)}
        methods = (
            make_aggregators(aggregators, sorted(named))
            if aggregators or not named <= AGGREGATORS.keys()
            else AGGREGATORS
        )
        harness = _harness(topology.roles, surface, template, registry, methods, shared_memory)
        given = engines if isinstance(engines, Mapping) else {"default": engines}
        answering = {name: _engine(each) for name, each in given.items()}
        if guard is not None:
            settings["guard"] = _guard_for(guard, harness)
        return cls(topology=topology, harness=harness, engines=answering, **settings)

    def engine(self, role: Role) -> Engine:
        """Who answers for a role."""
        for name in (role.policy, role.name, "default"):
            if name is not None and name in self.engines:
                return self.engines[name]
        wanted = role.policy or role.name
        raise UsageError(f"no engine answers for role {role.name!r}. {nearest(wanted, self.engines)}")


def _named_topology(name: str, tools: Registry | None) -> Topology:
    # Topologies are made of what this module defines, so they are looked up when one is asked for by name.
    make: Callable[..., Topology] = import_module("baton.team.topology").make_topology
    return make(name, tools=tuple(tools)) if tools else make(name)


def _guard_for(given: Guard | Mapping[str, Any] | str, harness: Harness) -> Guard:
    # Few teams have one, so what it is made of is imported for those.
    guard: Guard = import_module("baton.team.guard.policy").guard_of(given)
    guard.check_team(harness.tools, harness.role_by_name)
    return guard


def _is_engine(given: object) -> TypeGuard[Engine]:
    """As `isinstance` has it, in a twentieth of the time: a team is made for every rollout."""
    return hasattr(given, "answer") and hasattr(given, "encode") and hasattr(given, "name")


def _engine(given: AnyEngine) -> Engine:
    """What answers, from whatever it was given as. Engines are above teams, so they are looked up by name."""
    if _is_engine(given):
        return given
    if isinstance(given, str):
        made: Engine = import_module("baton.engine").make_engine(given)
        return made
    if not callable(given):
        raise UsageError(
            f"{given!r} is no engine. Expected an Engine, its specification such as openai:MODEL@URL, or a function "
            "from a request to what is said."
        )
    scripted = import_module("baton.engine.scripted").ScriptedEngine
    wrapped: Engine = scripted(getattr(given, "__name__", type(given).__name__), given)
    return wrapped


def _harness(
    roles: tuple[Role, ...],
    surface: str | Surface,
    template: str,
    tools: Registry | None,
    aggregators: Mapping[str, Aggregator],
    shared_memory: SharedMemory | None,
) -> Harness:
    own: Surface | None = None
    if not isinstance(surface, str):
        own, surface = surface, surface.name
        shipped = SURFACES.get(surface)
        if shipped is not None and type(shipped(())) is not type(own):
            raise UsageError(f"there already is a surface {surface!r}; give this one another name.")
    plain = own is None and aggregators is AGGREGATORS and shared_memory is None
    if (tools is None or tools is NO_TOOLS) and plain:
        with suppress(TypeError):  # lists where tuples belong, which cannot be looked up
            return _plain_harness(roles, surface, template)
    harness = Harness(
        roles=roles,
        surface_name=surface,
        template=template,
        tools=tools or NO_TOOLS,
        aggregators=aggregators,
        own_surface=own,
        shared_memory=shared_memory,
    )
    harness.surface  # noqa: B018  # a name that nobody knows is an error now, not at the first turn
    return harness


@lru_cache(64)
def _plain_harness(roles: tuple[Role, ...], surface: str, template: str) -> Harness:
    """One for all runs that differ in their assignment alone: what is told about verbs, and its hash, cost time."""
    harness = Harness(roles=roles, surface_name=surface, template=template)
    harness.surface  # noqa: B018  # as above
    return harness
