"""What causal replay saves on a trace of a hundred agents, run on the team runtime."""

from __future__ import annotations

import asyncio

from baton.credit.estimators.message_replay import total_effect
from baton.engine.scripted import ScriptedEngine
from baton.team.clock import uniform
from baton.team.forks import Forks
from baton.team.intervene import Replace
from baton.team.protocol import Answer, Request
from baton.team.running import run
from baton.team.team import Assignment, Team
from baton.team.topology import make_topology
from baton.trace.outcome import team_return
from credit_bench.figures import Target

__all__ = ["hundred_agents", "replay_targets"]

_LEADS, _WORKERS = 9, 10
_MESSAGES = 12
_ALTERNATIVES = 4


def hundred_agents(seed: int = 0) -> tuple[Team, Assignment]:
    """A root, 9 leads and 90 workers that vote on a bit; leads pass on their majority, the root takes theirs."""

    def script(request: Request) -> str | Answer:
        if request.role == "worker":
            point, chance = uniform(request.sampling.key or ""), 0.55
            right = point < chance
            words = "because of what the part I was given says in its second paragraph, "
            return f"return {words}{int(right)}"
        turns = sum(entry.speaker == "assistant" for entry in request.entries)
        if turns == 0:
            kind, count = ("lead", _LEADS) if request.role == "orchestrator" else ("worker", _WORKERS)
            return "\n".join([f"spawn {kind}: read your part and vote"] * count + ["wait all"])
        votes = [entry.text[-1] for entry in request.entries if "returned:" in entry.text]
        bit = int(2 * votes.count("1") > len(votes))
        return f"stop {bit}" if request.role == "orchestrator" else f"return {bit}"

    team = Team.of(make_topology("hierarchical"), ScriptedEngine("voters", script), seed=seed)
    return team, Assignment(task_id="vote", prompt="is it so?", verify=float)


def replay_targets(seed: int = 0) -> list[Target]:
    """Tokens re-run for one message's credit, over those of running the whole team again for each alternative.

    Running the whole team again under the same keys with the message replaced gives exactly the same
    returns, so the errors are equal by construction and the tokens alone compare.
    """
    return asyncio.run(_measured(seed))


async def _measured(seed: int) -> list[Target]:
    team, assignment = hundred_agents(seed)
    trace = await run(team, assignment)
    agents = 1 + sum(event.type == "spawn" for event in trace.events)
    votes = [event.id for event in trace.events if event.type == "return" and event.role == "worker"]
    forks = Forks(team, assignment)
    whole = 0.0
    for message in votes[:: max(1, len(votes) // _MESSAGES)][:_MESSAGES]:
        before = forks.num_run
        await total_effect(forks, trace, message, num_alternatives=_ALTERNATIVES)
        whole += (forks.num_run - before) * trace.costs["tokens"]
    ratio = forks.cost.tokens / whole
    change = Replace(votes[0], "another thing, 0")
    narrow = await forks.fork(trace, (change,))
    wide = await forks.fork(trace, (change,), redraw="orchestrator#1")
    equal = team_return(narrow.trace) == team_return(wide.trace) and wide.usage.calls_run > 100
    again = await forks.fork(trace, redraw=votes[0])
    same = again.trace.events == trace.events
    return [
        Target(
            what=f"causal replay on a trace of {agents} agents ({trace.costs['tokens']:,.0f} tokens): share of the "
            "tokens of full re-runs with the same errors",
            value=ratio,
            target="<= 0.333",
            met=ratio <= 1 / 3,
        ),
        Target(
            what="running the whole team again under the same keys gives the same return",
            value=float(equal),
            target="1",
            met=equal,
        ),
        Target(what="null replay repeats the trace", value=float(same), target="1", met=same),
    ]
