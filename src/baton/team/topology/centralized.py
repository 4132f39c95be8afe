"""One orchestrator and the workers it spawns. The orchestrator's policy decides everything.

To write a topology of your own, copy this file: name the roles, say what each may do, and, where
the policy does not decide everything, give a role a program (see `debate.py`).
"""

from __future__ import annotations

from baton.settings import Count
from baton.team.agent import Role
from baton.team.team import Topology
from baton.trace.records import Sampling


def centralized(
    *,
    tools: tuple[str, ...] = (),
    worker_tools: tuple[str, ...] | None = None,
    max_tokens: Count = 1024,
    max_turns: Count = 50,
    confidence: bool = False,
) -> Topology:
    """An orchestrator that may spawn workers, wait for them, fuse what they return, and stop.

    With `confidence` workers are asked how sure they are, so that it may aggregate by `log_odds`.
    """
    worker_tools = tools if worker_tools is None else worker_tools
    sampling = Sampling(max_tokens=max_tokens)
    orchestrator = Role(
        name="orchestrator",
        instructions="Split the task, spawn workers for its parts, and stop with the answer.",
        verbs=("spawn", "delegate", "send", "call", "wait", "cancel", "aggregate", "stop"),
        spawns=("worker",),
        tools=tools,
        sampling=sampling,
        max_turns=max_turns,
    )
    worker = Role(
        name="worker",
        instructions="Do the task you are given and return the result.",
        verbs=("call", "send", "return"),
        tools=worker_tools,
        sampling=sampling,
        max_turns=max_turns,
        confidence=confidence,
    )
    return Topology(name="centralized", root="orchestrator", roles=(orchestrator, worker))
