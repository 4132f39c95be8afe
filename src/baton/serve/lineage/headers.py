"""Who asks, by what the program's harness puts into its requests."""

from __future__ import annotations

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


WANTED = (
    "x-baton-agent", "x-baton-parent", "x-baton-role", "x-claude-code-session-id", "x-claude-code-agent-id",
    "x-claude-code-parent-agent-id", "thread-id", "x-codex-parent-thread-id", "x-openai-subagent",
    "x-codex-turn-metadata", "session-id", "session_id", "conversation_id", "traceparent",
)  # fmt: skip
"""Headers worth keeping in a journal."""
_MAIN = "main"


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
        return Named(agent=thread, parent=parent, name=None if parent else _MAIN, by="thread-id")
    return None
