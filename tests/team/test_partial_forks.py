"""Forks that copy bystanders give the trace that running everybody again gives, to the last record."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from chaos import TOOLS, TOPOLOGY_NAMES, make_team

from baton.engine.scripted import ScriptedEngine
from baton.errors import BatonError
from baton.team import forking
from baton.team.action import Stop
from baton.team.agent import Role
from baton.team.altered import OtherAnswer, cone, forgetting, saying
from baton.team.budget import Limits
from baton.team.clock import generator
from baton.team.forking import Fork, Forking
from baton.team.forks import Forks, WhatIf
from baton.team.intervene import BarAgent, Drop, Force, Intervention, MuteAgent, Replace
from baton.team.protocol import Answer, EngineError, Request
from baton.team.running import run
from baton.team.team import Assignment, Team, Topology
from baton.trace.trace import Trace

_VERBS = ("spawn", "delegate", "send", "call", "wait", "cancel", "aggregate")


def wild(seed: int) -> tuple[Team, Assignment]:
    """Three levels whose agents speak to, wait for and cancel anybody, by names that may not exist."""
    tools = ("look", "fail")
    top = Role(name="top", verbs=(*_VERBS, "stop"), spawns=("mid", "leaf"), tools=tools)
    mid = Role(name="mid", verbs=(*_VERBS, "return"), spawns=("leaf", "mid"), tools=tools, max_turns=9)
    leaf = Role(name="leaf", verbs=("send", "wait", "call", "return"), tools=tools)
    roles = {role.name: role for role in (top, mid, leaf)}

    def draw(request: Request) -> str:
        rng = generator(f"{request.sampling.key}{request.entries[-1].text}")
        if rng.random() < 0.02:
            raise EngineError("a bad moment")
        role = roles[request.role]
        turn = sum(entry.speaker == "assistant" for entry in request.entries)
        if turn == 0 and role.spawns and request.agent.count(".") < 2:
            parts = [f"spawn {rng.choice(role.spawns)}: part {k}" for k in range(int(rng.integers(2, 5)))]
            return "\n".join([*parts, str(rng.choice(["wait all", "wait any", "wait all\nwait any"]))])
        if turn > 5 or rng.random() < 0.12 * turn:
            return f"{'stop' if request.role == 'top' else 'return'} {rng.integers(5)}"

        def name() -> str:
            first = f"{rng.choice(['mid', 'leaf'])}{rng.integers(1, 4)}"
            return f"{first}.leaf{rng.integers(1, 3)}" if rng.random() < 0.5 else first

        acts = [f"send {name()}: hint {rng.integers(4)}", f"send top: hint {rng.integers(4)}", "wait any"]
        acts += [f'call look {{"q": {rng.integers(4)}}}', f'call look {{"q": {rng.integers(4)}}}']
        acts += [f"wait any {name()}"] if rng.random() < 0.2 else []
        if role.spawns:
            acts += [f"cancel {name()}", f"delegate {name()}: more", "wait all", "aggregate majority"]
            acts += [f"delegate {rng.choice(['mid', 'leaf'])}1: again"]
        return "\n".join(str(rng.choice(acts)) for _ in range(int(rng.integers(1, 3))))

    shape = Topology(name="hierarchical", root="top", roles=(top, mid, leaf))
    team = Team.of(shape, ScriptedEngine("wild", draw), tools=TOOLS, seed=seed)
    return team, Assignment(task_id="wild", prompt="go", verify=lambda answer: float(len(answer)))


def change(draw: random.Random, trace: Trace, forks: Forking) -> dict[str, Any]:
    """Something different: any intervention, another answer, everything redrawn after an event."""
    ids = [
        e.id
        for e in trace.events
        if e.type in ("message", "return", "spawn", "tool_call") and e.status == "ok"
    ]
    names = [e.to for e in trace.events if e.type == "spawn" and e.to]
    said = [c for c in trace.calls if c.id in forks.recording.said_by and c.finish_reason != "error"]
    kind = draw.choice(["replace", "drop", "force", "bar", "mute", "say", "redraw"])
    changes: list[Intervention] = []
    altered = None
    if kind in ("replace", "drop", "force") and ids:
        at = draw.choice(ids)
        changes = [
            {"replace": Replace(at, draw.choice(["something else", "", "7"])), "drop": Drop(at)}.get(
                kind, Force(at, Stop("3"))
            )
        ]
    elif kind == "bar" and names:
        changes = [BarAgent(name) for name in draw.sample(names, min(len(names), 2))]
    elif kind == "mute" and names:
        changes = [MuteAgent(draw.choice(names))]
    elif kind == "say":
        text = trace.text(draw.choice(said).completion_ref) or ""
        other = Answer(text=text, policy="another", completion_tokens=3)
        altered = saying(trace, OtherAnswer(draw.choice(said).id, other))
    else:
        at = draw.choice(trace.events).id
        altered = forgetting(trace, cone(trace, at), {at})
    return {"interventions": changes, "altered": altered, "replicate": draw.choice([0, 0, 1])}


def made(forks: Forking, told: dict[str, Any], *, whole: bool) -> Fork | str:
    try:
        return asyncio.run(forks.make(**told, whole=whole))
    except BatonError as error:
        return str(error)


def assert_same(copied: Fork | str, whole: Fork | str) -> None:
    if isinstance(copied, str) or isinstance(whole, str):
        assert copied == whole
        return
    assert copied.trace == whole.trace  # header, events, edges, calls, payloads, rewards, costs
    assert copied.usage == whole.usage
    assert copied.reused == whole.reused
    assert copied.invalidated == whole.invalidated


@pytest.mark.parametrize("topology", ["wild", *TOPOLOGY_NAMES])
def test_copying_bystanders_and_running_everybody_give_the_same(
    topology: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forking, "_WORTH_COPYING", 0.0)
    stood_by = 0
    for seed in (5, *range(200, 205)):
        draw = random.Random(f"{topology}/{seed}")
        limits = draw.choice([Limits(agents=500, tokens=10**7), Limits()])
        team, assignment = wild(seed) if topology == "wild" else make_team(topology, seed, limits=limits)
        trace = asyncio.run(run(team, assignment))
        forks = Forking(trace, team, lambda given=assignment: given)
        null = made(forks, {"interventions": ()}, whole=False)
        assert isinstance(null, Fork)
        assert null.trace.events == trace.events
        assert null.usage.calls_run == 0
        for _ in range(4):
            told = change(draw, trace, forks)
            assert_same(made(forks, told, whole=False), made(forks, told, whole=True))
        stood_by += sum(plan.share > 0 for plan in forks._plans.values())
    assert stood_by > 2 or topology == "harness"  # branches that inherit a context are run


def test_a_fork_of_a_fork_is_exact_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that was forced to stop the run stands in the trace; it ends the run again."""
    monkeypatch.setattr(forking, "_WORTH_COPYING", 0.0)
    team, assignment = make_team("centralized", 352, limits=Limits(agents=500, tokens=10**7))
    trace = asyncio.run(run(team, assignment))
    first = made(
        Forking(trace, team, lambda: assignment),
        {"interventions": [Force("worker2#2", Stop("3"))]},
        whole=False,
    )
    assert isinstance(first, Fork)
    again = Forking(first.trace, team, lambda: assignment)
    null = made(again, {"interventions": ()}, whole=False)
    assert isinstance(null, Fork)
    assert null.trace.events == first.trace.events
    dropped = {"interventions": [Drop("worker1#1")]}
    assert_same(made(again, dropped, whole=False), made(again, dropped, whole=True))


def test_a_budget_that_runs_short_is_met_by_everybody() -> None:
    """The answer that one worker may give hangs on what the others took."""
    for seed in range(300, 312):
        team, assignment = make_team("hierarchical", seed, limits=Limits(agents=12, tokens=9_000))
        trace = asyncio.run(run(team, assignment))
        forks = Forking(trace, team, lambda given=assignment: given)
        told = change(random.Random(seed), trace, forks)
        assert_same(made(forks, told, whole=False), made(forks, told, whole=True))


def voters(num_leads: int, num_workers: int) -> tuple[Team, Assignment, list[int]]:
    """Two levels of voters, and how many requests each call of the engine brought."""
    sizes: list[int] = []

    def script(request: Request) -> str:
        if request.role == "worker":
            return f"return because {generator(request.sampling.key or '').integers(2)}"
        turn = sum(entry.speaker == "assistant" for entry in request.entries)
        kind, count = ("lead", num_leads) if request.role == "orchestrator" else ("worker", num_workers)
        if turn == 0:
            return "\n".join([f"spawn {kind}: vote"] * count + ["wait all"])
        votes = [entry.text[-1] for entry in request.entries if "returned:" in entry.text]
        return ("stop " if request.role == "orchestrator" else "return ") + max("01", key=votes.count)

    class Counting(ScriptedEngine):
        async def answer(self, requests: Any) -> Any:
            sizes.append(len(requests))
            return await super().answer(requests)

    team = Team.of("hierarchical", Counting("voters", script))
    return team, Assignment(task_id="vote", prompt="is it so?", verify=float), sizes


def test_forks_made_together_ask_together_and_are_the_same_forks() -> None:
    team, assignment, sizes = voters(3, 4)
    trace = asyncio.run(run(team, assignment))
    votes = [e for e in trace.events if e.type == "return" and e.role == "worker"]
    branches = [
        WhatIf(interventions=(Replace(vote.id, str(1 - int((trace.text(vote.content_ref) or "0")[-1]))),))
        for vote in votes
    ]
    one_by_one = Forks(team, assignment)
    alone = [asyncio.run(one_by_one.fork(trace, branch.interventions)) for branch in branches]
    sizes.clear()
    side_by_side = Forks(team, assignment)
    together = asyncio.run(side_by_side.fork_all(trace, branches))
    assert [each.trace for each in together] == [each.trace for each in alone]
    assert side_by_side.cost == one_by_one.cost
    assert side_by_side.num_reused == 0
    assert max(sizes) >= 6
    assert len(sizes) <= 3


def test_what_a_bystander_says_it_is_sure_of_is_heard() -> None:
    def script(request: Request) -> str:
        turn = sum(entry.speaker == "assistant" for entry in request.entries)
        if request.role == "worker":
            return f'return {{"text": "{request.agent[-1]}", "confidence": 0.{request.agent[-1]}}}'
        return ["spawn worker: a\nspawn worker: b\nspawn worker: c\nwait all", "aggregate majority\nstop 1"][
            turn
        ]

    team = Team.of("centralized", ScriptedEngine("sure", script))
    assignment = Assignment(task_id="t", prompt="p")
    trace = asyncio.run(run(team, assignment))
    assert any("confidence" in event.extra for event in trace.events)
    forks = Forking(trace, team, lambda: assignment)
    for change in ((), (Replace("worker2#1", "7"),), (BarAgent("worker3"),)):
        told = {"interventions": change}
        assert_same(made(forks, told, whole=False), made(forks, told, whole=True))


def test_alternatives_are_asked_at_the_recorded_question() -> None:
    """What is asked is what a run up to the call would ask: entries, ids, options, key."""
    heard: list[Request] = []

    def script(request: Request) -> str:
        heard.append(request)
        turn = sum(entry.speaker == "assistant" for entry in request.entries)
        if request.role == "orchestrator":
            return ["spawn worker: a\nspawn worker: b\nwait all", "delegate worker1: c\nwait all", "stop 1"][
                turn
            ]
        return f"return {request.agent} {turn}"

    team = Team.of("centralized", ScriptedEngine("script", script), seed=3)
    assignment = Assignment(task_id="t", prompt="p")
    trace = asyncio.run(run(team, assignment))
    before = {request.call: request for request in heard}
    entries = {call: list(request.entries) for call, request in before.items()}
    for call in ("orchestrator:2", "worker1:2", "worker2:1"):
        heard.clear()
        forks = Forks(team, assignment)
        asyncio.run(forks.ask(trace, call, [0, 7]))
        plain, other = heard
        length = len(plain.entries)
        assert list(plain.entries) == entries[call][:length]
        assert length >= 2
        assert entries[call][length:][:1] == [] or entries[call][length].speaker == "assistant"
        assert plain.prompt_ids is not None
        assert trace.call_by_id[call].prompt_ids is not None
        assert plain.sampling == before[call].sampling
        assert plain.tools == before[call].tools
        assert other.sampling.key == f"{before[call].sampling.key}/7"
        assert forks.cost.calls == 2
