"""The six topologies, by the survey's names. Each is a small file on the same runtime.

A topology is a function of its settings; one of your own is found by name like those that are shipped.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from msgspec import structs

from baton.errors import UsageError, nearest
from baton.registry import resolve
from baton.team.team import Topology

# Under other names: a function called like its module would hide it.
from baton.team.topology.centralized import centralized as _centralized
from baton.team.topology.debate import debate as _debate
from baton.team.topology.hierarchical import hierarchical as _hierarchical
from baton.team.topology.managed_harness import harness as _harness
from baton.team.topology.planner_executor_critic import planner_executor_critic as _planner_executor_critic
from baton.team.topology.swarm import swarm as _swarm

__all__ = ["TOPOLOGIES", "make_topology"]

TOPOLOGIES: dict[str, Callable[..., Topology]] = {
    "centralized": _centralized,
    "planner_executor_critic": _planner_executor_critic,
    "debate": _debate,
    "swarm": _swarm,
    "hierarchical": _hierarchical,
    "harness": _harness,
}


def make_topology(name: str, **settings: Any) -> Topology:
    """The topology that goes by a name (shipped, registered, installed or module:attr), with these settings.

    It remembers both in `built_from`, so that a trace of it can be run again.
    """
    build = resolve("topology", name)
    if isinstance(build, Topology):
        made, known = build, {}
    else:
        made, known = None, dict(inspect.signature(build).parameters)
    takes_all = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in known.values())
    for given, value in settings.items():
        if given not in known and not takes_all:
            hint = nearest(given, known) if known else "It has none."
            raise UsageError(f"topology {name!r} has no setting {given!r}. {hint}")
        if isinstance(value, int) and not isinstance(value, bool) and value < 1:
            raise UsageError(f"topology {name!r} cannot have {given} = {value}; expected 1 or more.")
    made = made or build(**settings)
    if not isinstance(made, Topology):
        raise UsageError(f"topology {name!r} gives a {type(made).__name__}; expected a Topology.")
    return structs.replace(made, built_from={"name": name, **settings})
