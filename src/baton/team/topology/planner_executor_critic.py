"""A planner writes a plan, an executor carries it out, a critic accepts it or sends it back.

The order is fixed; what each of them says is the policy's. The critic's return begins with
`accept` or it is a reason to try again.
"""

from __future__ import annotations

from baton.settings import Count
from baton.team.agent import Agent, Role
from baton.team.team import Topology
from baton.team.topology.refinement import refinement, result_of
from baton.trace.records import Sampling


def planner_executor_critic(
    *,
    rounds: Count = 3,
    tools: tuple[str, ...] = (),
    max_tokens: Count = 1024,
    max_turns: Count = 20,
    refiners: tuple[str, str, str] | None = None,
    always: bool = False,
) -> Topology:
    """Up to `rounds` attempts; the last one stands.

    `refiners` names a solver, a verifier and a corrector, who is another agent than the solver, in place of planner,
    executor and critic (see `baton.team.topology.refinement`); `always`: it corrects whatever the verdict.
    """
    if refiners is not None:
        return refinement(
            refiners, rounds=rounds, always=always, tools=tools, max_tokens=max_tokens, max_turns=max_turns
        )
    sampling = Sampling(max_tokens=max_tokens)

    async def lead(me: Agent) -> None:
        task = me.asked
        planner = await me.spawn("planner", task)
        plan = await result_of(me, planner)
        executor = await me.spawn("executor", f"{task}\nplan: {plan}")
        draft = await result_of(me, executor)
        critic = await me.spawn("critic", f"{task}\ndraft: {draft}")
        for _ in range(rounds - 1):
            verdict = await result_of(me, critic)
            if verdict.startswith("accept") or executor is None or critic is None:
                break
            await me.delegate(executor, f"{task}\nplan: {plan}\ncritique: {verdict}")
            draft = await result_of(me, executor)
            await me.delegate(critic, f"{task}\ndraft: {draft}")
        await result_of(me, critic)
        await me.stop(draft)

    def role(name: str, instructions: str, *verbs: str) -> Role:
        return Role(
            name=name,
            instructions=instructions,
            verbs=(*verbs, "return"),
            tools=tools if "call" in verbs else (),
            sampling=sampling,
            max_turns=max_turns,
        )

    return Topology(
        name="planner_executor_critic",
        root="lead",
        roles=(
            Role(
                name="lead",
                verbs=("spawn", "delegate", "wait", "stop"),
                spawns=("planner", "executor", "critic"),
            ),
            role("planner", "Return a short plan for the task."),
            role("executor", "Carry out the plan and return the result.", "call"),
            role("critic", "Return `accept`, or what is wrong with the draft."),
        ),
        programs={"lead": lead},
    )
