"""R1, shared outcome: what the whole team achieved, and what it spent on it. Lands on the team.

Risk: the signal of one unit drowns as units grow in number, and whoever does nothing earns as much
(survey, Observation 1 and P2).
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from msgspec import field

from baton.errors import TraceError
from baton.reward.reading import answered, outcome
from baton.reward.rule import Rule
from baton.trace.acts import said_in, turns
from baton.trace.gold import Gold, item_f1
from baton.trace.records import Reward
from baton.trace.trace import Trace
from baton.trace.vocabulary import RewardFamily


class Success(Rule, tag="success", frozen=True, kw_only=True):
    """Verified success: R = verify(answer) in [0, 1]; 1[R >= threshold] where a threshold is given. [M]

    Verified now where gold data is given, else as the run recorded it; the record says which.
    Source: verified outcome, as every method of the survey has it [M].
    """

    family: ClassVar[RewardFamily] = "shared"
    name: str = "success"
    threshold: float | None = None

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:
        value, basis = outcome(trace, gold)
        if self.threshold is not None:
            value = float(value >= self.threshold)
        return [self.reward("team", trace.trace_id, value, basis)]


class ItemF1(Rule, tag="item_f1", frozen=True, kw_only=True):
    """Item-F1 of an answer that is a list or a table: 2 P R / (P + R) over items with their counts. [M]

    The answer is a JSON list, else lines. An item is a text, a row, or with `key` a cell: (key, column,
    value).
    Source: F1 over items [M]; the cell form is WideSearch's, the table benchmark WideSeek-R1 trains for [A].
    """

    family: ClassVar[RewardFamily] = "shared"
    name: str = "item_f1"
    key: str | None = None
    """Column that names a row; without it, what the gold data says."""

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:
        if gold is None or gold.items is None:
            raise TraceError(f"{self.name} needs the right items: give gold data with `items`.")
        event = answered(trace)
        answer = "" if event is None or event.content_ref is None else said_in(trace, event)
        found = item_f1(answer, gold, () if self.key is None else (self.key,))
        return [self.reward("team", trace.trace_id, found)]


class RunCost(Rule, tag="cost", frozen=True, kw_only=True):
    """What the run spent: cost = sum_i (L_i c_tok + T_i c_tool) + c_s seconds, as a positive number. [P]

    Steps count once, however many agents there are.
    Source: the survey's rollout cost, arXiv 2605.02801 [P].
    """

    family: ClassVar[RewardFamily] = "shared"
    name: str = "cost"
    per_token: float = 0.0
    per_tool_call: float = 0.0
    per_second: float = 0.0

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:  # noqa: ARG002 (the contract)
        tool_calls = sum(event.type == "tool_call" for event in trace.events)
        total = self.per_tool_call * tool_calls
        if self.per_token:
            total += self.per_token * tokens_of(trace, self.name)
        if self.per_second:
            if "wall_clock_s" not in trace.costs:
                raise TraceError(
                    f"trace {trace.trace_id}: {self.name} prices seconds and no wall clock is recorded."
                )
            total += self.per_second * trace.costs["wall_clock_s"]
        return [self.reward("team", trace.trace_id, total)]


class Length(Rule, tag="length", frozen=True, kw_only=True):
    """Over-long penalty in [0, 1]: clip((tokens - free) / (limit - free), 0, 1). [I]

    Agent Q-Mix [C]: free = 0, limit = 10000 and weight -0.1, which is acc - 0.1 min(tokens / 1e4, 1).
    Source: WideSeek-R1 subtracts a length term [C]; this linear form of it is ours [I]; Agent Q-Mix, arXiv 2604.00344
    [C].
    """

    family: ClassVar[RewardFamily] = "shared"
    name: str = "length"
    free: int
    """Tokens that cost nothing."""
    limit: int
    """Tokens from which the penalty is whole."""

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:  # noqa: ARG002 (the contract)
        self.require(
            self.limit > self.free >= 0, "limit", f"it must be above free = {self.free}, which is >= 0"
        )
        over = (tokens_of(trace, self.name) - self.free) / (self.limit - self.free)
        return [self.reward("team", trace.trace_id, min(1.0, max(0.0, over)))]


class StepCost(Rule, tag="step_cost", frozen=True, kw_only=True):
    """Outcome less the cost of every step, as Puppeteer shapes it. [C]

    cost_t = scale log(1 + g (t+1) / (T+1)) / log(1 + g) x role factor x tokens_t / 1e5, scale = 0.1, g = 1,
    t the step's number from 0 and T the cap on steps. A step is one call. On the team: R - sum cost;
    on turns: -cost_t at each step, the outcome left to another rule.
    Source: Puppeteer, arXiv 2505.19591 [C].
    """

    family: ClassVar[RewardFamily] = "shared"
    name: str = "step_cost"
    max_steps: int
    """T."""
    scale: float = 0.1
    growth: float = 1.0
    """g."""
    role_factors: dict[str, float] = field(default_factory=dict)
    """Role -> how dear its tokens are; 1 for those left out."""
    unit: Literal["team", "turn"] = "team"

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:
        self.require(self.max_steps >= 1, "max_steps", "it must be at least 1")
        self.require(self.growth > 0, "growth", "it must be above 0")
        costs = self._costs(trace)
        if self.unit == "turn":
            return [self.reward("turn", call, -cost) for call, cost in costs.items()]
        value, basis = outcome(trace, gold)
        return [self.reward("team", trace.trace_id, value - math.fsum(costs.values()), basis)]

    def _costs(self, trace: Trace) -> dict[str, float]:
        costs: dict[str, float] = {}
        for step, turn in enumerate(turns(trace)):
            spent = (trace.events[place].tokens for place in turn.events)
            tokens = [count for count in spent if count is not None]
            if not tokens:
                raise TraceError(
                    f"trace {trace.trace_id}: {self.name} prices tokens and call {turn.call} has no count."
                )
            dear = math.log1p(self.growth * (step + 1) / (self.max_steps + 1)) / math.log1p(self.growth)
            costs[turn.call] = (
                self.scale * dear * self.role_factors.get(turn.role or "", 1.0) * sum(tokens) / 1e5
            )
        if not costs:
            raise TraceError(f"trace {trace.trace_id}: {self.name} prices steps and no call is recorded.")
        return costs


def tokens_of(trace: Trace, what: str) -> float:
    """Tokens of the whole trace, or an error."""
    if "tokens" in trace.costs:
        return trace.costs["tokens"]
    measured = [event.tokens for event in trace.events if event.tokens is not None]
    if not measured:
        raise TraceError(f"trace {trace.trace_id}: {what} counts tokens and none were measured.")
    return float(sum(measured))
