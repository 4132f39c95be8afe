"""The play of a game read off a trace, and its regret ledger: no engine, no team, no luck to draw again.

A play that was cut off (its orchestrator gave up, or a budget ran out) counts as quit there: the game's
own `quit` from then on, at what that is worth on average. So every finished trace has a return and a
ledger, regret is never negative, and the parts still add up. What the quit lost stands with the decision that was to
be made there; where invalid answers ended play, with them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import fsum

import msgspec
from msgspec import Struct, structs

from baton import registry
from baton.errors import TraceError
from baton.games.game import Game, State
from baton.games.ledger import GameRegret, trace_regret
from baton.games.library import make_game
from baton.games.on_team import begin, steps_of
from baton.games.solve import Solution, solve
from baton.trace.acts import chosen
from baton.trace.records import Event
from baton.trace.trace import Trace, meta_table

PREFIX = "game:"


class Played(Struct, frozen=True, kw_only=True):
    """What a trace says was played."""

    game: Game
    steps: list[tuple[State, str, float]]
    """State, option, reward; in order."""
    end: State
    """Where it ended, or was cut off."""

    @property
    def cut_off(self) -> bool:
        return bool(self.game.options(self.end))

    @property
    def quit_value(self) -> float:
        """What quitting at the end is worth; zero where play is over."""
        return self.game.quit_value(self.end) if self.cut_off else 0.0

    @property
    def value(self) -> float:
        """The return."""
        return fsum((*(reward for _, _, reward in self.steps), self.quit_value))


def played(trace: Trace, game: Game | None = None, *, trust: bool = False) -> Played:
    """The play a trace holds; `game` where it is at hand. With `trust`, a game that is module:attr is imported."""
    spec = meta_table(trace.header, "run", "task")
    if not str(spec.get("task", "")).startswith(PREFIX):
        raise TraceError(
            f"trace {trace.trace_id} is of task {trace.header.task_id!r}, which is no game. "
            "Type: baton game play NAME --team --out DIR, for traces of one."
        )
    try:
        if game is None:
            if not trust:
                registry.check_trusted(
                    "game", [str(spec["task"]).removeprefix(PREFIX)], f"trace {trace.trace_id!r}"
                )
            game = _game(spec["task"].removeprefix(PREFIX), msgspec.json.encode(spec["settings"]))
        told = steps_of(trace.events)
        steps = [(step.state, step.option, step.reward) for step in told]
        end = told[-1].after if told else begin(game, spec["stream"])
    except (KeyError, TypeError, AttributeError, msgspec.MsgspecError) as error:
        raise TraceError(
            f"trace {trace.trace_id}: what it says of its game cannot be read: {type(error).__name__}: {error}. It was "
            "changed after it was recorded; play it again."
        ) from None
    return Played(game=game, steps=steps, end=end)


@lru_cache(64)
def _game(name: str, settings: bytes) -> Game:
    """Kept, because some games work out their chances once and for all."""
    return make_game(name, msgspec.json.decode(settings))


def regret_of_trace(
    trace: Trace, solution_of: Callable[[Game], Solution] = solve, *, trust: bool = False
) -> GameRegret:
    """The regret ledger of one saved trace. `solution_of` may remember solutions over many traces."""
    if not trace.finished:
        raise TraceError(f"trace {trace.trace_id} is not finished. Type: baton resume DIR")
    play = played(trace, trust=trust)
    solution = solution_of(play.game)
    ledger = trace_regret(solution, play.steps)
    num_invalid = sum(map(is_invalid, trace.events))
    charge = num_invalid * solution.answer_price if num_invalid else 0.0
    ledger = structs.replace(ledger, invalid=charge, charge=charge, num_invalid=num_invalid)
    if not play.cut_off:
        return ledger
    worth = play.quit_value
    lost = solution.values[play.end] - worth
    ledger = structs.replace(ledger, value=ledger.value + worth, luck=ledger.luck + solution.values[play.end])
    if _ended_by_invalid(trace):
        return structs.replace(ledger, invalid=charge + lost)
    choice = play.game.decision(play.end)
    return structs.replace(
        ledger,
        parts=ledger.parts | {choice: ledger.parts[choice] + lost},
        visits=ledger.visits | {choice: ledger.visits[choice] + 1},
    )


def is_invalid(event: Event) -> bool:
    """Whether an event is something that a policy said and that could not be carried out."""
    return event.status == "invalid" and chosen(event)


def _ended_by_invalid(trace: Trace) -> bool:
    """Whether the leading agent was stopped for its invalid answers, and not by a budget."""
    before: dict[str, Event] = {}
    for event in trace.events:
        if event.status == "forced" and event.decision == "stop" and event.agent in before:
            return is_invalid(before[event.agent])
        before[event.agent] = event
    return False
