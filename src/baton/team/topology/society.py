"""A society that debates: everybody answers alone, and then a critic of each reads all answers and answers again.

The debate of multi-agent fine-tuning (arXiv 2501.05707), in which generator n and critic n have weights of their own:
so each has a role of its own. It is the debate form with another agent for the second answer.
"""

from __future__ import annotations

from baton.team.agent import Agent, Role
from baton.team.team import Topology
from baton.trace.records import Sampling


def society(
    members: int, *, rounds: int, method: str | None, tools: tuple[str, ...], max_tokens: int, max_turns: int
) -> Topology:
    """So many generators and critics; `method` fuses what the critics said last."""
    generators = tuple(f"generator{n}" for n in range(1, members + 1))
    critics = tuple(f"critic{n}" for n in range(1, members + 1))

    async def resolver(me: Agent) -> None:
        task = me.asked
        team = [await me.spawn(role, task) for role in generators]
        for round_ in range(1, rounds):
            present = [agent for agent in team if agent is not None]
            await me.wait(present)
            said = {agent: me.results[agent][1] for agent in present if agent in me.results}
            for place, agent in enumerate(team):
                others = "\n".join(text for other, text in said.items() if other != agent)
                asked = f"{task}\nyou said: {said.get(agent or '', '')}\nthe others said:\n{others}"
                if round_ == 1:
                    team[place] = await me.spawn(critics[place], asked)
                elif agent is not None:
                    await me.delegate(agent, asked)
        last = [agent for agent in team if agent is not None]
        await me.wait(last)
        if method is not None:
            await me.stop(await me.aggregate(method, last))
        while not me.done():
            await me.turn()

    def member(name: str, instructions: str) -> Role:
        return Role(
            name=name,
            instructions=instructions,
            verbs=("call", "return") if tools else ("return",),
            tools=tools,
            sampling=Sampling(max_tokens=max_tokens),
            max_turns=max_turns,
        )

    return Topology(
        name="debate",
        root="resolver",
        roles=(
            Role(
                name="resolver",
                verbs=("spawn", "delegate", "wait", "aggregate", "stop"),
                spawns=(*generators, *critics),
                sampling=Sampling(max_tokens=max_tokens),
            ),
            *(member(name, "Return your answer.") for name in generators),
            *(member(name, "Return the right answer, with all answers in view.") for name in critics),
        ),
        programs={"resolver": resolver},
        aggregators=() if method is None else (method,),
    )
