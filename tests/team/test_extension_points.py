"""Surfaces, aggregators, tools, topologies and engines of one's own run in a real team, and survive replay and fork."""

from __future__ import annotations

import asyncio
import importlib
import runpy
import types
from pathlib import Path
from typing import Any

import pytest

from baton import registry
from baton.errors import UsageError
from baton.registry import register
from baton.team.action import Action
from baton.team.agent import Agent, Role
from baton.team.aggregate import AGGREGATORS
from baton.team.forks import fork
from baton.team.intervene import Replace
from baton.team.protocol import Request
from baton.team.running import replay, run
from baton.team.surface import Lines, Parsed, ParseError, Tools
from baton.team.team import Assignment, Team, Topology
from baton.team.tools.tool import tool
from baton.team.topology import make_topology
from baton.testing import check_topology
from baton.trace.trace import Trace

TASK = Assignment(task_id="guess", prompt="guess a number", verify=lambda answer: float(answer == "42"))
MEDIAN = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "my_aggregator.py"))["Median"]


class Tagged(Lines):
    """Lines between tags: `<do>stop 42</do>`."""

    name = "tagged"

    def parse(self, text: str, verbs: frozenset[str]) -> list[Parsed | ParseError]:
        start, end = text.find("<do>"), text.find("</do>")
        if start < 0 or end < start:
            return [ParseError("Write <do>COMMAND</do>.", 0, len(text))]
        found = super().parse(text[start + 4 : end], verbs)[0]
        if isinstance(found, ParseError):
            return [ParseError(found.message, start, end + 5)]
        return [Parsed(found.action, start, end + 5)]

    def render(self, action: Action) -> str:
        return f"<do>{super().render(action)}</do>"


def tagged(tools: Any) -> Tagged:
    return Tagged()


@tool(pure=True)
def half(number: int) -> str:
    """Half of a number."""
    return str(number // 2)


def pair(*, tools: tuple[str, ...] = ()) -> Topology:
    """A leader and one follower."""

    async def leader(me: Agent) -> None:
        follower = await me.spawn("follower", "what is it?")
        await me.wait([follower] if follower else [])
        await me.stop(me.results[follower][1] if follower else "")

    return Topology(
        name="mixed",
        root="leader",
        roles=(
            Role(name="leader", verbs=("spawn", "wait", "stop"), spawns=("follower",)),
            Role(name="follower", verbs=("call", "return"), tools=tools),
        ),
        programs={"leader": leader},
    )


def answering(*texts: str) -> Any:
    """A policy that says one thing per agent, by the number its name ends with."""

    def policy(request: Request) -> str:
        number = request.agent[-1]
        return texts[int(number) - 1 if number.isdigit() else 0]

    return policy


def stop_of(trace: Trace) -> str | None:
    return next(trace.text(event.content_ref) for event in trace.events if event.decision == "stop")


async def checked(team: Team) -> Trace:
    """A run, which replays to itself."""
    trace = await run(team, TASK)
    assert await replay(trace, team, TASK) == trace
    return trace


@pytest.mark.parametrize("surface", [Tagged(), f"{__name__}:tagged", f"{__name__}:Tagged.of_module"])
def test_a_surface_of_ones_own_is_the_one_that_runs(surface: Any) -> None:
    if surface == f"{__name__}:Tagged.of_module":
        Tagged.of_module = Tagged()  # type: ignore[attr-defined]  # an object instead of a function
    team = Team.of("centralized", answering("<do>stop 42</do>"), surface=surface)
    assert isinstance(team.harness.surface, Tagged)
    trace = asyncio.run(checked(team))
    assert stop_of(trace) == "42"
    assert trace.header.meta["run"]["surface"] == team.harness.surface_name


def test_an_unknown_surface_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="Did you mean 'lines'"):
        Team.of("centralized", answering("stop 42"), surface="linse")
    impostor = Tagged()
    impostor.name = "lines"
    with pytest.raises(UsageError, match="there already is a surface 'lines'"):
        Team.of("centralized", answering("stop 42"), surface=impostor)


def test_a_surface_given_as_an_object_is_the_same_harness() -> None:
    for name, surface in (("lines", Lines()), ("tools", Tools())):
        by_name = Team.of("centralized", answering("stop 42"), surface=name)
        by_object = Team.of("centralized", answering("stop 42"), surface=surface)
        assert by_name.harness.hash == by_object.harness.hash


def test_the_example_aggregator_runs_replays_and_forks() -> None:
    swarm = make_topology("swarm", peers=3, method="median")
    team = Team.of(swarm, answering("return 41", "return 42", "return 1000"), aggregators=[MEDIAN()])

    async def go() -> None:
        trace = await checked(team)
        assert stop_of(trace) == "42"
        returned = next(event for event in trace.events if event.type == "return" and event.agent == "peer2")
        made = await fork(trace, team, TASK, [Replace(returned.id, "500")])
        assert stop_of(made.trace) == "500"
        assert await replay(made.trace, team, TASK) == made.trace

    asyncio.run(go())


def test_an_aggregator_is_open_to_a_policy_only_where_it_is_given() -> None:
    said = iter(["spawn worker: guess", "wait", "aggregate median", "stop 42"])

    def policy(request: Request) -> str:
        return next(said) if request.role == "orchestrator" else "return 7"

    team = Team.of("centralized", policy, aggregators=[MEDIAN])
    assert "median" in team.harness.commands["orchestrator"]
    assert any(event.type == "aggregate" for event in asyncio.run(run(team, TASK)).events)
    assert Team.of("centralized", policy).harness.aggregators is AGGREGATORS


def test_what_a_model_says_imports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    said = iter(["spawn worker: guess", "wait", 'aggregate "os:system"', "aggregate known-here", "stop 42"])

    def policy(request: Request) -> str:
        return next(said) if request.role == "orchestrator" else "return true"

    register("aggregator", "known-here")(MEDIAN())
    team = Team.of("centralized", policy)
    monkeypatch.setattr(registry, "import_module", lambda name: pytest.fail(f"imported {name}"))
    trace = asyncio.run(run(team, TASK))
    refused = [event for event in trace.events if event.status == "invalid"]
    assert len(refused) == 2
    assert "There is no aggregation method 'os:system'" in (trace.text(refused[0].content_ref) or "")


def test_a_method_that_a_file_names_is_not_imported() -> None:
    topology = make_topology("debate", method="os:system")
    with pytest.raises(UsageError, match="there is no aggregation method 'os:system'"):
        Team.of(topology, answering("return 1"))
    with pytest.raises(UsageError, match="Did you mean 'majority'"):
        Team.of(make_topology("swarm", method="majoriti"), answering("return 1"))


def test_a_registered_aggregator_is_found_by_the_name_a_topology_uses() -> None:
    register("aggregator", "middle")(MEDIAN)
    team = Team.of(make_topology("debate", method="middle"), answering("return 3", "return 4", "return 9"))
    assert stop_of(asyncio.run(checked(team))) == "4"


def test_tools_by_name_and_object() -> None:
    def policy(request: Request) -> str:
        heard = request.entries[-1].text
        if request.role == "leader":
            return "stop 0"
        return (
            f"return {heard.removeprefix('half: ')}"
            if heard.startswith("half")
            else 'call half {"number": 84}'
        )

    team = Team.of(f"{__name__}:pair", policy, tools=[half, "python"])
    assert list(team.harness.tools) == ["half", "python"]
    assert stop_of(asyncio.run(checked(team))) == "42"
    assert list(Assignment(task_id="t", prompt="p", tools=["python", half]).tools) == ["python", "half"]  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="Did you mean 'python'"):
        Team.of("centralized", policy, tools=["pyhton"])


def test_a_topology_remembers_the_name_it_was_asked_for_by() -> None:
    name = f"{__name__}:pair"
    topology = make_topology(name, tools=())
    assert topology.built_from == {"name": name, "tools": ()}
    assert make_topology(**topology.built_from).roles == topology.roles
    with pytest.raises(UsageError, match="has no setting 'tolos'"):
        make_topology(name, tolos=())
    with pytest.raises(UsageError, match="Did you mean 'debate'"):
        make_topology("debat")


def test_the_check_takes_a_name_and_the_aggregators_it_needs() -> None:
    check_topology(f"{__name__}:pair", seeds=range(2))
    check_topology(make_topology("swarm", method="median"), seeds=range(1), aggregators=[MEDIAN()])


def test_engines_by_specification_and_as_functions() -> None:
    team = Team.of("centralized", {"default": "scripted:echo", "orchestrator": answering("stop 42")})
    assert team.engines["default"].name == "echo"
    assert stop_of(asyncio.run(checked(team))) == "42"
    with pytest.raises(UsageError, match="no engine"):
        Team.of("centralized", 3)  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize(
    "name", ["centralized", "debate", "hierarchical", "planner_executor_critic", "swarm"]
)
def test_no_topology_hides_its_module(name: str) -> None:
    package = importlib.import_module("baton.team.topology")
    assert isinstance(getattr(package, name), types.ModuleType)
    assert isinstance(importlib.import_module("baton.team.tools").tool, types.ModuleType)
