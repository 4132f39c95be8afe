"""How a trace came out: the event that ended it, the answer, and what the team earned. One reading for all.

Invariant: everything is by `seq` and by what records say, never by place in a file. What a trace cannot say is a
`TraceError` that names what is missing, never a zero.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, Final

from baton.errors import TraceError, nearest
from baton.trace.graph.lineage import NO_EFFECT, Lineage, in_seq_order
from baton.trace.records import Event, Reward
from baton.trace.trace import Trace

TASK_CHANNEL: Final = "shared"
"""Channel on which runs and recorders write the task's own score of the team."""
_DECODER = json.JSONDecoder()
_ENDS = frozenset({"orchestrator_decision", "return"})


def stops(event: Event) -> bool:
    """Whether an event ends the team's work: a stop that came about, chosen or forced.

    Where stopping was the question and going on the answer, the decision is recorded as "stop" all the same. Then the
    event says `went_on`, or its choice is another option than its stop, or it is another act (a spawn, a message).
    """
    if event.decision != "stop" or event.type not in _ENDS or event.status in NO_EFFECT:
        return False
    if event.extra.get("went_on"):
        return False
    if not event.options or event.choice is None:
        return True
    verbs = [option.partition(" ")[0] for option in event.options]
    return "stop" not in verbs or verbs[event.choice] == "stop"


def final_event(trace: Trace) -> Event | None:
    """The event that gave the team's answer: the last that stops, else the leading agent's last aggregate."""
    events = in_seq_order(trace)
    for event in reversed(events):
        if stops(event):
            return event
    root = Lineage.of(trace).root
    fused = (event for event in reversed(events) if event.type == "aggregate" and event.agent == root)
    return next(fused, None)


def answer_of(trace: Trace) -> str | None:
    """What the team answered. None: it gave no answer, or the text was withheld."""
    event = final_event(trace)
    return None if event is None else trace.text(event.content_ref)


def cut_off(trace: Trace) -> bool:
    """Whether a budget, and not the team, ended the rollout.

    Such rollouts are kept and weighted in training, never dropped silently: dropping the long ones would teach the
    team that long work does not exist.
    """
    return any(event.status == "forced" and event.decision == "stop" for event in trace.events)


def team_return(trace: Trace, *, channel: str | None = None) -> float:
    """What the team earned, as every reader of a trace understands it; on one channel, if named.

    Rewards that rules wrote (their `by` holds the rule's settings) stand in place of the task's own score wherever
    they say something of the team: a rule is computed from that score, so that adding both would count it twice. Of
    the rewards that stand, a hybrid (R8) is made of the others and stands for them; else they are added up.
    """
    found = [reward for reward in trace.rewards if reward.unit == "team"]
    if channel is not None:
        chosen = [reward for reward in found if reward.channel == channel]
        if found and not chosen:
            raise TraceError(
                f"trace {trace.trace_id} has no team reward on channel {channel!r}. "
                + nearest(channel, {reward.channel for reward in found})
            )
    else:
        chosen = [reward for reward in found if rule_settings(reward.by) is not None] or found
    if not chosen:
        raise TraceError(
            f"trace {trace.trace_id} has no reward on the team, so there is nothing to give credit for. "
            "Score it first (`baton reward`), or record one with Recorder.reward('shared', value)."
        )
    return total(chosen)


def task_return(trace: Trace) -> float:
    """What the task itself says the rollout was worth, whatever rules made of it; 0 where it says nothing."""
    own = (r.value for r in trace.rewards if r.unit == "team" and rule_settings(r.by) is None)
    return math.fsum(own)


def task_score(trace: Trace) -> tuple[float, str] | None:
    """The verdict on the team's answer and where it is from: recorded by the run, or a metric. None: neither is there.

    Records that differ are an error: only gold data can settle which is right.
    """
    verdicts = [
        r for r in trace.rewards if r.unit == "team" and r.family == "shared" and r.channel == TASK_CHANNEL
    ]
    recorded = {r.value for r in verdicts if rule_settings(r.by) is None} or {r.value for r in verdicts}
    if len(recorded) > 1:
        raise TraceError(
            f"the trace records several outcomes that differ ({sorted(recorded)}), and no verifier settles it; "
            "give gold data with `verify` or `answer`"
        )
    if recorded:
        return recorded.pop(), "recorded"
    if "task_success" in trace.metrics:
        return trace.metrics["task_success"], "metric task_success"
    return None


def total(rewards: Sequence[Reward]) -> float:
    """The sum of the rewards on one unit; a hybrid (R8) is made of the others and stands for them."""
    standing = [reward for reward in rewards if reward.family == "hybrid"] or rewards
    return math.fsum(reward.value for reward in standing)


def rule_settings(by: str | None) -> dict[str, Any] | None:
    """The settings of the rule that wrote a record, from the record's `by`; None where something else wrote it."""
    if not by or by[0] != "{":  # the settings are an object
        return None
    try:
        settings, _ = _DECODER.raw_decode(by)
    except ValueError:
        return None
    return settings if isinstance(settings, dict) and "rule" in settings else None


def plain(text: str) -> str:
    """Text with case, runs of space and closing punctuation taken off: what two equal answers share."""
    return " ".join(text.casefold().split()).rstrip(" .!?,;:")


def is_estimated(trace: Trace, event: Event) -> bool:
    """Whether the tokens of an event are an estimate: nobody counted the call that they were spent on."""
    if event.call is not None:
        call = trace.call_by_id.get(event.call)
        return call is not None and call.estimated
    return bool(event.tokens) and (event.to if event.type == "despawn" else event.agent) in _dropped(trace)


def estimated_tokens(trace: Trace) -> int:
    """How many of a trace's tokens are estimates."""
    if not any(call.estimated for call in trace.calls):
        return 0
    return sum(event.tokens for event in trace.events if event.tokens and is_estimated(trace, event))


def lost_tokens(trace: Trace) -> int:
    """What the run's ledger was charged for calls that were on their way when it was cut off; no event has them."""
    charged = (event.extra.get("charged") for event in trace.events if "resumed" in event.extra)
    return sum(each for each in charged if isinstance(each, int))


def _dropped(trace: Trace) -> frozenset[str]:
    """Agents that lost a call on its way, whose cost is an estimate; what follows for them is charged with it."""
    found: frozenset[str] | None = vars(trace).get("dropped")
    if found is None:  # kept where a trace keeps its other indexes
        lost = (call.agent for call in trace.calls if call.finish_reason == "cancelled" and call.estimated)
        found = vars(trace)["dropped"] = frozenset(lost)
    return found
