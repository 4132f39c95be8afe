"""How tools are called in a run: with what no model sees, in their agent's folder, and never twice in a fork unasked.

What comes of a call is scrubbed of credentials before anybody reads it. What a call leaves in its agent's folder comes
with its outcome (`baton.team.folders`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from msgspec import structs

from baton.errors import TraceError
from baton.team.clock import Op
from baton.team.credentials import Vault
from baton.team.folders import Folders
from baton.team.hidden_parameters import hidden_parameters
from baton.team.tools.agent_place import AgentPlace, AgentPlaces
from baton.team.tools.tool import NOTHING_HIDDEN, Tool, ToolOutcome, invoke, invoke_now


class ForkRefused(TraceError):
    """A fork would run a tool again that acts on the world."""


class ToolCalls:
    """The calls of tools of one run."""

    def __init__(self, trace_id: str, vault: Vault | None) -> None:
        self._trace_id = trace_id
        self._vault = vault
        self._places: AgentPlaces | None = None
        """Folders that agents keep; None: no tool has asked for one."""
        self.folders = Folders(vault)

    async def make(self, op: Op) -> None:
        """Call a tool; how it ended is the operation's result."""
        tool: Tool = op.work[0]
        if tool.place is None:
            await self._invoke(op, self._hidden(op))
            return
        async with self.folders.turn(op.agent.id):
            await self._in_place(op, tool.place)

    def make_now(self, op: Op) -> None:
        """The same of an instant tool."""
        hidden = self._hidden(op)
        if not isinstance(hidden, ToolOutcome):
            op.result = invoke_now(*op.work, idempotency_key=self._key(op), hidden=hidden)
            self._scrub(op)

    def leave(self, agent: str) -> None:
        """An agent is gone for good: so is what it kept."""
        if self._places is not None:
            self._places.leave(agent)

    def close(self) -> None:
        """The run is over."""
        if self._places is not None:
            self._places.close()

    async def _invoke(self, op: Op, hidden: Mapping[str, Any] | ToolOutcome) -> None:
        if not isinstance(hidden, ToolOutcome):
            op.result = await invoke(*op.work, idempotency_key=self._key(op), hidden=hidden)
            self._scrub(op)

    async def _in_place(self, op: Op, name: str) -> None:
        """In its agent's folder, as it was left; what the call leaves there goes into the trace."""
        agent = op.agent.id
        hidden = self._hidden(op)
        if isinstance(hidden, ToolOutcome):
            return
        place: AgentPlace = hidden[name]
        why = self.folders.lost(agent)
        self.folders.begin(agent, place)
        if why:
            text = f"your folder is empty now: the run goes on elsewhere, and what was in it was not kept, for {why}."
            op.result = ToolOutcome(text=text, ok=False, error="raised", files=place.emptied())
            self.folders.heard(agent, op.result.files)
            return
        await self._invoke(op, hidden)
        if isinstance(op.result, ToolOutcome):
            files = await asyncio.get_running_loop().run_in_executor(None, self.folders.take, agent, place)
            op.result = structs.replace(op.result, files=files)

    def _hidden(self, op: Op) -> Mapping[str, Any] | ToolOutcome:
        """What a tool is given that no model sees, or how the call ended because it may not have it."""
        tool: Tool = op.work[0]
        if not tool.secrets and tool.place is None:
            return NOTHING_HIDDEN
        if tool.place is not None and self._places is None:
            self._places = AgentPlaces()
        given = hidden_parameters(tool, op.agent, self._vault, self._places)
        if isinstance(given, ToolOutcome):
            op.result = given
        return given

    def _scrub(self, op: Op) -> None:
        if self._vault is not None:
            op.result = self._vault.cleaned(op.result)

    def _key(self, op: Op) -> str:
        return f"{self._trace_id}/{op.id}"


def refuse_impure(op: Op, folders: Folders) -> None:
    """Refuse a fork that would have an effect a second time, or where it has no place to have it."""
    tool: Tool = op.work[0]
    if tool.contained and (why := folders.lost(op.agent.id)):
        raise ForkRefused(
            f"the fork would call {tool.name!r} at {op.id} in the folder of {op.agent.id}, and what was in it is not "
            f"in the trace: {why}. Give the tool a higher kept_bytes (SandboxLimits), or pass allow_impure "
            "(--allow-impure) to begin with an empty one."
        )
    if not (tool.pure or tool.contained):
        raise ForkRefused(
            f"the fork would call {tool.name!r} again at {op.id}, and it is not pure: its effect would happen "
            "a second time. Declare it pure, or pass allow_impure (--allow-impure)."
        )
