"""The six topologies by the survey's names, and mixtures of them. Each is a small file on the same runtime.

A topology is a function of its settings; one of your own is found by name like those that are shipped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import structs

from baton.errors import UsageError
from baton.registry import resolve
from baton.settings import arguments
from baton.team.team import Topology

# Under other names: a function called like its module would hide it.
from baton.team.topology.centralized import centralized as _centralized
from baton.team.topology.debate import debate as _debate
from baton.team.topology.hierarchical import hierarchical as _hierarchical
from baton.team.topology.managed_harness import harness as _harness
from baton.team.topology.mixed import mixed as _mixed
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
    "mixed": _mixed,
}


def make_topology(name: str, **settings: Any) -> Topology:
    """The topology that goes by a name (shipped, registered, installed or module:attr), with these settings.

    It remembers both in `built_from`, so that a trace of it can be run again.
    """
    build = resolve("topology", name)
    ready = isinstance(build, Topology)
    settings = arguments((lambda: build) if ready else build, settings, f"topology {name!r}")
    made = build if ready else build(**settings)
    if not isinstance(made, Topology):
        raise UsageError(f"topology {name!r} gives a {type(made).__name__}; expected a Topology.")
    return structs.replace(made, built_from={"name": name, **settings})
