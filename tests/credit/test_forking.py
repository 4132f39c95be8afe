"""Forks run once, cost what they ran, redraw what followed, and never act on the world."""

from __future__ import annotations

import asyncio

import pytest
from fork_teams import relay, team_of, turn_of, voters

from baton.engine.scripted import ScriptedEngine
from baton.errors import UsageError
from baton.team.altered import OtherAnswer, call_of, cone, coupling
from baton.team.forks import Cost, Forks
from baton.team.intervene import Replace
from baton.team.protocol import Request
from baton.team.running import run
from baton.team.team import Assignment, Team
from baton.team.tool_calls import ForkRefused
from baton.team.tools.tool import Registry, tool
from baton.team.topology import make_topology
from baton.trace.validation import validate


def test_a_branch_is_run_once_and_paid_once() -> None:
    team, assignment = voters(1)
    trace = asyncio.run(run(team, assignment))
    forks = Forks(team, assignment)
    first = asyncio.run(forks.fork(trace, [Replace("worker1#1", "7")]))
    assert forks.cost == Cost(first.usage.tokens_run, 1)
    assert asyncio.run(forks.fork(trace, [Replace("worker1#1", "7")])) is first
    assert (forks.num_run, forks.num_reused, forks.cost.calls) == (1, 1, 1)
    asyncio.run(forks.fork(trace, [Replace("worker1#1", "7")], replicate=1))
    assert forks.num_run == 2


@pytest.mark.parametrize("seed", range(5))
def test_redrawing_with_the_same_keys_repeats_the_trace_and_others_do_not(seed: int) -> None:
    team, assignment = relay(seed)
    trace = asyncio.run(run(team, assignment))
    forks = Forks(team, assignment)
    same = asyncio.run(forks.fork(trace, redraw="worker1#1"))
    assert same.trace.events == trace.events
    assert same.usage.calls_run == 3  # orchestrator twice, worker2 once
    values = {
        asyncio.run(forks.fork(trace, redraw="worker1#1", replicate=k)).trace.rewards[0].value
        for k in range(1, 25)
    }
    assert values == {0.0, 1.0}
    assert len(cone(trace, "worker1#1")) < len(trace.events)


def test_one_runner_serves_rollouts_of_many_seeds() -> None:
    forks = Forks(*relay(0))
    for seed in range(4):
        trace = asyncio.run(run(*relay(seed), trace_id=f"t{seed}"))
        assert asyncio.run(forks.fork(trace, redraw="worker1#1")).trace.events == trace.events
        changed = asyncio.run(forks.fork(trace, [Replace("worker1#1", "1")], redraw="orchestrator#1"))
        assert changed.usage.calls_run == 4  # all but the first, the changed one among them


def test_asking_again_costs_only_the_answers_and_draws_from_the_policy() -> None:
    team, assignment = relay(0)
    trace = asyncio.run(run(team, assignment))
    forks = Forks(team, assignment)
    call = call_of(trace, "worker1#1")
    answers = asyncio.run(forks.ask(trace, call.id, range(1, 401)))
    share = sum(answer.text == "return 1" for answer in answers) / 400
    assert abs(share - 0.6) < 0.08
    assert forks.cost.calls == 400
    asyncio.run(forks.ask(trace, call.id, range(1, 401)))
    assert forks.cost.calls == 400
    assert asyncio.run(forks.ask(trace, call.id, [0]))[0].text == trace.text(call.completion_ref)


def test_another_answer_is_said_and_remembered() -> None:
    def script(request: Request) -> str:
        if request.role == "worker":
            if turn_of(request) == 0:
                return "send orchestrator: a"
            mine = next(e.text for e in request.entries if e.speaker == "assistant")
            return f"return {len(mine)}{mine[-1]}"
        return (
            "spawn worker: x\nwait all" if turn_of(request) == 0 else f"stop {request.entries[-1].text[-2]}"
        )

    team, assignment = team_of(script, 0)
    trace = asyncio.run(run(team, assignment))
    forks = Forks(team, assignment)
    call = call_of(trace, "worker1#1")
    other = asyncio.run(forks.ask(trace, call.id, [0]))[0]
    # The same length: only the words tell that the context is another one.
    changed = type(other)(
        **{f: getattr(other, f) for f in other.__struct_fields__} | {"text": "send orchestrator: b"}
    )
    made = asyncio.run(forks.fork(trace, said=OtherAnswer(call.id, changed)))
    assert validate(made.trace) == []
    texts = [made.trace.text(e.content_ref) for e in made.trace.events if e.type in ("message", "return")]
    assert texts == ["b", "20b"]
    # On the edge alone, the sender remembers what it said.
    edge = asyncio.run(forks.fork(trace, [Replace("worker1#1", "b")])).trace
    assert [edge.text(e.content_ref) for e in edge.events if e.type == "return"] == ["20a"]
    share = coupling(trace, edge, cone(trace, "worker1#1"))
    assert share is not None
    assert 0 < share <= 1


def test_tools_that_act_are_never_run_again() -> None:
    calls: list[int] = []

    @tool
    def pay(amount: int) -> str:
        """Spends money."""
        calls.append(amount)
        return "paid"

    def script(request: Request) -> str:
        if request.role == "orchestrator":
            return ["spawn worker: a\nwait", "stop 1"][turn_of(request)]
        return ['call pay {"amount": 3}', "return done"][turn_of(request)]

    for clock in ("virtual", "real"):
        team = Team.of(
            make_topology("centralized", worker_tools=("pay",)),
            ScriptedEngine("script", script),
            tools=Registry([pay]),
            clock=clock,
        )
        assignment = Assignment(task_id="t", prompt="p", verify=float)
        trace = asyncio.run(run(team, assignment))
        calls.clear()
        forks = Forks(team, assignment)
        for attempt in (
            forks.fork(trace, [Replace("orchestrator#1", "b")]),
            forks.fork(trace, redraw="orchestrator#1"),
        ):
            with pytest.raises(ForkRefused, match="'pay' again"):
                asyncio.run(attempt)
        assert asyncio.run(forks.fork(trace, [Replace("worker1#2", "otherwise")])).usage.tools_run == 0
        assert calls == []


def test_two_traces_of_one_name_are_refused() -> None:
    forks = Forks(*relay(0))
    one, other = (asyncio.run(run(*relay(seed), trace_id="same")) for seed in (0, 3))
    assert one.events != other.events
    asyncio.run(forks.fork(one))
    with pytest.raises(UsageError, match="two different traces are called 'same'"):
        asyncio.run(forks.fork(other))
