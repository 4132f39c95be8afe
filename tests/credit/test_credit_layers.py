"""Credit in layers: every event stands in one, a coarser one has what finer ones left, and all of it adds up."""

from __future__ import annotations

import math
from collections import defaultdict

import pytest
from credit_teams import make_trace
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import valid_traces

from baton.credit import CreditError
from baton.credit.core.layers import what_is_left
from baton.credit.estimator import Prefix, make_credit
from baton.credit.estimators.partition import partition
from baton.credit.project import project, tokens_of
from baton.trace import Trace
from baton.trace.acts import agents, unit_of
from baton.trace.records import Credit

Layer = list[Credit]


def noisy(prefix: Prefix) -> float:
    return math.sin(3.1 * prefix.num_events) * 7


def layers_of(trace: Trace, draw: st.DataObject) -> dict[str, Layer]:
    """A layer on some of each unit's targets, by estimators with odd names."""
    values = st.floats(-50, 50)
    chosen = [event for event in trace.events if unit_of(event) is not None]
    targets: dict[str, list[str]] = {
        "team": [trace.trace_id] if chosen else [],
        "role": sorted({role for e in chosen if (role := agents(trace).get(e.agent))}),
        "agent": sorted({e.agent for e in chosen}),
        "turn": sorted({e.call for e in chosen if e.call is not None and e.call in trace.call_by_id}),
    }
    for unit in ("orchestrator", "message", "tool_call"):
        targets[unit] = [e.id for e in chosen if unit_of(e) == unit]
    found: dict[str, Layer] = {}
    for unit, names in targets.items():
        some = draw.draw(st.lists(st.sampled_from(names), unique=True)) if names else []
        found[unit] = [make_credit(f"my.{unit} v2", unit, name, draw.draw(values)) for name in some]  # type: ignore[arg-type]
    return found


def events_of(trace: Trace, credit: Credit) -> set[str]:
    """What a credit is about, told plainly."""
    chosen = [event for event in trace.events if unit_of(event) is not None]
    roles = agents(trace)
    match credit.unit:
        case "team":
            return {e.id for e in chosen}
        case "role":
            return {e.id for e in chosen if roles.get(e.agent) == credit.target}
        case "agent":
            return {e.id for e in chosen if e.agent == credit.target}
        case "turn":
            return {e.id for e in chosen if e.call == credit.target}
        case _:
            return {credit.target}


@settings(max_examples=40)
@given(valid_traces(), st.data())
def test_the_layers_of_a_partition_add_up(trace: Trace, data: st.DataObject) -> None:
    """Whatever is stacked: R - baseline is the sum of the channels and luck; no event stands in two channels; and what
    all layers gave within a coarse unit that has an event left is what its own layer said."""
    layers = layers_of(trace, data)
    found = partition(trace, *layers.values(), value=noisy, reward=lambda _: 3.25)
    scale = 1 + sum(abs(c.value) for layer in layers.values() for c in layer)
    total = math.fsum((*(c.value for c in found.credits), *found.luck.values()))
    assert total == pytest.approx(
        3.25 - noisy(Prefix(trace, 0)), abs=1e-12 * scale * len(trace.events) + 1e-12
    )
    left = what_is_left(trace, list(layers.values()))
    kept = {(c.unit, c.target): c for layer in left for c in layer}
    for layer in layers.values():
        for credit in layer:
            mine = events_of(trace, credit)
            inner = [c for c in kept.values() if c is not kept.get((credit.unit, credit.target))]
            inner = [
                c
                for c in inner
                if events_of(trace, c) < mine or (events_of(trace, c) == mine and _finer(c, credit))
            ]
            now = kept.get((credit.unit, credit.target))
            if now is not None:
                whole = math.fsum((now.value, *(c.value for c in inner)))
                assert whole == pytest.approx(credit.value, abs=1e-10 * scale)
            else:  # nothing was left open to it
                assert mine <= set().union(*(events_of(trace, c) for c in inner))


_ORDER = ("token", "tool_call", "message", "orchestrator", "turn", "agent", "role", "team")


def _finer(one: Credit, other: Credit) -> bool:
    return _ORDER.index(one.unit) < _ORDER.index(other.unit)


@settings(max_examples=40)
@given(valid_traces(), st.data())
def test_a_single_layer_is_left_as_it_is(trace: Trace, data: st.DataObject) -> None:
    for layer in layers_of(trace, data).values():
        assert what_is_left(trace, [layer]) == [layer]
        alone = partition(trace, layer, value=noisy, reward=lambda _: 1.0)
        assert [c for c in alone.credits if c.estimator.startswith("my.")] == layer


def test_orchestrator_message_and_agent_stand_together() -> None:
    """By hand: w1 made a tool call and returned; the return is credited by itself, so the agent's .9 - .25 is left for
    the call. The lead's events are all decisions with credit of their own, so its own .4 has nothing to stand on."""
    trace = make_trace(total=1.0, workers=1)
    decisions = [e.id for e in trace.events if unit_of(e) == "orchestrator"]
    fine = [make_credit("forks", "orchestrator", name, 0.1) for name in decisions]
    said = [make_credit("replay", "message", "w1#4", 0.25)]
    whole = [make_credit("shapley", "agent", "w1", 0.9), make_credit("shapley", "agent", "lead", 0.4)]
    left = what_is_left(trace, [whole, fine, said])
    assert [[(c.target, pytest.approx(c.value)) for c in layer] for layer in left] == [
        [("w1", 0.65)], [(name, 0.1) for name in decisions], [("w1#4", 0.25)],
    ]  # fmt: skip
    found = partition(trace, whole, fine, said, value=lambda prefix: 0.5)
    assert math.fsum(found.channels.values()) == pytest.approx(0.5)
    assert found.luck["estimation"] == pytest.approx(-(0.65 + 0.25 + 0.1 * len(decisions)))
    with pytest.raises(CreditError, match="credited twice"):  # as three estimates, and not as layers
        project(trace, [*whole, *fine, *said])


def message_of(trace: Trace, agent: str) -> str:
    return next(e.id for e in trace.events if e.agent == agent and unit_of(e) == "message")


def test_a_token_hears_of_the_finest_layer_alone() -> None:
    trace = make_trace(total=1.0, workers=2)
    said = [make_credit("replay", "message", message_of(trace, "w1"), 0.25)]
    whole = [make_credit("shapley", "agent", "w1", 0.9), make_credit("shapley", "agent", "w2", -0.5)]
    team = [make_credit("mean", "team", trace.trace_id, 2.0)]
    left = [c for layer in what_is_left(trace, [team, said, whole]) for c in layer]
    advantages = project(trace, left, layered=True)
    heard: dict[str, set[float]] = defaultdict(set)
    own = {call: set(places) for call, places in tokens_of(trace, said[0]).items()}
    for call, values in advantages.items():
        agent = trace.call_by_id[call].agent
        for place, value in enumerate(values):
            heard["message" if place in own.get(call, set()) else agent].add(round(value, 9))
    assert heard == {
        "message": {0.25}, "w1": {0.65}, "w2": {-0.5}, "lead": {round(2.0 - 0.9 + 0.5, 9)},
    }  # fmt: skip
    assert project(trace, whole) == project(trace, whole, layered=True)


def test_the_gradient_of_the_layers_is_that_of_their_sum() -> None:
    """Of a policy with one weight per token: layer by layer, and of the summed credits."""
    torch = pytest.importorskip("torch")
    trace = make_trace(total=1.0, workers=3)
    layers = [
        [make_credit("mean", "team", trace.trace_id, 0.7)],
        [make_credit("shapley", "agent", f"w{k}", 0.1 * k - 0.25) for k in (1, 3)],
        [make_credit("replay", "message", message_of(trace, "w2"), -1.5)],
        [make_credit("forks", "orchestrator", "lead#1", 0.3)],
    ]
    left = what_is_left(trace, layers)
    every = [c for layer in left for c in layer]
    summed = project(trace, every, layered=True)

    def gradient(advantages: list[dict[str, list[float]]]) -> torch.Tensor:
        sizes = {call: len(values) for call, values in summed.items()}
        weights = torch.linspace(-1, 1, sum(sizes.values()), dtype=torch.float64, requires_grad=True)
        loss = torch.zeros((), dtype=torch.float64)
        for each in advantages:
            at = 0
            for call, size in sizes.items():
                logprobs = torch.nn.functional.logsigmoid(weights[at : at + size])
                loss = loss - (torch.tensor(each[call], dtype=torch.float64) * logprobs).sum()
                at += size
        loss.backward()
        assert weights.grad is not None
        return weights.grad

    finest_first = [left[3] + left[2], left[1], left[0]]
    taken: dict[str, set[int]] = defaultdict(set)
    apart = []
    for level in finest_first:  # each alone, on the tokens that no finer one reached
        values = {call: [0.0] * len(each) for call, each in summed.items()}
        reached: dict[str, set[int]] = defaultdict(set)
        for credit in level:
            for call, places in tokens_of(trace, credit).items():
                for place in set(places) - taken[call]:
                    values[call][place] += credit.value
                reached[call] |= set(places)
        for call, places in reached.items():
            taken[call] |= places
        apart.append(values)
    whole = gradient([{call: list(values) for call, values in summed.items()}])
    assert torch.allclose(gradient(apart), whole, atol=1e-12)
    assert whole.abs().sum() > 0
