"""Whether a time in a text is a reading of the clock: of the day of its run, give or take one."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

_NUMBERS = re.compile(r"(?P<y>(?:19|20)\d\d)[-/.](?P<m>[01]\d)[-/.](?P<d>[0-3]\d)")
_SLASHES = re.compile(r"(?P<m>[01]?\d)/(?P<d>[0-3]?\d)/(?P<y>(?:19|20)\d\d)")
_WORDS = re.compile(
    r"(?P<m>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?\s+(?P<d>[0-3]?\d)\b.*?(?P<y>(?:19|20)\d\d)"
)
_TURNED = re.compile(
    r"(?P<d>[0-3]?\d)\.?\s+(?P<m>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?,?\s+(?P<y>(?:19|20)\d\d)"
)
_EPOCH = re.compile(r"(?P<seconds>1[5-9]\d{8})(?:\d{3}){0,3}(?:\.\d+)?")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def day_in(text: str) -> date | None:
    """The day that a time names; None: it names none, or none that there is."""
    if whole := _EPOCH.fullmatch(text):
        return datetime.fromtimestamp(int(whole["seconds"]), UTC).date()
    for form in (_NUMBERS, _SLASHES, _WORDS, _TURNED):
        if (found := form.search(text)) is not None:
            month = found["m"]
            number = int(month) if month.isdigit() else _MONTHS.index(month[:3]) + 1
            try:
                return date(int(found["y"]), number, int(found["d"]))
            except ValueError:
                return None
    return None


class Clocks:
    """The days of two runs, the recorded one and this one, as seconds since 1970; None: not known, so any day fits."""

    def __init__(self, recorded: float | None = None, now: float | None = None) -> None:
        self._recorded = _day(recorded)
        self._now = _day(now)

    def tell(self, recorded: str, now: str) -> bool:
        """Whether two times may be two readings, one in each run."""
        return _near(day_in(recorded), self._recorded) and _near(day_in(now), self._now)


def _day(seconds: float | None) -> date | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).date()


def _near(told: date | None, run: date | None) -> bool:
    """A zone's clock is on the day before or after."""
    return told is None or run is None or abs(told - run) <= timedelta(days=1)
