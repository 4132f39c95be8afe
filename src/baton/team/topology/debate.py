"""Debaters answer, read each other, and answer again; a resolver fuses their last answers and stops.

The rounds are the program's; the answers, the resolver's choice of method and whether it stops
before the last round are the policy's.
"""

from __future__ import annotations

from baton.errors import UsageError
from baton.settings import Count
from baton.team.agent import Agent, Role
from baton.team.team import Topology
from baton.team.topology.society import society as make_society
from baton.trace.records import Sampling


def debate(
    *,
    debaters: Count = 3,
    rounds: Count = 2,
    method: str | None = "majority",
    tools: tuple[str, ...] = (),
    max_tokens: Count = 1024,
    max_turns: Count = 20,
    society: bool = False,
) -> Topology:
    """`method` fixes how the resolver fuses; None lets its policy choose, and decide when to stop.

    `society`: every debater is a generator in the first round and then has a critic in its place, each with a role of
    its own (see `baton.team.topology.society`).
    """
    if society:
        if rounds < 2:
            raise UsageError(f"debate: society has critics from the second round on, and rounds = {rounds}.")
        return make_society(
            debaters, rounds=rounds, method=method, tools=tools, max_tokens=max_tokens, max_turns=max_turns
        )
    sampling = Sampling(max_tokens=max_tokens)

    async def resolver(me: Agent) -> None:
        task = me.asked
        spawned = [await me.spawn("debater", task) for _ in range(debaters)]
        team = [agent for agent in spawned if agent is not None]
        for round_ in range(rounds):
            await me.wait(team)
            if round_ == rounds - 1:
                break
            said = {agent: me.results[agent][1] for agent in team if agent in me.results}
            for agent in team:
                others = "\n".join(f"{other}: {text}" for other, text in said.items() if other != agent)
                await me.delegate(agent, f"{task}\nthe others said:\n{others}")
        if method is not None:
            await me.stop(await me.aggregate(method))
        while not me.done():
            await me.turn()

    return Topology(
        name="debate",
        root="resolver",
        roles=(
            Role(
                name="resolver",
                instructions="Fuse the debaters' answers and stop.",
                verbs=("spawn", "delegate", "wait", "aggregate", "stop"),
                spawns=("debater",),
                sampling=sampling,
            ),
            Role(
                name="debater",
                instructions="Return your answer; change it only for a good reason.",
                verbs=("call", "return") if tools else ("return",),
                tools=tools,
                sampling=sampling,
                max_turns=max_turns,
                confidence=method == "log_odds",  # which weighs them by it
            ),
        ),
        programs={"resolver": resolver},
        aggregators=() if method is None else (method,),
    )
