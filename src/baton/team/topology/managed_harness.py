"""A managed harness: one agent with tools that can branch into copies of itself.

A branch starts from the whole context so far and comes back as a summary, as in context folding:
the main line stays short, and in training the branches share its prefix.
"""

from __future__ import annotations

from typing import Literal

from baton.settings import Count
from baton.team.agent import Role
from baton.team.team import Topology
from baton.trace.records import Sampling


def harness(
    *,
    tools: tuple[str, ...] = (),
    returns: Literal["summary", "transcript"] = "summary",
    max_tokens: Count = 1024,
    max_turns: Count = 100,
) -> Topology:
    """`returns` is what the main line sees of a finished branch."""
    sampling = Sampling(max_tokens=max_tokens)
    main = Role(
        name="main",
        instructions="Do the task with your tools; branch off what would fill your context.",
        verbs=("spawn", "call", "wait", "stop"),
        spawns=("branch",),
        tools=tools,
        sampling=sampling,
        max_turns=max_turns,
    )
    branch = Role(
        name="branch",
        verbs=("call", "return"),
        tools=tools,
        sampling=sampling,
        max_turns=max_turns,
        inherit=True,
        returns=returns,
    )
    return Topology(name="harness", root="main", roles=(main, branch))
