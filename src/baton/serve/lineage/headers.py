"""Who asks, by what the program's harness puts into its requests."""

from __future__ import annotations

import re

from msgspec import Struct

from baton.serve.exchange import Exchange


class Named(Struct, frozen=True, kw_only=True):
    """An agent that a request names."""

    agent: str
    """Unique in its session."""
    parent: str | None = None
    name: str | None = None
    role: str | None = None
    by: str = ""
    """Which header said so."""
    use: str | None = None
    """Id of the tool use that began it."""
    given_by: str | None = None
    """The agent that handed its conversation over to it."""


_MAIN = "main"
_CODEX_NAME = re.compile(r'"agent_name": ?"(/[^"\\]+)"')  # searched: the header may have been cut off


def named(exchange: Exchange) -> Named | None:
    """The agent that asks, where a header says it."""
    headers = exchange.headers
    if agent := headers.get("x-baton-agent"):
        return Named(
            agent=agent, parent=headers.get("x-baton-parent"), name=agent, role=headers.get("x-baton-role"),
            by="x-baton-agent",
        )  # fmt: skip
    if session := headers.get("x-claude-code-session-id"):
        agent = headers.get("x-claude-code-agent-id")
        if agent is None:
            return Named(agent=session, name=_MAIN, by="x-claude-code-session-id")
        parent = headers.get("x-claude-code-parent-agent-id")
        return Named(agent=agent, parent=parent or session, by="x-claude-code-agent-id")
    if thread := headers.get("thread-id"):
        parent = headers.get("x-codex-parent-thread-id")
        path = _CODEX_NAME.search(headers.get("x-codex-turn-metadata", ""))
        name = path[1].rpartition("/")[2] if path is not None and path[1] != "/root" else None
        return Named(agent=thread, parent=parent, name=name if parent else _MAIN, by="thread-id")
    return None
