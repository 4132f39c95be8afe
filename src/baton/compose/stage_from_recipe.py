"""A recipe's stage: the task and the team of its tables, as objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import structs

from baton.compose.team_from_settings import (
    limits_of,
    nature,
    scripted_play,
    shared_memory_of,
    task_named,
    topology_for,
)
from baton.errors import UsageError
from baton.learn.recipe import Recipe, resolved
from baton.learn.stage import Stage
from baton.tasks.task import Task
from baton.team.agent import Role
from baton.team.credentials import NO_CREDENTIALS, Credentials, open_vault, refuse_in_plain_sight
from baton.team.guard.policy import guard_of
from baton.team.team import TEMPLATE, Topology, check_template
from baton.team.tools import make_tools
from baton.team.tools.tool import Tool


def make_stage(
    recipe: Recipe,
    *,
    task: Task | None = None,
    topology: Topology | None = None,
    credentials: Credentials = NO_CREDENTIALS,
) -> Stage:
    """Where a recipe's episodes are played; a task or a topology that is given goes before the one it names."""
    if recipe.program is not None:
        if credentials.by_name:
            raise UsageError(
                "credentials are for tools of Baton's, and a [program] runs its own. Give it what it needs in its own "
                "environment, and leave --credentials out."
            )
        from baton.compose.program_stage import make_program_stage  # nobody else meets it

        return make_program_stage(recipe, recipe.program, task=task)
    part = recipe.team
    cached = task is None and topology is None
    made = task or task_named(recipe.task.name, recipe.task.settings, "task.settings")
    more = tuple(make_tools(part.tools).values())
    tools = made.assignment(made.instance(0)).with_tools(more).tools
    found = topology_for(made, topology or part.topology, part.settings, tools, "team.settings")
    template = TEMPLATE if part.template is None else part.template
    check_template(template)
    _refuse_written(credentials, recipe, found.roles, tools)
    return Stage(
        task=made,
        topology=_set_up(found, recipe),
        limits=limits_of(part.limits, "team.limits"),
        shared_memory=shared_memory_of(part.shared_memory, "team.shared_memory"),
        guard=None if recipe.guard is None else guard_of(recipe.guard),
        surface=part.surface,
        template=template,
        tools=more,
        aggregators=part.aggregators,
        credentials=credentials,
        nature=nature(made, found),
        script=lambda name: scripted_play(made, name, part.surface, tools, found),
        models={name: each.model for name, each in recipe.policies.items()},
        cached=cached,
    )


def _refuse_written(
    credentials: Credentials, recipe: Recipe, roles: Iterable[Role], tools: Mapping[str, Tool]
) -> None:
    """Refuse a recipe that has a credential in it: it is written into the run's folder."""
    if credentials.by_name and (vault := open_vault(credentials, roles, tools)) is not None:
        refuse_in_plain_sight(vault, [("the recipe", resolved(recipe))])


def _set_up(topology: Topology, recipe: Recipe) -> Topology:
    """With the sampling and the memory that the recipe gives every role."""
    given = recipe.team
    roles = tuple(
        structs.replace(
            role,
            sampling=structs.replace(
                role.sampling, max_tokens=given.max_tokens, temperature=given.temperature
            ),
            memory=role.memory if given.memory == "all" else given.memory,
        )
        for role in topology.roles
    )
    return structs.replace(topology, roles=roles)
