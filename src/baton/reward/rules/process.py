"""R4, process: what happened on the way. Lands on turns; where asked, on agents or the team.

Three kinds: verifiable milestones, a trained scorer of prefixes, and a rule of thumb (valid format).
Risk: step padding, and gaming of the scorer. Milestones pay once each and scorer differences telescope,
so neither pays for more steps as such.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import ClassVar, Literal

from baton.errors import TraceError
from baton.reward.process_model import load_process_model
from baton.reward.reading import call_of
from baton.reward.rule import Rule
from baton.trace.acts import Turn, turns
from baton.trace.gold import Gold
from baton.trace.graph.lineage import Lineage, in_seq_order
from baton.trace.records import Reward
from baton.trace.trace import Trace
from baton.trace.vocabulary import RewardFamily


class Milestones(Rule, tag="milestones", frozen=True, kw_only=True):
    """1/M for each of the task's M milestones, on whatever first reached it; the sum is reached/M. [M]

    Where a milestone was first reached is found by bisection over prefixes: reached stays reached.
    Source: share of milestones reached, E3 of the survey, arXiv 2605.02801 [M].
    """

    family: ClassVar[RewardFamily] = "process"
    name: str = "milestones"
    unit: Literal["turn", "agent", "team"] = "turn"

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:
        if gold is None or not gold.milestones or gold.reached is None:
            raise TraceError(
                f"{self.name} needs the task's milestones: give gold data with `milestones` and `reached`."
            )
        ask = gold.reached
        events = in_seq_order(trace)
        known: dict[int, Collection[str]] = {}

        def reached(index: int) -> Collection[str]:
            if index not in known:
                known[index] = frozenset(ask(trace.prefix(events[index].seq)))
            return known[index]

        share = 1.0 / len(gold.milestones)
        hits: dict[str, int] = {}
        for milestone in gold.milestones:
            if not events or milestone not in reached(len(events) - 1):
                continue
            event = events[_first(len(events), reached, milestone)]
            if self.unit == "turn":
                target = call_of(trace, event)
            else:
                target = event.agent if self.unit == "agent" else trace.trace_id
            hits[target] = hits.get(target, 0) + 1
        if self.unit == "team":
            hits.setdefault(trace.trace_id, 0)
        return [self.reward(self.unit, target, share * count) for target, count in hits.items()]


class Scorer(Rule, tag="scorer", frozen=True, kw_only=True):
    """A trained scorer of prefixes f, on each turn: f(prefix after it) - f(prefix before it). [M]

    The differences sum to f(whole) - f(nothing), so a step that changes nothing earns nothing (potential-based
    shaping, Ng, Harada and Russell 1999). difference = false gives f(prefix after it) itself. A prefix
    ends where the next turn begins. f is the process model in the file `model` (`baton reward TRACE... --learn
    FILE` learns one), else the gold data's `scorer`.
    Source: potential-based shaping, Ng, Harada and Russell 1999 [M].
    """

    family: ClassVar[RewardFamily] = "process"
    name: str = "scorer"
    difference: bool = True
    model: str | None = None
    """File of a learned process model (`baton.reward.process_model`)."""

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:
        if self.model is None and (gold is None or gold.scorer is None):
            raise TraceError(
                f"{self.name} needs a scorer of prefixes: give it a `model` (baton reward TRACE... --learn FILE makes "
                "one), or gold data with `scorer`."
            )
        said_by = turns(trace)
        if not said_by:
            raise TraceError(f"trace {trace.trace_id}: {self.name} scores turns and no call is recorded.")
        if self.model is not None:
            along = load_process_model(self.model).along(trace)
            before = along[:-1] if self.difference else [0.0] * len(said_by)
            return [
                self.reward("turn", turn.call, value - earlier)
                for turn, value, earlier in zip(said_by, along[1:], before, strict=True)
            ]
        assert gold is not None
        assert gold.scorer is not None
        return self._asked(trace, said_by, gold.scorer)

    def _asked(self, trace: Trace, said_by: Sequence[Turn], scorer: Callable[[Trace], float]) -> list[Reward]:
        """By asking a function about one prefix after the other."""
        starts = [trace.events[turn.start].seq for turn in said_by]
        end = max(event.seq for event in trace.events)
        before = float(scorer(trace.prefix(starts[0] - 1))) if self.difference else 0.0
        records = []
        for turn, upto in zip(said_by, (*(start - 1 for start in starts[1:]), end), strict=True):
            after = float(scorer(trace.prefix(upto)))
            records.append(self.reward("turn", turn.call, after - before if self.difference else after))
            before = after
        return records


class ValidFormat(Rule, tag="valid_format", frozen=True, kw_only=True):
    """Whether what was said could be carried out: `valid` where no event of the unit is invalid, else `invalid`. [M]

    By default 1 and 0 on the team, as format terms are published. On turns use valid = 0 and a negative
    `invalid`: paying for every valid step pays for padding.
    Source: format terms, as in DeepSeek-R1, arXiv 2501.12948 [M].
    """

    family: ClassVar[RewardFamily] = "process"
    name: str = "valid_format"
    unit: Literal["turn", "agent", "team"] = "team"
    valid: float = 1.0
    invalid: float = 0.0

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:  # noqa: ARG002 (the contract)
        broken = [event for event in trace.events if event.status == "invalid"]
        if self.unit == "team":
            return [self.reward("team", trace.trace_id, self.invalid if broken else self.valid)]
        units = tuple(turn.call for turn in turns(trace)) if self.unit == "turn" else Lineage.of(trace).agents
        if not units:
            raise TraceError(
                f"trace {trace.trace_id}: {self.name} rewards each {self.unit} and none is recorded."
            )
        wrong = {event.call if self.unit == "turn" else event.agent for event in broken}
        return [self.reward(self.unit, unit, self.invalid if unit in wrong else self.valid) for unit in units]


def _first(count: int, reached: Callable[[int], Collection[str]], milestone: str) -> int:
    """The first of `count` prefixes that reached it; the last one did."""
    low, high = 0, count - 1
    while low < high:
        middle = (low + high) // 2
        if milestone in reached(middle):
            high = middle
        else:
            low = middle + 1
    return low
