"""R5, tool use: only what was used downstream earns, and every call has its price. Lands on tool calls.

A call was used when its result is among what the team's answer depends on, along edges of any type. It is a
necessary sign of use, not a sufficient one: an agent that read a result and ignored it still
depends on it. Risk: tool spam and faked success; prices and the rule on repeats are against the first.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from msgspec import field

from baton.reward.reading import outcome
from baton.reward.rule import Rule
from baton.trace.acts import results_of, used
from baton.trace.gold import Gold
from baton.trace.graph.lineage import Lineage, in_seq_order
from baton.trace.records import Event, Reward
from baton.trace.trace import Trace
from baton.trace.vocabulary import RewardFamily


class ToolUse(Rule, tag="tool_use", frozen=True, kw_only=True):
    """r = worth x 1[ok, used, no repeat] - price - failed x 1[failed] - repeat x 1[repeat]. [I]

    A repeat is the same agent calling the same tool with the same arguments after that had succeeded; a
    call that may change the world (pure = false) is never one. What was cancelled or refused before it
    ran has neither worth nor a failure. SHARP's tool term [A]: unit = "agent", the sum over an agent's calls.
    Source: conditioned on downstream use as the survey's R5 asks, arXiv 2605.02801 [I]; SHARP's tool term [A].
    """

    family: ClassVar[RewardFamily] = "tool"
    name: str = "tool_use"
    worth: float = 1.0
    price: float = 0.05
    prices: dict[str, float] = field(default_factory=dict)
    """Tool -> its own price."""
    failed: float = 0.25
    repeat: float = 0.25
    unit: Literal["tool_call", "agent"] = "tool_call"

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:  # noqa: ARG002 (the contract)
        calls = [event for event in in_seq_order(trace) if event.type == "tool_call"]
        if not calls:
            return []
        reached, results, again = used(trace, self.name), results_of(trace), repeats(trace)
        values: dict[str, float] = {}
        for call in calls:
            result = results.get(call.id)
            ok = call.status == "ok" and result is not None and result.status == "ok"
            value = -self.prices.get(call.tool or "", self.price)
            if call.id in again:
                value -= self.repeat
            elif ok and result is not None and result.id in reached:
                value += self.worth
            if "failed" in (call.status, result.status if result is not None else None):
                value -= self.failed
            values[call.id] = value
        if self.unit == "tool_call":
            return [self.reward("tool_call", call, value) for call, value in values.items()]
        by_agent: dict[str, list[float]] = {}
        for call in calls:
            by_agent.setdefault(call.agent, []).append(values[call.id])
        return [self.reward("agent", agent, math.fsum(own)) for agent, own in by_agent.items()]


class ToolUsed(Rule, tag="tool_used", frozen=True, kw_only=True):
    """1 on the team when some call of these tools succeeded and reached the answer, else 0. [I]

    Source: WideSeek-R1's search term (weight 0.05) [C]; downstream use is our condition [I].
    """

    family: ClassVar[RewardFamily] = "tool"
    name: str = "tool_used"
    tools: tuple[str, ...] = ()
    """Which tools count; empty: all."""

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:  # noqa: ARG002 (the contract)
        results = [
            result
            for call, result in results_of(trace).items()
            if (not self.tools or trace.event(call).tool in self.tools) and result.status == "ok"
        ]
        hit = bool(results) and not used(trace, self.name).isdisjoint(result.id for result in results)
        return [self.reward("team", trace.trace_id, float(hit))]


class ToolFormat(Rule, tag="tool_format", frozen=True, kw_only=True):
    """MATPO: 1/2 (f of the planner + mean f of its workers) on the team, f = 1 for who used its tools as they are. [C]

    f is 0 for an agent with an answer that could not be carried out or a tool call that failed. A team without workers
    earns half of its planner's, as in the authors' code. `gated`: nothing where the answer is not right, so that tools
    pay by the outcome alone; in the authors' configuration that is off.
    Source: MATPO, arXiv 2510.04678 [C]; what counts as format is read off the trace [I].
    """

    family: ClassVar[RewardFamily] = "tool"
    name: str = "tool_format"
    gated: bool = False

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:
        lineage = Lineage.of(trace)
        failed = {call for call, result in results_of(trace).items() if result.status == "failed"}
        wrong = {e.agent for e in trace.events if e.status == "invalid" or e.id in failed}
        kept = {agent: float(agent not in wrong) for agent in lineage.agents}
        workers = [value for agent, value in kept.items() if agent != lineage.root]
        mean = math.fsum(workers) / len(workers) if workers else 0.0
        value = 0.5 * (kept.get(lineage.root or "", 0.0) + mean)
        if self.gated and outcome(trace, gold)[0] < 1.0:
            value = 0.0
        return [self.reward("team", trace.trace_id, value)]


def repeats(trace: Trace) -> set[str]:
    """Ids of tool calls that ask again what their agent had been answered already."""
    results = results_of(trace)
    asked: dict[tuple[str, str | None, str | None], list[Event]] = {}
    found: set[str] = set()
    for call in in_seq_order(trace):
        if call.type != "tool_call":
            continue
        earlier = asked.setdefault((call.agent, call.tool, call.content_ref), [])
        answered = (results[other.id] for other in earlier if other.id in results)
        if call.pure is not False and any(r.status == "ok" and r.seq < call.seq for r in answered):
            found.add(call.id)
        earlier.append(call)
    return found
