"""The six topologies, end to end, with every kind of engine: scripted, table and torch."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest
from chaos import TOPOLOGY_NAMES
from msgspec import structs
from tiny_model import tiny_model, tiny_tokenizer

from baton.engine.scripted import ScriptedEngine
from baton.engine.table import TableEngine
from baton.engine.torch import TorchEngine
from baton.tasks.shard_sum import ShardSum, play
from baton.team.action import VERBS
from baton.team.agent import Agent
from baton.team.budget import Limits
from baton.team.forks import fork
from baton.team.protocol import Answer, Engine, Request
from baton.team.running import replay, run, start
from baton.team.surface import Lines, Parsed, Tools
from baton.team.team import Assignment, Team
from baton.team.tools.tool import Registry, tool
from baton.team.topology import make_topology
from baton.trace.graph.arrays import Graph
from baton.trace.trace import Trace
from baton.trace.validation import validate

TASK = ShardSum()


def shard_sum(topology: str, engines: Any, *, seed: int = 0, surface: str = "lines", **params: Any) -> Team:
    params.setdefault("tools", ("read_shard",))
    tools = TASK.assignment(TASK.instance(seed)).tools
    shape = make_topology(topology, **params)
    return Team.of(shape, engines, tools=tools, seed=seed, surface=surface)  # type: ignore[arg-type]  # one of two


def checked(team: Team, assignment: Assignment) -> Trace:
    """Run it; whatever ran is valid, whole, and comes out of its own trace again."""
    trace = asyncio.run(run(team, assignment))
    assert validate(trace) == []
    assert trace.finished
    assert asyncio.run(replay(trace, team, assignment)) == trace
    nothing = asyncio.run(fork(trace, team, assignment, []))
    assert nothing.invalidated == ()
    assert nothing.usage.calls_run == nothing.usage.tools_run == 0
    assert left_over(trace) == set()
    return trace


def left_over(trace: Trace) -> set[str | None]:
    """Agents that were spawned and never despawned."""
    return {e.to for e in trace.events if e.type == "spawn" and e.status == "ok"} - {
        e.to for e in trace.events if e.type == "despawn"
    }


def turn_of(request: Request) -> int:
    return sum(entry.speaker == "assistant" for entry in request.entries)


# -- scripted ---------------------------------------------------------------------------------------


def in_tool_calls(request: Request) -> str:
    """The reference play, said as tool calls."""
    said = Lines().parse(play(request), frozenset(VERBS))
    render = Tools(("read_shard",)).render
    return "\n".join(render(item.action) for item in said if isinstance(item, Parsed))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("surface", ["lines", "tools"])
@pytest.mark.parametrize("topology", TOPOLOGY_NAMES)
def test_scripted_play_solves_the_example(topology: str, surface: str, seed: int) -> None:
    script = play if surface == "lines" else in_tool_calls
    team = shard_sum(topology, ScriptedEngine("play", script), seed=seed, surface=surface)
    trace = checked(team, TASK.assignment(TASK.instance(seed)))
    assert [reward.value for reward in trace.rewards] == [1.0]
    assert {e.status for e in trace.events} == {"ok"}


# -- table ------------------------------------------------------------------------------------------


def options(me: Agent) -> tuple[str, ...]:
    """What is open to an agent: the finite choices a tabular policy needs."""
    end = "stop" if "stop" in me.role.verbs else "return"
    if me.role.spawns and not me.children:
        return (*(f"spawn {role}: go" for role in me.role.spawns), f"{end} 0")
    if any(child.state == "active" for child in me.children):
        return ("wait all", "wait any")
    if me.results and not me.answered and "aggregate" in me.role.verbs:
        return ("aggregate majority", "aggregate first")
    if me.role.name == "critic":
        return ("return accept", "return again")
    if me.role.tools and "call" in me.role.verbs and not me.num_events:
        return ('call read_shard {"shard":1}', f"{end} 0")
    return (f"{end} 1", f"{end} 2", f"{end} 3")


def state(me: Agent) -> str:
    busy = sum(child.state == "active" for child in me.children)
    return f"{len(me.children)} {busy} {len(me.results)} {me.answered} {me.num_events}"


@pytest.mark.parametrize("topology", TOPOLOGY_NAMES)
def test_table_policies_choose_among_options_with_exact_propensities(topology: str) -> None:
    params = {"method": None} if topology == "debate" else {}
    answers = set()
    for seed in range(8):
        engine = TableEngine("table", epsilon=0.1)
        team = shard_sum(topology, engine, seed=seed, **params)
        assignment = structs.replace(TASK.assignment(TASK.instance(seed)), options=options, state=state)
        trace = checked(team, assignment)
        chosen = [e for e in trace.events if e.call is not None]
        assert len(chosen) == len(trace.calls)
        for event in chosen:
            assert event.options is not None
            assert event.choice is not None
            assert event.option_propensities is not None
            assert math.fsum(event.option_propensities) == pytest.approx(1.0)
            assert event.propensity == event.option_propensities[event.choice]
            call = trace.call_by_id[event.call or ""]
            assert call.logprobs is not None
            assert math.exp(call.logprobs[0]) == pytest.approx(event.propensity)
            assert trace.text(call.completion_ref) == event.options[event.choice]
            assert event.span == (0, 1)
        assert {e.status for e in trace.events} <= {"ok", "cancelled"}
        answers.add(tuple((e.agent, e.options[e.choice or 0]) for e in chosen if e.options))
    assert len(answers) > 1  # the seed decides


# -- torch ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def torch_engine() -> Engine:
    model = tiny_model()
    model.config.max_position_embeddings = 8192  # a byte is a token here, so prompts are long
    return TorchEngine(model, tiny_tokenizer(), name="tiny")


def inside_their_calls(trace: Trace) -> None:
    for call in trace.calls:
        assert call.completion_ids
        assert call.logprobs is not None
        assert call.token_ends is not None
        assert len(call.completion_ids) == len(call.logprobs) == len(call.token_ends)
        assert all(value <= 0.0 for value in call.logprobs)
        assert call.token_ends[-1] <= len(trace.text(call.completion_ref) or "")
    for event in trace.events:
        if event.span is not None:
            call = trace.call_by_id[event.call or ""]
            assert 0 <= event.span[0] < event.span[1] <= len(call.completion_ids or ())


@pytest.mark.parametrize("topology", TOPOLOGY_NAMES)
def test_a_language_model_that_talks_nonsense_still_leaves_a_whole_trace(
    topology: str, torch_engine: Engine
) -> None:
    team = shard_sum(topology, torch_engine, max_tokens=16)
    trace = checked(team, TASK.assignment(TASK.instance(0)))
    inside_their_calls(trace)
    assert {call.policy for call in trace.calls} == {"tiny"}
    assert {"invalid", "forced"} <= {e.status for e in trace.events}
    whole = [len(trace.prompt_ids(call) or ()) for call in trace.calls if call.parent]
    assert all(
        length > call.keep for length, call in zip(whole, (c for c in trace.calls if c.parent), strict=True)
    )


@pytest.mark.parametrize("topology", TOPOLOGY_NAMES)
def test_a_language_model_under_a_scripted_lead(topology: str, torch_engine: Engine) -> None:
    leads = {"orchestrator", "lead", "main", "planner", "critic"}
    shape = make_topology(topology, tools=("read_shard",), max_tokens=16)
    engines = {
        role.name: ScriptedEngine("play", play) if role.name in leads else torch_engine
        for role in shape.roles
    }
    roomy = tuple(
        structs.replace(role, sampling=structs.replace(role.sampling, max_tokens=512))
        if role.name in leads
        else role
        for role in shape.roles
    )
    shape = structs.replace(shape, roles=roomy)
    team = Team.of(shape, engines, tools=TASK.assignment(TASK.instance(0)).tools, limits=Limits(agents=12))
    trace = checked(team, TASK.assignment(TASK.instance(0)))
    inside_their_calls(trace)
    by_role = {call.role: call.policy for call in trace.calls}
    assert {call.finish_reason for call in trace.calls} <= {"stop", "length"}
    assert "tiny" in by_role.values()
    assert all((policy == "play") == (role in leads) for role, policy in by_role.items())


# -- what the topologies are for --------------------------------------------------------------------


def test_three_kinds_of_engine_in_one_team(torch_engine: Engine) -> None:
    shape = make_topology("planner_executor_critic", max_tokens=16, rounds=2)
    engines = {
        "planner": torch_engine,
        "executor": ScriptedEngine("fixed", lambda _: "return 42"),
        "critic": TableEngine("judge"),
        "default": ScriptedEngine("nobody", lambda _: "stop 0"),  # the lead is a program and asks nothing
    }
    assignment = Assignment(
        task_id="t",
        prompt="what is 6 x 7?",
        verify=lambda answer: float(answer == "42"),
        options=lambda me: ("return accept", "return no") if me.role.name == "critic" else None,
    )
    trace = checked(Team.of(shape, engines), assignment)
    assert {call.role: call.policy for call in trace.calls} == {
        "planner": "tiny",
        "executor": "fixed",
        "critic": "judge",
    }
    assert trace.rewards[0].value == 1.0


def test_four_levels_of_hierarchy() -> None:
    def script(request: Request) -> str:
        below = {"orchestrator": "lead1", "lead1": "lead2", "lead2": "worker"}.get(request.role)
        if below is None:
            return "return 1"
        if turn_of(request) == 0:
            return f"spawn {below}: count\nspawn {below}: count\nwait all"
        total = sum(int(e.text.rpartition(" ")[2]) for e in request.entries if "returned: " in e.text)
        return f"{'stop' if request.role == 'orchestrator' else 'return'} {total}"

    team = Team.of(make_topology("hierarchical", levels=4), ScriptedEngine("s", script))
    trace = checked(team, Assignment(task_id="t", prompt="count", verify=lambda a: float(a == "8")))
    assert trace.rewards[0].value == 1.0
    assert sum(e.type == "spawn" for e in trace.events) == 2 + 4 + 8
    depth = max((e.to or "").count(".") for e in trace.events if e.type == "spawn")
    assert depth == 2  # the root's own are written without a dot: three levels below it
    assert len(Graph.of(trace).descendants(0)) > 0
    shallow = structs.replace(team, limits=Limits(depth=2))
    cut = checked(shallow, Assignment(task_id="t", prompt="count"))
    assert any(e.extra.get("budget") == "depth" for e in cut.events)


def test_a_summary_asks_a_model() -> None:
    def script(request: Request) -> str:
        if request.role == "worker":
            return f"return part {request.agent[-1]}"
        if '{"agent": "worker1"' in request.entries[-1].text:
            return "part 1 and part 2"
        return ["spawn worker: a\nspawn worker: b\nwait all", "aggregate summary", "", "stop done"][
            turn_of(request)
        ]

    trace = checked(
        Team.of(make_topology("centralized"), ScriptedEngine("s", script)),
        Assignment(task_id="t", prompt="p"),
    )
    (fused,) = [e for e in trace.events if e.type == "aggregate"]
    assert trace.text(fused.content_ref) == "part 1 and part 2"
    assert fused.call is not None
    assert trace.text(trace.call_by_id[fused.call].completion_ref) == "part 1 and part 2"
    assert sorted(fused.extra["sources"]) == ["worker1", "worker2"]
    (chosen,) = [e for e in trace.events if e.decision == "aggregate"]
    assert chosen.call == "orchestrator:2"  # the choice and the text are said by different calls
    assert fused.call == "orchestrator:3"


def test_a_nested_team_draws_from_its_parents_ledger() -> None:
    inner_traces: list[Trace] = []

    @tool(pure=True)
    async def ask_a_team(question: str) -> str:
        """Lets another team work on it."""
        budget = going.budget.child(Limits(calls=3))
        inner = Team.of(make_topology("centralized"), ScriptedEngine("inner", inner_script))
        trace = await run(inner, Assignment(task_id="inner", prompt=question), budget=budget)
        inner_traces.append(trace)
        stop = next(e for e in trace.events if e.decision == "stop")
        return f"{stop.status} {trace.text(stop.content_ref)}"

    def inner_script(request: Request) -> str:
        if request.role == "worker":
            return "return 42"
        return ["spawn worker: a\nwait", "stop 42"][turn_of(request)]

    def outer_script(request: Request) -> str:
        said = [e.text for e in request.entries if e.speaker == "tool"]
        return f"stop {said[0]}" if said else 'call ask_a_team {"question": "6 x 7"}'

    def outer(limits: Limits) -> Team:
        shape = make_topology("centralized", tools=("ask_a_team",))
        return Team.of(
            shape, ScriptedEngine("outer", outer_script), tools=Registry([ask_a_team]), limits=limits
        )

    assignment = Assignment(task_id="outer", prompt="what is 6 x 7?")
    team = outer(Limits(calls=5, agents=1))
    going = start(team, assignment)
    trace = asyncio.run(going.go())
    assert validate(trace) == []
    assert "42" in (trace.text(trace.events[-1].content_ref) or "")
    assert [validate(t) for t in inner_traces] == [[]]
    assert going.budget.used("calls") == 5 == len(trace.calls) + len(inner_traces[0].calls)
    assert going.budget.used("agents") == 1
    spent = sum(e.tokens or 0 for t in (trace, *inner_traces) for e in t.events)
    assert going.budget.used("tokens") == spent

    # With less, the inner team is cut short by what the outer one has left, and says so.
    inner_traces.clear()
    going = start(outer(Limits(calls=3)), assignment)
    trace = asyncio.run(going.go())
    assert going.budget.used("calls") <= 3
    assert any(e.extra.get("budget") == "calls" for e in inner_traces[0].events)
    assert validate(trace) == []


# -- cancelling -------------------------------------------------------------------------------------


def cancelling(last: str) -> tuple[Callable[[Request], Any], dict[str, int]]:
    """A lead with two workers that never answer, under an orchestrator that loses patience."""
    seen = {"begun": 0, "cancelled": 0}
    at_work = asyncio.Event()

    async def script(request: Request) -> str:
        turn = turn_of(request)
        if request.role == "worker":
            seen["begun"] += 1
            if seen["begun"] == 2:
                at_work.set()
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                seen["cancelled"] += 1
                raise
        if request.role == "lead":
            return "spawn worker: a\nspawn worker: b\nwait all"
        if turn == 0:
            return "spawn lead: x"
        await at_work.wait()
        return last if turn == 1 else "stop 42"

    return script, seen


@pytest.mark.parametrize("last", ["cancel lead1", "cancel lead1\nstop 42", "stop 42"])
def test_cancelling_a_subtree_leaves_no_orphan_on_the_real_clock(last: str) -> None:
    async def session() -> tuple[Trace, set[Any], dict[str, int]]:
        script, seen = cancelling(last)
        team = Team.of(make_topology("hierarchical"), ScriptedEngine("slow", script), clock="real")
        trace = await run(team, Assignment(task_id="t", prompt="p"))
        return trace, asyncio.all_tasks() - {asyncio.current_task()}, seen

    trace, tasks, seen = asyncio.run(session())
    assert tasks == set()
    assert seen == {"begun": 2, "cancelled": 2}
    assert validate(trace) == []
    gone = [(e.to, e.status) for e in trace.events if e.type == "despawn"]
    assert sorted(gone) == [
        ("lead1", "cancelled"),
        ("lead1.worker1", "cancelled"),
        ("lead1.worker2", "cancelled"),
    ]
    assert sum(call.finish_reason == "cancelled" for call in trace.calls) == 2


def test_cancelling_under_the_virtual_clock() -> None:
    def script(request: Request) -> str | Answer:
        if request.role == "worker":
            return Answer(text="return late", policy="slow", duration_s=1000.0)
        if request.role == "lead":
            return "spawn worker: a\nspawn worker: b\nwait all"
        return ["spawn lead: x", "send lead1: hurry", "cancel lead1", "stop 42"][turn_of(request)]

    trace = checked(
        Team.of(make_topology("hierarchical"), ScriptedEngine("s", script)),
        Assignment(task_id="t", prompt="p"),
    )
    assert trace.costs["wall_clock_s"] < 1000.0
    assert not [e for e in trace.events if e.type == "return"]
