"""The settings of one run: everything that a person types for `baton run`, and what its trace keeps of it.

Invariant: settings that name only what is installed or importable are enough to make the same run again. What was
given as a Python object is written `<NAME>`; whoever runs such a trace again gives the object again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, field, structs

from baton.errors import TraceError, UsageError, nearest
from baton.settings import read_change
from baton.trace.trace import Trace, meta_as


def given_name(name: str) -> str:
    """How the name of what a program gave as an object is written, where a name to look up would stand."""
    return f"<{name}>"


def name_of(given: Any) -> str:
    """A name that was given, or how that of an object is written."""
    return given if isinstance(given, str) else given_name(given.name)


def is_given(name: str) -> bool:
    """Whether a name stands for what a program gave as an object."""
    return name.startswith("<")


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
    fusion: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Aggregator -> what it may know, such as the accuracies of agents."""
    tools: tuple[str, ...] = ()
    """Tools beside those of the task."""
    aggregators: tuple[str, ...] = ()
    """Ways to fuse answers beside those that ship."""
    split: Literal["train", "test"] = "train"
    seed: int = 0
    """Of all draws; and of the instance, where none is given."""
    instance: int | None = None
    clock: Literal["virtual", "real"] = "virtual"
    surface: str = "lines"
    shared_memory: dict[str, Any] | None = None
    """Settings of the team's shared memory; None: it has none."""
    guard: dict[str, Any] | None = None
    """The policy of its guard (`baton.team.guard.policy`); None: nobody guards it."""

    @property
    def instance_number(self) -> int:
        """Which instance is worked on."""
        return self.seed if self.instance is None else self.instance

    def named(self) -> list[tuple[str, str]]:
        """(kind of extension, name) of all that has to be looked up, but for the policies."""
        return [
            ("task", self.task),
            ("topology", self.topology),
            ("surface", self.surface),
            *(("tool", name) for name in self.tools),
            *(("aggregator", name) for name in self.aggregators),
        ]


def parse_settings(pairs: Sequence[str] | Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """`k=v` pairs, or the same as a mapping, as the fields of `Settings` that they belong to.

    `rounds=3` is the topology's; others name their group, such as `limits.tokens=5000`.
    """
    groups: dict[str, dict[str, Any]] = {
        group: {}
        for group in ("task", "topology", "limits", "latency", "sampling", "fusion", "shared_memory")
    }
    given = pairs if isinstance(pairs, Mapping) else dict(map(read_change, pairs))
    for key, value in given.items():
        group, dot, name = key.partition(".")
        if not dot:
            group, name = "topology", key
        if group not in groups:
            raise UsageError(f"setting {key!r}: there is no group {group!r}. {nearest(group, groups)}")
        if group == "fusion":
            _set_fusion(groups[group], key, name, value)
        else:
            groups[group][name] = value
    if not groups["shared_memory"]:
        del groups["shared_memory"]
    return {f"{name}_settings" if name in ("task", "topology") else name: g for name, g in groups.items()}


def _set_fusion(fusion: dict[str, Any], key: str, name: str, value: Any) -> None:
    """`METHOD.NAME=VALUE`, or `METHOD.NAME.AGENT=VALUE`: an agent's name may have dots in it."""
    method, _, rest = name.partition(".")
    parameter, dot, agent = rest.partition(".")
    if not parameter:
        raise UsageError(
            f"setting {key!r}: expected fusion.METHOD.NAME, such as fusion.log_odds.accuracies.peer1=0.8."
        )
    known = fusion.setdefault(method, {})
    if not dot:
        known[parameter] = value
    elif isinstance(known.setdefault(parameter, {}), dict):
        known[parameter][agent] = value
    else:
        raise UsageError(f"setting {key!r}: {parameter} is given already, as {known[parameter]!r}.")


def parse_policies(given: Sequence[str]) -> dict[str, str]:
    """`P` for all roles or `ROLE=P` for one, as typed."""
    policies: dict[str, str] = {}
    for item in given:
        role, equals, spec = item.partition("=")
        name, spec = (role, spec) if equals and ":" not in role and "?" not in role else ("default", item)
        if name in policies:
            raise UsageError(f"--policy is given twice for {name!r}: {policies[name]!r} and {spec!r}.")
        policies[name] = spec
    return policies


def settings_of(trace: Trace, policies: Mapping[str, str]) -> Settings:
    """The settings a trace was run with; `policies` given now take the place of its own."""
    settings = meta_as(trace.header, Settings, "run", "settings")
    if settings is None and trace.header.system == "baton serve":
        raise TraceError(
            f"trace {trace.trace_id} is of a program that `baton serve` recorded. Name the program, to be run again: "
            "-- COMMAND..., for example -- python my_agent.py"
        )
    if settings is None:
        raise TraceError(
            f"trace {trace.trace_id} was not made by `baton run`, so its team cannot be set up from here. "
            "In Python, give the team and the task that made it: baton.replay(trace, team, task), or fork, or resume."
        )
    return structs.replace(settings, policies={**settings.policies, **policies})
