"""A solver answers, a verifier judges the answer, a corrector writes it anew: one agent after the other.

MALT's generator, verifier and refiner (arXiv 2412.01928), MarsRL's solver, verifier and corrector (arXiv 2511.11373).
It is the planner-executor-critic form with an agent of its own for the second attempt. The verifier's return begins
with `accept`, or it is what is wrong.
"""

from __future__ import annotations

from baton.team.agent import Agent, Role
from baton.team.team import Topology
from baton.trace.records import Sampling


def refinement(
    names: tuple[str, str, str],
    *,
    rounds: int,
    always: bool,
    tools: tuple[str, ...],
    max_tokens: int,
    max_turns: int,
) -> Topology:
    """Solver, verifier and corrector by these names; up to `rounds` - 1 corrections, each of them verified before.

    `always`: the corrector writes whatever the verdict was, as MALT's refiner does.
    """
    solver, verifier, corrector = names

    async def lead(me: Agent) -> None:
        task = me.asked
        draft = await result_of(me, await me.spawn(solver, task))
        judge = fixer = None
        for _ in range(rounds - 1):
            judge = await _asked(me, judge, verifier, f"{task}\ndraft: {draft}")
            verdict = await result_of(me, judge)
            if judge is None or (verdict.startswith("accept") and not always):
                break
            fixer = await _asked(me, fixer, corrector, f"{task}\ndraft: {draft}\ncritique: {verdict}")
            draft = await result_of(me, fixer) or draft
        await me.stop(draft)

    def role(name: str, instructions: str, *verbs: str) -> Role:
        return Role(
            name=name,
            instructions=instructions,
            verbs=(*verbs, "return"),
            tools=tools if "call" in verbs else (),
            sampling=Sampling(max_tokens=max_tokens),
            max_turns=max_turns,
        )

    return Topology(
        name="planner_executor_critic",
        root="lead",
        roles=(
            Role(name="lead", verbs=("spawn", "delegate", "wait", "stop"), spawns=names),
            role(solver, "Return your answer to the task.", "call"),
            role(verifier, "Return `accept`, or what is wrong with the draft."),
            role(corrector, "Return the right answer, with the draft and its critique in view.", "call"),
        ),
        programs={"lead": lead},
    )


async def _asked(me: Agent, agent: str | None, role: str, task: str) -> str | None:
    """The agent of a role with this task: spawned the first time, told again after that."""
    if agent is None:
        return await me.spawn(role, task)
    await me.delegate(agent, task)
    return agent


async def result_of(me: Agent, agent: str | None) -> str:
    """What an agent returned; empty when it could not be spawned."""
    if agent is None:
        return ""
    await me.wait([agent])
    return me.results.get(agent, ("", ""))[1]
