"""Dates as programs write them, in seconds."""

from __future__ import annotations

from datetime import datetime


def seconds(stamp: str | None) -> float | None:
    """Seconds since 1970 of a date as these programs write it; None: none, or none that can be read."""
    if not stamp:
        return None
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except (ValueError, OverflowError):
        return None
