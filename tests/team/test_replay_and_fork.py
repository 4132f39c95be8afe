"""Replay repeats a trace exactly; a fork does again only what depends on the change."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Literal

import pytest
from chaos import TOPOLOGY_NAMES, make_team, without_name
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from msgspec import structs

from baton.engine.scripted import ScriptedEngine
from baton.errors import TraceError, UsageError
from baton.team.action import Stop
from baton.team.budget import Limits
from baton.team.forking import fork_id
from baton.team.forks import fork
from baton.team.intervene import BarAgent, Drop, Force, Intervention, MuteAgent, Replace
from baton.team.protocol import Request
from baton.team.running import replay, run, start
from baton.team.team import Assignment, Team
from baton.team.tool_calls import ForkRefused
from baton.team.tools.tool import Registry, tool
from baton.team.topology import make_topology
from baton.trace.graph.arrays import Graph
from baton.trace.trace import Trace
from baton.trace.validation import validate


def changeable(trace: Trace) -> list[str]:
    return [e.id for e in trace.events if e.type in ("message", "return", "spawn") and e.status == "ok"]


def cone(trace: Trace, ids: Iterable[str]) -> set[str]:
    return {trace.events[int(i)].id for i in Graph.of(trace).descendants([trace.position[x] for x in ids])}


def cut_off(trace: Trace, forked: Trace) -> set[str]:
    """What was not done by the time the fork stopped, which ends what does not depend on the change, too."""
    over = max(event.t for event in forked.events)
    return {event.id for event in trace.events if event.t + (event.duration_s or 0.0) >= over}


def test_a_fork_that_stops_sooner_cuts_others_off() -> None:
    team, assignment = make_team("hierarchical", 248, limits=Limits(agents=500, tokens=10**7))
    trace = asyncio.run(run(team, assignment))
    forked = asyncio.run(fork(trace, team, assignment, [Drop("lead2#1")]))
    now = {"lead2#1"} | cone(forked.trace, ["lead2#1"])
    others = set(forked.invalidated) - (now | cone(trace, now & set(trace.position)))
    assert others == {"lead1.worker2#3", "lead1.worker2#3r", "lead1.worker2#4"}
    assert others <= cut_off(trace, forked.trace)


@pytest.mark.parametrize("topology", TOPOLOGY_NAMES)
@given(seed=st.integers(0, 10**6), data=st.data())
@hypothesis_settings(max_examples=25)
def test_replay_is_exact_and_forks_stay_in_their_cone(topology: str, seed: int, data: st.DataObject) -> None:
    # Ample limits: a budget that runs short couples agents that have nothing else to do with each other.
    team, assignment = make_team(topology, seed, limits=Limits(agents=500, tokens=10**7))
    trace = asyncio.run(run(team, assignment))
    assert asyncio.run(replay(trace, team, assignment)) == trace

    nothing = asyncio.run(fork(trace, team, assignment, []))
    assert without_name(nothing.trace) == without_name(trace)
    assert nothing.usage.calls_run == nothing.usage.tools_run == 0
    assert nothing.invalidated == ()

    candidates = changeable(trace)
    if not candidates:
        return
    at = data.draw(st.sampled_from(candidates))
    change: Intervention = data.draw(
        st.sampled_from([Replace(at, "something else"), Drop(at), Replace(at, ""), Force(at, Stop("3"))])
    )
    forked = asyncio.run(fork(trace, team, assignment, [change]))
    assert validate(forked.trace) == []
    if not isinstance(change, Force):  # a forced stop ends what does not depend on it, too
        # What follows from the change: from what it was, from what it is now, and from what that changed.
        now = {at} | cone(forked.trace, [at])
        follows = now | cone(trace, now & set(trace.position)) | {at}
        assert set(forked.invalidated) <= follows | cut_off(trace, forked.trace)
    # A fork is a trace like any other: it replays, and it forks again.
    assert asyncio.run(replay(forked.trace, team, assignment)) == forked.trace
    again = asyncio.run(fork(forked.trace, team, assignment, []))
    assert without_name(again.trace) == without_name(forked.trace)


def two_workers(orchestrator_end: str = "stop {}") -> tuple[Team, Assignment]:
    def script(request: Request) -> str:
        turn = sum(entry.speaker == "assistant" for entry in request.entries)
        if request.role == "orchestrator":
            if turn == 0:
                return "spawn worker: a\nspawn worker: b\nwait all"
            return orchestrator_end.format(request.entries[-1].text[-1])
        return f"return {request.agent[-1]}"

    return Team.of(make_topology("centralized"), ScriptedEngine("script", script)), Assignment(
        task_id="t", prompt="p"
    )


def test_fork_reruns_only_what_follows() -> None:
    team, assignment = two_workers()
    trace = asyncio.run(run(team, assignment))
    made = asyncio.run(fork(trace, team, assignment, [Replace("worker2#1", "9")]))
    assert (made.usage.calls_run, made.usage.calls_reused) == (1, 3)
    assert "worker1#1" in made.reused
    assert made.trace.header.meta["forked_from"] == trace.trace_id
    stop = next(e for e in made.trace.events if e.decision == "stop")
    before = next(e for e in trace.events if e.decision == "stop")
    assert made.trace.text(stop.content_ref) in ("9", trace.text(before.content_ref))


def test_barred_agent_is_unavailable_and_the_rest_goes_on() -> None:
    team, assignment = two_workers()
    trace = asyncio.run(run(team, assignment))
    made = asyncio.run(fork(trace, team, assignment, [BarAgent("worker1")]))
    assert validate(made.trace) == []
    assert {e.to for e in made.trace.events if e.type == "spawn"} == {"worker2"}
    assert any(e.status == "failed" and e.extra.get("agent") == "worker1" for e in made.trace.events)


def test_a_muted_agent_works_and_nobody_hears_it() -> None:
    def script(request: Request) -> str:
        turn = sum(entry.speaker == "assistant" for entry in request.entries)
        if request.role == "worker":
            return ("send orchestrator: secret", "return secret")[turn]
        return ("spawn worker: a\nspawn worker: b\nwait all", "wait all", "stop done")[turn]

    team = Team.of(make_topology("centralized"), ScriptedEngine("script", script))
    assignment = Assignment(task_id="t", prompt="p")
    trace = asyncio.run(run(team, assignment))
    made = asyncio.run(fork(trace, team, assignment, [MuteAgent("worker1")]))
    assert validate(made.trace) == []
    said = {
        e.id: made.trace.text(e.content_ref) for e in made.trace.events if e.type in ("message", "return")
    }
    assert said == {"worker1#1": "", "worker1#2": "", "worker2#1": "secret", "worker2#2": "secret"}
    assert made.trace.event("worker1#1").extra == {"intervention": "mute"}
    assert asyncio.run(replay(made.trace, team, assignment)) == made.trace
    with pytest.raises(UsageError, match=r"no agent 'worker9' .* Did you mean 'worker"):
        asyncio.run(fork(trace, team, assignment, [MuteAgent("worker9")]))


@pytest.mark.parametrize("end", ["return secret", "nonsense"])
def test_a_muted_agent_is_not_heard_through_its_transcript_or_its_giving_up(end: str) -> None:
    heard: list[str] = []

    def script(request: Request) -> str:
        turn = sum(entry.speaker == "assistant" for entry in request.entries)
        if request.role == "orchestrator":
            heard.extend(entry.text for entry in request.entries if entry.speaker == "user")
            return ("spawn lead: a\nwait all", "stop done")[min(turn, 1)]
        if request.role == "worker":
            return "return secret"
        return ("spawn worker: a\nwait all", "aggregate first", end)[min(turn, 2)]

    topology = make_topology("hierarchical")
    roles = tuple(structs.replace(r, returns="transcript") if r.name == "lead" else r for r in topology.roles)
    team = Team.of(structs.replace(topology, roles=roles), ScriptedEngine("script", script))
    assignment = Assignment(task_id="t", prompt="p")
    trace = asyncio.run(run(team, assignment))
    assert any("secret" in text for text in heard)
    heard.clear()
    made = asyncio.run(fork(trace, team, assignment, [MuteAgent("lead1")]))
    assert validate(made.trace) == []
    assert heard
    assert not any("secret" in text for text in heard)


def test_forced_stop_cancels_what_is_in_flight() -> None:
    team, assignment = two_workers()
    trace = asyncio.run(run(team, assignment))
    made = asyncio.run(fork(trace, team, assignment, [Force("orchestrator#3", Stop("now"))]))
    assert validate(made.trace) == []
    assert [e.status for e in made.trace.events if e.type == "despawn"] == ["cancelled", "cancelled"]
    assert made.usage.calls_run == 0


def test_replicates_differ_and_the_same_replicate_does_not() -> None:
    team, assignment = make_team("centralized", 5)
    trace = asyncio.run(run(team, assignment))
    at = changeable(trace)[0]

    def forked(replicate: int) -> Trace:
        return asyncio.run(fork(trace, team, assignment, [Replace(at, "x")], replicate=replicate)).trace

    assert forked(1) == forked(1)
    assert len({str(forked(k).events) for k in range(8)}) > 1


@given(seed=st.integers(0, 10**6))
@hypothesis_settings(max_examples=25)
def test_forks_at_other_replicates_replay_and_fork_again(seed: int) -> None:
    """Calls that were cancelled while they were asked, too."""
    team, assignment = make_team("swarm", seed)
    trace = asyncio.run(run(team, assignment))
    candidates = changeable(trace)
    if not candidates:
        return
    made = asyncio.run(fork(trace, team, assignment, [Replace(candidates[0], "x")], replicate=3)).trace
    assert asyncio.run(replay(made, team, assignment)) == made
    again = asyncio.run(fork(made, team, assignment, []))
    assert without_name(again.trace) == without_name(made)
    assert again.usage.calls_run == 0


def test_forks_of_a_trace_and_of_its_branch_have_names_of_their_own() -> None:
    team, assignment = two_workers()
    trace = asyncio.run(run(team, assignment, trace_id="t"))
    branch = asyncio.run(fork(trace, team, assignment, [Replace("worker1#1", "8")], trace_id="t.1-1")).trace
    change = [Drop("worker2#1")]
    names = {fork_id(trace, change), fork_id(branch, change)}
    assert len(names) == 2
    assert {name.rpartition("~")[0] for name in names} == {"t", "t.1-1"}
    of_branch = asyncio.run(fork(branch, team, assignment, change)).trace
    assert of_branch.header.meta["forked_from"] == "t.1-1"


def test_names_do_not_grow_with_generations() -> None:
    team, assignment = two_workers()
    trace = asyncio.run(run(team, assignment, trace_id="t"))
    made, names = trace, ["t"]
    for number in range(6):
        before = made
        made = asyncio.run(fork(before, team, assignment, [Replace("worker2#1", str(number))])).trace
        assert made.trace_id == fork_id(before, [Replace("worker2#1", str(number))])
        assert made.header.meta["forked_from"] == before.trace_id
        names.append(made.trace_id)
    assert len(set(names)) == 7
    assert {len(name) for name in names[1:]} == {len("t~01234567")}


def test_unknown_event_and_foreign_trace_are_clear_errors() -> None:
    team, assignment = two_workers()
    trace = asyncio.run(run(team, assignment))
    with pytest.raises(TraceError, match=r"no event 'worker3#1'. Did you mean"):
        asyncio.run(fork(trace, team, assignment, [Drop("worker3#1")]))
    other = Team.of(make_topology("centralized", max_turns=3), next(iter(team.engines.values())))
    with pytest.raises(TraceError, match="another harness"):
        asyncio.run(replay(trace, other, assignment))
    with pytest.raises(TraceError, match="withheld"):
        asyncio.run(replay(trace.without_payloads(), team, assignment))


def test_replay_notices_that_the_task_has_changed() -> None:
    team, assignment = two_workers()
    trace = asyncio.run(run(team, assignment))
    with pytest.raises(TraceError, match="does not repeat its trace: call orchestrator:1"):
        asyncio.run(replay(trace, team, Assignment(task_id="t", prompt="another question")))


@pytest.mark.parametrize("clock", ["virtual", "real"])
def test_impure_tools_in_the_cone_are_refused_by_name(clock: Literal["virtual", "real"]) -> None:
    calls: list[int] = []

    @tool
    def pay(amount: int) -> str:
        """Spends money."""
        calls.append(amount)
        return "paid"

    def script(request: Request) -> str:
        turn = sum(entry.speaker == "assistant" for entry in request.entries)
        if request.role == "orchestrator":
            return ["spawn worker: a\nwait", "stop ok"][turn]
        return ['call pay {"amount": 3}', "return done"][turn]

    team = Team.of(
        make_topology("centralized", worker_tools=("pay",)),
        ScriptedEngine("script", script),
        tools=Registry([pay]),
        clock=clock,
    )
    assignment = Assignment(task_id="t", prompt="p")
    trace = asyncio.run(run(team, assignment))
    assert calls == [3]
    with pytest.raises(ForkRefused, match=r"'pay' again at worker1#1"):
        asyncio.run(fork(trace, team, assignment, [Replace("orchestrator#1", "b")]))
    assert calls == [3]
    asyncio.run(
        fork(trace, team, assignment, [Replace("worker1#2", "otherwise")])
    )  # downstream of it: reused
    assert calls == [3]
    asyncio.run(fork(trace, team, assignment, [Replace("orchestrator#1", "b")], allow_impure=True))
    assert calls == [3, 3]


def test_real_clock_runs_replay_and_fork_too() -> None:
    team, assignment = make_team("swarm", 3, clock="real")
    trace = asyncio.run(run(team, assignment))
    assert validate(trace) == []
    assert asyncio.run(replay(trace, team, assignment)) == trace


def test_a_person_edits_a_message_and_it_is_on_the_record() -> None:
    team, assignment = two_workers()
    trace = asyncio.run(run(team, assignment))
    made = asyncio.run(fork(trace, team, assignment, [Replace("worker1#1", "7", by="human")]))
    assert validate(made.trace) == []
    event = next(e for e in made.trace.events if e.type == "human_intervention")
    assert event.extra["edits"] == "worker1#1"
    stop = next(e.id for e in trace.events if e.decision == "stop")
    assert stop in event.extra["invalidated"]
    assert asyncio.run(replay(made.trace, team, assignment)) == made.trace


def test_a_person_instructs_a_running_team() -> None:
    def script(request: Request) -> str:
        turn = sum(entry.speaker == "assistant" for entry in request.entries)
        if request.role == "orchestrator":
            said = [entry.text for entry in request.entries if "instruction" in entry.text]
            return "spawn worker: a\nwait" if turn == 0 else (f"stop {said[0]}" if said else "wait")
        return "send orchestrator: working" if turn < 5 else "return 1"

    team = Team.of(make_topology("centralized"), ScriptedEngine("script", script))
    assignment = Assignment(task_id="t", prompt="p")
    going = start(team, assignment)
    going.instruct("orchestrator", "stop now", at=1.5)
    trace = asyncio.run(going.go())
    assert validate(trace) == []
    person = next(e for e in trace.events if e.type == "human_intervention")
    stop = next(e for e in trace.events if e.decision == "stop")
    assert person.seq < stop.seq
    assert "stop now" in (trace.text(stop.content_ref) or "")
    assert asyncio.run(replay(trace, team, assignment)) == trace


def test_a_paused_run_holds_still_and_goes_on() -> None:
    async def session() -> tuple[int, int, Trace]:
        asked, gate = asyncio.Event(), asyncio.Event()

        async def slow(request: Request) -> str:
            asked.set()
            await gate.wait()
            turn = sum(entry.speaker == "assistant" for entry in request.entries)
            return (
                "stop done"
                if turn == 3
                else "think\nspawn worker: x"
                if request.role == "orchestrator"
                else "return 1"
            )

        team = Team.of(make_topology("centralized"), ScriptedEngine("slow", slow), clock="real")
        going = start(team, Assignment(task_id="t", prompt="p"))
        task = asyncio.create_task(going.go())
        await asked.wait()
        going.driver.pause()
        gate.set()
        await asyncio.sleep(0.05)  # what was asked before is heard
        before = len(going.writer.trace(finished=False).events)
        await asyncio.sleep(0.05)
        after = len(going.writer.trace(finished=False).events)
        going.driver.go_on()
        return before, after, await task

    before, after, trace = asyncio.run(session())
    assert before == after < len(trace.events)
    assert trace.finished


@given(seed=st.integers(0, 10**6), data=st.data())
@hypothesis_settings(max_examples=40)
def test_forks_under_a_tight_budget_stay_within_it(seed: int, data: st.DataObject) -> None:
    limits = Limits(agents=5, tokens=8_000, calls=14, tool_calls=3, concurrent=3)
    team, assignment = make_team("hierarchical", seed, limits=limits)
    trace = asyncio.run(run(team, assignment))
    assert asyncio.run(replay(trace, team, assignment)) == trace
    candidates = changeable(trace)
    if candidates:
        at = data.draw(st.sampled_from(candidates))
        made = asyncio.run(fork(trace, team, assignment, [Drop(at)])).trace
        assert validate(made) == []
        assert len(made.calls) <= 14
        assert sum(e.type == "spawn" for e in made.events) <= 5
        assert sum(e.tokens or 0 for e in made.events) <= 8_000


def test_answers_of_other_weights_are_not_reused_in_a_fork_but_still_replay() -> None:
    team, assignment = two_workers()
    trace = asyncio.run(run(team, assignment))
    old = next(iter(team.engines.values()))
    assert isinstance(old, ScriptedEngine)
    newer = Team.of(team.topology, ScriptedEngine(old.name, old._function, version="1"))
    assert asyncio.run(replay(trace, newer, assignment)) == trace
    made = asyncio.run(fork(trace, newer, assignment, [Replace("worker1#1", "7")]))
    assert made.usage.calls_reused == 0
    assert {call.policy_version for call in made.trace.calls} == {"1"}
