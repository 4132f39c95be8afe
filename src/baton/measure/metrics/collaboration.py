"""E3, collaboration quality: milestones, redundancy, duplicate messages, attribution of faults.

Redundancy = 1 - distinct subtasks/subtask executions. A message is a duplicate when its receiver was sent
the same before, by anyone. Both are counted twice: by the words, and by what they mean (`baton.measure.meaning`),
which is what the survey asks for. Attribution: who and when a fault was put in, against whom and what the
credit records blame most. Value of messages: messages.py; voters and aggregation: votes.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from baton.measure.figure import Figure, NotMeasured, proportion, told
from baton.measure.measured import MeasuredTrace
from baton.measure.metric import metric
from baton.trace.acts import EVENT_UNITS
from baton.trace.graph.lineage import NO_EFFECT
from baton.trace.outcome import plain
from baton.trace.records import Event


@metric("milestones", "E3", bounds=(0.0, 1.0))
def milestones(reading: MeasuredTrace) -> float:
    """Milestones reached, of all the task has."""
    gold = reading.gold
    if not gold.milestones or gold.reached is None:
        raise NotMeasured("the task's milestones are not given")
    return len(set(gold.reached(reading.trace)) & set(gold.milestones)) / len(set(gold.milestones))


@metric("redundancy", "E3", bounds=(0.0, 1.0))
def redundancy(reading: MeasuredTrace) -> float:
    """1 - distinct subtasks/subtask executions, by the gold data or else by their words."""
    sent = _subtasks(reading)
    subtask_of = reading.gold.subtask_of
    if subtask_of is not None:
        distinct = {subtask_of(reading.said(event)) for event in sent}
    else:
        distinct = {_content(reading, event) for event in sent}
    return 1 - len(distinct) / len(sent)


@metric("semantic_redundancy", "E3", bounds=(0.0, 1.0))
def semantic_redundancy(reading: MeasuredTrace) -> float:
    """1 - subtasks that ask for something else/subtask executions, whatever the words."""
    sent = _subtasks(reading)
    distinct = set(reading.meaning.distinct([reading.said(event) for event in sent]))
    return 1 - len(distinct) / len(sent)


@metric("duplicate_messages", "E3", bounds=(0.0, 1.0))
def duplicate_messages(reading: MeasuredTrace) -> float:
    """Messages whose receiver had been sent the same words before, of all messages."""
    sent = _messages(reading)
    distinct = {(event.to, event.decision == "delegate", _content(reading, event)) for event in sent}
    return 1 - len(distinct) / len(sent)


@metric("semantic_duplicates", "E3", bounds=(0.0, 1.0))
def semantic_duplicates(reading: MeasuredTrace) -> float:
    """Messages that tell their receiver nothing it had not been told before, whatever the words, of all messages."""
    sent = _messages(reading)
    told: dict[tuple[str | None, bool], list[str]] = {}
    for event in sent:
        told.setdefault((event.to, event.decision == "delegate"), []).append(reading.said(event))
    new = sum(len(set(reading.meaning.distinct(texts))) for texts in told.values())
    return 1 - new / len(sent)


def _subtasks(reading: MeasuredTrace) -> list[Event]:
    """What was given to somebody to do."""
    found = delegations(reading)
    if not found:
        raise NotMeasured("no subtask was given to anybody")
    return found


def delegations(reading: MeasuredTrace) -> list[Event]:
    """Spawns and delegations that took effect."""
    return [
        event for event in reading.events
        if (event.type == "spawn" or event.decision == "delegate") and event.status not in NO_EFFECT
    ]  # fmt: skip


def _messages(reading: MeasuredTrace) -> list[Event]:
    sent = [e for e in reading.events if e.type == "message" and e.status not in NO_EFFECT]
    if not sent:
        raise NotMeasured("no message was sent")
    return sent


def _content(reading: MeasuredTrace, event: Event) -> str:
    """What was said, or its address where the text is withheld: the same words have the same address."""
    if event.content_ref is None:
        raise NotMeasured(f"a {event.type} has no content to compare")
    text = reading.trace.text(event.content_ref)
    return event.content_ref if text is None else plain(text)


def attribution_accuracy(
    blamed: Sequence[tuple[str | None, str | None]], injected: Sequence[tuple[str, str]]
) -> tuple[Figure, Figure]:
    """(who, when): share of faults whose agent, and whose very event, was blamed. Pairs of (agent, event)."""
    n = len(injected)
    pairs = list(zip(blamed, injected, strict=True))
    who = sum(guess[0] == truth[0] for guess, truth in pairs)
    when = sum(guess[1] == truth[1] for guess, truth in pairs)
    return proportion(who, n), proportion(when, n)


def attribution(readings: Iterable[MeasuredTrace]) -> tuple[Figure, Figure]:
    """The same from traces: faults are events with extra["injected"], blame is the lowest credit."""
    found, why_not = told(readings, _blamed)
    if not found:
        return why_not, why_not
    return attribution_accuracy(
        [blame for _, blame in found], [(fault.agent, fault.id) for fault, _ in found]
    )


def _blamed(reading: MeasuredTrace) -> tuple[Event, tuple[str | None, str | None]]:
    faults = [event for event in reading.events if event.extra.get("injected")]
    if not faults:
        raise NotMeasured('no fault was put in (no event has extra["injected"])')
    credits = reading.trace.credits
    agents: dict[str, float] = {}
    acts: dict[str, float] = {}
    for credit in credits:
        if credit.unit == "agent":
            agents[credit.target] = min(credit.value, agents.get(credit.target, credit.value))
        elif credit.unit in EVENT_UNITS:
            target = credit.target.partition(">")[0]
            acts[target] = min(credit.value, acts.get(target, credit.value))
    if not agents and not acts:
        raise NotMeasured("no credit says whom to blame")
    event = min(sorted(acts), key=lambda name: acts[name], default=None)
    agent = min(sorted(agents), key=lambda name: agents[name], default=None)
    if agent is None and event is not None and event in reading.trace.position:
        agent = reading.trace.event(event).agent
    return faults[0], (agent, event)
