"""What a tool is given that no model sees or fills in: credentials of its caller, and its caller's own place."""

from __future__ import annotations

from typing import Any

from baton.team.agent import Agent
from baton.team.credentials import Vault, secrets_for
from baton.team.tools.agent_place import AgentPlaces
from baton.team.tools.tool import Tool, ToolOutcome


def hidden_parameters(
    tool: Tool, agent: Agent, vault: Vault | None, places: AgentPlaces | None
) -> dict[str, Any] | ToolOutcome:
    """By name; else how the call ended, because this agent may not have one of them."""
    secrets = secrets_for(tool, agent.id, agent.role.name, vault)
    if isinstance(secrets, ToolOutcome):
        return secrets
    found: dict[str, Any] = {**secrets}
    if tool.place is not None and places is not None:
        found[tool.place] = places.of(_line(agent))
    return found


def _line(agent: Agent) -> tuple[tuple[str, str], ...]:
    """An agent and all above it."""
    line, above = [(agent.id, agent.role.name)], agent.parent
    while above is not None:
        line.append((above.id, above.role.name))
        above = above.parent
    return tuple(line)
