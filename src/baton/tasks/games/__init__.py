"""The games by name. One file each, named after the game."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any

import msgspec

from baton.errors import UsageError, nearest
from baton.tasks.game import Game
from baton.tasks.games.airport import Airport
from baton.tasks.games.alone import Alone
from baton.tasks.games.assignment import Assignment
from baton.tasks.games.batch_search import BatchSearch
from baton.tasks.games.best_of_n import BestOfN
from baton.tasks.games.correlated_estimators import CorrelatedEstimators
from baton.tasks.games.dag_schedule import DagSchedule
from baton.tasks.games.dec_tiger import DecTiger
from baton.tasks.games.divisible_work import DivisibleWork
from baton.tasks.games.enough import Enough
from baton.tasks.games.gloves import Gloves
from baton.tasks.games.induced_subgraph import InducedSubgraph
from baton.tasks.games.length_ladder import LengthLadder
from baton.tasks.games.one_shot_message import OneShotMessage
from baton.tasks.games.pandora import Pandora
from baton.tasks.games.parallel_pandora import ParallelPandora
from baton.tasks.games.quiet import Quiet
from baton.tasks.games.scouts import Scouts
from baton.tasks.games.sequential_test import SequentialTest
from baton.tasks.games.signalling_chain import SignallingChain
from baton.tasks.games.silo import Silo
from baton.tasks.games.skill_bandit import SkillBandit
from baton.tasks.games.spawn_bandit import SpawnBandit
from baton.tasks.games.spawn_forest import SpawnForest
from baton.tasks.games.stopping_chain import StoppingChain
from baton.tasks.games.usl import Usl
from baton.tasks.games.voters import Voters
from baton.tasks.games.weighted_completion import WeightedCompletion
from baton.tasks.games.weighted_voting import WeightedVoting

__all__ = ["GAMES", "make_game"]

# In the order of the decisions they are about: all five, O1..O5, credit, negative controls.
GAMES: dict[str, type[Game]] = {
    game.name: game
    for game in (
        ParallelPandora,
        BestOfN, DivisibleWork, Usl, DagSchedule,
        Assignment, WeightedCompletion, SkillBandit,
        OneShotMessage, Silo, DecTiger, Scouts,
        Voters, CorrelatedEstimators,
        SequentialTest, Pandora, BatchSearch, StoppingChain,
        Airport, Gloves, WeightedVoting, InducedSubgraph, SpawnForest,
        SignallingChain, SpawnBandit, LengthLadder,
        Alone, Quiet, Enough,
    )
}  # fmt: skip


def make_game(name: str, settings: Mapping[str, Any] | None = None) -> Game:
    """A game by name, with parameters as values or as text (JSON, or a bare word)."""
    if name not in GAMES:
        raise UsageError(f"there is no game {name!r}. {nearest(name, GAMES)}")
    kind = GAMES[name]
    known = [field.name for field in msgspec.structs.fields(kind)]
    given = {}
    for key, value in (settings or {}).items():
        if key not in known:
            raise UsageError(f"{name} has no parameter {key!r}. {nearest(key, known)}")
        given[key] = _value(value) if isinstance(value, str) else value
        if not _is_finite(given[key]):
            raise UsageError(f"{name}: {key} = {value} is not possible; numbers must be finite.")
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{name}: {error}. Type: baton game list, for the parameters and their defaults."
        ) from None


def _is_finite(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or isfinite(value)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
