"""Reward and credit: records that later stages attach to units of a trace.

A record names its unit and its target. What a target is, by unit:
  team          the trace id
  orchestrator  id of the event that carries the decision
  role          the role's name
  agent         the agent's id
  turn          id of the call
  message       id of the event; `event>agent` for one receiver of it
  tool_call     id of the event
  token         `call:index` into the call's completion
"""

from __future__ import annotations

from msgspec import Struct

from baton.trace.vocabulary import CreditUnit, RewardFamily

__all__ = ["Credit", "Reward"]


class Reward(
    Struct,
    tag_field="kind",
    tag="reward",
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """What something was worth."""

    family: RewardFamily
    unit: CreditUnit
    target: str
    value: float
    name: str | None = None
    """The channel's name where a family has several; the family's own name otherwise."""
    by: str | None = None
    """What computed it, so that it can be computed again."""

    @property
    def channel(self) -> str:
        return self.family if self.name is None else self.name


class Credit(
    Struct,
    tag_field="kind",
    tag="credit",
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """Who earned it."""

    unit: CreditUnit
    target: str
    value: float
    estimator: str
    stderr: float | None = None
    cost_tokens: int | None = None
    """Tokens re-run to get this estimate."""
    cost_calls: int | None = None
    assumes: tuple[str, ...] = ()
    """What the estimate takes for granted."""
