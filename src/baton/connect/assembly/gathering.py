"""The sightings of one session, each thing once.

Invariant: what is gathered depends on which sightings came, never on their order or how often. Of several sightings
under one key, the one that stands later in its agent's life knows better, one that was recorded better than one that
was inferred; what only the other knows is added.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import msgspec

from baton.connect.import_report import ImportReport
from baton.connect.seen import Seen, SeenAgent, SeenCall, SeenEvent, SeenReward, SeenSession

S = TypeVar("S", SeenSession, SeenAgent, SeenCall, SeenEvent, SeenReward)

_FIRST = ("order", "t", "started")  # of these the least counts: where something began
LAST_TIME = 1e11  # seconds since 1970: past it, milliseconds were given for seconds


class Gathered:
    """What is known of one session so far."""

    __slots__ = ("again", "agents", "calls", "events", "of", "rewards", "session", "sessions")

    def __init__(self, session: str) -> None:
        self.session = session
        self.sessions: dict[str, SeenSession] = {}
        self.agents: dict[str, SeenAgent] = {}
        self.calls: dict[str, SeenCall] = {}
        self.events: dict[str, SeenEvent] = {}
        self.rewards: dict[str, SeenReward] = {}
        self.of: dict[type, dict[str, Any]] = {
            SeenSession: self.sessions, SeenAgent: self.agents, SeenCall: self.calls, SeenEvent: self.events,
            SeenReward: self.rewards,
        }  # fmt: skip
        """By kind."""
        self.again: dict[tuple[type, str], list[Seen]] = {}
        """Kind and key -> further sightings of it, that say something else."""

    def sees_more(self, before: Seen, seen: Seen) -> bool:
        """Whether a further sighting of a thing says something that was not known."""
        if before == seen:
            return False
        others = self.again.setdefault((type(seen), seen.key), [])
        if seen in others:
            return False
        others.append(seen)
        return True

    def settle(self, report: ImportReport) -> None:
        """Put together what was seen more than once."""
        for (kind, key), others in self.again.items():
            known = self.of[kind]
            known[key] = merged([known[key], *others])
            report.join("sightings of one thing", len(others))
        self.again.clear()

    def about(self) -> SeenSession:
        """What is known of the run itself."""
        found = [self.sessions[key] for key in sorted(self.sessions)]
        return merged(found) if found else SeenSession(session=self.session, key=self.session)


def merged(sightings: list[S]) -> S:
    """One sighting that knows what all of them know."""
    if len(sightings) == 1:
        return sightings[0]
    by_worth = sorted(sightings, key=_worth)
    best = by_worth[-1]
    fields: dict[str, Any] = {}
    for name in best.__struct_fields__:
        values = [getattr(each, name) for each in by_worth]
        if name == "why":
            fields[name] = None if None in values else values[-1]
        elif name == "finished":  # a run that ended does not go back to running
            fields[name] = any(values) if any(value is not None for value in values) else None
        elif name == "logged":
            fields[name] = any(values)
        elif name == "after":
            fields[name] = _links(values)
        elif isinstance(values[-1], dict):
            fields[name] = {key: value for each in values for key, value in each.items()}
        elif name == "media_type":
            said = [getattr(each, "content", None) is not None for each in by_worth]
            fields[name] = next(
                (v for v, is_there in zip(values[::-1], said[::-1], strict=True) if is_there), values[-1]
            )
        else:
            known = [value for value in values if value is not None and value != () and value == value]
            fields[name] = (min(known) if name in _FIRST else known[-1]) if known else values[-1]
    fields["at"] = min(each.at for each in by_worth)
    return type(best)(**fields)


def _links(values: list[Any]) -> tuple[Any, ...]:
    """Every link once; one that was recorded stands for the same one inferred."""
    best: dict[tuple[str, str], Any] = {}
    for link in sorted(
        {link for links in values for link in links}, key=lambda link: (link.why or "", link.key)
    ):
        best.setdefault((link.key, link.type), link)
    return tuple(best[each] for each in sorted(best))


def _worth(seen: Any) -> tuple[Any, ...]:
    """Sorts the sighting that knows best last. The encoding decides what nothing else does."""
    order = getattr(seen, "order", ())
    t = getattr(seen, "t", None)
    return (seen.why is None, order, -math.inf if t is None or t != t else t, _encoding(seen))


def _encoding(seen: Any) -> bytes:
    try:
        return msgspec.json.encode(msgspec.structs.replace(seen, at=""), order="deterministic")
    except (TypeError, ValueError, OverflowError, RecursionError, UnicodeEncodeError):
        return repr(seen.key).encode("utf-8", "replace")


def time_of(t: float | None, report: ImportReport, at: str) -> float | None:
    """Seconds since 1970, or None for what is no time."""
    if t is None:
        return None
    if not isinstance(t, int | float) or not 0 <= t < LAST_TIME:
        report.mend("a time that is no time was left out", at)
        return None
    return float(t)


def seconds_of(duration: float | None, report: ImportReport, at: str) -> float | None:
    if type(duration) is float and 0.0 <= duration < LAST_TIME:  # nearly always
        return int(duration * 1e6 + 0.5) / 1e6
    if duration is None:
        return None
    if not isinstance(duration, int | float) or not 0 <= duration < LAST_TIME:
        report.mend("a duration that is none was left out", at)
        return None
    return micro(duration)


def micro(seconds: float) -> float:
    """Rounded to microseconds; `round` would take as long as all the rest of an event."""
    return int(seconds * 1e6 + 0.5) / 1e6
