"""A table critic for each role: a choice is judged by what the chooser's own role earned.

Where one role wins what another loses there is no return of a team to learn from. Each role's counts are of what its
own agents were rewarded with. Values are means of all that was earned from a choice on (`backup = "return"`): what
others chose at the same moment is not in what a player is shown, so no table can go from one player's choice to the
next one's. As the others' play changes, old counts mislead, and `critic.fade` lets them fade. Small soft steps towards
such values (`train.options = "all"` with `forget`) are mirror descent towards uniform play, which comes to rest in
two-player zero-sum games, near the equilibrium; best replies to the latest play chase each other.

Source: magnetic mirror descent, Sokota et al., ICLR 2023 [A].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from baton.credit.estimator import Prefix
from baton.errors import TraceError, UsageError
from baton.learn.critics.table import TableCritic
from baton.learn.recipe import Recipe
from baton.trace.acts import agents
from baton.trace.trace import Trace


class SeatsCritic:
    """One `TableCritic` for each role that a policy answers for."""

    def __init__(self, recipe: Recipe, policies: Mapping[str, Any]) -> None:
        if recipe.critic is None or recipe.critic.backup != "return":
            raise UsageError(
                'critic.returns = "seat" counts what was earned from a choice on. Write backup = "return" there.'
            )
        roles = [role for policy in policies.values() for role in policy.roles]
        self._seats = {role: TableCritic.from_recipe(recipe, policies, _own(role)) for role in roles}

    def observe(self, traces: Iterable[Trace]) -> None:
        traces = list(traces)
        for critic in self._seats.values():
            critic.observe(traces)

    def value(self, prefix: Prefix) -> float:
        return self._of(prefix).value(prefix)

    def q(self, prefix: Prefix, option: str) -> float:
        return self._of(prefix).q(prefix, option)

    def _of(self, prefix: Prefix) -> TableCritic:
        """The critic of whoever chooses next; at the end, of whoever did last."""
        events = prefix.trace.events
        event = events[min(prefix.num_events, len(events) - 1)]
        call = prefix.trace.call_by_id.get(event.call or "")
        role = call.role if call is not None else event.role
        if role not in self._seats:
            raise TraceError(f"trace {prefix.trace.trace_id}: {event.id} is no choice of a policy's role.")
        return self._seats[role]

    def given(self) -> dict[str, Any]:
        return {"value": self.value, "q": self.q}

    def state_dict(self) -> dict[str, Any]:
        return {role: critic.state_dict() for role, critic in self._seats.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for role, critic in self._seats.items():
            critic.load_state_dict(state[role])


def _own(role: str) -> Callable[[Trace], float]:
    """What the agents of a role were rewarded with themselves."""

    def earned(trace: Trace) -> float:
        mine = {agent for agent, its in agents(trace).items() if its == role}
        return sum(r.value for r in trace.rewards if r.unit == "agent" and r.target in mine)

    return earned
