"""A small batch of rollouts in two forms: Baton's traces, and plain lists that a paper's formula can be written on.

Nothing here but `ours` asks Baton for a number. A team leads, asks workers and ends; how many workers, how often they
speak and how long they talk differ from rollout to rollout, so that means over tokens, calls, agents and rollouts are
all different numbers.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from exact_model import exact_model
from torch import Tensor

from baton.forest.rows import rows_of
from baton.learn.crediting import Crediting, advantages, learned_weights
from baton.learn.recipe import Recipe, load
from baton.learn.recipe_checks import loss_of
from baton.learn.update import Gradients, Packed
from baton.trace import Call, Edge, Event, Floats, Header, Ints, Reward, Trace

VOCABULARY = 60


@dataclass
class Turn:
    """One call, as plain lists."""

    call: str
    agent: str
    role: str
    prompt: list[int]
    said: list[int]
    old: list[float]
    """Log-probability of each token when it was drawn."""
    own: float = 0.0
    """What the turn earned by itself."""


@dataclass
class Rollout:
    name: str
    group: str
    total: float
    turns: list[Turn] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        return sum(len(turn.said) for turn in self.turns)

    def agents(self) -> list[str]:
        return list(dict.fromkeys(turn.agent for turn in self.turns))


def make_batch(
    sizes: Sequence[int] = (3, 4),
    *,
    seed: int = 0,
    lead: str = "orchestrator",
    worker: str = "worker",
    own: bool = False,
) -> list[list[Rollout]]:
    """Groups of these sizes. `own`: turns earn something by themselves too."""
    draw = random.Random(seed)
    found: list[list[Rollout]] = []
    for number, size in enumerate(sizes):
        group = [_rollout(f"g{number}r{place}", f"task{number}", draw, lead, worker) for place in range(size)]
        for rollout in group:
            for turn in rollout.turns:
                turn.own = round(draw.uniform(-1, 1), 3) if own else 0.0
        found.append(group)
    return found


def _rollout(name: str, group: str, draw: random.Random, lead: str, worker: str) -> Rollout:
    """The lead asks one to three workers, who answer once or twice each; sometimes it asks one of them again."""
    made = Rollout(name, group, round(draw.uniform(-1, 2), 3))
    told = [draw.randrange(VOCABULARY) for _ in range(3)]

    def say(agent: str, role: str) -> None:
        said = [draw.randrange(VOCABULARY) for _ in range(draw.randint(3, 8))]
        call = f"{agent}:{sum(turn.agent == agent for turn in made.turns) + 1}"
        old = [-draw.uniform(3.4, 4.8) for _ in said]
        made.turns.append(Turn(call, agent, role, list(told[-12:]), said, old))
        told.extend(said)

    say("lead", lead)
    for number in range(1, draw.randint(1, 3) + 1):
        for _ in range(draw.randint(1, 2)):
            say(f"w{number}", worker)
    if draw.random() < 0.5:
        say("lead", lead)
        say("w1", worker)
    say("lead", lead)
    return made


def starts(rollout: Rollout) -> dict[str, int]:
    """Call -> how many events there are before it. The first call spawns all workers, an event each."""
    ahead = len(rollout.agents()) - 2
    return {turn.call: number + (ahead if number else 0) for number, turn in enumerate(rollout.turns)}


def trace_of(rollout: Rollout) -> Trace:
    """The rollout as a trace of Baton: who speaks first spawns the others, delegates and stops; they answer it."""
    events: list[Event] = []
    agents = {turn.agent: turn.role for turn in rollout.turns}
    lead, *workers = agents

    def add(turn: Turn, span: tuple[int, int], kind: dict[str, Any]) -> None:
        seq = len(events) + 1
        events.append(
            Event(
                id=f"{turn.agent}#{seq}",
                agent=turn.agent,
                seq=seq,
                t=float(seq),
                call=turn.call,
                span=span,
                **{"role": turn.role, "tokens": len(turn.said), **kind},
            )
        )

    for number, turn in enumerate(rollout.turns):
        whole = (0, len(turn.said))
        if number == 0:
            for place, to in enumerate(workers):
                kind = {"type": "spawn", "decision": "spawn", "to": to, "role": agents[to]}
                add(turn, (place, place + 1), kind)
        elif turn.agent != lead:
            add(turn, whole, {"type": "message", "decision": "communicate", "to": lead})
        elif number < len(rollout.turns) - 1:
            add(
                turn,
                whole,
                {"type": "message", "decision": "delegate", "to": rollout.turns[number + 1].agent},
            )
        else:
            add(turn, whole, {"type": "orchestrator_decision", "decision": "stop"})
    edges = tuple(Edge(one.id, other.id, "temporal") for one, other in pairwise(events))
    calls = tuple(
        Call(
            id=turn.call, agent=turn.agent, role=turn.role, policy="main", policy_version="0",
            prompt_ids=Ints(turn.prompt), completion_ids=Ints(turn.said), logprobs=Floats(turn.old),
        )
        for turn in rollout.turns
    )  # fmt: skip
    rewards = [Reward(family="shared", unit="team", target=rollout.name, value=rollout.total)]
    rewards += [
        Reward(family="process", unit="turn", target=turn.call, value=turn.own)
        for turn in rollout.turns
        if turn.own
    ]
    header = Header(trace_id=rollout.name, task_id=rollout.group)
    return Trace(header=header, events=tuple(events), edges=edges, calls=calls, rewards=tuple(rewards))


def total_of(trace: Trace) -> float:
    return sum(reward.value for reward in trace.rewards if reward.unit == "team")


@dataclass
class Ours:
    """What Baton gives: each rollout's advantage on each token of each call, the loss, and its gradient."""

    advantages: dict[str, dict[str, list[float]]]
    loss: float
    gradient: Tensor
    weights: Any
    """The model, for a formula of one's own."""
    reference: Any


def ours(
    recipe: str | Recipe,
    groups: Sequence[Sequence[Rollout]],
    *,
    given: dict[str, Any] | None = None,
    change: Callable[[Trace], Trace] = lambda trace: trace,
    runner: Callable[[], Any] | None = None,
) -> Ours:
    """The recipe's credit and loss on a batch, with one model for everybody. `given`: what estimators ask for."""
    plan = load(recipe) if isinstance(recipe, str) else recipe
    traces = [[change(trace_of(rollout)) for rollout in group] for group in groups]
    crediting = Crediting(plan, {"reward": total_of, **(given or {})})
    credited = asyncio.run(crediting.credit(traces, runner or _no_forks)).traces
    rows = []
    found: dict[str, dict[str, list[float]]] = {}
    for trace in credited:
        mine = advantages(trace, decision_only=plan.train.decision_only)
        found[trace.trace_id] = {call: values.numpy().tolist() for call, values in mine.items()}
        sizes = {call: len(values) for call, values in mine.items()}
        weights = learned_weights(trace, sizes, plan.train.decisions)
        rows += rows_of(trace, mine, weights=weights, group=trace.header.task_id)
    model, reference = exact_model(seed=1), exact_model(seed=2)
    packed = Packed(duplicates=plan.pack.duplicates, check=False)
    loss = loss_of(plan)
    report = Gradients(model, loss, packed, reference=reference).backward(rows, version="0")
    gradient = model.lm_head.weight.grad.clone()
    model.zero_grad()
    return Ours(found, report.loss, gradient, model, reference)


def _no_forks() -> Any:
    raise AssertionError("this recipe's credit asks for runs of its own")


# What a paper's formula is written with.


def logprobs(model: Any, turn: Turn) -> Tensor:
    """log pi of each token of a turn, by the model's own forward."""
    ids = torch.tensor([turn.prompt + turn.said])
    table = torch.log_softmax(model(input_ids=ids, use_cache=False).logits[0], -1)
    start = len(turn.prompt)
    return torch.stack([table[start + k - 1, token] for k, token in enumerate(turn.said)])


def old(turn: Turn) -> Tensor:
    return torch.tensor(turn.old, dtype=torch.float64)


def scores(values: Sequence[float], eps: float = 1e-4) -> list[float]:
    """(x - mean) / (deviation + eps), the deviation with n - 1; 0 of one alone."""
    mean = sum(values) / len(values)
    if len(values) == 1:
        return [0.0]
    deviation = (sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5
    return [(value - mean) / (deviation + eps) for value in values]


Worth = dict[tuple[str, str], float]
"""Rollout and call -> what a formula gives that turn."""


def check_advantages(found: Ours, groups: Sequence[Sequence[Rollout]], wanted: Worth) -> None:
    """Every token of every turn carries what the formula gives the turn."""
    for group in groups:
        for rollout in group:
            for turn in rollout.turns:
                got = torch.tensor(found.advantages[rollout.name][turn.call])
                expected = torch.full((len(turn.said),), wanted[rollout.name, turn.call])
                assert torch.allclose(got, expected, rtol=1e-5, atol=1e-6), (rollout.name, turn.call)


def token_mean(found: Ours, groups: Sequence[Sequence[Rollout]], wanted: Worth) -> Tensor:
    """PPO's surrogate with one ratio a token, the mean over all tokens."""
    terms = [
        clipped(torch.exp(logprobs(found.weights, turn) - old(turn)), wanted[rollout.name, turn.call])
        for group in groups
        for rollout in group
        for turn in rollout.turns
    ]
    return torch.cat(terms).mean()


def every_turn(groups: Sequence[Sequence[Rollout]]) -> list[tuple[Rollout, Turn]]:
    return [(rollout, turn) for group in groups for rollout in group for turn in rollout.turns]


def clipped(ratio: Tensor, advantage: float, low: float = 0.2, high: float = 0.2) -> Tensor:
    """PPO's surrogate, to be made large."""
    bounded = torch.clamp(ratio, 1 - low, 1 + high)
    return torch.minimum(ratio * advantage, bounded * advantage)


def check_loss(found: Ours, objective: Tensor, *, scale: float = 1.0) -> None:
    """Baton's loss is minus the paper's objective, and so is its gradient. `scale`: a constant between the two."""
    [wanted] = torch.autograd.grad(objective, found.weights.lm_head.weight)
    assert math.isclose(found.loss, -scale * float(objective.detach()), rel_tol=1e-6, abs_tol=1e-9)
    assert torch.allclose(found.gradient, -scale * wanted, rtol=1e-7, atol=1e-10)
