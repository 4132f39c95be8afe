"""Branches of a rollout draw what follows for themselves, and so do branches of branches."""

from __future__ import annotations

import asyncio

from msgspec import structs

from baton.engine.scripted import ScriptedEngine
from baton.learn.recipe import RolloutPart
from baton.learn.rollouts import branched
from baton.team.clock import uniform
from baton.team.forks import Forks
from baton.team.intervene import BarAgent
from baton.team.protocol import Answer, Request
from baton.team.running import replay, run
from baton.team.team import Assignment, Team
from baton.team.topology import make_topology
from baton.trace.records import Reward
from baton.trace.trace import Trace

ASSIGNMENT = Assignment(task_id="t", prompt="p")


def coins(seed: int, asked: list[str]) -> Team:
    """An orchestrator that throws three fair coins, one a turn; `asked` notes the keys of all that is drawn."""

    def script(request: Request) -> str | Answer:
        if request.role == "worker":
            return "return ok"
        key = request.sampling.key or ""
        asked.append(key)
        turn = sum(entry.speaker == "assistant" for entry in request.entries)
        heads = int(uniform(key) < 0.5)
        says = f"stop {heads}" if turn == 2 else f"spawn worker: {heads}\nwait all"
        return Answer(text=says, policy="coins", choice=heads, option_propensities=(0.5, 0.5))

    return Team.of(make_topology("centralized"), ScriptedEngine("coins", script), seed=seed)


def tree_of(seed: int, fan_out: tuple[int, ...], asked: list[str]) -> tuple[Team, dict[str, Trace]]:
    team = coins(seed, asked)
    trace = asyncio.run(run(team, ASSIGNMENT, trace_id="t"))
    made = asyncio.run(branched([trace], RolloutPart(fan_out=tuple(fan_out)), Forks(team, ASSIGNMENT)))
    return team, {each.trace_id: each for each in made}


def thrown(trace: Trace) -> list[int]:
    return [event.choice for event in trace.events if event.choice is not None]


def test_no_two_branches_share_a_draw() -> None:
    asked: list[str] = []
    _, tree = tree_of(0, (2, 2), asked)
    assert set(tree) == {"t", "t.1-1", "t.2-1", "t.1-1.2-1"}
    assert len(asked) == 3 + 2 + 2 + 2  # of the rollout, then its last two, drawn again three times
    assert len(set(asked)) == len(asked)


def test_the_same_turn_of_two_branches_is_independent() -> None:
    agree = 0
    for seed in range(400):
        _, tree = tree_of(seed, (2, 2), [])
        agree += thrown(tree["t.2-1"])[-1] == thrown(tree["t.1-1.2-1"])[-1]
    assert abs(agree - 200) < 4 * 10  # four standard deviations of 400 fair coins


def test_each_call_names_the_draw_it_is() -> None:
    """A branch that happens to say what its rollout said is another draw: an update trains both."""
    asked: list[str] = []
    _, tree = tree_of(0, (2, 2), asked)
    drawn = {
        call.sampling.key
        for trace in tree.values()
        for call in trace.calls
        if call.sampling is not None and call.role == "orchestrator"
    }
    assert drawn == set(asked)
    for trace in tree.values():
        for event in trace.events:
            if event.choice is not None:
                sampling = trace.call_by_id[event.call or ""].sampling
                assert sampling is not None
                assert event.seed_key == sampling.key
                assert thrown(trace).count(event.choice)
                assert event.choice == int(uniform(event.seed_key or "") < 0.5)


def test_a_branch_is_the_same_again_and_replays() -> None:
    team, tree = tree_of(3, (3, 2), [])
    _, again = tree_of(3, (3, 2), [])
    assert tree == again
    for trace in tree.values():
        assert asyncio.run(replay(trace, team, ASSIGNMENT)) == trace


def test_a_fork_of_a_branch_draws_as_the_branch_drew() -> None:
    """So that they differ only through what was changed."""
    asked: list[str] = []
    team, tree = tree_of(5, (2, 2), asked)
    forks = Forks(team, ASSIGNMENT)
    last = [tree[name].calls[-1].id for name in ("t", "t.1-1.2-1")]
    drew = asked[-1]
    for name, call in zip(("t", "t.1-1.2-1"), last, strict=True):
        asyncio.run(forks.fork(tree[name], [BarAgent("worker2")]))
        assert asked[-1].split("/")[1] == call
    assert asked[-1] == drew
    assert asked[-2] == f"5/{last[0]}"


def test_branches_written_before_replay() -> None:
    """Their headers name the last replicate alone."""
    team, tree = tree_of(2, (2, 2), [])
    for trace in tree.values():
        run_meta = {k: v for k, v in trace.header.meta["run"].items() if k != "replicates"}
        old = structs.replace(trace.header, meta=trace.header.meta | {"run": run_meta | {"replicate": 2001}})
        before = structs.replace(trace, header=old)
        assert asyncio.run(replay(before, team, ASSIGNMENT)) == before


def test_only_the_best_of_the_newest_branches_grows() -> None:
    """AT-GRPO: K samples of a turn, of which the one whose team earned most is gone on with; the first of equals."""
    asked: list[str] = []
    team = coins(3, asked)
    first = [asyncio.run(run(coins(seed, asked), ASSIGNMENT, trace_id=f"t{seed}")) for seed in (3, 3, 3)]
    first = [paid(trace, value) for trace, value in zip(first, (0.5, 2.0, 2.0), strict=True)]
    first = [
        structs.replace(trace, header=structs.replace(trace.header, trace_id=f"r{number}"))
        for number, trace in enumerate(first)
    ]
    made = asyncio.run(branched(first, RolloutPart(fan_out=(4, 3), grow="best"), Forks(team, ASSIGNMENT)))
    names = [trace.trace_id for trace in made]
    # Forks have no reward here, so the original is the best of its branches each time.
    assert names == ["r0", "r1", "r2", "r1.1-1", "r1.1-2", "r1.1-3", "r1.2-1", "r1.2-2"]


def paid(trace: Trace, value: float) -> Trace:
    reward = Reward(family="shared", unit="team", target=trace.trace_id, value=value)
    return structs.replace(trace, rewards=(reward,))
