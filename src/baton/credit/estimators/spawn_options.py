"""What could have been chosen at a decision to spawn: the options, their chances, and which was taken.

The credit of an option is A(o) = Q(o) - sum pi(o') Q(o'), a sum over all options with weights that add up to zero: one
for the option taken, less each option's chance. Where like decisions had different options (drafts that differ from
rollout to rollout), they can only be compared by kind: a spawn, or none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from msgspec import Struct

from baton.credit.estimator import CreditError, Group
from baton.credit.estimators.stop_value import action_of
from baton.team.action import Spawn
from baton.trace.records import Event
from baton.trace.trace import Trace

SPAWN, NONE = "spawn", "no spawn"
"""The two kinds of options, and their names where a trace records no others."""
BY_OPTION = "each option is credited for itself, Q(o) - sum pi(o') Q(o')"
BY_KIND = "a spawn or none: like decisions had other options, so those of one kind share their credit"


class Choice(Struct, frozen=True, kw_only=True):
    """One decision."""

    event: Event
    chances: Mapping[str, float]
    """Option -> its recorded chance, after masks; they add up to one. Options without a chance are left out."""
    taken: str

    @property
    def spawned(self) -> bool:
        return self.event.type == "spawn"

    def contrast(self) -> dict[str, float]:
        """The weight of each option's value in the credit of the one taken; they add up to zero."""
        return {option: (option == self.taken) - chance for option, chance in self.chances.items()}

    def by_kind(self) -> Choice:
        """The same decision as one between a spawn and none."""
        p = math.fsum(chance for option, chance in self.chances.items() if spawns(option))
        taken = SPAWN if self.spawned else NONE
        return Choice(event=self.event, chances={SPAWN: p, NONE: 1 - p}, taken=taken)


def spawns(option: str) -> bool:
    """Whether an option is one to spawn."""
    action = action_of(option)
    if action is None:  # a log from elsewhere may name its options by their verbs alone
        return option.split(maxsplit=1)[:1] == ["spawn"]
    return isinstance(action, Spawn)


def decisions_of(trace: Trace) -> list[Event]:
    """Events at which a policy chose whether to spawn: spawns, and choices among options with a spawn."""
    return [
        event
        for event in trace.events
        if event.call is not None
        and event.status == "ok"
        and (event.type == "spawn" or any(map(spawns, event.options or ())))
    ]


def check_decided(group: Group) -> None:
    """Raises where nobody in a group had a choice to spawn."""
    if not any(decisions_of(trace) for trace in group):
        raise CreditError(
            f"in none of these {len(group)} traces did a policy choose whether to spawn, so there is no such credit. A "
            "choice is a spawn, or an event with a spawn among its `options`."
        )


def choice_of(event: Event) -> Choice:
    """The options of a decision. Without any on record, a spawn had the other one not to happen."""
    if event.options is not None and event.option_propensities is not None and event.choice is not None:
        found: dict[str, float] = {}
        for option, p in zip(event.options, event.option_propensities, strict=True):
            found[option] = found.get(option, 0.0) + p
        total, taken = math.fsum(found.values()), event.options[event.choice]
        chances = {option: p / total for option, p in found.items() if p > 0 or option == taken}
        return Choice(event=event, chances=chances, taken=taken)
    p = propensity_of(event)
    return Choice(
        event=event, chances={SPAWN: p, NONE: 1 - p}, taken=SPAWN if event.type == "spawn" else NONE
    )


def propensity_of(event: Event) -> float:
    """The recorded chance of a spawn at a decision, over all options that spawn."""
    if event.options is not None and event.option_propensities is not None:
        chances = zip(event.options, event.option_propensities, strict=True)
        return math.fsum(p for option, p in chances if spawns(option))
    if event.type == "spawn" and event.propensity is not None:
        return event.propensity
    raise CreditError(
        f"event {event.id} has no propensity, so the chance of the branch not taken is not known. Record runs with "
        "an engine that gives log-probs, or with option_propensities."
    )


def alike(choices: Iterable[Choice]) -> bool:
    """Whether decisions had the same options."""
    return len({frozenset(choice.chances) for choice in choices}) <= 1
