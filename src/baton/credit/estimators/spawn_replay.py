"""Credit of a spawn by causal replay: what it brought over what its agent might have said instead.

    TE(s) = E[R | do(s)] - E_{s' ~ pi(.|h)}[R | do(s')]      at the frozen prefix h

As `message_replay` does for messages. It needs no options and no propensities, which the calls of outside programs do
not have; the alternatives are other completions of the same policy, some of which spawn as well.
Sources: as of `baton.credit.estimators.message_replay`; of spawns [I].
"""

from __future__ import annotations

from baton.credit.estimator import CreditError, Credits, Group, RewardOf, estimator
from baton.credit.estimators.message_replay import ListedCredit, ReplaySettings, replayed_credits
from baton.settings import Chance, Count, Positive
from baton.team.forks import Forks
from baton.trace.outcome import team_return
from baton.trace.records import Event
from baton.trace.trace import Trace

SPAWNS = ListedCredit("spawn-replay", "orchestrator")


def spawning(trace: Trace) -> list[Event]:
    """The first spawn of each completion that spawned somebody: what it said together was one draw."""
    found: dict[str, Event] = {}
    for event in trace.events:
        if event.type == "spawn" and event.status == "ok" and event.call is not None:
            found.setdefault(event.call, event)
    return list(found.values())


@estimator(
    "spawn-replay",
    "orchestrator",
    needs=("runtime",),
    decisions=("spawn",),
    source="total effect at a frozen prefix, of completions that spawn",
    evidence="I",
    spend=20.0,
)
async def spawn_replay(
    group: Group,
    *,
    runner: Forks,
    reward: RewardOf = team_return,
    num_alternatives: Count = 4,
    num_continuations: Count = 1,
    replay_probability: Chance = 1.0,
    spend: Positive | None = None,
    seed: int = 0,
) -> Credits:
    """TE(s) = E[R | do(s)] - E_{s' ~ pi(.|h)}[R | do(s')] for every completion that spawns, at its frozen prefix h.

    K alternatives x M continuations under common random numbers, as in message-replay; where one completion spawns
    several, its first spawn carries the credit of all. `spend` bounds the forks of a trace.
    Standard error: luck of the continuations and draw of the alternatives; None with one alternative, where the draws
    all came out alike, or where the spawn was not replayed.
    Source: substitution at a frozen context, C3, arXiv 2603.06859 [C]; of spawns [I].
    """
    if not any(spawning(trace) for trace in group):
        raise CreditError(
            f"none of these {len(group)} traces has a spawn that a policy said, so there is nothing to replay. For "
            "what agents told each other: message-replay."
        )
    settings = ReplaySettings(
        num_alternatives=num_alternatives,
        num_continuations=num_continuations,
        replay_probability=replay_probability,
        spend=spend,
        seed=seed,
    )
    return [
        await replayed_credits(SPAWNS, runner, trace, spawning(trace), settings, reward) for trace in group
    ]
