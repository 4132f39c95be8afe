"""The games by name. One file each, named after the game."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from baton import registry
from baton.errors import UsageError
from baton.games.game import Game
from baton.games.library.airport import Airport
from baton.games.library.alone import Alone
from baton.games.library.assignment import AssignmentGame
from baton.games.library.batch_search import BatchSearch
from baton.games.library.best_of_n import BestOfN
from baton.games.library.correlated_estimators import CorrelatedEstimators
from baton.games.library.dag_schedule import DagSchedule
from baton.games.library.dec_tiger import DecTiger
from baton.games.library.divisible_work import DivisibleWork
from baton.games.library.enough import Enough
from baton.games.library.gatekeeper import Gatekeeper
from baton.games.library.gloves import Gloves
from baton.games.library.induced_subgraph import InducedSubgraph
from baton.games.library.length_ladder import LengthLadder
from baton.games.library.one_shot_message import OneShotMessage
from baton.games.library.pandora import Pandora
from baton.games.library.parallel_pandora import ParallelPandora
from baton.games.library.quiet import Quiet
from baton.games.library.scouts import Scouts
from baton.games.library.sequential_test import SequentialTest
from baton.games.library.signalling_chain import SignallingChain
from baton.games.library.silo import Silo
from baton.games.library.skill_bandit import SkillBandit
from baton.games.library.spawn_bandit import SpawnBandit
from baton.games.library.spawn_forest import SpawnForest
from baton.games.library.stopping_chain import StoppingChain
from baton.games.library.supervised import Supervised
from baton.games.library.usl import Usl
from baton.games.library.varied import Varied
from baton.games.library.voters import Voters
from baton.games.library.weighted_completion import WeightedCompletion
from baton.games.library.weighted_voting import WeightedVoting
from baton.settings import decode, read_value

__all__ = ["GAMES", "make_game"]

# In the order of the decisions they are about: all five, O1..O5, credit, negative controls, any of these.
GAMES: dict[str, type[Game]] = {
    game.name: game
    for game in (
        ParallelPandora,
        BestOfN, DivisibleWork, Usl, DagSchedule,
        AssignmentGame, WeightedCompletion, SkillBandit, Gatekeeper, Supervised,
        OneShotMessage, Silo, DecTiger, Scouts,
        Voters, CorrelatedEstimators,
        SequentialTest, Pandora, BatchSearch, StoppingChain,
        Airport, Gloves, WeightedVoting, InducedSubgraph, SpawnForest,
        SignallingChain, SpawnBandit, LengthLadder,
        Alone, Quiet, Enough,
        Varied,
    )
}  # fmt: skip


def make_game(name: str, settings: Mapping[str, Any] | None = None) -> Game:
    """A game by name or `module:attr`, with parameters as values or as text (JSON, or a bare word)."""
    kind: type[Game] = registry.resolve("game", name)
    if not (isinstance(kind, type) and issubclass(kind, Game)):
        raise UsageError(f"game {name!r} is no subclass of baton.games.game.Game (see examples/my_game.py).")
    given = {
        key: read_value(value) if isinstance(value, str) else value for key, value in (settings or {}).items()
    }
    return decode(kind, given, name)
