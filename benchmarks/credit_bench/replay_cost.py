"""What causal replay saves on a trace of a hundred agents, and what credit by forks costs as teams grow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from baton.credit.core.spending import own_tokens
from baton.credit.estimators.message_replay import message_replay, messages_of, total_effect
from baton.credit.estimators.shapley_forks import shapley
from baton.engine.scripted import ScriptedEngine
from baton.team.clock import uniform
from baton.team.forking import Forking
from baton.team.forks import Forks
from baton.team.intervene import Replace
from baton.team.protocol import Answer, Request
from baton.team.running import run
from baton.team.team import Assignment, Team
from baton.team.topology import make_topology
from baton.trace.outcome import team_return
from baton.trace.trace import Trace
from credit_bench.figures import Target

__all__ = ["cost_targets", "hundred_agents", "replay_targets", "reporters"]

_LEADS, _WORKERS = 9, 10
_MESSAGES = 12
_ALTERNATIVES = 4
_SIZES = {30: (3, 9, 1), 100: (9, 10, 5), 300: (27, 10, 12)}
"""Agents -> leads, workers of each, and messages of a worker before it returns."""
_SPEND = _MOST = 3.0
"""What forks may take, in runs of the trace: of tokens and of the processor."""


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


def reporters(num_leads: int, num_workers: int, num_messages: int, seed: int = 0) -> tuple[Team, Assignment]:
    """Workers report to their lead again and again, then return; leads and the root take the majority."""

    def script(request: Request) -> str:
        turn = sum(entry.speaker == "assistant" for entry in request.entries)
        if request.role == "worker":
            point = uniform(request.sampling.key or "")
            said = f"paragraph {int(point * 97)} of my part says {int(point < 0.55)}"
            lead = request.agent.rpartition(".")[0]
            return f"return {said}" if turn == num_messages else f"send {lead}: {said}"
        is_root = request.role == "orchestrator"
        if turn == 0:
            kind, count = ("lead", num_leads) if is_root else ("worker", num_workers)
            return "\n".join([f"spawn {kind}: read part {k} and vote" for k in range(count)] + ["wait all"])
        votes = [e.text[-1] for e in request.entries if e.speaker == "user" and e.text[-1:] in ("0", "1")]
        bit = int(2 * votes.count("1") > len(votes))
        return f"stop {bit}" if is_root else f"return {bit}"

    team = Team.of(make_topology("hierarchical"), ScriptedEngine("reporters", script), seed=seed)
    return team, Assignment(task_id="vote", prompt="is it so?", verify=float)


def cost_targets(seed: int = 0, sizes: tuple[int, ...] = (30, 100, 300)) -> list[Target]:
    """Processor time and tokens of credit by forks, over those of running the team once with a scripted engine.

    A scripted engine answers at once, so the time is the runtime's own; beside a model's it is small.
    """
    found: list[Target] = []
    for size in sizes:
        team, assignment = reporters(*_SIZES[size], seed=seed)
        seconds, trace = min((_timed(run(team, assignment)) for _ in range(3)), key=lambda each: each[0])
        where = f"{size} agents, {len(trace.events):,} events, {len(messages_of(trace)):,} messages"
        if size == max(sizes):
            found += _one_fork(team, assignment, trace, seconds, where)
        for name, estimate in (("message-replay", message_replay), ("shapley", shapley)):
            found += _cost(name, estimate, team, assignment, trace, seconds, where, size == 300)
    return found


def _cost(
    name: str,
    estimate: Callable[..., Any],
    team: Team,
    assignment: Assignment,
    trace: Trace,
    seconds: float,
    where: str,
    promised: bool,
) -> list[Target]:
    tries = []
    for _ in range(2):
        forks = Forks(team, assignment)
        took, _ = _timed(estimate([trace], runner=forks, spend=_SPEND))
        tries.append((took / seconds, forks.cost.tokens / own_tokens(trace), forks.num_run))
    time_ratio, tokens_ratio, num_forks = min(tries)
    what = f"{name} at spend {_SPEND:g} ({num_forks} forks), {where}"
    return [
        Target(
            what=f"{what}: {kind} over the run's own",
            value=value,
            target=f"<= {_MOST:g}" if promised else "none",
            met=value <= _MOST or not promised,
        )
        for kind, value in (("processor time", time_ratio), ("tokens", tokens_ratio))
    ]


def _one_fork(team: Team, assignment: Assignment, trace: Trace, seconds: float, where: str) -> list[Target]:
    """What one changed message costs, with everybody run again as it was before, and with bystanders copied."""
    forking = Forking(trace, team, lambda: assignment)
    _timed(forking.make(()))  # what forks of one trace share is found once
    messages = [event.id for event in messages_of(trace)][:: len(messages_of(trace)) // 4]
    found = []
    for whole, what in ((True, "everybody is run again"), (False, "bystanders are copied")):
        took = [_timed(forking.make((Replace(m, "another thing, 0"),), whole=whole))[0] for m in messages]
        found.append(
            Target(
                what=f"one fork of a message, {what}, {where}: processor time over the run's own",
                value=sum(took) / len(took) / seconds,
                target="none",
                met=True,
            )
        )
    return found


def _timed(made: Any) -> tuple[float, Any]:
    began = time.process_time()
    result = asyncio.run(made)
    return time.process_time() - began, result
