"""Peers that work at once and talk to each other; the first accepted result, or a fusion of all, is the answer."""

from __future__ import annotations

from baton.settings import Count
from baton.team.agent import Agent, Role
from baton.team.team import Topology
from baton.trace.records import Sampling


def swarm(
    *,
    peers: Count = 4,
    method: str = "majority",
    first: bool = False,
    tools: tuple[str, ...] = (),
    max_tokens: Count = 1024,
    max_turns: Count = 50,
) -> Topology:
    """`first`: stop at the first return and cancel the rest; otherwise wait for all and fuse."""

    async def hub(me: Agent) -> None:
        task = me.asked
        spawned = [await me.spawn("peer", task) for _ in range(peers)]
        team = [agent for agent in spawned if agent is not None]
        await me.wait(team, "any" if first else "all")
        await me.stop(await me.aggregate("first" if first else method) if me.results else "")

    return Topology(
        name="swarm",
        root="hub",
        roles=(
            Role(name="hub", verbs=("spawn", "wait", "cancel", "aggregate", "stop"), spawns=("peer",)),
            Role(
                name="peer",
                instructions="Work on the task with the other peers and return your result.",
                verbs=("call", "send", "wait", "return"),
                tools=tools,
                sampling=Sampling(max_tokens=max_tokens),
                max_turns=max_turns,
                confidence=method == "log_odds",  # which weighs them by it
            ),
        ),
        programs={"hub": hub},
        aggregators=(method,),
    )
