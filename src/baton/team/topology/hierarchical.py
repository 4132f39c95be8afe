"""Level k spawns level k+1, as deep as the budget lets it. Every level's policy decides for its own."""

from __future__ import annotations

from baton.errors import UsageError
from baton.settings import Count
from baton.team.agent import Role
from baton.team.team import Topology
from baton.trace.records import Sampling


def hierarchical(
    *, levels: Count = 3, tools: tuple[str, ...] = (), max_tokens: Count = 1024, max_turns: Count = 50
) -> Topology:
    """`levels` counts the orchestrator: 3 is orchestrator, lead, worker."""
    if levels < 2:
        raise UsageError(f"a hierarchy needs at least 2 levels; given: {levels}.")
    sampling = Sampling(max_tokens=max_tokens)
    middle = ("lead",) if levels == 3 else tuple(f"lead{k}" for k in range(1, levels - 1))
    names = ("orchestrator", *middle, "worker")
    talk = ("spawn", "delegate", "send", "wait", "cancel", "aggregate")
    roles = []
    for name, below in zip(names, (*names[1:], None), strict=True):
        top, bottom = name == "orchestrator", below is None
        roles.append(
            Role(
                name=name,
                instructions="Do the task and return the result."
                if bottom
                else "Split the task over those below you.",
                verbs=("call", "send", "return") if bottom else (*talk, "stop" if top else "return"),
                spawns=() if below is None else (below,),
                tools=tools if bottom else (),
                sampling=sampling,
                max_turns=max_turns,
            )
        )
    return Topology(name="hierarchical", root="orchestrator", roles=tuple(roles))
