"""A diagnosis: one thing that was looked at, how it stands, and what to type where it is missing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

State = Literal["ok", "missing", "bad", "unknown"]
"""missing: optional, and not here. bad: what was asked for cannot run. unknown: it could not be looked at."""


class Diagnosis(Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    part: str
    """What it is, in a word or two: torch, gloo, scale.rollout_workers."""
    state: State
    said: str
    """What was found, as the end of a sentence."""
    type: str | None = None
    """What to type, or to do, where it does not stand well."""


def can_run(findings: Iterable[Diagnosis]) -> bool:
    """Whether nothing that was asked for is in the way."""
    return all(each.state != "bad" for each in findings)


def in_gigabytes(size: float) -> str:
    """A number of bytes as people read it."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:,.0f} MB"
