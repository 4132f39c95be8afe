"""Who takes part: one identity for each key, a readable id that is unique, and who brought whom to life."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import chain
from operator import attrgetter

from msgspec import Struct

from baton.connect.assembly.contents import Contents
from baton.connect.assembly.gathering import Gathered
from baton.connect.import_report import ImportReport
from baton.connect.seen import SeenCall, SeenEvent
from baton.trace.graph.lineage import NO_EFFECT

_ACTS = attrgetter("agent", "t")
_TO = attrgetter("to")
NO_SPAWN = "an agent names its parent and no spawn of it was seen"


class Person(Struct):
    """One agent, or somebody that events name."""

    key: str
    id: str
    role: str | None
    parent: str | None
    """Key."""
    at: str
    why: str | None
    """Why the parent was inferred, if it was."""


def people_of(gathered: Gathered, contents: Contents, report: ImportReport) -> dict[str, Person]:
    """Key -> person, for all who act or are named, in the order of their first sighting."""
    first = _first_times(gathered)
    keys = sorted(first, key=lambda key: (first[key], key))
    taken: set[str] = set()
    numbers: dict[str, int] = {}
    people: dict[str, Person] = {}
    for key in keys:
        seen = gathered.agents.get(key)
        name = None
        if seen is not None:
            words = seen.words if contents.keep_payloads else None
            name = contents.name(seen.name or words or seen.role)
        name = name or contents.name(key) or "agent"
        id_ = name
        while id_ in taken:
            numbers[name] = numbers.get(name, 1) + 1
            id_ = f"{name}-{numbers[name]}"
        taken.add(id_)
        people[key] = Person(
            key=key,
            id=id_,
            role=None if seen is None else contents.name(seen.role),
            parent=None if seen is None else seen.parent,
            at="" if seen is None else seen.at,
            why=None if seen is None else seen.why,
        )
    _check_parents(people, gathered, report)
    return people


def _first_times(gathered: Gathered) -> dict[str, float]:
    """Key of everybody named -> the earliest time at which anything of theirs is seen."""
    first: dict[str, float] = dict.fromkeys(gathered.agents, math.inf)
    acting: Iterable[SeenCall | SeenEvent] = chain(gathered.calls.values(), gathered.events.values())
    for agent, t in map(_ACTS, acting):
        if agent not in first or (t is not None and t < first[agent]):
            first[agent] = math.inf if t is None or t != t else t
    for to in set(map(_TO, gathered.events.values())):
        if to is not None and to not in first:
            first[to] = math.inf
    return first


def _check_parents(people: dict[str, Person], gathered: Gathered, report: ImportReport) -> None:
    """A parent that nobody saw is none; nobody is their own ancestor."""
    spawns = [
        event
        for event in gathered.events.values()
        if event.type == "spawn" and event.to is not None and event.status not in NO_EFFECT
    ]
    spawned_by = {event.to: event.agent for event in sorted(spawns, key=lambda event: event.key)}
    for key, person in people.items():
        if person.parent is None:
            person.parent, person.why = spawned_by.get(key), None
        if person.parent is not None and person.parent not in people:
            report.mend("an agent's parent is not there: the agent stands as a root", person.at)
            person.parent = None
    for key in list(_in_circles(people)):
        report.mend("agents are each other's parents: one of them stands as a root", people[key].at)
        people[key].parent = None


def _in_circles(people: dict[str, Person]) -> Iterable[str]:
    """The least key of each circle of parents."""
    settled: set[str] = set()
    for start in people:
        path: list[str] = []
        on_path: set[str] = set()
        key: str | None = start
        while key is not None and key not in settled and key not in on_path:
            path.append(key)
            on_path.add(key)
            key = people[key].parent
        if key is not None and key in on_path:
            yield min(path[path.index(key) :])
        settled.update(path)
