"""Check what a training run is made of: a loss, a critic, a monitor."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from baton import registry
from baton.credit.estimator import Prefix
from baton.errors import UsageError
from baton.learn.recipe import CriticPart, Recipe, load
from baton.testing.check_tools import require
from baton.testing.sample_rollouts import sample_group
from baton.trace.outcome import team_return
from baton.trace.trace import Trace

if TYPE_CHECKING:
    from baton.learn.loss import LossKind, Tokens

_NUDGE = 1e-6


# -- losses -----------------------------------------------------------------------------------------


def check_loss(given: str | LossKind, *, detached: bool = False) -> None:
    """A loss by name (`module:attr` too) or itself. `detached`: part of it is a constant to the gradient, as CISPO's
    ratio is, so that the gradient is not its slope."""
    import torch

    from baton.learn.loss import LossKind

    kind = registry.resolve("loss", given) if isinstance(given, str) else given
    require(isinstance(kind, LossKind), f"{given!r} is a {type(kind).__name__}; expected a LossKind.")
    require(
        kind.formula and kind.source, f"{kind.name}: say its formula, and its source: the paper it is from."
    )
    tokens = _tokens(torch.linspace(-0.35, 0.4, 12, dtype=torch.float64))
    each = _per_token(kind, tokens)
    require(
        each.shape == tokens.new.shape and bool(torch.isfinite(each).all()),
        f"{kind.name}: it gave {tuple(each.shape)} for {len(tokens.new)} tokens; expected one finite number for each.",
    )
    require(torch.equal(each, _per_token(kind, tokens)), f"{kind.name}: the same tokens had two losses.")
    _check_gradient(kind, tokens, detached)
    _check_what_counts(kind, tokens)
    if kind.whole_sequences:
        try:
            _per_token(kind, structs.replace(tokens, whole=False))
        except UsageError:
            return
        require(
            False, f"{kind.name}: it needs whole sequences and took parts of some; raise UsageError there."
        )


def _tokens(log_ratio: Any) -> Tokens:
    """Twelve tokens of three rows, good, bad and neither, at these log-ratios."""
    import torch

    from baton.learn.loss import Tokens

    new = (-0.3 - torch.arange(12, dtype=torch.float64) / 7).requires_grad_()
    row = torch.arange(12) // 4
    old = new.detach() - log_ratio
    advantage = torch.tensor([1.5, -0.7, 0.0], dtype=torch.float64)[row]
    return Tokens(
        new=new,
        old=old,
        sampler=old.clone(),
        advantage=advantage,
        weight=torch.ones(12, dtype=torch.float64),
        sequence=row,
        stale=torch.zeros(12, dtype=torch.bool),
    )


def _per_token(kind: LossKind, tokens: Tokens, low: float | None = None, high: float | None = None) -> Any:
    return kind.per_token(tokens, kind.low if low is None else low, kind.high if high is None else high)


def _slopes(kind: LossKind, tokens: Tokens) -> Any:
    import torch

    return torch.autograd.grad(_per_token(kind, tokens).sum(), tokens.new)[0]


def _check_gradient(kind: LossKind, tokens: Tokens, detached: bool) -> None:
    import torch

    slopes = _slopes(kind, tokens)
    for place in range(0 if detached else len(tokens.new)):
        nudge = torch.zeros_like(tokens.new)
        nudge[place] = _NUDGE
        up, down = (
            float(_per_token(kind, structs.replace(tokens, new=(tokens.new + way).detach())).sum())
            for way in (nudge, -nudge)
        )
        slope = (up - down) / (2 * _NUDGE)
        require(
            math.isclose(slope, float(slopes[place]), rel_tol=1e-4, abs_tol=1e-6),
            f"{kind.name}: the gradient of token {place} is {float(slopes[place]):.6g}, and the loss has slope "
            f"{slope:.6g} there. If part of it is meant to be a constant, say detached=True.",
        )
    at_first = _slopes(kind, _tokens(torch.zeros(12, dtype=torch.float64)))
    wrong = at_first * tokens.advantage > 0
    require(
        not bool(wrong.any()) and bool((at_first * tokens.advantage < 0).any()),
        f"{kind.name}: where the ratio is 1, a step has to make good tokens likelier and bad ones less likely.",
    )
    require(
        not bool(at_first[tokens.advantage == 0].any()),
        f"{kind.name}: tokens without an advantage have a gradient.",
    )


def _check_what_counts(kind: LossKind, tokens: Tokens) -> None:
    import torch

    each = _per_token(kind, tokens)
    heavier = structs.replace(tokens, weight=tokens.weight * 3)
    require(
        torch.equal(_per_token(kind, heavier), each), f"{kind.name}: it applies weights, which `total` does."
    )
    others = tokens.sequence != 0
    moved = structs.replace(tokens, advantage=torch.where(others, tokens.advantage + 1, tokens.advantage))
    require(
        torch.equal(_per_token(kind, moved)[~others], each[~others]),
        f"{kind.name}: a row's loss depends on other rows, so it would change with how rows are cut into passes.",
    )
    order = torch.tensor([5, 0, 7, 2, 9, 4, 11, 6, 1, 8, 3, 10])
    fields = ("new", "old", "sampler", "advantage", "weight", "sequence", "stale")
    mixed = structs.replace(tokens, **{name: getattr(tokens, name)[order] for name in fields})
    require(
        torch.allclose(_per_token(kind, mixed), each[order], rtol=1e-12),
        f"{kind.name}: the order of the tokens changes their loss.",
    )
    older = structs.replace(tokens, old=tokens.old - 0.01)
    same = torch.equal(_per_token(kind, older), each) and torch.equal(
        _slopes(kind, older), _slopes(kind, tokens)
    )
    require(
        same is not kind.uses_ratio,
        f"{kind.name}: uses_ratio is {kind.uses_ratio}, and its loss {'does not ' if same else ''}depend on `old`.",
    )
    if kind.bounds == "none":
        wider = _per_token(kind, tokens, kind.low + 0.1, kind.high + 0.1)
        require(torch.equal(wider, each), f"{kind.name}: it has bounds = 'none', and other bounds change it.")


# -- critics ----------------------------------------------------------------------------------------


class _SamplePolicy(Struct, frozen=True):
    """What a critic may ask of a policy, without a model behind it."""

    name: str
    roles: tuple[str, ...]
    sampler: None = None
    tokenizer: None = None
    learns: bool = True


def check_critic(
    given: str | Callable[..., Any],
    traces: Sequence[Trace] = (),
    *,
    recipe: Recipe | None = None,
    policies: Mapping[str, Any] | None = None,
    reward: Callable[[Trace], float] = team_return,
) -> None:
    """A critic by name (`module:attr` too), or what makes it: `(recipe, policies, reward) -> Critic`.

    Without traces and policies of your own it is shown those of a small team, whose policies have no model.
    """
    make = registry.resolve("critic", given) if isinstance(given, str) else given
    name = given if isinstance(given, str) else getattr(given, "__name__", repr(given))
    some = list(traces) or sample_group()
    if recipe is None:
        base = load("grpo")
        recipe = structs.replace(base, critic=base.critic or CriticPart())
    roles = tuple(dict.fromkeys(call.role for trace in some for call in trace.calls if call.role is not None))
    who = {"sample": _SamplePolicy("sample", roles)} if policies is None else policies
    before = copy.deepcopy(some)

    def taught(*steps: Sequence[Trace]) -> Any:
        critic = make(recipe, who, reward)
        for step in steps:
            critic.observe(step)
        return critic

    first = taught(some)
    require(some == before, f"{name}: observing changed the traces.")
    answers = _answers(name, first, some)
    require(answers, f"{name}: it offers nothing (given) that could be asked about these traces.")
    require(_answers(name, taught(some), some) == answers, f"{name}: taught the same, it answers otherwise.")
    state = first.state_dict()
    _check_saveable(name, state, "state")
    kept = copy.deepcopy(state)
    again = taught()
    again.load_state_dict(copy.deepcopy(state))
    require(_answers(name, again, some) == answers, f"{name}: after load_state_dict it answers otherwise.")
    first.observe(some)
    again.observe(some)
    require(
        _answers(name, again, some) == _answers(name, first, some),
        f"{name}: it goes on otherwise after load_state_dict; state_dict has to hold all that it learned.",
    )
    require(_same(state, kept), f"{name}: what state_dict gave changed when more was learned; give a copy.")


def _answers(name: str, critic: Any, traces: Sequence[Trace]) -> dict[str, float]:
    """All that can be asked about these traces."""
    offered = critic.given()
    require(
        isinstance(offered, dict) and all(map(callable, offered.values())),
        f"{name}: given() has to be functions by the name of the setting they are for.",
    )
    found: dict[str, float] = {}
    for trace in traces:
        for place, event in enumerate(trace.events):
            key = f"{trace.trace_id}/{event.id}"
            if "value" in offered:
                found[f"value {key}"] = offered["value"](Prefix(trace, place))
            if "q" in offered and "mix" not in offered and event.options and event.choice is not None:
                for option in event.options:
                    found[f"q {key} {option}"] = offered["q"](Prefix(trace, place), option)
        if "mix" in offered:
            names = dict.fromkeys(event.agent for event in trace.events)
            found |= {f"q {trace.trace_id} {agent}": offered["q"](trace, agent) for agent in names}
    for key, value in found.items():
        require(math.isfinite(value), f"{name}: {key} is {value}; expected a finite number.")
    return found


def _check_saveable(name: str, value: Any, path: str) -> None:
    """Plain values and tensors: what a checkpoint can hold."""
    import torch

    if isinstance(value, Mapping):
        for key, each in value.items():
            require(
                isinstance(key, str), f"{name}: {path} has the key {key!r}; a checkpoint holds words as keys."
            )
            _check_saveable(name, each, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            _check_saveable(name, each, f"{path}.{number}")
    else:
        require(
            value is None or isinstance(value, bool | int | float | str | torch.Tensor),
            f"{name}: {path} is a {type(value).__name__}; a checkpoint holds plain values and tensors.",
        )


def _same(one: Any, other: Any) -> bool:
    import torch

    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


# -- monitors ---------------------------------------------------------------------------------------


def check_monitor(
    given: str | Callable[..., Any],
    steps: Sequence[tuple[Mapping[str, Any], Sequence[Trace]]] = (),
    *,
    recipe: Recipe | None = None,
) -> None:
    """A monitor by name (`module:attr` too), or itself. `steps` are metrics and traces of a run's steps, in order."""
    from baton.learn.watch import Warned

    found = registry.resolve("monitor", given) if isinstance(given, str) else given
    name = given if isinstance(given, str) else getattr(given, "__name__", repr(given))
    run = list(steps) or list(_sample_steps())
    plan = recipe or load("grpo")

    def made() -> Any:
        return found(plan) if isinstance(found, type) else found

    def told(monitor: Any, some: Sequence[tuple[Mapping[str, Any], Sequence[Trace]]]) -> list[list[Any]]:
        said = []
        for metrics, traces in some:
            before = copy.deepcopy((metrics, list(traces)))
            warnings = list(getattr(monitor, "observe", monitor)(metrics, traces))
            require((metrics, list(traces)) == before, f"{name}: it changed the metrics or the traces.")
            for each in warnings:
                right = isinstance(each, Warned) and each.monitor and each.message.strip()
                require(
                    right, f"{name}: it said {each!r}; expected Warned with a monitor's name and a message."
                )
            said.append(warnings)
        return said

    whole = told(made(), run)
    require(told(made(), run) == whole, f"{name}: the same run was judged in two ways.")
    middle = len(run) // 2
    first, second = made(), made()
    told(first, run[:middle])
    if hasattr(first, "state_dict"):
        _check_saveable(name, first.state_dict(), "state")
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        require(
            told(second, run[middle:]) == whole[middle:],
            f"{name}: after a checkpoint it says something else; state_dict has to hold all that it remembers.",
        )


def _sample_steps() -> Iterator[tuple[Mapping[str, Any], Sequence[Trace]]]:
    """Eight steps of a small team: the return falls, and nobody is spawned any more towards the end."""
    every = sample_group()
    alone = [trace for trace in every if not any(event.type == "spawn" for event in trace.events)]
    for number in range(8):
        metrics = {
            "step": number + 1,
            "return": {"mean": 1 - number / 8, "half": None},
            "moved": None if number == 0 else 0.1 * number,
            "loss": 0.1,
            "grad_norm": 1.0,
        }
        yield metrics, every if number < 4 else alone
