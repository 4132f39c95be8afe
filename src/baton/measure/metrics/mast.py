"""MAST's failure modes that a rule can decide, each with the events that show it.

Source: "Why Do Multi-Agent LLM Systems Fail?", Cemri et al., arXiv 2503.13657, the names and numbers. The rules
are ours: MAST's own labels are given by people or a model, and a rule sees only part of what they see.
A mode that fires is a reason to look. A trace that does not hold what a rule reads is "not measured".

  FM-1.3 step repetition        the same tool call, or message, again by the same agent, after it went well and
                                with nothing new read from others in between
  FM-1.5 unaware of termination a limit had to stop the team or a worker; or the leading agent had the right
                                answer at hand and went on for more rounds
  FM-2.1 conversation reset     a call that keeps nothing of what its agent had said, with no new task in between
  FM-2.4 withheld information   an agent read a fact that the answer needs, passed it on to nobody, and the
                                answer is without it
  FM-2.5 ignored input          a message or return to an agent that acted again, and none of its later acts
                                depend on it
  FM-3.1 premature termination  a stop that somebody chose, short of success, while milestones were left or
                                agents were still at work
  FM-3.2 no verification        nothing that the answer depends on was done by a verifier
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from msgspec import Struct

from baton.errors import TraceError
from baton.measure.figure import Figure, NotMeasured, mean, not_measured, proportion
from baton.measure.measured import MeasuredTrace
from baton.measure.metrics.stop_regret import rounds_of
from baton.trace.graph.lineage import NO_EFFECT
from baton.trace.outcome import plain
from baton.trace.records import Call, Event

Mode = Literal[
    "step_repetition",
    "unaware_of_termination",
    "conversation_reset",
    "withheld_information",
    "ignored_input",
    "premature_termination",
    "no_verification",
]
VERIFIERS = frozenset({"verifier", "critic", "judge", "reviewer", "checker", "tester", "resolver"})
"""Roles whose acts are verification. Events may say so too: extra["verifies"]."""


class MastFinding(Struct, frozen=True, kw_only=True):
    """What a rule saw in one trace."""

    mode: Mode
    code: str
    """MAST's number."""
    fired: bool | None
    """None: the trace cannot say."""
    events: tuple[str, ...] = ()
    """Evidence, in order."""
    why_not: str | None = None


def failures(reading: MeasuredTrace) -> list[MastFinding]:
    """Every mode, in MAST's order."""
    found = []
    for mode, (code, rule) in MODES.items():
        try:
            events = rule(reading)
        except TraceError as error:
            found.append(MastFinding(mode=mode, code=code, fired=None, why_not=str(error)))
        else:
            found.append(MastFinding(mode=mode, code=code, fired=bool(events), events=tuple(events)))
    return found


def rates(readings: Iterable[MeasuredTrace]) -> dict[Mode, Figure]:
    """Share of traces that show each mode, of those that can say."""
    seen: dict[Mode, list[bool]] = {mode: [] for mode in MODES}
    reasons: dict[Mode, list[Figure]] = {mode: [] for mode in MODES}
    for reading in readings:
        for finding in failures(reading):
            if finding.fired is None:
                reasons[finding.mode].append(not_measured(finding.why_not or ""))
            else:
                seen[finding.mode].append(finding.fired)
    return {
        mode: proportion(sum(fired), len(fired)) if fired else mean(reasons[mode])
        for mode, fired in seen.items()
    }


def _step_repetition(reading: MeasuredTrace) -> list[str]:
    acts = {
        event.id: event.content_ref for event in reading.events
        if event.type in ("tool_call", "message") and event.status not in NO_EFFECT
    }  # fmt: skip
    if acts and not any(acts.values()):
        raise NotMeasured("tool calls and messages have no content to compare")
    failed = _failed_calls(reading)
    heard = _heard_from_others(reading)
    done: dict[str, set[tuple[str | None, ...]]] = {}
    found = []
    for event in reading.events:
        if event.id in heard:
            done[event.agent] = set()
        if not acts.get(event.id) or event.id in failed:
            continue
        mine = done.setdefault(event.agent, set())
        act = (event.type, event.tool, event.to, event.content_ref)
        if act in mine:
            found.append(event.id)
        mine.add(act)
    return found


def _failed_calls(reading: MeasuredTrace) -> set[str]:
    """Tool calls that did not go well: to try again is no repetition."""
    wrong = {e.id for e in reading.events if e.type == "tool_result" and e.status != "ok"}
    return {edge.src for edge in reading.trace.edges if edge.dst in wrong and edge.type == "tool_dependency"}


def _heard_from_others(reading: MeasuredTrace) -> set[str]:
    """Events that read something of another agent."""
    agent = {event.id: event.agent for event in reading.events}
    kinds = ("message", "return", "spawn", "aggregate", "causal")
    return {
        edge.dst for edge in reading.trace.edges
        if edge.type in kinds and agent.get(edge.src) != agent.get(edge.dst)
    }  # fmt: skip


def _unaware_of_termination(reading: MeasuredTrace) -> list[str]:
    forced = [
        event.id for event in reading.events
        if event.status == "forced" and (event.decision == "stop" or event.type == "return")
    ]  # fmt: skip
    if forced:
        return forced
    if not any(event.decision == "stop" or event.type == "return" for event in reading.events):
        raise NotMeasured("the trace does not say how anybody stopped")
    if not reading.gold.can_verify:
        return []
    rounds = rounds_of(reading)
    right = [k for k, score in enumerate(rounds.scores) if score >= 1]
    return [reading.final.id] if right and right[0] < rounds.stopped else []


def _conversation_reset(reading: MeasuredTrace) -> list[str]:
    trace = reading.trace
    first_event: dict[str, Event] = {}
    tasks: dict[str, list[int]] = {}
    for event in reading.events:
        if event.call is not None:
            first_event.setdefault(event.call, event)
        if (event.type == "spawn" or event.decision == "delegate") and event.to is not None:
            tasks.setdefault(event.to, []).append(event.seq)
    told = sorted(
        (call for call in trace.calls if call.id in first_event and _answered(call)),
        key=lambda call: first_event[call.id].seq,
    )
    opening: dict[str, tuple[int, int]] = {}  # agent -> (tokens of its first prompt, seq of its latest call)
    found, can_say = [], False
    for call in told:
        seq = first_event[call.id].seq
        if call.agent not in opening:
            whole = trace.prompt_ids(call)
            opening[call.agent] = (-1 if whole is None else len(whole), seq)
            continue
        prompt, before = opening[call.agent]
        opening[call.agent] = (prompt, seq)
        if call.prompt_ids is None or prompt < 0:
            can_say |= call.parent is not None  # it grows from a call: nothing was lost
            continue
        can_say = True
        if any(before < task < seq for task in tasks.get(call.agent, ())):
            opening[call.agent] = (call.keep + len(call.prompt_ids), seq)
        elif call.parent is None or call.keep <= prompt:
            found.append(first_event[call.id].id)
    if not can_say:
        raise NotMeasured("no agent made two calls whose prompts are recorded")
    return found


def _answered(call: Call) -> bool:
    return call.finish_reason not in ("error", "cancelled")


def _withheld_information(reading: MeasuredTrace) -> list[str]:
    facts = reading.gold.facts
    if not facts:
        raise NotMeasured("the facts that the answer needs are not given")
    answer = plain(reading.answer)
    root = reading.lineage.root
    missing = [plain(fact) for fact in facts if plain(fact) not in answer]
    told: dict[str, list[str]] = {}
    for event in reading.events:
        if event.type in ("message", "return") and event.content_ref is not None:
            told.setdefault(event.agent, []).append(plain(reading.said(event)))
    found: dict[str, None] = {}
    for event in reading.events:
        if event.type != "tool_result" or event.content_ref is None or event.status != "ok":
            continue
        agent = event.agent if event.agent in reading.lineage else event.to or event.agent
        text = plain(reading.said(event))
        for fact in missing:
            if agent != root and fact in text and not any(fact in said for said in told.get(agent, ())):
                found[event.id] = None
    return list(found)


def _ignored_input(reading: MeasuredTrace) -> list[str]:
    sent = [
        event for event in reading.events
        if event.type in ("message", "return") and event.to is not None and event.status not in NO_EFFECT
    ]  # fmt: skip
    if not sent:
        return []
    if not reading.trace.edges:
        raise NotMeasured("the trace has no edges that say what was read")
    acts: dict[str, list[int]] = {}
    for event in reading.events:
        # A despawn or a tool's result happens to an agent; it shows nothing of what it read.
        if event.type not in ("despawn", "tool_result", "human_intervention"):
            acts.setdefault(event.agent, []).append(event.seq)
    agent = {event.id: event.agent for event in reading.events}
    direct = {(edge.src, agent.get(edge.dst)) for edge in reading.trace.edges}
    found = []
    for event in sent:
        later = acts.get(event.to or "", [])
        # The act right after may have been under way already; from the second on it had the time to read.
        if len(later) - bisect_right(later, event.seq) < 2 or (event.id, event.to) in direct:
            continue
        events = reading.trace.events
        cone = reading.graph.descendants(reading.trace.position[event.id])
        if not any(events[int(i)].agent == event.to for i in cone):
            found.append(event.id)
    return found


def _premature_termination(reading: MeasuredTrace) -> list[str]:
    final = reading.final
    if final.decision != "stop":
        raise NotMeasured("nobody chose to stop: the trace just ends")
    if final.status == "forced" or reading.succeeded:
        return []
    gold = reading.gold
    if gold.milestones and gold.reached is not None:
        return [final.id] if set(gold.milestones) - set(gold.reached(reading.trace)) else []
    at_work = [
        event for event in reading.events
        if event.type == "despawn" and event.status == "cancelled" and event.seq > final.seq
    ]  # fmt: skip
    return [final.id] if at_work else []


def _no_verification(reading: MeasuredTrace) -> list[str]:
    roles = {life.agent: life.role for life in reading.lineage.lives.values()}
    if not any(roles.values()):
        raise NotMeasured("no roles are recorded")
    checked = any(
        roles.get(event.agent) in VERIFIERS or event.extra.get("verifies")
        for event in reading.events
        if event.id in reading.used and (event.id != reading.final.id or event.extra.get("verifies"))
    )
    return [] if checked else [reading.final.id]


MODES: dict[Mode, tuple[str, Callable[[MeasuredTrace], Sequence[str]]]] = {
    "step_repetition": ("FM-1.3", _step_repetition),
    "unaware_of_termination": ("FM-1.5", _unaware_of_termination),
    "conversation_reset": ("FM-2.1", _conversation_reset),
    "withheld_information": ("FM-2.4", _withheld_information),
    "ignored_input": ("FM-2.5", _ignored_input),
    "premature_termination": ("FM-3.1", _premature_termination),
    "no_verification": ("FM-3.2", _no_verification),
}
"""Mode -> MAST's number and the rule, which gives the events that show it."""
