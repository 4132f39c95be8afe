"""Aggregation leakage (O4), the survey's: sub-agents' text that is handed on word for word as if it were progress.

Of every text that fuses what others returned (an aggregate, the answer, what an agent that led others returns), the
words in runs of at least `RUN` that stand just so in one of those returns, of all its words. A text shorter than a run
is left out: the answer of a vote is meant to be one of the votes. Joining parts is copying too (`merge` leaks by
design); what makes leakage a failure is that the text is paid for as progress, so look at it beside what it earns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from baton.measure.figure import NotMeasured
from baton.measure.measured import MeasuredTrace
from baton.measure.metric import metric
from baton.trace.graph.lineage import NO_EFFECT
from baton.trace.records import Event

RUN = 8
"""Words in a row that are no accident."""


@metric("aggregation_leakage", "E3", bounds=(0.0, 1.0))
def aggregation_leakage(reading: MeasuredTrace) -> float:
    """Words that stand just so in what sub-agents returned, of all words in texts that fuse their returns."""
    words = copied = 0
    for event, returned in _fusing(reading):
        text = _words(reading.said(event))
        if len(text) >= RUN:
            words += len(text)
            copied += num_copied(text, [_words(reading.said(source)) for source in returned])
    if not words:
        raise NotMeasured(f"no text of {RUN} words or more fuses what sub-agents returned")
    return copied / words


def num_copied(text: Sequence[str], sources: Sequence[Sequence[str]], run: int = RUN) -> int:
    """How many words of a text lie in a run of words that one of the sources has as well."""
    known = {tuple(source[k : k + run]) for source in sources for k in range(len(source) - run + 1)}
    covered: set[int] = set()
    for k in range(len(text) - run + 1):
        if tuple(text[k : k + run]) in known:
            covered.update(range(k, k + run))
    return len(covered)


def _fusing(reading: MeasuredTrace) -> Iterator[tuple[Event, list[Event]]]:
    """Texts of agents that had something returned to them, each with all that was returned to them before.

    A stop that only repeats the aggregate before it is the same text, and counts once.
    """
    returned: dict[str, list[Event]] = {}
    latest: dict[str, str] = {}
    for event in reading.events:
        if event.status in NO_EFFECT or event.content_ref is None:
            continue
        fuses = event.type in ("aggregate", "return") or event.decision == "stop"
        if fuses and returned.get(event.agent) and latest.get(event.agent) != event.content_ref:
            latest[event.agent] = event.content_ref
            yield event, list(returned[event.agent])
        if event.type == "return" and event.to is not None:
            returned.setdefault(event.to, []).append(event)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())
