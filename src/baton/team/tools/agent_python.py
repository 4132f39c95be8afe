"""The `python` tool of agents that keep files: each has a folder and limits of its own, and none below it gets more.

Every call is a process of its own, as in `baton.team.tools.sandbox`; what stays is the agent's folder. Siblings reach
neither it nor each other. Below the level `landlock` files of the same user are open to all, so there it is refused.
What is in a folder hangs on earlier calls, so the tool is not pure. The trace keeps what each call left there, so that
a run that goes on in another process, and a fork, find the folder as it was.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from baton.team.tools.agent_place import AgentPlace, narrower
from baton.team.tools.sandbox import KeptFolder, SandboxError, SandboxResult, explained, require, run_python
from baton.team.tools.sandbox_levels import LEVELS, SandboxLimits
from baton.team.tools.tool import Confined, Tool, in_thread, tool

_SEAT_SECONDS = 600
_LEAST = SandboxLimits(least="landlock")


def agent_python_tool(
    limits: SandboxLimits | None = None, by_role: Mapping[str, SandboxLimits] | None = None
) -> Tool:
    """`limits` of every agent, or of those of a role: of each the lesser of its own and of all above it."""
    usual, roles = _isolated(limits or SandboxLimits()), {k: _isolated(v) for k, v in (by_role or {}).items()}

    async def python(code: str, place: AgentPlace) -> Confined:
        """Run Python code and return what it prints; the value of a last expression is printed too.

        Standard library only, no network, no other processes. Files in the current directory are yours alone and stay
        for your next call.
        """
        cancelled = threading.Event()
        try:
            result: SandboxResult = await in_thread(lambda: _run(code, place, cancelled))
        finally:
            cancelled.set()
        if result.exit_code == 0 and result.level is not None:
            return Confined(text=result.output, sandbox=result.level)
        said = explained(result, place.limits(usual, roles))
        emptied = "\n[your folder was emptied]" if result.stopped == "files" else ""
        raise SandboxError(said + emptied, result.level)

    def _run(code: str, place: AgentPlace, cancelled: threading.Event) -> SandboxResult:
        place.most_bytes = place.limits(usual, roles).kept_bytes
        with place.using() as folder:
            kept = KeptFolder(folder, place.over(usual, roles))
            result = run_python(code, place.limits(usual, roles), cancelled, kept=kept)
            if result.stopped == "files":
                place.empty()
            return result

    every = [usual, *roles.values()]
    return tool(
        contained=True,
        timeout_seconds=max(each.wall_seconds for each in every) + _SEAT_SECONDS,
        max_output_bytes=max(each.output_bytes for each in every) + 1_000,
        check=lambda: require(max(every, key=lambda each: LEVELS.index(each.least))),
    )(python)


def _isolated(limits: SandboxLimits) -> SandboxLimits:
    """At the least at a level that keeps agents of one user apart."""
    return limits if LEVELS.index(limits.least) >= LEVELS.index("landlock") else narrower(limits, _LEAST)
