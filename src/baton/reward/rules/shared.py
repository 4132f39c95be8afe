"""R1, shared outcome: what the whole team achieved, and what it spent on it. Lands on the team.

Risk: the signal of one unit drowns as units grow in number, and whoever does nothing earns as much
(survey, Observation 1 and P2).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import field

from baton.errors import TraceError
from baton.reward.reading import final_event, outcome, plain, said, turns
from baton.reward.rule import Gold, Rule
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
    """Column that names a row."""

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:
        if gold is None or gold.items is None:
            raise TraceError(f"{self.name} needs the right items: give gold data with `items`.")
        event = final_event(trace)
        if event is None and not trace.finished:
            raise TraceError(
                f"trace {trace.trace_id} is unfinished and has no answer yet. Type: baton resume"
            )
        answer = "" if event is None or event.content_ref is None else said(trace, event)
        right, given = self._items(gold.items), self._items(_listed(answer))
        hits = (right & given).total()
        total = right.total() + given.total()
        return [self.reward("team", trace.trace_id, 2 * hits / total if total else 1.0)]

    def _items(self, rows: Iterable[Any]) -> Counter[str]:
        found: Counter[str] = Counter()
        for row in rows:
            if isinstance(row, dict) and self.key is not None:
                name = _text(row.get(self.key, ""))
                found.update(f"{name}\x1f{column}\x1f{_text(value)}" for column, value in row.items())
            elif isinstance(row, dict):
                found["\x1f".join(f"{column}={_text(row[column])}" for column in sorted(row))] += 1
            else:
                found[_text(row)] += 1
        return found


class RunCost(Rule, tag="cost", frozen=True, kw_only=True):
    """What the run spent: sum_i (L_i c_tok + T_i c_tool) + c_s seconds, as a positive number. [P]

    Steps count once, however many agents there are. Agent Q-Mix [C]:
    per_token = 1e-5 and weight -1, which is acc - 0.1 tokens / 1e4.
    Source: the survey's rollout cost, arXiv 2605.02801 [P]; Agent Q-Mix, arXiv 2604.00344 [C].
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

    WideSeek-R1 subtracts a length term whose constants are in its code; this linear form is ours.
    Source: WideSeek-R1 subtracts a length term [C]; this linear form of it is ours [I].
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
        for step, (call, events) in enumerate(turns(trace).items()):
            tokens = [event.tokens for event in events if event.tokens is not None]
            if not tokens:
                raise TraceError(
                    f"trace {trace.trace_id}: {self.name} prices tokens and call {call} has no count."
                )
            # A spawn's role is the child's, so the call is asked first.
            made = trace.call_by_id.get(call)
            role = (
                made.role if made is not None else next((e.role for e in events if e.type != "spawn"), None)
            )
            dear = math.log1p(self.growth * (step + 1) / (self.max_steps + 1)) / math.log1p(self.growth)
            costs[call] = self.scale * dear * self.role_factors.get(role or "", 1.0) * sum(tokens) / 1e5
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


def _listed(answer: str) -> list[Any]:
    try:
        found = msgspec.json.decode(answer)
    except (msgspec.DecodeError, UnicodeError):
        found = None
    if isinstance(found, list):
        return found
    return [line for line in answer.splitlines() if line.strip()]


def _text(value: Any) -> str:
    return plain(value if isinstance(value, str) else msgspec.json.encode(value, order="sorted").decode())
