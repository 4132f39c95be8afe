"""The six topologies, by the survey's names. Each is a small file on the same runtime."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from msgspec import structs

from baton.errors import UsageError, nearest
from baton.team.team import Topology
from baton.team.topology.centralized import centralized
from baton.team.topology.debate import debate
from baton.team.topology.hierarchical import hierarchical
from baton.team.topology.managed_harness import harness
from baton.team.topology.planner_executor_critic import planner_executor_critic
from baton.team.topology.swarm import swarm

__all__ = ["TOPOLOGIES", "make_topology"]

TOPOLOGIES: dict[str, Callable[..., Topology]] = {
    "centralized": centralized,
    "planner_executor_critic": planner_executor_critic,
    "debate": debate,
    "swarm": swarm,
    "hierarchical": hierarchical,
    "harness": harness,
}


def make_topology(name: str, **params: Any) -> Topology:
    """A topology by name, remembering what it was made from."""
    if name not in TOPOLOGIES:
        raise UsageError(f"there is no topology {name!r}. {nearest(name, TOPOLOGIES)}")
    build = TOPOLOGIES[name]
    known = inspect.signature(build).parameters
    for given, value in params.items():
        if given not in known:
            raise UsageError(f"topology {name!r} has no setting {given!r}. {nearest(given, known)}")
        if isinstance(value, int) and not isinstance(value, bool) and value < 1:
            raise UsageError(f"topology {name!r} cannot have {given} = {value}; expected 1 or more.")
    return structs.replace(build(**params), built_from={"name": name, **params})
