"""What stop credit asks of a run: which options end a game, and how likely they were in rollouts that were run on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from baton.learn.policies.policy import Policy, samplers
from baton.learn.propensities import with_propensities
from baton.tasks.game import Game
from baton.tasks.game_team import read_state
from baton.trace.event import Event
from baton.trace.trace import Trace

__all__ = ["stop_settings"]


def stop_settings(game: Game | None, policies: Mapping[str, Policy], max_tokens: int) -> dict[str, Any]:
    """By the name of the setting, for the estimator stop-value alone."""

    def complete(traces: Sequence[Trace]) -> list[Trace]:
        return with_propensities(traces, samplers(policies), max_tokens=max_tokens)

    found: dict[str, Any] = {"stop-value.complete": complete}
    if game is not None:
        found["stop-value.stops"] = _stops_of(game)
    return found


def _stops_of(game: Game) -> Any:
    """Options after which play is over, whatever their verb: in some games it is to wait."""

    @lru_cache(65_536)
    def ends(key: str) -> tuple[bool, ...]:
        state = read_state(key)
        return tuple(
            not any(game.options(branch.state) for branch in game.step(state, option))
            for option in game.options(state)
        )

    def stops(event: Event) -> tuple[str, ...]:
        if event.options is None or "step" not in event.extra:
            return ()
        over = ends(event.extra["step"]["state"])
        return tuple(option for option, is_over in zip(event.options, over, strict=True) if is_over)

    return stops
