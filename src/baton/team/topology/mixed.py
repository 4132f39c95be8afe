"""A team whose workers are teams: an outer form that splits the work, and an inner form that does each part.

The survey finds that systems combine two or three forms. Here an orchestrator's workers are small debates;
`outer="hierarchical", inner="planner_executor_critic"` is a hierarchy with a critic at every leaf. The inner root is
the outer form's `worker`: where it would stop the run it returns to whoever gave the task, so one run, one trace, one
replay and one kind of fork hold for all of it.
"""

from __future__ import annotations

from typing import Any, Literal, cast

from msgspec import structs

from baton.settings import Count
from baton.team.agent import Agent, Program, Role
from baton.team.team import Topology
from baton.team.topology.centralized import centralized
from baton.team.topology.debate import debate
from baton.team.topology.hierarchical import hierarchical
from baton.team.topology.planner_executor_critic import planner_executor_critic
from baton.team.topology.swarm import swarm

_LEAF = "worker"


def mixed(
    *,
    outer: Literal["centralized", "hierarchical"] = "centralized",
    inner: Literal["debate", "swarm", "planner_executor_critic", "centralized"] = "debate",
    levels: Count = 3,
    members: Count = 3,
    rounds: Count = 2,
    method: str = "majority",
    tools: tuple[str, ...] = (),
    max_tokens: Count = 1024,
    max_turns: Count = 50,
) -> Topology:
    """`levels` are a hierarchy's; `members` debate or swarm in each worker, over `rounds`, fused by `method`."""
    room: dict[str, Any] = {"tools": tools, "max_tokens": max_tokens, "max_turns": max_turns}
    above = centralized(**room) if outer == "centralized" else hierarchical(levels=levels, **room)
    match inner:
        case "debate":
            below = debate(debaters=members, rounds=rounds, method=method, **room)
        case "swarm":
            below = swarm(peers=members, method=method, **room)
        case "planner_executor_critic":
            below = planner_executor_critic(rounds=rounds, **room)
        case "centralized":
            below = centralized(**room)
    return Topology(
        name="mixed",
        root=above.root,
        roles=(*(role for role in above.roles if role.name != _LEAF), *_as_workers(below)),
        programs={**above.programs, **_programs(below)},
        aggregators=below.aggregators,
    )


def _as_workers(team: Topology) -> tuple[Role, ...]:
    """A team's roles with its root as a worker: it returns where it would stop. No name is there twice."""
    names = _names(team)
    return tuple(
        structs.replace(
            role,
            name=names[role.name],
            verbs=tuple(dict.fromkeys("return" if verb == "stop" else verb for verb in role.verbs)),
            spawns=tuple(names[name] for name in role.spawns),
        )
        for role in team.roles
    )


def _names(team: Topology) -> dict[str, str]:
    """What each role is called inside: the root is the worker, and a worker below it a helper."""
    return {
        role.name: _LEAF if role.name == team.root else "helper" if role.name == _LEAF else role.name
        for role in team.roles
    }


def _programs(team: Topology) -> dict[str, Program]:
    names = _names(team)
    return {
        names[name]: _returning(program) if name == team.root else program
        for name, program in team.programs.items()
    }


def _returning(program: Program) -> Program:
    """The same program for an agent that has somebody above it."""

    async def member(me: Agent) -> None:
        # What was returned or said on an earlier task is no part of this one.
        me.results.clear()
        me.answered = ""
        await program(cast(Agent, _Member(me)))

    return member


class _Member:
    """An agent as an inner program sees it: all as it is, but to stop is to return."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._agent, name)

    async def stop(self, answer: str) -> None:
        """Hand the answer to whoever gave the task."""
        await self._agent.returns(answer)
