"""Costs: what a run did that is not to be traded for reward, as charges on its trace.

    violations      consequential tool calls that untrusted words chose, or reached where they must not
    tainted-calls   consequential tool calls that untrusted words may have touched at all
    refusals        what a guard refused: attempts, which a policy under a guard should unlearn as well
    spending        what the run took, of one kind: tokens, calls, tool_calls, messages, agents, seconds, usd
    game            what a constrained game says its steps cost (`baton.games.constrained`)

Invariant: a pure function of the trace. A cost is a record of its own; no reward, return or credit has it in it. What
a trace does not say is an error with what is missing, never zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from msgspec import Struct

from baton import registry
from baton.errors import TraceError, UsageError
from baton.games.constrained import ConstrainedGame
from baton.games.game_trace import played
from baton.games.on_team import steps_of
from baton.measure.safety.taint import taint
from baton.settings import decode
from baton.trace.graph.lineage import NO_EFFECT
from baton.trace.provenance import Labels
from baton.trace.records import Charge
from baton.trace.trace import Trace

CountCost = Callable[[Trace], list[Charge]]
"""A trace -> what it is charged with."""


class CostChannel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cost as its settings, which counts. Another package's is one too, or a function from a trace to its charges."""

    def count(self, trace: Trace) -> list[Charge]:
        """What a trace is charged with; TraceError where it does not say."""
        raise NotImplementedError


class _TaintCost(CostChannel, frozen=True, kw_only=True):
    """What the trace itself does not say about tools."""

    untrusted: tuple[str, ...] = ()
    """Tools whose results are strangers' words."""
    consequential: tuple[str, ...] = ()
    """Tools that act on the world."""
    trusted_arguments: dict[str, tuple[str, ...]] = {}
    """Tool -> arguments that must be trusted."""

    @property
    def labels(self) -> Labels:
        return Labels(
            untrusted=frozenset(self.untrusted),
            consequential=frozenset(self.consequential),
            trusted_arguments=self.trusted_arguments,
        )


class ViolationCost(_TaintCost, frozen=True, kw_only=True):
    """Consequential calls that untrusted words chose, or reached where they must not."""

    def count(self, trace: Trace) -> list[Charge]:
        return [_on_call("violations", event) for event in taint(trace, self.labels).violations]


class TaintedCallCost(_TaintCost, frozen=True, kw_only=True):
    """Consequential calls that untrusted words may have touched at all."""

    def count(self, trace: Trace) -> list[Charge]:
        found = taint(trace, self.labels)
        tainted = set(found.tainted)
        return [_on_call("tainted-calls", event) for event in found.consequential if event in tainted]


def _on_call(channel: str, event: str) -> Charge:
    return Charge(channel=channel, unit="tool_call", target=event, value=1.0, by=f"cost {channel}")


class RefusalCost(CostChannel, frozen=True, kw_only=True):
    """What a guard refused; it has no settings."""

    def count(self, trace: Trace) -> list[Charge]:
        guarded = [e for e in trace.events if e.type == "safety_event" and "guard" in e.extra]
        refused = [event for event in guarded if "refused" in event.extra]
        return [
            Charge(channel="refusals", unit="agent", target=event.agent, value=1.0, by="cost refusals")
            for event in refused
        ]


class SpendingCost(CostChannel, frozen=True, kw_only=True):
    """What is counted, and in which unit."""

    of: Literal["tokens", "calls", "tool_calls", "messages", "agents", "seconds", "usd"] = "tokens"
    unit: float = 1.0
    """What counts as 1: 1000 makes a limit of 2 mean two thousand."""

    def __post_init__(self) -> None:
        if self.unit <= 0:
            raise UsageError(f"a constraint on spending has unit = {self.unit:g}; expected more than 0.")

    def count(self, trace: Trace) -> list[Charge]:
        value = _spent(trace, self.of) / self.unit
        by = f"cost spending of {self.of}"
        return [Charge(channel="spending", unit="team", target=trace.trace_id, value=value, by=by)]


def _spent(trace: Trace, kind: str) -> float:
    if kind == "calls":
        return float(len(trace.calls))
    if kind in ("tool_calls", "messages"):
        wanted = "tool_call" if kind == "tool_calls" else "message"
        return float(sum(e.type == wanted and e.status not in NO_EFFECT for e in trace.events))
    if kind == "agents":
        return 1.0 + sum(e.type == "spawn" and e.status not in NO_EFFECT for e in trace.events)
    name = "wall_clock_s" if kind == "seconds" else kind
    if name not in trace.costs:
        raise TraceError(
            f"trace {trace.trace_id} does not say what it took in {kind}, so spending cannot be counted. "
            f"Expected costs.{name}; constrain tokens, or record it."
        )
    return trace.costs[name]


class GameCost(CostChannel, frozen=True, kw_only=True):
    """What a constrained game says itself that its steps cost; it has no settings."""

    def count(self, trace: Trace) -> list[Charge]:
        game = played(trace).game
        if not isinstance(game, ConstrainedGame):
            raise TraceError(f"{game.name} has no cost beside its reward. Type: baton game solve gatekeeper")
        return game_charges(trace, game)


def game_charges(trace: Trace, game: ConstrainedGame) -> list[Charge]:
    """What the steps of a play cost, each on its choice; choices that cost nothing have no record."""
    return [
        Charge(
            channel=game.channel,
            unit="orchestrator",
            target=trace.events[step.event].id,
            value=cost,
            by=f"game {game.name}",
        )
        for step in steps_of(trace.events)
        if (cost := game.cost(step.state, step.option, step.after))
    ]


COSTS: Final[Mapping[str, type[CostChannel] | CountCost]] = {
    "violations": ViolationCost,
    "tainted-calls": TaintedCallCost,
    "refusals": RefusalCost,
    "spending": SpendingCost,
    "game": GameCost,
}
"""Name -> a cost; its fields are its settings."""


def make_cost(name: str, settings: Mapping[str, Any], where: str) -> CountCost:
    """A cost by name: shipped, registered, of an installed package, or module:attr."""
    try:
        found: Any = registry.resolve("cost", name)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None
    if isinstance(found, type) and issubclass(found, CostChannel):
        made: CostChannel = decode(found, dict(settings), f"{where}.settings")
        return made.count
    if not callable(found) or isinstance(found, type):
        raise UsageError(
            f"{where}: cost {name!r} is a {type(found).__name__}; expected a CostChannel, or a function from a trace."
        )
    if settings:
        raise UsageError(f"{where}: cost {name!r} is a function and has no settings. Leave them out.")
    count: CountCost = found
    return count
