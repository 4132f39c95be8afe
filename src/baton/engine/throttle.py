"""Keeping within a server's rate limits, and waiting well after it refuses.

A bucket fills at the permitted rate up to one minute's worth; whoever needs more than it holds waits in
line. Waits after refusals double, with jitter, so that many agents do not come back at the same moment.
"""

from __future__ import annotations

import asyncio
import random
import time
from email.utils import parsedate_to_datetime


class Bucket:
    """A token bucket in units per minute; None: no limit."""

    def __init__(self, per_minute: float | None) -> None:
        self._per_minute = per_minute
        self._held = per_minute or 0.0
        self._filled_at = time.monotonic()
        self._line = asyncio.Lock()

    async def take(self, amount: float) -> None:
        """Wait until `amount` may be spent; more than a minute's worth waits for a full bucket."""
        if self._per_minute is None:
            return
        async with self._line:
            self._fill()
            missing = min(amount, self._per_minute) - self._held
            if missing > 0:
                await asyncio.sleep(missing * 60 / self._per_minute)
                self._fill()
            self._held -= amount

    def settle(self, taken: float, used: float) -> None:
        """Correct an estimate by what was really used."""
        self._held += taken - used

    def _fill(self) -> None:
        assert self._per_minute is not None
        now = time.monotonic()
        self._held = min(self._per_minute, self._held + (now - self._filled_at) * self._per_minute / 60)
        self._filled_at = now


def backoff_seconds(attempt: int, first_seconds: float, longest_seconds: float) -> float:
    """The wait before the next try: half to all of `first_seconds * 2**attempt`, at most the longest."""
    return min(longest_seconds, first_seconds * 2.0**attempt) * random.uniform(0.5, 1.0)


def retry_after_seconds(header: str | None) -> float | None:
    """What a Retry-After header asks for, in either of its forms; None if there is none that makes sense."""
    if header is None:
        return None
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except (TypeError, ValueError):
        return None
