"""Logs of nothing but decisions to spawn, whose effects are known, small enough to enumerate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import prod
from types import SimpleNamespace

from msgspec import structs

from baton.team.forks import Cost
from baton.team.intervene import Drop
from baton.trace import Event, Header, Reward, Trace

Choices = tuple[int, ...]
"""What a rollout did at its decisions: 1 for a spawn."""


def log_of(name: str, choices: Sequence[int], p: float, total: float) -> Trace:
    """A rollout that spawned where a choice is 1, each with chance p."""
    events = tuple(
        Event(
            id=f"e{k}",
            type="spawn" if d else "orchestrator_decision",
            agent="lead",
            seq=k + 1,
            t=float(k),
            to=f"w{k}" if d else None,
            decision="spawn" if d else "stop",
            call=f"c{k}",
            options=("spawn worker: help", "stop alone"),
            choice=1 - d,
            option_propensities=(p, 1 - p),
            propensity=p if d else 1 - p,
        )
        for k, d in enumerate(choices)
    )
    reward = Reward(family="shared", unit="team", target=name, value=total)
    header = Header(trace_id=name, task_id="task")
    return Trace(header=header, events=events, edges=(), calls=(), rewards=(reward,))


def every_log(
    num_rollouts: int, num_decisions: int, p: float, total: Callable[..., float]
) -> Iterator[tuple[float, list[Choices], list[Trace]]]:
    """All groups that could have been: probability, choices, traces."""
    each = list(product((0, 1), repeat=num_decisions))
    for chosen in product(each, repeat=num_rollouts):
        chance = prod(p if d else 1 - p for choices in chosen for d in choices)
        yield chance, list(chosen), [log_of(f"t{i}", c, p, total(*c)) for i, c in enumerate(chosen)]


def tau_of(value: float, p: float, spawned: int) -> float:
    """The effect that a centred credit was made of."""
    return value / ((1 - p) if spawned else -p)


def spawns_of(name: str, num: int, total: float) -> Trace:
    """A rollout of so many spawns, each with chance 1/2; the options were not recorded."""
    made = log_of(name, (1,) * num, 0.5, total)
    bare = [
        structs.replace(event, options=None, choice=None, option_propensities=None) for event in made.events
    ]
    return structs.replace(made, events=tuple(bare))


class Dropping:
    """Runs forks of such rollouts: without its first spawn one earns nothing, the others do not matter."""

    cost = Cost()

    async def fork(self, trace: Trace, changes: Sequence[Drop] = (), **_: object) -> SimpleNamespace:
        total = 0.0 if any(change.at == "e0" for change in changes) else trace.rewards[0].value
        return SimpleNamespace(trace=spawns_of(f"{trace.trace_id}~", 0, total))
