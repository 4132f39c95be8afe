"""What rules read of a trace: the outcome, who said what last, who judged it, what reached the answer.

Invariant: everything is by `seq` and by edges, never by place in a file. Text that was withheld is a
`TraceError`, never an empty text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from baton.errors import TraceError
from baton.trace.acts import agents, ancestors_of, said_in
from baton.trace.gold import Gold, verifier
from baton.trace.graph.arrays import Graph
from baton.trace.graph.lineage import NO_EFFECT, Lineage, in_seq_order
from baton.trace.outcome import final_event, task_score
from baton.trace.records import Event
from baton.trace.trace import Trace

VERDICT = "verdict"

_ACCEPT = frozenset({"accept", "accepted", "approve", "approved", "correct", "right", "valid", "yes", "true"})
_REJECT = frozenset({"reject", "rejected", "revise", "incorrect", "wrong", "invalid", "no", "not", "false"})


def outcome(trace: Trace, gold: Gold | None) -> tuple[float, str]:
    """The team's score and where it is from: verified now, recorded by the run, or a metric."""
    if gold is not None and gold.can_verify:
        return _verified(trace, gold)
    found = task_score(trace)
    if found is None:
        raise TraceError(
            f"trace {trace.trace_id} does not say how it came out: no gold data with `verify` or `answer`, no team "
            "reward of family 'shared', no metric 'task_success'."
        )
    return found


def _verified(trace: Trace, gold: Gold) -> tuple[float, str]:
    event = answered(trace)
    if event is None or event.content_ref is None:
        return 0.0, "no answer"
    return float(verifier(gold, "the outcome")(said_in(trace, event))), "verified"


def answered(trace: Trace) -> Event | None:
    """The event with the team's answer. None: a finished team gave none; one that goes on is an error."""
    event = final_event(trace)
    if event is None and not trace.finished:
        raise TraceError(f"trace {trace.trace_id} is unfinished and has no answer yet. Type: baton resume")
    return event


def agents_in(trace: Trace, lineage: Lineage, roles: Collection[str], what: str) -> list[str]:
    """Agents of these roles, or an error with the roles there are."""
    every = agents(trace, lineage)
    found = [agent for agent, role in every.items() if role in roles]
    if not found:
        known = sorted({role for role in every.values() if role is not None})
        raise TraceError(
            f"trace {trace.trace_id}: {what} needs an agent with the role {' or '.join(map(repr, roles))}; "
            f"the roles here are: {', '.join(known) or 'none recorded'}."
        )
    return found


def call_of(trace: Trace, event: Event) -> str:
    """The turn an event belongs to: the call that said it, else the agent's latest call before it."""
    if event.type == "tool_result":  # some systems name the tool as who acts
        asked = (edge.src for edge in trace.edges if edge.dst == event.id and edge.type == "tool_dependency")
        event = trace.event(next(asked, event.id))
    for earlier in reversed(in_seq_order(trace)):
        if earlier.seq <= event.seq and earlier.agent == event.agent and earlier.call is not None:
            return earlier.call
    raise TraceError(
        f"trace {trace.trace_id}: no call of {event.agent!r} is recorded up to {event.id}, so there is no turn to "
        "reward. Use unit = 'agent'."
    )


def verdicts(trace: Trace, gold: Gold | None, event: Event, what: str) -> dict[str, float]:
    """Judge -> its score of what was said in an event: asked now, else as recorded."""
    if gold is not None and gold.judges:
        return {name: float(judge(trace, event.id)) for name, judge in sorted(gold.judges.items())}
    aimed = {event.id, event.agent}
    recorded = [
        reward for reward in trace.rewards
        if reward.channel == VERDICT and reward.target in aimed
        and reward.unit in ("message", "orchestrator", "agent")
    ]  # fmt: skip
    if not recorded:
        raise TraceError(
            f"trace {trace.trace_id}: {what} needs a judge of {event.id} ({event.agent}): give gold data with "
            f"`judges`, or record rewards named {VERDICT!r} on it."
        )
    order = sorted(recorded, key=lambda reward: (reward.by or "", reward.unit, reward.target, reward.value))
    found: dict[str, float] = {}
    for n, reward in enumerate(order, 1):
        judge = (reward.by or "judge").partition(" # ")[0]  # after it, the judge's own words
        found[f"{judge} {n}" if judge in found else judge] = reward.value
    return found


def verdict(text: str) -> bool | None:
    """Whether a verifier's words accept; the first word that says so decides. None: none does."""
    for word in re.findall(r"[a-z]+", text.casefold()):
        if word in _ACCEPT:
            return True
        if word in _REJECT:
            return False
    return None


def judged(trace: Trace, graph: Graph, event: Event, by: Collection[str]) -> Event | None:
    """What a verdict was about: the latest thing that agents `by` said among what the verdict depends on."""
    before = ancestors_of(trace, graph, event) - {event.id}
    said_by: Sequence[Event] = [
        other for other in in_seq_order(trace)
        if other.id in before and other.agent in by and other.type in ("message", "return")
        and other.status not in NO_EFFECT and other.decision != "delegate"
    ]  # fmt: skip
    return said_by[-1] if said_by else None
