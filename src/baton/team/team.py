"""What a run is made of: a team (topology, harness, engines, limits) and an assignment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Literal

from msgspec import Struct, field

from baton.errors import UsageError, nearest
from baton.team.agent import Agent, Program
from baton.team.budget import Limits
from baton.team.clock import Latency
from baton.team.harness import TEMPLATE, Harness, Role
from baton.team.protocol import Engine
from baton.team.tools.tool import Registry
from baton.trace.records import Reward
from baton.trace.trace import Trace
from baton.trace.vocabulary import Topology as TopologyName


class Topology(Struct, frozen=True, kw_only=True):
    """Who is in the team and how it runs."""

    name: TopologyName
    root: str
    """Role of the agent the run starts with."""
    roles: tuple[Role, ...]
    programs: Mapping[str, Program] = field(default_factory=dict)
    """Role -> its program, where the policy does not decide everything by itself."""
    built_from: dict[str, Any] = field(default_factory=dict)
    """Name and parameters, so that a trace can be run again."""


class Assignment(Struct, frozen=True, kw_only=True):
    """One thing to do, as a task hands it to a team."""

    task_id: str
    prompt: str
    """What the root agent reads first."""
    tools: Registry = field(default_factory=lambda: Registry(()))
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
    hold_back_tokens: int = 256
    """Of a token limit, kept for the root, so that it can still stop by itself when workers have used the rest."""

    @classmethod
    def of(
        cls,
        topology: Topology,
        engines: Mapping[str, Engine] | Engine,
        *,
        surface: Literal["lines", "tools"] = "lines",
        template: str = TEMPLATE,
        tools: Registry | None = None,
        **settings: Any,
    ) -> Team:
        """A team from a topology and engines (or one engine for all)."""
        harness = _harness(topology.roles, surface, template, tools)
        named: Mapping[str, Engine] = engines if isinstance(engines, Mapping) else {"default": engines}
        return cls(topology=topology, harness=harness, engines=named, **settings)

    def engine(self, role: Role) -> Engine:
        for name in (role.policy, role.name, "default"):
            if name is not None and name in self.engines:
                return self.engines[name]
        wanted = role.policy or role.name
        raise UsageError(f"no engine answers for role {role.name!r}. {nearest(wanted, self.engines)}")


def _harness(
    roles: tuple[Role, ...], surface: Literal["lines", "tools"], template: str, tools: Registry | None
) -> Harness:
    if not tools:
        with suppress(TypeError):  # lists where tuples belong, which cannot be looked up
            return _without_tools(roles, surface, template)
    return Harness(roles=roles, surface_name=surface, template=template, tools=tools or Registry(()))


@lru_cache(64)
def _without_tools(roles: tuple[Role, ...], surface: Literal["lines", "tools"], template: str) -> Harness:
    """One for all runs that differ in their assignment alone: what is told about verbs, and its hash, cost time."""
    return Harness(roles=roles, surface_name=surface, template=template)
