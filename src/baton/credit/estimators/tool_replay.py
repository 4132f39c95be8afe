"""Credit of a tool call by causal replay: what it brought over what its agent might have done instead.

    TE(c) = E[R | do(c)] - E_{c' ~ pi(.|h)}[R | do(c')]      at the frozen prefix h

As `message_replay` does for messages. It is what a call is worth: one that changed nothing earns nothing however well
it was formed, so it cannot be earned by calling more (the survey's P6), and what calls cost is in the return.
Sources: as of `baton.credit.estimators.message_replay`; of tool calls [I].
"""

from __future__ import annotations

from baton.credit.estimator import CreditError, Credits, Group, RewardOf, estimator
from baton.credit.estimators.message_replay import ListedCredit, ReplaySettings, replayed_credits
from baton.settings import Chance, Count, Positive
from baton.team.forks import Forks
from baton.trace.outcome import team_return
from baton.trace.records import Event
from baton.trace.trace import Trace

CALLS = ListedCredit("tool-replay", "tool_call")


def tool_calls(trace: Trace) -> list[Event]:
    """The first tool call of each completion that called tools: what it said together was one draw."""
    found: dict[str, Event] = {}
    for event in trace.events:
        if event.type == "tool_call" and event.status in ("ok", "failed") and event.call is not None:
            found.setdefault(event.call, event)
    return list(found.values())


@estimator(
    "tool-replay",
    "tool_call",
    needs=("runtime",),
    source="total effect at a frozen prefix, of completions that call tools",
    evidence="I",
    spend=20.0,
)
async def tool_replay(
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
    """TE(c) = E[R | do(c)] - E_{c' ~ pi(.|h)}[R | do(c')] for every completion that calls tools, h its frozen prefix.

    K alternatives x M continuations under common random numbers, as in message-replay; where one completion calls
    several tools, its first call carries the credit of all. Tools that would run again must be pure. `spend` bounds the
    forks of a trace.
    Standard error: luck of the continuations and draw of the alternatives; None with one alternative, where the draws
    all came out alike, or where the call was not replayed.
    Source: substitution at a frozen context, C3, arXiv 2603.06859 [C]; of tool calls [I].
    """
    if not any(tool_calls(trace) for trace in group):
        raise CreditError(
            f"none of these {len(group)} traces has a tool call that a policy said, so there is nothing to replay. For "
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
        await replayed_credits(CALLS, runner, trace, tool_calls(trace), settings, reward) for trace in group
    ]
