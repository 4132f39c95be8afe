"""The closed word lists of the trace: one word per concept, the survey's wherever it has one.

Source: the survey's JSON schema (arXiv 2605.02801) for event, edge and topology words; its
taxonomy for reward families and credit units. `Literal` types so that decoding checks them.
"""

from __future__ import annotations

from typing import Literal, get_args

EventType = Literal[
    "orchestrator_decision",
    "spawn",
    "despawn",
    "message",
    "tool_call",
    "tool_result",
    "return",
    "aggregate",
    "human_intervention",
    "safety_event",
]
EdgeType = Literal[
    "temporal", "causal", "spawn", "message", "tool_dependency", "return", "aggregate", "safety_flow"
]
Topology = Literal[
    "centralized", "planner_executor_critic", "debate", "swarm", "hierarchical", "harness", "mixed", "unknown"
]
# The five learned decisions, and the three that are not one of them.
Decision = Literal["spawn", "delegate", "communicate", "aggregate", "stop", "continue", "wait", "none"]
Status = Literal["ok", "failed", "invalid", "cancelled", "forced", "in_doubt"]
RewardFamily = Literal[
    "shared", "individual", "role", "process", "tool", "debate", "orchestration", "hybrid"
]  # R1..R8, in this order
CreditUnit = Literal["team", "orchestrator", "role", "agent", "turn", "message", "tool_call", "token"]

EVENT_TYPES: tuple[EventType, ...] = get_args(EventType)
EDGE_TYPES: tuple[EdgeType, ...] = get_args(EdgeType)
TOPOLOGIES: tuple[Topology, ...] = get_args(Topology)
DECISIONS: tuple[Decision, ...] = get_args(Decision)
STATUSES: tuple[Status, ...] = get_args(Status)
REWARD_FAMILIES: tuple[RewardFamily, ...] = get_args(RewardFamily)
CREDIT_UNITS: tuple[CreditUnit, ...] = get_args(CreditUnit)
