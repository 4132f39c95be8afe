"""A topology of your own: a relay. Each runner starts from what the one before found, and an anchor brings it home.

Name the roles, say what each may do, and give a program to those whose policy does not decide everything. A program
awaits only what `me` offers; so it can be replayed, resumed and forked.

    baton run shard-sum --topology my_topology:relay --set runners=2 --out runs/relay
"""

import baton
from baton.team.agent import Agent
from baton.testing import check_topology


def relay(*, runners: int = 3, method: str = "majority", tools: tuple[str, ...] = ()) -> baton.Topology:
    """`runners` and an anchor work one after the other; the answer is what `method` makes of what all of them say."""

    async def starter(me: Agent) -> None:
        task, found = me.inbox[-1].text, ""
        for role in ["runner"] * runners + ["anchor"]:
            agent = await me.spawn(role, f"{task}\nso far: {found}")
            if agent is None:  # the budget said no: what there is has to do
                break
            await me.wait([agent])
            found = me.results[agent][1]
        await me.stop(await me.aggregate(method) if me.results else "")

    team = ("runner", "anchor")
    return baton.Topology(
        name="mixed",  # the survey's word for what is none of its six
        root="starter",
        roles=(
            baton.Role(name="starter", verbs=("spawn", "wait", "aggregate", "stop"), spawns=team),
            *(baton.Role(name=role, verbs=("call", "return"), tools=tools, max_turns=12) for role in team),
        ),
        programs={"starter": starter},
        aggregators=(method,),
    )


if __name__ == "__main__":
    check_topology(relay())  # chaos, crashes, replay and forks, on twenty seeds
    task = baton.Task.of("How many legs has a spider?", verify="8")
    trace = baton.run(task, topology=relay(runners=2), policy=lambda _: "return 8")
    print(f"{len(trace.events)} events by {', '.join(sorted({event.agent for event in trace.events}))}")
    print(f"reward {trace.rewards[0].value:g}")
