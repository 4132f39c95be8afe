"""Trace-length bands: 10, 100 and 1,000 events, the nearest by ratio (B2 of the survey's benchmark)."""

from __future__ import annotations

from collections.abc import Iterable

from baton.measure.reading import Reading

__all__ = ["BANDS", "band_of", "by_band"]

BANDS = (10, 100, 1000)
_LAST = {10: 31, 100: 316}
"""Longest of a band: the geometric mean with the next, rounded down."""


def band_of(num_events: int) -> int:
    """The band of a trace with this many events."""
    return next((band for band in BANDS[:-1] if num_events <= _LAST[band]), BANDS[-1])


def by_band(readings: Iterable[Reading]) -> dict[int, list[Reading]]:
    """Band -> its traces; every band is there."""
    found: dict[int, list[Reading]] = {band: [] for band in BANDS}
    for reading in readings:
        found[band_of(len(reading.trace.events))].append(reading)
    return found
