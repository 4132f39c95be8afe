"""Scores that stand in spans: the GenAI conventions' evaluation events, and the same as attributes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from baton.connect.readers.otlp.conventions import Kind
from baton.connect.readers.otlp.tree import SpanNode
from baton.connect.seen import SeenReward
from baton.trace.vocabulary import CreditUnit

SCORE = "gen_ai.evaluation.score.value"
_EVENT = "gen_ai.evaluation.result"


def rewards_of(session: str, node: SpanNode) -> Iterator[SeenReward]:
    """Every score of a span: a call's is a turn's, an agent's is that agent's, any other is the team's."""
    for place, event in enumerate(node.span.events):
        if event.name == _EVENT:
            yield from _reward(session, node, f"{node.key}/{place}", event.attributes)
    if SCORE in node.span.attributes:
        yield from _reward(session, node, node.key, node.span.attributes)


def _reward(session: str, node: SpanNode, key: str, a: dict[str, Any]) -> Iterator[SeenReward]:
    value = a.get(SCORE)
    try:
        number = float(str(value))
    except ValueError:
        return
    if not math.isfinite(number):
        return
    unit, target = _aim(node)
    yield SeenReward(
        session=session, key=key, at=node.span.at, value=number, unit=unit, target=target,
        family="shared" if unit == "team" else "individual" if unit == "agent" else "process",
        name=str(a["gen_ai.evaluation.name"]) if a.get("gen_ai.evaluation.name") else None, by=node.span.scope or None,
    )  # fmt: skip


def _aim(node: SpanNode) -> tuple[CreditUnit, str | None]:
    if node.kind is Kind.MODEL and node.merged is None:
        return "turn", node.key
    if node.kind is Kind.AGENT and node.actor is not None and node.parent is not None:
        return "agent", node.actor
    return "team", None
