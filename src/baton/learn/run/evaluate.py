"""What a team is worth now: played on instances it was not trained on, beside what else the same tokens could buy.

    team          the policies as they are
    untrained     the weights the run started from
    best-of-n     n tries of the untrained team on the same instance, the best kept by its true score; n is such that
                  their tokens come nearest to the trained team's: an upper bound on what trying more often can do
    alone-n       the same of a single agent with the trained weights
    single-agent  of games, the best that can be done without spawning, by the solver
    optimum       of games, by the solver

On games the regret of each decision is read off the traces against the solution; it needs no luck to be exact.

The single agent has the team's weights, may not spawn, and gets as many tries as the team's tokens buy. On a game the
policy is asked for the chances of its options, and what is drawn adds as few agents as can be. On other tasks the root
works by itself: it has the tools of the whole team and no verb that needs others. Where a program spawns, or nobody
can, there is no such agent to measure: `NotAlone` says why.

Invariant: n is how many tries come nearest to the team's tokens, by the tokens of the first try at every instance.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from msgspec import structs

from baton.errors import BatonError, UsageError
from baton.games.game import CHOICES, Game
from baton.games.game_trace import regret_of_trace
from baton.games.ledger import GameRegret, expected_regret
from baton.games.on_team import read_state
from baton.games.reference import best_alone, by_spawns, reference
from baton.games.solve import Solution, solve
from baton.learn.options import Asked, option_chances
from baton.learn.policy import Policy
from baton.learn.recipe import Recipe
from baton.learn.rollouts import Lockstep
from baton.learn.stage import Episode, Stage, failures
from baton.measure.figure import mean
from baton.measure.measured import MeasuredTrace
from baton.measure.metric import find_metric
from baton.team.budget import charging_of
from baton.team.clock import uniform
from baton.team.protocol import Answer, Engine, EngineError, Entry, Request
from baton.trace.records import Ints
from baton.trace.trace import Trace

_REFERENCES = {"optimum": "optimal", "random": "random", "greedy": "greedy"}


def held_out(recipe: Recipe, name: str, step: int, *, tries: int = 1, first: int = 0) -> list[Episode]:
    """The same instances and draws for everyone who is measured, apart from all that is trained on. Of several tries
    at each, those from the `first` on."""
    seed = recipe.train.seed
    return [
        Episode(
            name=f"{name}-{n}" + (f"/{k}" if tries > 1 else ""),
            instance=seed * 1_000_003 + n,
            seed=7_919 * (n + 1) + 104_729 * k + seed,
            split=recipe.eval.split,
            step=step,
        )
        for n in range(recipe.eval.episodes)
        for k in range(first, tries)
    ]


@lru_cache(8)
def optimum_of(game: Game) -> Solution | None:
    """The solution, where the game is small enough to have one."""
    try:
        return solve(game)
    except UsageError:
        return None


def ledger_of(game: Game | None, trace: Trace) -> GameRegret | None:
    """A trace's regret by decision; None where there is no solver."""
    solution = None if game is None else optimum_of(game)
    return None if solution is None else regret_of_trace(trace, lambda _: solution)


def regrets(game: Game | None, traces: Sequence[Trace]) -> dict[str, float] | None:
    """Mean regret, in all, by decision and of invalid answers; None where there is no solver."""
    found = [ledger for trace in traces if (ledger := ledger_of(game, trace)) is not None]
    if not found:
        return None
    parts: dict[str, float] = {
        choice: math.fsum(ledger.parts[choice] for ledger in found) / len(found) for choice in CHOICES
    }
    parts["invalid"] = math.fsum(ledger.invalid for ledger in found) / len(found)
    return {"total": math.fsum(parts.values()), **parts}


def mean_tokens(traces: Sequence[Trace]) -> float:
    return sum(trace.costs.get("tokens", 0.0) for trace in traces) / len(traces)


def tries_for(tokens: float, per_try: float, most: int) -> int:
    """How many tries come nearest to these tokens."""
    return max(1, min(most, round(tokens / per_try))) if per_try > 0 else 1


def summary(
    game: Game | None, who: str, step: int, traces: Sequence[Trace], returns: Sequence[float]
) -> dict[str, Any]:
    """A line of evals."""
    half = 1.96 * float(np.std(returns, ddof=1)) / math.sqrt(len(returns)) if len(returns) > 1 else None
    return {
        "step": step,
        "who": who,
        "episodes": len(returns),
        "return": {"mean": float(np.mean(returns)), "half": half},
        "regret": regrets(game, traces),
        "tokens": sum(trace.costs.get("tokens", 0.0) for trace in traces) / len(returns),
        "invalid": sum(e.status == "invalid" for t in traces for e in t.events) / len(returns),
        "failed": sum(1 for t in traces for _ in failures(t)) / len(returns),
    }


def measured(names: Sequence[str], traces: Sequence[Trace]) -> dict[str, Any]:
    """The metrics that a recipe names under `[eval]`, as means over the traces that can tell; none: nothing."""
    if not names:
        return {}
    readings = [MeasuredTrace(trace) for trace in traces]
    found = {
        metric.name: mean(map(metric, readings), metric.bounds).value for metric in map(find_metric, names)
    }
    return {"metrics": found}


def references(game: Game | None) -> list[dict[str, Any]]:
    """What the solver says of the game: the optimum, the best without spawning, and random play."""
    solution = None if game is None else optimum_of(game)
    if game is None or solution is None:
        return []
    lines: list[dict[str, Any]] = []
    policies = {who: reference(name, game, solution) for who, name in _REFERENCES.items()}
    for who, policy in (policies | {"single-agent": best_alone(game)}).items():
        ledger = expected_regret(solution, policy)
        parts: dict[str, float] = {**{choice: ledger.parts[choice] for choice in CHOICES}, "invalid": 0.0}
        lines.append(
            {
                "step": 0,
                "who": who,
                "episodes": None,
                "return": {"mean": ledger.value, "half": 0.0},
                "regret": {"total": ledger.regret, **parts},
                "tokens": None,
            }
        )
    return lines


def best_of(
    stage: Stage, engines: Mapping[str, Engine], recipe: Recipe, tries: int, score: Any
) -> tuple[list[Trace], list[list[float]]]:
    """`tries` rollouts of each test instance: all traces, and the returns of each instance."""
    episodes = held_out(recipe, f"best-of-{tries}", 0, tries=tries)
    traces = asyncio.run(stage.play(engines, episodes))
    returns = [score(trace) for trace in traces]
    return traces, [returns[at : at + tries] for at in range(0, len(returns), tries)]


def best_summary(
    who: str, step: int, traces: Sequence[Trace], returns: Sequence[Sequence[float]], team_tokens: float
) -> dict[str, Any]:
    """A line of evals of the best of several tries: how many, for which tokens, and what one try is worth."""
    tries = len(returns[0])
    line = summary(None, f"{who}-{tries}", step, traces, [max(each) for each in returns])
    one = float(np.mean(returns))
    return line | {"tries": tries, "one_try": one, "team_tokens": team_tokens}


_MOST_TRIES = 64
_NEED_OTHERS = frozenset({"spawn", "delegate", "send", "wait", "cancel", "aggregate"})
_INSTRUCTIONS = "Do the task by yourself and stop with the answer."


class NotAlone(BatonError):
    """There is no single agent to compare this team with; the message says why."""


def alone_at_tokens(
    stage: Stage,
    policies: Mapping[str, Policy],
    recipe: Recipe,
    tokens: float,
    score: Callable[[Trace], float],
) -> tuple[list[Trace], list[list[float]]]:
    """All traces, and the returns of the n tries at each held-out instance."""
    policy = next(each for each in policies.values() if stage.topology.root in each.roles)
    engine: Engine
    if stage.game is None:
        stage, engine = _by_itself(stage), policy.engine
    elif policy.sampler is None:
        raise NotAlone("its weights are elsewhere, which tells no chances of options to choose among")
    else:
        engine = _Unspawning(stage.game, policy)
    engines: dict[str, Engine] = {stage.topology.root: Lockstep(engine, policy=policy.name)}
    traces = asyncio.run(stage.play(engines, held_out(recipe, "alone", 0)))
    if isinstance(engine, _Unspawning) and not engine.num_barred:
        raise NotAlone("nobody is spawned by choice in this game, so it is played alike without")
    tries = tries_for(tokens, mean_tokens(traces), _MOST_TRIES)
    returns = [[score(trace)] for trace in traces]
    if tries > 1:
        more = asyncio.run(stage.play(engines, held_out(recipe, "alone", 0, first=1, tries=tries)))
        for number, trace in enumerate(more):
            returns[number // (tries - 1)].append(score(trace))
        traces += more
    return traces, returns


def _by_itself(stage: Stage) -> Stage:
    """The same task, and the root alone."""
    if (given := stage.alone()) is not None:
        return given
    topology = stage.topology
    root = next(role for role in topology.roles if role.name == topology.root)
    if topology.root in topology.programs:
        raise NotAlone(f"in a {topology.name} team a program spawns the others, not a policy")
    if not root.spawns:
        raise NotAlone("the team is a single agent already")
    tools = tuple(dict.fromkeys(tool for role in topology.roles for tool in role.tools))
    own = tuple(verb for verb in root.verbs if verb not in _NEED_OTHERS and verb != "call")
    verbs = ("call", *own) if tools else own
    root = structs.replace(root, verbs=verbs, spawns=(), tools=tools, instructions=_INSTRUCTIONS)
    return structs.replace(stage, topology=structs.replace(topology, roles=(root,)))


class _Unspawning:
    """A game's policy, drawn from by its chances of the options that add the fewest agents."""

    def __init__(self, game: Game, policy: Policy) -> None:
        self.name = policy.engine.name
        self.charging = charging_of(policy.engine)
        self.num_barred = 0
        """Choices at which an option was not allowed."""
        self._game = game
        self._policy = policy

    def encode(self, entries: Sequence[Entry], after: Answer | None) -> Ints | None:
        return self._policy.engine.encode(entries, after)

    async def answer(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
        asked = [self._asked(request) for request in requests]
        policy = self._policy
        known = option_chances(policy.current, policy.tokenizer, list(dict.fromkeys(asked)))
        return [
            self._drawn(request, each.options, known[each])
            for request, each in zip(requests, asked, strict=True)
        ]

    def _asked(self, request: Request) -> Asked:
        assert request.options is not None
        assert request.state is not None
        state = read_state(request.state)
        fewest = by_spawns(self._game, state, 0)
        named = zip(request.options, self._game.options(state), strict=True)
        allowed = tuple(shown for shown, option in named if option in fewest)
        self.num_barred += len(allowed) < len(request.options)
        prompt = np.asarray(request.prompt_ids, np.int32).tobytes()
        return Asked(self.name, prompt, allowed, request.sampling.temperature)

    def _drawn(self, request: Request, allowed: Sequence[str], chances: Sequence[float]) -> Answer:
        assert request.options is not None
        bounds = np.cumsum(chances)
        at = int(np.searchsorted(bounds, uniform(request.sampling.key or "") * bounds[-1], side="right"))
        text = allowed[min(at, len(allowed) - 1)]
        tokenizer: Any = self._policy.tokenizer
        said = [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
        return Answer(
            text=text,
            policy=self.name,
            policy_version=str(self._policy.version),
            completion_ids=Ints(said),
            choice=request.options.index(text),
        )
