"""What a team is worth now: played on instances it was not trained on, beside what else the same tokens could buy.

    team          the policies as they are
    untrained     the weights the run started from
    best-of-n     n tries of the untrained team on the same instance, the best kept by its true score; n is such that
                  their tokens come nearest to the trained team's: an upper bound on what trying more often can do
    alone-n       the same of a single agent with the trained weights (`baton.learn.alone`)
    single-agent  of games, the best that can be done without spawning, by the solver
    optimum       of games, by the solver

On games the regret of each decision is read off the traces against the solution; it needs no luck to be exact.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from baton.errors import UsageError
from baton.learn.answered import failures
from baton.learn.recipe import Recipe
from baton.learn.stage import Episode, Stage
from baton.tasks.game import CHOICES, Game
from baton.tasks.game_trace import regret_of_trace
from baton.tasks.ledger import Ledger, expected_regret
from baton.tasks.policies import best_alone, reference
from baton.tasks.solve import Solution, solve
from baton.team.policy import Engine
from baton.trace.trace import Trace

__all__ = [
    "best_of", "best_summary", "held_out", "ledger_of", "mean_tokens", "optimum_of", "references", "regrets",
    "summary", "tries_for",
]  # fmt: skip

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


def ledger_of(game: Game | None, trace: Trace) -> Ledger | None:
    """A trace's regret by decision; None where there is no solver."""
    solution = None if game is None else optimum_of(game)
    return None if solution is None else regret_of_trace(trace, lambda _: solution)


def regrets(game: Game | None, traces: Sequence[Trace]) -> dict[str, float] | None:
    """Mean regret, in all and by decision; None where there is no solver."""
    found = [ledger for trace in traces if (ledger := ledger_of(game, trace)) is not None]
    if not found:
        return None
    parts: dict[str, float] = {
        choice: math.fsum(ledger.parts[choice] for ledger in found) / len(found) for choice in CHOICES
    }
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


def references(game: Game | None) -> list[dict[str, Any]]:
    """What the solver says of the game: the optimum, the best without spawning, and random play."""
    solution = None if game is None else optimum_of(game)
    if game is None or solution is None:
        return []
    lines: list[dict[str, Any]] = []
    policies = {who: reference(name, game, solution) for who, name in _REFERENCES.items()}
    for who, policy in (policies | {"single-agent": best_alone(game)}).items():
        ledger = expected_regret(solution, policy)
        parts: dict[str, float] = {choice: ledger.parts[choice] for choice in CHOICES}
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
