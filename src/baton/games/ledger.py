"""The regret ledger: V* - V_pi, split exactly over the five decisions, and what answers that are no choice cost.

Performance-difference lemma (Kakade and Langford, ICML 2002): V* - V_pi = E_pi sum_t [V*(s_t) -
Q*(s_t, a_t)], with s_t the orchestrator's information state and worker policies fixed. Every state
belongs to one decision, so grouping the sum by decision loses nothing.

An answer that cannot be carried out is no choice of any decision, and asking again would make it free. It is charged
apart, as `invalid`: each at the game's own price of an answer (`Solution.answer_price`, what a choice of random play
costs on average), and where such answers ended play, what quitting there lost in value.

Invariant: the parts sum to the total. In expectation the total is computed apart from the parts
(backward, not by occupancy), so their difference is a check and not a definition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import fsum, sqrt

from msgspec import Struct

from baton.errors import UsageError
from baton.games.game import CHOICES, Choice, Policy, State
from baton.games.play import GameEpisode, PolicyTable
from baton.games.solve import Solution, evaluate

_NORMAL_95 = 1.959963984540054


class GameRegret(Struct, frozen=True, kw_only=True):
    """Regret by decision: in expectation, or of one trace."""

    optimum: float
    value: float
    """The policy's value; for one trace, its return."""
    parts: dict[Choice, float]
    visits: dict[Choice, float]
    """How many choices of each kind were made."""
    luck: float = 0.0
    """Of one trace: what chance added. value = optimum - (regret - charge) + luck; zero in expectation."""
    invalid: float = 0.0
    """Of one trace: what answers that could not be carried out cost; the charge, and what was lost by quitting."""
    charge: float = 0.0
    """The part of `invalid` that no return shows: so many answers at the game's price of one."""
    num_invalid: int = 0

    @property
    def regret(self) -> float:
        return fsum((*self.parts.values(), self.invalid))

    @property
    def residual(self) -> float:
        """How far the parts are from adding up to what was lost in value."""
        lost = (*self.parts.values(), self.invalid, -self.charge)
        return fsum((self.optimum, -self.value, self.luck, *(-part for part in lost)))


class SampledLedger(Struct, frozen=True, kw_only=True):
    """Regret by decision, estimated from play: mean and half-width of the 95 % interval."""

    optimum: float
    episodes: int
    value: tuple[float, float]
    regret: tuple[float, float]
    parts: dict[Choice, tuple[float, float]]
    invalid: tuple[float, float]
    luck: tuple[float, float]
    """What chance added to a play: value = optimum - (regret - charge) + luck, on average."""
    visits: dict[Choice, float]


def expected_regret(solution: Solution, policy: Policy) -> GameRegret:
    """The ledger of a policy, exactly."""
    game = solution.game
    evaluation = evaluate(game, policy)
    terms: dict[Choice, list[float]] = {choice: [] for choice in CHOICES}
    visits: dict[Choice, list[float]] = {choice: [] for choice in CHOICES}
    for state, mass in evaluation.visits.items():
        if not game.options(state):
            continue
        choice = game.decision(state)
        q, best = solution.q(state), solution.values[state]
        terms[choice].append(mass * fsum(p * (best - q[option]) for option, p in policy(state).items()))
        visits[choice].append(mass)
    return GameRegret(
        optimum=solution.value,
        value=evaluation.value,
        parts={choice: fsum(parts) for choice, parts in terms.items()},
        visits={choice: fsum(parts) for choice, parts in visits.items()},
    )


def trace_regret(solution: Solution, steps: Iterable[tuple[State, str, float]]) -> GameRegret:
    """The ledger of one trace: its (state, option, reward) in order."""
    game = solution.game
    parts: dict[Choice, list[float]] = {choice: [] for choice in CHOICES}
    rewards: list[float] = []
    for state, option, reward in steps:
        q = solution.q(state)
        if option not in q:
            raise UsageError(f"{game.name}: {option!r} is no option there. Expected one of: {', '.join(q)}.")
        parts[game.decision(state)].append(solution.values[state] - q[option])
        rewards.append(reward)
    sums: dict[Choice, float] = {choice: fsum(values) for choice, values in parts.items()}
    value = fsum(rewards)
    return GameRegret(
        optimum=solution.value,
        value=value,
        parts=sums,
        visits={choice: float(len(values)) for choice, values in parts.items()},
        luck=fsum((value, -solution.value, *sums.values())),
    )


def sampled_regret(
    solution: Solution,
    policy: Policy,
    episodes: int,
    seed: int = 0,
    played: Callable[[int], None] = lambda _: None,
) -> SampledLedger:
    """The ledger of a policy from play, with intervals; `played` hears of every episode."""
    if episodes < 2:
        raise UsageError(f"{episodes} episodes give no interval; play at least 2. Type: --episodes 1000")
    table = PolicyTable(solution.game, policy)
    ledgers = []
    for index in range(episodes):
        ledgers.append(trace_regret(solution, _steps(table.play(seed, index))))
        played(index + 1)
    return summarise(ledgers)


def summarise(ledgers: Sequence[GameRegret]) -> SampledLedger:
    """Mean and interval over the traces of one policy on one game; there must be two or more."""
    episodes = len(ledgers)
    return SampledLedger(
        optimum=ledgers[0].optimum,
        episodes=episodes,
        value=_interval([ledger.value for ledger in ledgers]),
        regret=_interval([ledger.regret for ledger in ledgers]),
        parts={choice: _interval([ledger.parts[choice] for ledger in ledgers]) for choice in CHOICES},
        invalid=_interval([ledger.invalid for ledger in ledgers]),
        luck=_interval([ledger.luck for ledger in ledgers]),
        visits={choice: fsum(ledger.visits[choice] for ledger in ledgers) / episodes for choice in CHOICES},
    )


def _steps(episode: GameEpisode) -> list[tuple[State, str, float]]:
    return list(zip(episode.states, episode.options, episode.rewards, strict=True))


def _interval(values: Sequence[float]) -> tuple[float, float]:
    n = len(values)
    mean = fsum(values) / n
    variance = fsum((value - mean) ** 2 for value in values) / (n - 1)
    return mean, _NORMAL_95 * sqrt(variance / n)
