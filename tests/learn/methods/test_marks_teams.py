"""Methods that credit agents and roles, learn from labels or mix values: their formulas, written out."""

from __future__ import annotations

import asyncio
import math
import random
from itertools import pairwise
from typing import Any

import pytest
import torch
from exact_model import exact_model
from marked import marked
from msgspec import structs
from paper_batch import (
    VOCABULARY,
    Ours,
    Rollout,
    Turn,
    check_loss,
    clipped,
    logprobs,
    make_batch,
    old,
    ours,
    total_of,
)
from reward_traces import golden

from baton.compose.stage_from_recipe import make_stage
from baton.compose.training import reward_of
from baton.engine.scripted import ScriptedEngine
from baton.forest.rows import rows_of
from baton.learn.crediting import Crediting, advantages
from baton.learn.critics.agents import Mixer
from baton.learn.phases import spans
from baton.learn.policy import roles_of
from baton.learn.preference import backward_of_pairs, labelled
from baton.learn.recipe import in_phase, load
from baton.learn.recipe_checks import loss_of
from baton.learn.scoring import outcome_of
from baton.learn.stage import Episode
from baton.learn.update import Gradients, Packed
from baton.reward import Gold
from baton.trace.records import Call, Edge, Event, Floats, Ints, Reward
from baton.trace.trace import Header, Trace


def scores(values: list[float], eps: float = 1e-4) -> list[float]:
    """(v - mean) / (deviation + eps), with n - 1; 0 for one alone."""
    mean = sum(values) / len(values)
    if len(values) == 1:
        return [0.0]
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return [(value - mean) / (deviation + eps) for value in values]


# Who learns, and from how many.


@marked(["matpo", "sharp"], ["policies", "rollouts"])
def test_one_model_for_planner_and_workers(recipe: str) -> None:
    plan = load(recipe)
    [policy] = plan.policies.values()
    assert (policy.train, policy.roles) == ("full", ())
    assert {role.name for role in make_stage(plan).topology.roles} == {"orchestrator", "worker"}
    assert plan.rollout.group_size > 1
    assert plan.rollout.fan_out == ()
    assert {part.group_by for part in plan.credit} == {"instance"}


@marked(["malt", "sirius", "multiagent-finetuning"], ["policies"])
def test_a_model_for_each_role(recipe: str) -> None:
    plan = load(recipe)
    programs = {"lead", "resolver"}  # never asked
    asked = set(make_stage(plan).roles) - programs
    assert {frozenset(part.roles) - programs for part in plan.policies.values()} == {
        frozenset({role}) for role in asked
    }
    assert {part.train for part in plan.policies.values()} == {"full"}


@marked(["marsrl"], ["policies"])
def test_one_model_is_solver_verifier_and_corrector(recipe: str) -> None:
    plan = load(recipe)
    [(_, part)] = plan.policies.items()
    assert part.train == "full"
    assert {"solver", "verifier", "corrector"} <= set(roles_of(plan, make_stage(plan).roles)["main"])


@marked(["marshal"], ["policies"])
def test_one_policy_on_both_sides(recipe: str) -> None:
    plan = load(recipe)
    assert {part.roles for part in plan.policies.values()} == {()}
    assert {"first", "second"} < set(make_stage(plan).roles)


# Advantages over agents.


@marked(["matpo"], ["credit", "loss"])
def test_workers_take_their_planners_advantage_and_are_added(recipe: str) -> None:
    """(1/planners) sum over agents of the mean over their tokens, A of the planner's rollout."""
    groups = make_batch((3, 5))
    found = ours(recipe, groups)
    objective = torch.zeros((), dtype=torch.float64)
    for group in groups:
        for rollout, advantage in zip(group, scores([each.total for each in group]), strict=True):
            for agent in rollout.agents():
                mine = [turn for turn in rollout.turns if turn.agent == agent]
                for turn in mine:
                    said = found.advantages[rollout.name][turn.call]
                    assert said == [pytest.approx(advantage)] * len(turn.said)
                terms = [
                    clipped(torch.exp(logprobs(found.weights, turn) - old(turn)), advantage) for turn in mine
                ]
                objective = objective + torch.cat(terms).mean()
    check_loss(found, objective / sum(map(len, groups)))


def with_own(values: dict[tuple[str, str], float]) -> Any:
    """Traces whose agents earned these by themselves; by (rollout, agent)."""

    def change(trace: Trace) -> Trace:
        mine = [
            Reward(family="individual", unit="agent", target=agent, value=value)
            for (name, agent), value in values.items()
            if name == trace.trace_id
        ]
        return structs.replace(trace, rewards=(*trace.rewards, *mine))

    return change


def draw_own(groups: list[list[Rollout]]) -> dict[tuple[str, str], float]:
    draw = random.Random(7)
    return {
        (rollout.name, agent): round(draw.uniform(-2, 2), 3)
        for group in groups
        for rollout in group
        for agent in rollout.agents()
    }


@marked(["sharp"], ["credit"])
def test_agent_by_agent_over_the_group(recipe: str) -> None:
    groups = make_batch((4, 5))
    own = draw_own(groups)
    found = ours(recipe, groups, change=with_own(own))
    for group in groups:
        for agent in {agent for rollout in group for agent in rollout.agents()}:
            with_it = [rollout for rollout in group if agent in rollout.agents()]
            wanted = scores([own[rollout.name, agent] for rollout in with_it])
            for rollout, advantage in zip(with_it, wanted, strict=True):
                for turn in rollout.turns:
                    if turn.agent == agent:
                        said = found.advantages[rollout.name][turn.call]
                        assert said == [pytest.approx(advantage)] * len(turn.said)


@marked(["marshal"], ["credit", "loss"])
def test_return_from_the_turn_on_less_the_seats_mean(recipe: str) -> None:
    groups = make_batch((3, 4), own=True)
    own = draw_own(groups)
    found = ours(recipe, groups, change=with_own(own))
    ahead: dict[tuple[str, str], float] = {}
    seats: dict[str, list[float]] = {}
    rollouts = [rollout for group in groups for rollout in group]
    for rollout in rollouts:
        for agent in rollout.agents():
            mine = [turn for turn in rollout.turns if turn.agent == agent]
            for place, turn in enumerate(mine):
                value = sum(later.own for later in mine[place:]) + own[rollout.name, agent]
                ahead[rollout.name, turn.call] = value
                seats.setdefault(turn.role, []).append(value)
    roles = {(r.name, turn.call): turn.role for r in rollouts for turn in r.turns}
    centred = {key: value - sum(seats[roles[key]]) / len(seats[roles[key]]) for key, value in ahead.items()}
    size = math.sqrt(sum(value**2 for value in centred.values()) / len(centred))
    objective, tokens = torch.zeros((), dtype=torch.float64), 0
    for rollout in rollouts:
        for turn in rollout.turns:
            advantage = centred[rollout.name, turn.call] / size
            assert found.advantages[rollout.name][turn.call] == [pytest.approx(advantage)] * len(turn.said)
            new = logprobs(found.weights, turn)
            gap = logprobs(found.reference, turn).detach() - new
            each = clipped(torch.exp(new - old(turn)), advantage) - 0.2 * (torch.exp(gap) - gap - 1)
            objective = objective + each.sum()
            tokens += len(turn.said)
    check_loss(found, objective / tokens)


# Trees.


def tree() -> list[Rollout]:
    """Three answers; of each some verdicts; of each of those some corrections. Unequal, and some right."""
    draw = random.Random(3)

    def words() -> list[int]:
        return [draw.randrange(VOCABULARY) for _ in range(draw.randint(2, 5))]

    def turn(agent: str, prompt: list[int], said: list[int]) -> Turn:
        return Turn(f"{agent}:1", agent, agent, prompt, said, [-4.0] * len(said))

    start, found = [1, 2, 3], []
    for number in range(3):
        answer = words()
        for verdict in [words() for _ in range(2 + number % 2)]:
            for _ in range(1 + number):
                prompt = [*start, *answer]
                turns = [
                    turn("gen", start, answer),
                    turn("ver", prompt, verdict),
                    turn("ref", [*prompt, *verdict], words()),
                ]
                found.append(
                    Rollout(f"r{len(found)}", "task", float(draw.random() < (0.2, 0.6, 0.85)[number]), turns)
                )
    return found


def outputs(rollouts: list[Rollout], agent: str) -> dict[tuple[Any, Any], list[Rollout]]:
    """(input, output) of an agent -> the rollouts that hold it."""
    found: dict[tuple[Any, Any], list[Rollout]] = {}
    for rollout in rollouts:
        mine = next(turn for turn in rollout.turns if turn.agent == agent)
        found.setdefault((tuple(mine.prompt), tuple(mine.said)), []).append(rollout)
    return found


def value(rollouts: list[Rollout], depth: int) -> float:
    """Of a node whose rollouts share so many outputs: the mean over the next outputs of their values."""
    if depth == 3:
        return rollouts[0].total
    below: dict[tuple[int, ...], list[Rollout]] = {}
    for rollout in rollouts:
        below.setdefault(tuple(rollout.turns[depth].said), []).append(rollout)
    return sum(value(each, depth + 1) for each in below.values()) / len(below)


def chain_of(rollout: Rollout) -> Trace:
    """The rollout as a trace: one after the other, each brings the next to life, the last ends."""
    after = [*(turn.agent for turn in rollout.turns[1:]), None]
    events = [
        Event(
            id=f"{turn.agent}#{seq}", agent=turn.agent, seq=seq, t=float(seq), call=turn.call,
            span=(0, len(turn.said)), role=turn.role if to is None else to, to=to,
            type="orchestrator_decision" if to is None else "spawn", decision="stop" if to is None else "spawn",
        )
        for seq, (turn, to) in enumerate(zip(rollout.turns, after, strict=True), 1)
    ]  # fmt: skip
    calls = [
        Call(
            id=turn.call, agent=turn.agent, role=turn.role, policy="main", policy_version="0",
            prompt_ids=Ints(turn.prompt), completion_ids=Ints(turn.said), logprobs=Floats(turn.old),
        )
        for turn in rollout.turns
    ]  # fmt: skip
    return Trace(
        header=Header(trace_id=rollout.name, task_id=rollout.group),
        events=tuple(events),
        edges=tuple(Edge(a.id, b.id, "spawn") for a, b in pairwise(events)),
        calls=tuple(calls),
        rewards=(Reward(family="shared", unit="team", target=rollout.name, value=rollout.total),),
    )


def credited(plan: Any, rollouts: list[Rollout], change: Any = lambda trace: trace) -> list[Trace]:
    traces = [[change(chain_of(rollout)) for rollout in rollouts]]
    return asyncio.run(Crediting(plan, {"reward": total_of}).credit(traces, lambda: None)).traces  # type: ignore[arg-type, return-value]


@marked(["malt"], ["credit", "loss", "pairs"])
def test_labels_by_backed_up_values_then_examples_then_pairs(recipe: str) -> None:
    plan, rollouts = load(recipe), tree()
    traces = credited(plan, rollouts)
    labels: dict[str, dict[tuple[Any, Any], bool]] = {}
    for depth, agent in enumerate(("gen", "ver", "ref"), 1):
        labels[agent] = {
            key: value(holders, depth) > 0.5 for key, holders in outputs(rollouts, agent).items()
        }
        assert set(labels[agent].values()) == {True, False}
    rows = []
    for trace, rollout in zip(traces, rollouts, strict=True):
        mine = advantages(trace)
        for turn in rollout.turns:
            chosen = labels[turn.agent][tuple(turn.prompt), tuple(turn.said)]
            assert mine[turn.call].numpy().tolist() == [1.0 if chosen else -1.0] * len(turn.said)
        rows += rows_of(trace, mine)
    learners = {span.name: span.learners for span in spans(plan)}
    assert learners == {"sft": ("generator", "verifier", "refiner"), "dpo": ("verifier", "refiner")}
    for agent, known in labels.items():
        for phase in plan.phases:
            if agent == "gen" and phase.name == "dpo":
                continue  # the paper's generator learns from examples alone
            check_labels(in_phase(plan, phase), [row for row in rows if row.agent == agent], known)


@marked(["sirius"], ["credit", "loss"])
def test_all_that_stands_in_a_run_that_came_out_well(recipe: str) -> None:
    plan, rollouts = load(recipe), tree()
    traces = credited(plan, rollouts)
    for agent in ("gen", "ver", "ref"):
        good = {key: any(r.total > 0 for r in holders) for key, holders in outputs(rollouts, agent).items()}
        assert set(good.values()) == {True, False} or agent == "gen"
        rows = []
        for trace, rollout in zip(traces, rollouts, strict=True):
            mine = {call: found for call, found in advantages(trace).items() if call == f"{agent}:1"}
            turn = next(turn for turn in rollout.turns if turn.agent == agent)
            label = 1.0 if good[tuple(turn.prompt), tuple(turn.said)] else -1.0
            assert mine[turn.call].numpy().tolist() == [label] * len(turn.said)
            rows += rows_of(trace, mine)
        check_labels(plan, rows, good)


@marked(["multiagent-finetuning"], ["credit", "loss"])
def test_answers_that_agree_are_examples(recipe: str) -> None:
    plan, rollouts = load(recipe), tree()
    draw = random.Random(9)
    agreed = {(r.name, turn.call): float(draw.random() < 0.5) for r in rollouts for turn in r.turns}
    for rollout in rollouts:  # one draw that several rollouts hold was said once
        for turn in rollout.turns:
            first = next(
                r for r in rollouts if any(t.prompt == turn.prompt and t.said == turn.said for t in r.turns)
            )
            agreed[rollout.name, turn.call] = agreed[first.name, turn.call]

    def paid(trace: Trace) -> Trace:
        rewards = [
            Reward(family="debate", unit="turn", target=call.id, value=agreed[trace.trace_id, call.id])
            for call in trace.calls
        ]
        return structs.replace(trace, rewards=(*trace.rewards, *rewards))

    traces = credited(plan, rollouts, paid)
    for agent in ("gen", "ver", "ref"):
        known = {
            key: agreed[holders[0].name, f"{agent}:1"] == 1.0
            for key, holders in outputs(rollouts, agent).items()
        }
        rows = []
        for trace in traces:
            mine = {call: found for call, found in advantages(trace).items() if call == f"{agent}:1"}
            assert set(mine[f"{agent}:1"].numpy().tolist()) == {agreed[trace.trace_id, f"{agent}:1"]}
            rows += rows_of(trace, mine)
        check_labels(plan, rows, known)


def check_labels(plan: Any, rows: list[Any], known: dict[tuple[Any, Any], bool]) -> None:
    """One role's loss and its gradient, by the formula over its outputs."""
    model, reference = exact_model(seed=1), exact_model(seed=2)

    def logs(weights: Any, key: tuple[Any, Any]) -> torch.Tensor:
        return logprobs(weights, Turn("c", "a", "r", list(key[0]), list(key[1]), [])).sum()

    if plan.loss.kind == "sft":
        chosen = [key for key, good in known.items() if good]
        objective = torch.stack([logs(model, key) for key in chosen]).sum() / sum(len(k[1]) for k in chosen)
    else:
        terms = []
        for better in (key for key, good in known.items() if good):
            for worse in (key for key, good in known.items() if not good and key[0] == better[0]):
                above = [logs(model, key) - logs(reference, key).detach() for key in (better, worse)]
                terms.append(torch.nn.functional.logsigmoid(0.2 * (above[0] - above[1])))
        if not terms:
            return
        objective = torch.stack(terms).mean()
    loss = loss_of(plan)
    gradients = Gradients(model, loss, Packed(check=False), reference=reference)
    kept = labelled(rows, loss.rule)
    report = backward_of_pairs(gradients, kept) if loss.kind == "dpo" else gradients.backward(kept)
    gradient = model.lm_head.weight.grad.clone()
    model.zero_grad()
    check_loss(Ours({}, report.loss, gradient, model, reference), objective)


@marked(["malt", "sirius"], ["reward"])
def test_a_leaf_is_right_or_wrong(recipe: str) -> None:
    stage = make_stage(load(recipe))
    gold = stage.task.instance(0).gold
    seen = set()
    for answer in (str(gold), str(gold + 1)):
        script = ScriptedEngine(
            "s", lambda r, a=answer: "return accept" if r.role == "verifier" else f"return {a}"
        )  # type: ignore[misc]
        engines = dict.fromkeys(stage.roles, script)
        [trace] = asyncio.run(stage.play(engines, [Episode(name="t", instance=0, seed=0)]))
        assert outcome_of(trace) == float(answer == str(gold))
        assert [call.role for call in trace.calls] == [role for role in stage.roles if role != "lead"], (
            "one after the other"
        )
        seen.add(outcome_of(trace))
    assert seen == {0.0, 1.0}
    assert load(recipe).reward.recipe is None


@marked(["marsrl", "criticlean"], ["credit"])
def test_against_outputs_for_the_same_input(recipe: str) -> None:
    plan, rollouts = load(recipe), tree()
    draw = random.Random(5)
    own: dict[tuple[str, str], float] = {}
    wanted: dict[tuple[str, str], float] = {}
    for agent in ("gen", "ver", "ref"):
        held = outputs(rollouts, agent)
        earned = {key: float(draw.random() < 0.5) for key in held}
        for asked in {key[0] for key in held}:
            same = [key for key in held if key[0] == asked]
            for key, advantage in zip(same, scores([earned[key] for key in same]), strict=True):
                for rollout in held[key]:
                    own[rollout.name, agent] = earned[key]
                    wanted[rollout.name, agent] = advantage
    for trace in credited(plan, rollouts, with_own(own)):
        found = {credit.target: credit.value for credit in trace.credits}
        assert found == pytest.approx(
            {agent: wanted[trace.trace_id, agent] for agent in ("gen", "ver", "ref")}
        )


# Rewards.


@marked(["marsrl"], ["reward"])
def test_own_answer_and_own_verdict(recipe: str) -> None:
    plan = load(recipe)
    stage = make_stage(plan)
    gold = stage.task.instance(0).gold
    rules = reward_of(plan.reward)
    assert rules is not None
    cases = ((0, "accept", 0), (1, "accept", 0), (0, "wrong", 1), (1, "wrong", 0), (1, "wrong", 1))
    for first, verdict, second in cases:
        says = {
            "solver": f"return {gold + 1 - first}",
            "verifier": f"return {verdict}",
            "corrector": f"return {gold + 1 - second}",
        }
        script = ScriptedEngine("s", lambda r, says=says: says[r.role])  # type: ignore[misc]
        engines = dict.fromkeys(stage.roles, script)
        [trace] = asyncio.run(stage.play(engines, [Episode(name="t", instance=0, seed=0)]))
        known = Gold(verify=lambda answer: float(answer == str(gold)))
        found = {r.target: r.value for r in rules.score(trace, known) if r.unit == "agent"}
        wanted = {"solver1": float(first), "verifier1": float((verdict == "accept") == bool(first))}
        if verdict != "accept":
            wanted["corrector1"] = float(second)
        assert found == wanted


@marked(["matpo"], ["reward"])
def test_a_right_answer_and_tools_in_form(recipe: str) -> None:
    rules = reward_of(load(recipe).reward)
    assert rules is not None
    trace = golden("centralized")
    for right in (0.0, 1.0):
        [found] = rules.score(trace, Gold(verify=lambda _, right=right: right))  # type: ignore[misc]
        # The lead was in form; of its two workers one had a call that failed.
        assert found.value == pytest.approx(0.9 * right + 0.1 * 0.5 * (1.0 + 0.5))


@marked(["qmix", "agent-q-mix"], ["reward"])
def test_one_reward_for_the_team(recipe: str) -> None:
    rules, trace = reward_of(load(recipe).reward), golden("centralized")
    if recipe == "qmix":
        assert rules is None
        return
    assert rules is not None
    for tokens in (0.0, 1_234.0, 10_000.0, 73_000.0):
        spent = structs.replace(trace, costs={**trace.costs, "tokens": tokens})
        [found] = rules.score(spent, Gold(verify=lambda _: 1.0))
        assert (found.unit, found.value) == ("team", pytest.approx(1.0 - 0.1 * min(tokens / 10_000, 1.0)))


@marked(["qmix"], ["mixing"])
def test_the_mixing_number_by_number(recipe: str) -> None:
    """|W2(s)| . elu(|W1(s)| q + b1(s)) + V(s), weights by hypernetworks."""
    assert load(recipe).credit[0].estimator == "qmix"
    torch.manual_seed(0)
    mixer = Mixer(3, 5, hidden=4).double()
    q, state = torch.randn(2, 3).double(), torch.randn(2, 5).double()
    found = mixer(q, state)

    def linear(layer: Any, x: list[float]) -> list[float]:
        return [
            sum(w * v for w, v in zip(row, x, strict=True)) + b
            for row, b in zip(layer.weight.tolist(), layer.bias.tolist(), strict=True)
        ]

    for place in range(2):
        s, values = state[place].tolist(), q[place].tolist()
        w1 = [abs(w) for w in linear(mixer.w1, s)]
        hidden = []
        for h, bias in enumerate(linear(mixer.b1, s)):
            x = sum(values[agent] * w1[agent * 4 + h] for agent in range(3)) + bias
            hidden.append(x if x > 0 else math.expm1(x))
        top = linear(mixer.v[2], [max(0.0, x) for x in linear(mixer.v[0], s)])[0]
        want = sum(abs(w) * x for w, x in zip(linear(mixer.w2, s), hidden, strict=True)) + top
        assert found[place].item() == pytest.approx(want)
