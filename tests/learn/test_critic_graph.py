"""The critic that sees the graph: what it may see, what it does not look at, and that it learns."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from msgspec import structs
from small_run import small

from baton.compose.training import make_trainer
from baton.credit.estimator import Prefix
from baton.credit.estimators.partition import partition
from baton.errors import UsageError
from baton.learn.critics.graph import GraphCritic
from baton.learn.critics.graph_arrays import TeamGraph
from baton.learn.critics.graph_net import GraphNet
from baton.learn.recipe import CriticPart, Recipe, load
from baton.trace.outcome import team_return
from baton.trace.records import Edge, Event, Reward
from baton.trace.trace import Header, Trace


def team(seed: int, size: int = 40) -> Trace:
    """A random team: agents spawn others, call tools and return; every event follows its agent's last."""
    draw = random.Random(seed)
    agents, last = ["lead"], {}
    events: list[Event] = []
    edges: list[Edge] = []
    for number in range(size):
        agent = draw.choice(agents)
        kind = draw.choice(("spawn", "tool_call", "tool_result", "return", "message", "aggregate"))
        child = f"agent{len(agents)}" if kind == "spawn" else None
        told = {"role": draw.choice(("reader", "writer")), "to": child} if child else {}
        status = "failed" if kind == "tool_result" and draw.random() < 0.5 else "ok"
        events.append(
            Event(id=f"e{number}", t=number, type=kind, agent=agent, seq=number, status=status, **told)  # type: ignore[arg-type]
        )
        if agent in last:
            edges.append(Edge(src=last[agent], dst=f"e{number}", type="temporal"))
        if kind == "message" and number > 2:
            edges.append(Edge(src=f"e{draw.randrange(number)}", dst=f"e{number}", type="message"))
        last[agent] = f"e{number}"
        if child:
            agents.append(child)
            last[child] = f"e{number}"
    failed = sum(event.status == "failed" for event in events) / size
    return Trace(
        header=Header(trace_id=f"t{seed}", task_id="made"),
        events=tuple(events),
        edges=tuple(dict.fromkeys(edges)),
        rewards=(Reward(family="shared", unit="team", target="team", value=1 - 4 * failed),),
    )


def net(*, normalise: bool = True) -> GraphNet:
    """One whose values differ: an untrained head says nothing."""
    made = GraphNet(normalise=normalise, seed=3).double()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        torch.nn.init.normal_(made.head.weight)
    return made


def values(made: GraphNet, *traces: Trace) -> np.ndarray:
    with torch.no_grad():
        return made(TeamGraph.together([TeamGraph.of(trace) for trace in traces])).numpy()


def recipe(steps: int = 30, **settings: object) -> Recipe:
    part = CriticPart(kind="graph", steps=steps, learning_rate=0.003, settings=dict(settings))
    return structs.replace(load("grpo"), critic=part)


def renamed(trace: Trace, names: Sequence[str]) -> Trace:
    """The same with other names of agents, and of events."""
    agents = list(dict.fromkeys([e.agent for e in trace.events] + [e.to for e in trace.events if e.to]))
    new = dict(zip(agents, names, strict=False))
    events = [
        structs.replace(e, id=f"new {e.id}", agent=new[e.agent], to=new[e.to] if e.to else None)
        for e in trace.events
    ]
    edges = [structs.replace(e, src=f"new {e.src}", dst=f"new {e.dst}") for e in trace.edges]
    return structs.replace(trace, events=tuple(events), edges=tuple(edges))


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_a_prefix_is_worth_the_same_whatever_comes_later(seed: int, normalise: bool) -> None:
    trace, made = team(seed), net(normalise=normalise)
    whole = values(made, trace)
    assert len(whole) == len(trace.events) + 1
    assert np.ptp(whole) > 1e-3
    for count in range(len(trace.events) + 1):
        assert values(made, Prefix(trace, count).graph())[-1] == pytest.approx(whole[count], rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_names_do_not_count(seed: int) -> None:
    trace, made = team(seed), net()
    names = [f"other{n}" for n in range(80)]
    random.Random(seed).shuffle(names)
    assert values(made, renamed(trace, names)) == pytest.approx(values(made, trace), rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_nor_does_the_order_of_what_ran_side_by_side(seed: int) -> None:
    trace, made = team(seed), net()
    draw = random.Random(seed)
    into = {event.id: {edge.src for edge in trace.edges if edge.dst == event.id} for event in trace.events}
    left, order, done = {event.id: event for event in trace.events}, [], set()
    while left:  # another order that the edges allow
        event = draw.choice([event for event in left.values() if into[event.id] <= done])
        order.append(structs.replace(event, seq=len(order)))
        done.add(event.id)
        del left[event.id]
    assert [event.id for event in order] != [event.id for event in trace.events]
    again = structs.replace(trace, events=tuple(order))
    assert values(made, again)[-1] == pytest.approx(values(made, trace)[-1], rel=1e-9)


def test_traces_side_by_side_are_worth_what_they_are_alone() -> None:
    traces, made = [team(seed, 20 + 7 * seed) for seed in range(4)], net()
    alone = np.concatenate([values(made, trace) for trace in traces])
    assert values(made, *traces) == pytest.approx(alone, rel=1e-9)


@pytest.mark.parametrize("normalise", [True, False])
def test_gradients_are_those_of_finite_differences(normalise: bool) -> None:
    made, graph = net(normalise=normalise), TeamGraph.of(team(1, 25))
    weight = torch.linspace(-1, 1, 26, dtype=torch.float64)
    (made(graph) * weight).sum().backward()
    step = 1e-6
    for name, parameter in made.named_parameters():
        assert parameter.grad is not None, name
        at = int(parameter.grad.abs().argmax())
        flat = parameter.data.view(-1)
        before, found = float(flat[at]), []
        for moved in (before + step, before - step):
            flat[at] = moved
            with torch.no_grad():
                found.append(float((made(graph) * weight).sum()))
        flat[at] = before
        slope = (found[0] - found[1]) / (2 * step)
        assert slope == pytest.approx(float(parameter.grad.view(-1)[at]), rel=1e-4, abs=1e-7), name


def test_rows_are_as_many_as_events_times_the_depth_of_their_agents() -> None:
    def chain(size: int) -> Trace:
        events = [
            Event(id=f"e{n}", t=n, type="tool_call", agent=f"a{n % 5}", seq=n, tool="work")
            for n in range(size)
        ]
        return Trace(header=Header(trace_id="c", task_id="c"), events=tuple(events))

    sizes = [len(TeamGraph.of(chain(size)).event) for size in (100, 1000)]
    assert sizes == [1 + 2 * 100, 1 + 2 * 1000]
    graph = TeamGraph.of(team(2, 300))
    deepest = int(graph.counts[:, 2].max())
    assert len(graph.event) <= 1 + 300 * (deepest + 1)
    assert len(graph.values) == 301


def test_no_events_and_tools_alone_are_prefixes_too() -> None:
    empty = Trace(header=Header(trace_id="none", task_id="none"))
    result = Event(id="e0", t=0, type="tool_result", agent="search", seq=0)
    told = structs.replace(empty, events=(result,))
    assert len(values(net(), empty)) == 1
    assert len(values(net(), told, empty)) == 3


def test_it_learns_what_a_prefix_is_worth_on_shapes_that_it_never_saw() -> None:
    critic = GraphCritic(recipe(steps=150), {}, team_return)
    critic.observe([team(seed, 30) for seed in range(200)])
    fresh = [team(seed, 30) for seed in range(1000, 1030)]
    off = [critic.value(Prefix(t, 30)) - team_return(t) for t in fresh]
    assert np.std(off) < 0.7 * np.std([team_return(t) for t in fresh])
    credits = partition(fresh[0], value=critic.value)
    assert credits.residual == pytest.approx(0, abs=1e-9)


def test_it_judges_before_it_learns_and_goes_on_after_a_checkpoint() -> None:
    traces = [team(seed) for seed in range(8)]
    critic = GraphCritic(recipe(steps=3), {}, team_return)
    critic.observe(traces)
    mean = np.mean([team_return(trace) for trace in traces])
    assert {round(critic.value(Prefix(t, 9)) - mean, 6) for t in traces} == {0.0}
    again = GraphCritic(recipe(steps=3), {}, team_return)
    again.load_state_dict(critic.state_dict())
    fresh = [team(seed) for seed in range(8, 16)]
    for each in (critic, again):
        each.observe(fresh)
        each.observe(fresh)
    assert critic.value(Prefix(fresh[0], 20)) == again.value(Prefix(fresh[0], 20))


def test_it_says_what_it_cannot_do() -> None:
    critic = GraphCritic(recipe(), {}, team_return)
    with pytest.raises(UsageError, match="sees the whole team"):
        critic.value(Prefix(team(0), 3, "lead"))
    with pytest.raises(UsageError, match="normalise"):
        GraphCritic(recipe(normalize=True), {}, team_return)
    with pytest.raises(UsageError, match="true or false"):
        GraphCritic(recipe(normalise=1), {}, team_return)
    gae = '[[credit]]\nestimator = "gae"\n[critic]\nkind = "graph"\n'
    with pytest.raises(UsageError, match="asks a critic of kind"):
        make_trainer(small(gae))


@pytest.mark.usefixtures("first_weights")
def test_a_recipe_that_names_it_trains() -> None:
    credit = '[[credit]]\nestimator = "telescope"\n[critic]\nkind = "graph"\nsteps = 2\n'
    trainer = make_trainer(small(credit))
    assert isinstance(trainer.critic, GraphCritic)
    trainer.step()
    trainer.step()
    assert trainer.policies["main"].version >= 1
