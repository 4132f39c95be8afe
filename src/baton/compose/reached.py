"""Which limits a run reached, in sentences: what was refused, who was cut off, and what to type for more."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable

from baton.team.team import Team
from baton.trace.records import Event
from baton.trace.trace import Trace

_NAMED = 5


def limits_reached(traces: list[Trace], *, python: bool = False) -> list[str]:
    """A sentence for each limit, and each cap that runs have by themselves, that was in the way of these runs."""
    found: dict[tuple[str, float, bool], list[tuple[Trace, Event]]] = {}
    for trace in traces:
        for event in trace.events:
            if event.type == "safety_event" and "budget" in event.extra:
                told = event.extra
                key = (str(told["budget"]), float(told.get("limit", 0)), bool(told.get("cap")))
                if not _of_a_role(event):
                    found.setdefault(key, []).append((trace, event))
    several = len(traces) > 1
    return [
        f"{_sentence(*key, events, several=several)} {_how(key[0], _enough(*key[:2], events), python=python)}"
        for key, events in found.items()
    ]


def warn_of_caps(trace: Trace) -> None:
    """Warn a program whose run reached a cap that it did not set."""
    if any(event.extra.get("cap") for event in trace.events):
        for said in limits_reached([trace], python=True):
            warnings.warn(said, RuntimeWarning, stacklevel=2)


def uncounted_usage(teams: Iterable[Team]) -> list[str]:
    """A sentence for each engine whose server did not count the tokens of its answers."""
    engines = {id(engine): engine for team in teams for engine in team.engines.values()}
    return [why for each in engines.values() if (why := getattr(each, "uncounted", None)) is not None]


def warn_of_estimates(team: Team) -> None:
    """Warn a program whose run was answered by a server that does not count."""
    for said in uncounted_usage([team]):
        warnings.warn(said, RuntimeWarning, stacklevel=2)


def _of_a_role(event: Event) -> bool:
    """Whether it was the time of one agent that was over, which its role sets."""
    return "timer" in event.extra and event.extra["timer"] not in ("deadline", "cap")


def _sentence(
    resource: str, limit: float, cap: bool, events: list[tuple[Trace, Event]], *, several: bool
) -> str:
    shown = f"{limit:,.0f}" if limit == int(limit) else f"{limit:g}"
    what = (
        f"the cap of {shown} {resource}, which runs have where no limit is set, was reached"
        if cap
        else f"limits.{resource}={shown.replace(',', '')} was reached"
    )
    where = f" in {len({trace.trace_id for trace, _ in events}):,} runs" if several else ""
    refused = Counter(_refused(event) for _, event in events)
    parts = [f"{n:,} {noun}{'' if n == 1 else 's'} refused" for noun, n in refused.items() if noun]
    cut = list(dict.fromkeys(event.agent for _, event in events if _refused(event) in ("call", "")))
    if cut and not several:
        more = f" and {len(cut) - _NAMED:,} more" if len(cut) > _NAMED else ""
        parts.append(f"{', '.join(cut[:_NAMED])}{more} cut off")
    said = f": {', '.join(parts)}" if parts else ""
    return f"{what}{where}{said}.{_wanted(resource, limit, events[0][1])}"


def _wanted(resource: str, limit: float, first: Event) -> str:
    """Why tokens ran out before they were spent: a call counts in full before it is sent."""
    used, asked = float(first.extra.get("used", 0)), float(first.extra.get("asked", 0))
    if resource != "tokens" or used >= limit or not asked:
        return ""
    others = ", and others were under way" if used + asked <= limit else ""
    told = f"the first refused wanted {asked:,.0f}, {used:,.0f} were used{others}"
    return f" A call counts in full before it is sent: {told}."


def _refused(event: Event) -> str:
    """What was not done; empty: everything, from then on."""
    if "timer" in event.extra:
        return ""
    if event.decision in ("spawn", "delegate"):
        return {"spawn": "spawn", "delegate": "delegation"}[event.decision]
    return "call" if event.call is None else "tool call"


def _enough(resource: str, limit: float, events: list[tuple[Trace, Event]]) -> float:
    """Twice the limit, and no less than would have let through any one thing that was refused."""
    if resource in ("depth", "concurrent"):  # which do not add up
        return max(1, 2 * limit)
    wanted = [float(event.extra.get("used", 0)) + float(event.extra.get("asked", 0)) for _, event in events]
    return max(1, 2 * limit, *wanted)


def _how(resource: str, limit: float, *, python: bool) -> str:
    more = f"{limit:.10g}"
    if python:
        return f'For more, give settings={{"limits.{resource}": {more}}}, or a team with Limits({resource}={more}).'
    return f"For more, type: --set limits.{resource}={more}"
