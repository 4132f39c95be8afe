"""A topology of your own: a relay, where each runner starts from what the one before handed over.

Name the roles, say what each may do, and give a program to those whose policy does not decide
everything. A program awaits only what `me` offers; so it can be replayed, resumed and forked.

Type: python examples/my_topology.py runs/relay && baton show runs/relay/trace.jsonl
"""

import asyncio
import sys
from pathlib import Path

from baton.engine.scripted import ScriptedEngine
from baton.team.agent import Agent, Role
from baton.team.protocol import Request
from baton.team.running import run
from baton.team.team import Assignment, Team, Topology
from baton.testing import check_topology
from baton.trace.formats import write


def relay(*, runners: int = 3) -> Topology:
    """`runners` work one after the other; the last one's result is the answer."""

    async def starter(me: Agent) -> None:
        task = me.inbox[-1].text
        baton = ""
        for _ in range(runners):
            runner = await me.spawn("runner", f"{task}\nso far: {baton}")
            if runner is None:  # the budget said no: what there is has to do
                break
            await me.wait([runner])
            baton = me.results[runner][1]
        await me.stop(baton)

    return Topology(
        name="mixed",  # the survey's word for what is none of its six
        root="starter",
        roles=(
            Role(name="starter", verbs=("spawn", "wait", "stop"), spawns=("runner",)),
            Role(name="runner", instructions="Take what there is one step further.", verbs=("return",)),
        ),
        programs={"starter": starter},
    )


def policy(request: Request) -> str:
    """A runner that adds a letter; a model would read the same text."""
    so_far = request.entries[-1].text.rpartition("so far: ")[2]
    return f"return {so_far}{chr(ord('a') + len(so_far))}"


if __name__ == "__main__":
    check_topology(relay())  # chaos, crashes, replay and forks, on twenty seeds
    team = Team.of(relay(runners=4), ScriptedEngine("letters", policy))
    task = Assignment(
        task_id="alphabet", prompt="spell the alphabet", verify=lambda said: float(said == "abcd")
    )
    trace = asyncio.run(run(team, task))
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/relay")
    folder.mkdir(parents=True, exist_ok=True)
    write(trace, folder / "trace.jsonl")
    print(f"{len(trace.events)} events, reward {trace.rewards[0].value:g}, in {folder / 'trace.jsonl'}")
