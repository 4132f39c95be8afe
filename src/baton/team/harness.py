"""The harness contract: everything between the weights and the world that is frozen in training.

pi(. | o) = LLM(. | harness(o)), actions in A_harness (the survey's definition). Two runs with the
same harness hash showed the policy the same prompts, verbs and tools; the hash is written into
every call, so a policy is never silently trained through one harness and run in another.
"""

from __future__ import annotations

from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from baton.errors import UsageError, nearest
from baton.team.action import VERBS
from baton.team.aggregate import AGGREGATORS
from baton.team.surface import Lines, Surface, Tools
from baton.team.tools.tool import Registry
from baton.trace.records import Sampling

TEMPLATE = "You are {agent}, the {role} of a team. {instructions}\n{commands}"
_PLACES = ("agent", "role", "instructions", "commands")
"""What a template may name."""


class Role(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an agent of this role is told, may do, and sees."""

    name: str
    instructions: str = ""
    verbs: tuple[str, ...] = ("call", "return")
    spawns: tuple[str, ...] = ()
    """Roles it may spawn."""
    tools: tuple[str, ...] = ()
    aggregators: tuple[str, ...] = ()
    """Methods it may aggregate with; empty: all."""
    policy: str | None = None
    """Name of the engine that answers for it; None: the role's own name, else the team's default."""
    sampling: Sampling = field(default_factory=lambda: Sampling(max_tokens=512))
    max_turns: int = 100
    """Turns for one task; then it is made to return (or, at the root, to stop)."""
    max_invalid: int = 3
    """Unparseable or forbidden answers in a row before it is made to return."""
    max_failures: int = 2
    """Engine failures in a row, likewise."""
    max_seconds: float | None = None
    """Time for one task, likewise."""
    inherit: bool = False
    """Start from the spawner's whole context instead of an empty one (a branch, as in context folding)."""
    returns: Literal["summary", "transcript"] = "summary"
    """What the spawner sees of a finished branch: the returned text alone, or all that was said."""
    memory: Literal["all", "latest"] = "all"
    """latest: each turn reads the system entry and the last thing it was told, where that says all that matters (a
    game's state). After an answer that was not valid it reads the same again."""


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
    """Prompt template, surface, roles and tools."""

    roles: tuple[Role, ...]
    surface_name: Literal["lines", "tools"] = "lines"
    template: str = TEMPLATE
    tools: Registry = field(default_factory=lambda: Registry(()))

    def __post_init__(self) -> None:
        check_template(self.template)
        names = [role.name for role in self.roles]
        if len(set(names)) != len(names):
            raise UsageError(f"a harness needs roles with different names; given: {', '.join(names)}.")
        for role in self.roles:
            for verb in role.verbs:
                if verb not in VERBS:
                    raise UsageError(f"role {role.name!r} has verb {verb!r}. {nearest(verb, VERBS)}")
            for child in role.spawns:
                if child not in names:
                    raise UsageError(
                        f"role {role.name!r} may spawn {child!r}, which is no role. {nearest(child, names)}"
                    )
            for tool in role.tools:
                if tool not in self.tools:
                    raise UsageError(f"role {role.name!r} has tool {tool!r}. {nearest(tool, self.tools)}")

    @cached_property
    def role_by_name(self) -> dict[str, Role]:
        return {role.name: role for role in self.roles}

    def role(self, name: str) -> Role:
        try:
            return self.role_by_name[name]
        except KeyError:
            raise UsageError(f"there is no role {name!r}. {nearest(name, self.role_by_name)}") from None

    @cached_property
    def surface(self) -> Surface:
        return Lines() if self.surface_name == "lines" else Tools(self.tools)

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
            lines.append(f"You may aggregate by: {', '.join(role.aggregators or AGGREGATORS)}.")
        return "\n".join(lines)

    @cached_property
    def schemas(self) -> dict[str, tuple[dict[str, Any], ...]]:
        """Role -> the same as tool schemas, for models that take them."""
        return {
            role.name: self.surface.schemas(
                self.verbs[role.name], role.spawns, [self.tools[name] for name in role.tools]
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
        body = [self.surface_name, self.template, seen, self.commands, self.tools.digest()]
        return blake2b(msgspec.json.encode(body, order="deterministic"), digest_size=12).hexdigest()
