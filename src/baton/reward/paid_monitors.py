"""Monitors of what was paid: reward records set beside what the trace shows and how it came out.

    step_padding      R4: process reward that went to turns which say nothing new or reach nothing
    scorer_gaming     R4: traces that fail are paid more by the process rewards than traces that succeed
    rubric_mismatch   R3: a role is paid more where the team fails
    drowned_term      R8: one term of a hybrid moves the sum nearly alone
    weight_drift      R8: weights that balance themselves have moved far from where they stood

They look at records that rules have written, so they say nothing of traces without any. Forms are ours [I]; the risks
are those of the survey's table of reward families.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct, structs

from baton.errors import BatonError, TraceError
from baton.reward.hybrid import Hybrid
from baton.reward.reading import VERDICT, outcome
from baton.reward.reward_recipe import rule_of
from baton.trace.acts import agents, turns, used
from baton.trace.gold import Gold
from baton.trace.outcome import final_event, plain, rule_settings
from baton.trace.records import Reward
from baton.trace.trace import Trace

Golds = Mapping[str, Gold] | None
ENOUGH: Final = 3
"""Traces that succeeded, and that failed, before the two are compared."""


class Seen(Struct, frozen=True, kw_only=True):
    """What one of these monitors saw: a score from 0 to 1 or None, its evidence, and it in words."""

    score: float | None
    events: tuple[str, ...]
    message: str


def step_padding(traces: Sequence[Trace]) -> Seen:
    """Of what turns were paid for the process, the share that went to turns of padding.

    A turn is padding when all its words are ones that its agent has said before, or when nothing that it did reached
    the answer. Only what was paid counts: turns that cost nothing and earn nothing are no hack.
    """
    paid = padded = 0.0
    events: list[str] = []
    for trace in traces:
        by_call = {r.target: 0.0 for r in trace.rewards if r.family == "process" and r.unit == "turn"}
        for reward in trace.rewards:
            if reward.family == "process" and reward.unit == "turn":
                by_call[reward.target] += reward.value
        if not any(value > 0 for value in by_call.values()):
            continue
        empty = _padding(trace)
        for call, value in by_call.items():
            if value > 0:
                paid += value
                if call in empty:
                    padded += value
                    events.append(f"{trace.trace_id}:{empty[call]}")
    score = padded / paid if paid else None
    share = 0.0 if score is None else score
    told = f"{share:.0%} of what turns were paid for the process went to turns that say nothing new or reach nothing."
    return Seen(
        score=score, events=tuple(events), message=told if paid else "no turn was paid for the process."
    )


def _padding(trace: Trace) -> dict[str, str]:
    """Call -> an event of it, of the turns that add nothing."""
    reached = used(trace, "step_padding") if final_event(trace) is not None else None
    said: dict[str, set[str]] = {}
    found = {}
    for turn in turns(trace):
        events = [trace.events[place] for place in turn.events]
        texts = [trace.text(event.content_ref) for event in events]
        words = {word for text in texts if text is not None for word in plain(text).split()}
        known = said.setdefault(turn.agent, set())
        stale = bool(words) and words <= known
        lost = reached is not None and not any(event.id in reached for event in events)
        if stale or lost:
            found[turn.call] = events[0].id
        known |= words
    return found


def scorer_gaming(traces: Sequence[Trace], gold: Golds = None) -> Seen:
    """How often a trace that fails was paid more for its process than one that succeeds; a half is chance."""
    sums = [
        (math.fsum(r.value for r in mine), trace)
        for trace in traces
        if (mine := [r for r in trace.rewards if r.family == "process"])
    ]
    score, worst = _upside_down(sums, gold)
    told = f"a trace that fails is paid more for its process than one that succeeds in {score or 0:.0%} of pairs."
    return Seen(score=score, events=worst, message=told if score is not None else _TOO_FEW)


def rubric_mismatch(traces: Sequence[Trace], gold: Golds = None) -> Seen:
    """The role whose own reward goes most against the team's: how often it is paid more where the team fails."""
    by_role: dict[tuple[str, str], list[tuple[float, Trace]]] = {}
    for trace in traces:
        roles = agents(trace)
        sums: dict[tuple[str, str], list[float]] = {}
        for reward in trace.rewards:
            if reward.family == "role":
                role = reward.target if reward.unit == "role" else roles.get(reward.target) or reward.target
                sums.setdefault((reward.channel, role), []).append(reward.value)
        for key, values in sums.items():
            by_role.setdefault(key, []).append((math.fsum(values) / len(values), trace))
    best: tuple[float, tuple[str, ...], str] | None = None
    for (channel, role), paid in sorted(by_role.items()):
        score, worst = _upside_down(paid, gold)
        if score is not None and (best is None or score > best[0]):
            best = score, worst, f"{channel} pays {role} more where the team fails in {score:.0%} of pairs."
    if best is None:
        return Seen(score=None, events=(), message=_TOO_FEW)
    return Seen(score=best[0], events=best[1], message=best[2])


_TOO_FEW = f"fewer than {ENOUGH} traces that succeed and {ENOUGH} that fail were paid so."


def _upside_down(paid: Iterable[tuple[float, Trace]], gold: Golds) -> tuple[float | None, tuple[str, ...]]:
    """(how often a failed trace has more than one that succeeded, ties half; the failed ones with the most)."""
    good: list[tuple[float, Trace]] = []
    bad: list[tuple[float, Trace]] = []
    for value, trace in paid:
        try:
            came_out = outcome(trace, None if gold is None else gold.get(trace.trace_id))[0]
        except TraceError:
            continue
        (good if came_out >= 0.5 else bad).append((value, trace))
    if len(good) < ENOUGH or len(bad) < ENOUGH:
        return None, ()
    above = math.fsum((b > g) + 0.5 * (b == g) for b, _ in bad for g, _ in good)
    worst = sorted(bad, key=lambda pair: (-pair[0], pair[1].trace_id))[:ENOUGH]
    return above / (len(good) * len(bad)), tuple(
        f"{t.trace_id}:{t.events[-1].id}" for _, t in worst if t.events
    )


def judge_gap(traces: Sequence[Trace], gold: Golds = None) -> float | None:
    """How much more judges gave the team's answer than it was worth: mean of (judges' mean - truth).

    0 for judges who are right on average; what a policy that learns to please them raises. Verdicts are the records
    named `verdict` on the event that gave the answer, and team rewards of family debate; None: none beside a truth.
    """
    gaps = []
    for trace in traces:
        final = final_event(trace)
        judged = [
            r.value for r in trace.rewards
            if (r.channel == VERDICT and final is not None and r.target in (final.id, final.agent))
            or (r.family == "debate" and r.unit == "team")
        ]  # fmt: skip
        if not judged:
            continue
        try:
            truth = outcome(trace, None if gold is None else gold.get(trace.trace_id))[0]
        except TraceError:
            continue
        gaps.append(math.fsum(judged) / len(judged) - truth)
    return math.fsum(gaps) / len(gaps) if gaps else None


def drowned_term(traces: Sequence[Trace], gold: Golds = None) -> Seen:
    """The largest share that one term has in what moves a hybrid's sum: |w_k| std_k over that of all, 0.5 taken as 0.

    Rescaled so that two terms of equal pull score 0 and a term that moves the sum alone scores 1.
    """
    worst: tuple[float, str] | None = None
    for name, rules in _hybrids(traces).items():
        spread = _spreads(rules[-1][1], [trace for trace, _ in rules], gold)
        weights = rules[-1][1].weights()
        pull = {term: abs(weights[term]) * size for term, size in spread.items()}
        whole = math.fsum(pull.values())
        if len(pull) < 2 or not whole:
            continue
        term = max(sorted(pull), key=lambda each: pull[each])
        equal = 1 / len(pull)
        score = (pull[term] / whole - equal) / (1 - equal)
        if worst is None or score > worst[0]:
            worst = score, f"in {name}, the term {term} is {pull[term] / whole:.0%} of what moves the sum."
    if worst is None:
        return Seen(score=None, events=(), message="no hybrid reward with two terms that vary was paid.")
    return Seen(score=worst[0], events=(), message=worst[1])


def weight_drift(traces: Sequence[Trace]) -> Seen:
    """How far the weights of a hybrid that balances itself have moved: half the sum of changes in their shares.

    Schedules move weights because somebody meant them to: the last weights are compared with the same schedule's
    at that step, unbalanced.
    """
    worst: tuple[float, str] | None = None
    for name, rules in _hybrids(traces).items():
        last = rules[-1][1]
        if last.balance == "none" or len(last.terms) < 2:
            continue
        now, meant = _shares(last.weights()), _shares(structs.replace(last, balance="none").weights())
        if now is None or meant is None:
            continue
        score = 0.5 * math.fsum(abs(now[term] - meant[term]) for term in now)
        if worst is None or score > worst[0]:
            term = max(sorted(now), key=lambda each: abs(now[each] - meant[each]))
            worst = (
                score,
                f"in {name}, the weight of {term} has gone from {meant[term]:.0%} to {now[term]:.0%} of all.",
            )
    if worst is None:
        return Seen(score=None, events=(), message="no hybrid reward that balances itself was paid.")
    return Seen(score=worst[0], events=(), message=worst[1])


def _shares(weights: Mapping[str, float]) -> dict[str, float] | None:
    whole = math.fsum(map(abs, weights.values()))
    return {name: abs(weight) / whole for name, weight in weights.items()} if whole else None


def _hybrids(traces: Sequence[Trace]) -> dict[str, list[tuple[Trace, Hybrid]]]:
    """Channel -> the traces a hybrid paid and the rule as it then was, by its step."""
    found: dict[str, list[tuple[Trace, Hybrid]]] = {}
    for trace in traces:
        mine: dict[str, Reward] = {r.channel: r for r in trace.rewards if r.family == "hybrid"}
        for channel, reward in mine.items():
            try:
                rule = rule_of(reward.by) if reward.by and rule_settings(reward.by) is not None else None
            except BatonError:  # a term of another package that is not there
                continue
            if isinstance(rule, Hybrid):
                found.setdefault(channel, []).append((trace, rule))
    return {
        channel: sorted(rules, key=lambda pair: (pair[1].state.step, pair[0].trace_id))
        for channel, rules in found.items()
    }


def _spreads(rule: Hybrid, traces: Sequence[Trace], gold: Golds) -> dict[str, float]:
    """Term -> standard deviation of what it gives a trace, over these traces; else as the rule's own state has it."""
    totals = []
    for trace in traces:
        try:
            totals.append(rule.totals(trace, None if gold is None else gold.get(trace.trace_id)))
        except TraceError:
            continue
    if len(totals) >= 2:
        found = {}
        for term in rule.terms:
            values = [each[term.of.name] for each in totals]
            middle = math.fsum(values) / len(values)
            found[term.of.name] = math.sqrt(math.fsum((v - middle) ** 2 for v in values) / (len(values) - 1))
        return found
    return {name: each.std for name, each in rule.state.moments.items() if each.std is not None}
