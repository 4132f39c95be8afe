"""A suite's functions as tools: typed, described and labelled, each acting on one world.

They act on a world that is held in memory, one call after the other, in the order in which they are made.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from inspect import Parameter, Signature
from typing import Any

import msgspec

from baton.tasks.agentdojo.labels import ACTS, TRUSTED
from baton.tasks.agentdojo.package import suite
from baton.tasks.agentdojo.world import World
from baton.team.tools.tool import Tool, tool

_MOST_BYTES = 262_144
"""A whole mailbox is longer than the usual."""


class CallRefused(Exception):
    """The world would not carry a call out, in the suite's own words."""


def tools_of(world: World) -> tuple[Tool, ...]:
    """The tools of a suite, at work in a world."""
    name, version = world.pair.suite, world.pair.version
    return tuple(_tool(world, function, name) for function in suite(name, version).tools)


def _tool(world: World, function: Any, suite_name: str) -> Tool:
    parameters = [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.is_required() else field.default,
            annotation=field.annotation,
        )
        for name, field in function.parameters.model_fields.items()
    ]

    async def call(**given: Any) -> str:
        return _called(world, function.name, given)

    call.__name__ = function.name
    call.__doc__ = inspect.cleandoc(function.full_docstring)
    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # what `tool` reads the schema from
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    return tool(
        consequential=function.name in ACTS[suite_name],
        trusted=function.name in TRUSTED[suite_name],
        max_output_bytes=_MOST_BYTES,
    )(call)


def _called(world: World, name: str, given: Mapping[str, Any]) -> str:
    said, done = world.call(name, msgspec.to_builtins(given))
    if not done:
        raise CallRefused(said)
    return said
