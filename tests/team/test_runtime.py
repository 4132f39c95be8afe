"""The runtime: what a run writes, what its agents see, and what holds for any run at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from chaos import TOPOLOGY_NAMES, make_team
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from baton.engine.scripted import ScriptedEngine
from baton.errors import UsageError
from baton.team.agent import Agent, Role
from baton.team.budget import Limits
from baton.team.protocol import Answer, EngineError, Request
from baton.team.running import replay, run
from baton.team.team import Assignment, Harness, Team
from baton.team.tools.tool import Registry, tool
from baton.team.topology import make_topology
from baton.trace.trace import Trace
from baton.trace.validation import validate


def play(
    script: Callable[[Request], Any],
    topology: str = "centralized",
    *,
    tools: Registry | None = None,
    params: dict[str, Any] | None = None,
    **settings: Any,
) -> Trace:
    given = dict(params or {})
    if tools:
        given["tools"] = tuple(tools)
    team = Team.of(
        make_topology(topology, **given), ScriptedEngine("script", script), tools=tools, **settings
    )
    return asyncio.run(
        run(team, Assignment(task_id="task", prompt="what is 6 x 7?", verify=lambda a: float(a == "42")))
    )


def by_turns(**turns: list[str]) -> Callable[[Request], str]:
    """A script by agent: what it says at its first call, its second, ..."""

    def script(request: Request) -> str:
        said = sum(entry.speaker == "assistant" for entry in request.entries)
        return turns[request.agent][said]

    return script


def kinds(trace: Trace, agent: str) -> list[tuple[str, str, str]]:
    return [(e.type, e.decision, e.status) for e in trace.events if e.agent == agent]


def read_by(trace: Trace, agent: str) -> str:
    return "\n".join(trace.text(call.prompt_ref) or "" for call in trace.calls if call.agent == agent)


def test_orchestrator_spawns_waits_aggregates_and_stops() -> None:
    trace = play(
        by_turns(
            orchestrator=["spawn worker: six\nspawn worker: seven\nwait all", "aggregate majority\nstop 42"],
            worker1=["return 42"],
            worker2=["I think so too.\nreturn 42"],
        )
    )
    assert validate(trace) == []
    assert kinds(trace, "orchestrator") == [
        ("spawn", "spawn", "ok"),
        ("spawn", "spawn", "ok"),
        ("orchestrator_decision", "wait", "ok"),
        ("aggregate", "aggregate", "ok"),
        ("orchestrator_decision", "stop", "ok"),
        ("despawn", "none", "ok"),
        ("despawn", "none", "ok"),
    ]
    assert trace.rewards[0].value == 1.0
    assert trace.finished
    # The span of the second worker's return covers the command, not the reasoning before it.
    event = next(e for e in trace.events if e.agent == "worker2")
    call = trace.call_by_id[event.call or ""]
    assert event.span is not None
    assert call.completion_ids is not None
    assert bytes(call.completion_ids[event.span[0] : event.span[1]]) == b"return 42"


def test_workers_run_at_the_same_time() -> None:
    trace = play(
        by_turns(
            orchestrator=["spawn worker: a\nspawn worker: b\nwait all", "stop 42"],
            worker1=["return 1"],
            worker2=["return 2"],
        )
    )
    first, second = (e for e in trace.events if e.type == "return")
    assert first.t == second.t
    assert first.t + (first.duration_s or 0) > second.t


def test_wait_any_goes_on_with_the_first_and_cancel_stops_the_rest() -> None:
    def script(request: Request) -> str | Answer:
        turn = sum(entry.speaker == "assistant" for entry in request.entries)
        if request.role == "orchestrator":
            return ["spawn worker: a\nspawn worker: b\nwait any", "cancel worker2", "stop 42"][turn]
        return (
            "return 1"
            if request.agent == "worker1"
            else Answer(text="return 2", policy="slow", duration_s=60.0)
        )

    trace = play(script)
    assert validate(trace) == []
    assert [e.agent for e in trace.events if e.type == "return"] == ["worker1"]
    assert [(e.to, e.status) for e in trace.events if e.type == "despawn"] == [
        ("worker2", "cancelled"),
        ("worker1", "ok"),
    ]


def test_an_idle_worker_takes_another_task() -> None:
    trace = play(
        by_turns(
            orchestrator=["spawn worker: a\nwait", "delegate worker1: b\nwait", "stop 42"],
            worker1=["return 1", "return 2"],
        )
    )
    assert validate(trace) == []
    assert [trace.text(e.content_ref) for e in trace.events if e.type == "return"] == ["1", "2"]
    assert "task: b" in read_by(trace, "worker1")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("hello there", "command"),
        ("spawn worker", "spawn"),
        ("spawn wroker: x", "Did you mean 'worker'"),
        ("send worker9: hi", "there is no agent 'worker9'"),
        ("return 42", "return"),
        ("delegate orchestrator: x", "yourself"),
        ("aggregate majority", "nobody has returned"),
        ("wait", "nobody to wait for"),
        ('call serach {"q": 1}', "Did you mean 'search'"),
    ],
)
def test_bad_output_is_an_invalid_event_and_an_error_the_model_sees(said: str, told: str) -> None:
    @tool(pure=True)
    def search(q: int) -> str:
        """Search."""
        return "found"

    trace = play(by_turns(orchestrator=[said, "stop 42"]), tools=Registry([search]))
    assert validate(trace) == []
    assert [e.status for e in trace.events] == ["invalid", "ok"]
    assert told in read_by(trace, "orchestrator").replace("\\", "")


def test_invalid_retries_are_bounded() -> None:
    trace = play(lambda request: "mumble")
    assert [e.status for e in trace.events] == ["invalid"] * 4 + ["forced"]
    assert trace.events[-1].decision == "stop"
    assert validate(trace) == []


def test_an_engine_that_fails_is_tried_again_and_then_given_up() -> None:
    failures = iter([True, False])

    def script(request: Request) -> str:
        if next(failures, False):
            raise EngineError("server on fire")
        return "stop 42"

    trace = play(script)
    assert [e.status for e in trace.events] == ["failed", "ok"]
    assert [call.finish_reason for call in trace.calls] == ["error", "stop"]
    assert trace.calls[0].prompt_ids == trace.calls[1].prompt_ids  # the same question again

    def broken(request: Request) -> str:
        raise EngineError("server on fire")

    trace = play(broken)
    assert [e.status for e in trace.events] == ["failed"] * 3 + ["forced"]
    assert "server on fire" in trace.events[-1].extra["why"]


def test_tools_run_fail_and_flood() -> None:
    @tool(pure=True)
    def ok(n: int) -> str:
        """Fine."""
        return f"ok {n}"

    @tool(pure=True)
    def broken() -> str:
        """Fails."""
        raise RuntimeError("out of order")

    @tool(pure=True, max_output_bytes=100)
    def flood() -> str:
        """Too much."""
        return "x" * 10_000

    @tool(pure=True, timeout_seconds=0.05)
    async def hang() -> str:
        """Never comes back."""
        await asyncio.sleep(60)
        return ""

    tools = Registry([ok, broken, flood, hang])
    calls = 'call ok {"n": 7}\ncall broken {}\ncall flood {}\ncall hang {}\ncall ok {"n": "seven"}'
    trace = play(by_turns(orchestrator=[calls, "stop 42"]), tools=tools)
    assert validate(trace) == []
    results = [e for e in trace.events if e.type == "tool_result"]
    assert sorted((e.tool, e.status) for e in results) == [
        ("broken", "failed"), ("flood", "ok"), ("hang", "failed"), ("ok", "failed"), ("ok", "ok"),
    ]  # fmt: skip
    told = read_by(trace, "orchestrator")
    assert "ok 7" in told
    assert "out of order" in told
    assert len(told) < 5_000


def test_an_agent_that_never_returns_is_cut_off_by_its_time() -> None:
    topology = make_topology("centralized", max_turns=10**6)
    orchestrator, worker = topology.roles
    topology = structs.replace(topology, roles=(orchestrator, structs.replace(worker, max_seconds=5.0)))

    def script(request: Request) -> str:
        if request.role == "worker":
            return "send orchestrator: still here"
        return "spawn worker: a\nwait" if len(request.entries) < 3 else "stop 42"

    engine = ScriptedEngine("script", script)
    trace = asyncio.run(run(Team.of(topology, engine), Assignment(task_id="t", prompt="p")))
    assert validate(trace) == []
    last = [e for e in trace.events if e.agent == "worker1"][-1]
    assert (last.type, last.status) == ("return", "forced")
    assert trace.events[-2].decision == "stop"


def test_everyone_waiting_for_each_other_ends_cleanly() -> None:
    topology = make_topology("swarm", peers=2)
    engine = ScriptedEngine("script", lambda r: "wait any " + ("peer2" if r.agent == "peer1" else "peer1"))
    trace = asyncio.run(run(Team.of(topology, engine), Assignment(task_id="t", prompt="p")))
    assert validate(trace) == []
    assert trace.events[-1].type == "despawn"
    assert any("deadlock" in e.extra for e in trace.events)
    assert asyncio.run(replay(trace, Team.of(topology, engine), Assignment(task_id="t", prompt="p"))) == trace


def test_a_branch_inherits_its_context_and_shares_its_prefix() -> None:
    trace = play(
        by_turns(main=["spawn branch: dig\nwait", "stop 42"], branch1=["return nothing"]), topology="harness"
    )
    # the branch's script sees the main line's turn too, so it answered its "second" turn
    main, branch = trace.call_by_id["main:1"], trace.call_by_id["branch1:1"]
    assert branch.parent == main.id
    whole, shared = trace.prompt_ids(branch), trace.prompt_ids(main)
    assert whole is not None
    assert shared is not None
    assert whole[: len(shared)] == shared


def test_transcript_or_summary_is_a_context_rule() -> None:
    def script(request: Request) -> str:
        if request.role == "main":
            return "stop 42" if "returned" in request.entries[-1].text else "spawn branch: dig\nwait"
        return "a long thought\nreturn short"

    told = {
        returns: read_by(play(script, topology="harness", params={"returns": returns}), "main")
        for returns in ("summary", "transcript")
    }
    assert "a long thought" not in told["summary"]
    assert "a long thought" in told["transcript"]


def test_the_prompt_of_every_call_is_what_the_engine_was_asked_with() -> None:
    asked: dict[str, list[int]] = {}

    def script(request: Request) -> str:
        assert request.prompt_ids is not None
        asked[request.call] = list(request.prompt_ids)
        turn = sum(entry.speaker == "assistant" for entry in request.entries)
        if request.role == "orchestrator":
            return ["spawn worker: a", "hm", "wait", "delegate worker1: b\nwait", "stop 42"][turn]
        return "return é" if turn else "send orchestrator: hello"

    trace = play(script)
    assert {call.id: list(trace.prompt_ids(call) or ()) for call in trace.calls} == asked


def test_the_harness_is_hashed_into_every_call() -> None:
    trace = play(by_turns(orchestrator=["stop 42"]))
    other = play(by_turns(orchestrator=["stop 42"]), params={"max_turns": 7})
    assert trace.calls[0].harness != other.calls[0].harness
    assert trace.calls[0].harness == trace.header.meta["run"]["harness"]


def test_roles_can_have_their_own_engines() -> None:
    topology = make_topology("centralized")
    engines = {
        "orchestrator": ScriptedEngine("boss", by_turns(orchestrator=["spawn worker: a\nwait", "stop 42"])),
        "worker": ScriptedEngine("hand", by_turns(worker1=["return 42"])),
    }
    trace = asyncio.run(run(Team.of(topology, engines), Assignment(task_id="t", prompt="p")))
    assert {call.role: call.policy for call in trace.calls} == {"orchestrator": "boss", "worker": "hand"}
    with pytest.raises(UsageError, match="no engine answers for role 'worker'"):
        asyncio.run(
            run(
                Team.of(topology, {"orchestrator": engines["orchestrator"]}),
                Assignment(task_id="t", prompt="p"),
            )
        )


def test_wrong_settings_name_the_nearest_right_one() -> None:
    with pytest.raises(UsageError, match="Did you mean 'centralized'"):
        make_topology("centralised")
    with pytest.raises(UsageError, match="Did you mean 'max_turns'"):
        make_topology("centralized", max_turn=3)
    with pytest.raises(UsageError, match="Did you mean 'spawn'"):
        Harness(roles=(Role(name="a", verbs=("span",)),))
    with pytest.raises(UsageError, match="which is no role"):
        Harness(roles=(Role(name="a", spawns=("b",)),))


@pytest.mark.parametrize("topology", TOPOLOGY_NAMES)
@given(seed=st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_any_run_is_valid_and_a_function_of_its_seed(topology: str, seed: int) -> None:
    team, assignment = make_team(topology, seed)
    trace = asyncio.run(run(team, assignment))
    assert validate(trace) == []
    assert trace.finished
    assert asyncio.run(run(team, assignment)) == trace


@pytest.mark.parametrize("topology", TOPOLOGY_NAMES)
@given(
    seed=st.integers(0, 10**6),
    agents=st.integers(0, 5),
    tokens=st.integers(300, 6_000),
    calls=st.integers(1, 12),
    tool_calls=st.integers(0, 3),
    concurrent=st.integers(1, 3),
)
@settings(max_examples=25, deadline=None)
def test_no_budget_is_overspent(
    topology: str, seed: int, agents: int, tokens: int, calls: int, tool_calls: int, concurrent: int
) -> None:
    limits = Limits(
        agents=agents, tokens=tokens, calls=calls, tool_calls=tool_calls, concurrent=concurrent, depth=2
    )
    team, assignment = make_team(topology, seed, limits=limits)
    trace = asyncio.run(run(team, assignment))
    assert validate(trace) == []
    assert sum(e.type == "spawn" for e in trace.events) <= agents
    assert sum(e.tokens or 0 for e in trace.events) <= tokens
    assert len(trace.calls) <= calls
    assert sum(e.type == "tool_call" for e in trace.events) <= tool_calls
    assert trace.finished


def test_where_the_task_names_the_options_one_of_them_is_chosen() -> None:
    said = iter(["stop 41", "let me see\nstop 42\nstop 43"])
    topology = make_topology("centralized")
    assignment = Assignment(task_id="t", prompt="p", options=lambda _: ("stop 42", "stop 43"))
    trace = asyncio.run(run(Team.of(topology, ScriptedEngine("s", lambda _: next(said))), assignment))
    assert validate(trace) == []
    assert [e.status for e in trace.events] == ["invalid", "ok"]
    assert "Choose one of: stop 42; stop 43" in read_by(trace, "orchestrator")
    assert trace.events[-1].options == ("stop 42", "stop 43")
    assert trace.events[-1].choice == 0


def test_a_program_that_ends_with_its_task_starts_anew_for_the_next() -> None:
    async def echo(me: Agent) -> None:
        await me.returns(me.inbox[-1].text)

    topology = structs.replace(make_topology("centralized"), programs={"worker": echo})
    said = by_turns(orchestrator=["spawn worker: a\nwait", "delegate worker1: b\nwait", "stop 42"])
    trace = asyncio.run(
        run(Team.of(topology, ScriptedEngine("s", said)), Assignment(task_id="t", prompt="p"))
    )
    assert validate(trace) == []
    assert [trace.text(e.content_ref) for e in trace.events if e.type == "return"] == ["task: a", "task: b"]


def test_a_program_that_goes_on_after_the_end_does_nothing_more() -> None:
    async def stubborn(me: Agent) -> None:
        await me.stop("42")
        await me.turn()
        await me.stop("43")

    topology = structs.replace(make_topology("centralized"), programs={"orchestrator": stubborn})
    trace = asyncio.run(run(Team.of(topology, ScriptedEngine("s", str)), Assignment(task_id="t", prompt="p")))
    assert [e.decision for e in trace.events] == ["stop"]
    assert trace.calls == ()


def test_a_consequential_tool_is_marked_on_its_calls() -> None:
    @tool(consequential=True)
    def pay(amount: int) -> str:
        """Spend money."""
        return f"paid {amount}"

    trace = play(by_turns(orchestrator=['call pay {"amount": 3}', "stop 42"]), tools=Registry([pay]))
    assert trace.events[0].extra == {"consequential": True}


@pytest.mark.parametrize("clock", ["virtual", "real"])
@pytest.mark.parametrize("fault", ["raises", "too few"])
def test_an_engine_that_breaks_its_contract_does_not_break_the_team(clock: str, fault: str) -> None:
    class Broken:
        name = "broken"

        def encode(self, entries: object, after: object) -> None:
            return None

        async def answer(self, requests: object) -> list[Answer | EngineError]:
            if fault == "raises":
                raise ZeroDivisionError("by accident")
            return []

    trace = asyncio.run(
        run(Team.of(make_topology("centralized"), Broken(), clock=clock), Assignment(task_id="t", prompt="p"))
    )
    assert validate(trace) == []
    assert [e.status for e in trace.events] == ["failed"] * 3 + ["forced"]
    assert "broken" in trace.events[-1].extra["why"]


def test_teams_that_are_told_the_same_share_a_harness() -> None:
    engine = ScriptedEngine("script", lambda _: "return 1")
    topology = make_topology("centralized")
    shared = Team.of(topology, engine).harness
    assert Team.of(make_topology("centralized"), engine, seed=1).harness is shared
    assert Team.of(topology, engine, template="{role}").harness != shared
    listed = structs.replace(
        topology, roles=[structs.replace(r, verbs=list(r.verbs)) for r in topology.roles]
    )
    assert Team.of(listed, engine).harness.hash == shared.hash

    @tool
    def look(place: str) -> str:
        """Look at a place."""
        return place

    with_tool = [Team.of(topology, engine, tools=Registry((look,))).harness for _ in range(2)]
    assert with_tool[0] is not with_tool[1]
    assert with_tool[0].tools is not shared.tools
