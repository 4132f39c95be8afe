"""Each agent's own line of events: complete, in order, with every tool's result beside its call.

Here what the sightings leave out is made up for: a call that no event carries gets one, an agent with a parent and no
spawn gets one, a result whose call is not there gets a call. Whatever is concluded so says why.

Events have the places in which they came. Invariant: nothing but those places depends on the order of coming; where one
thing must be told before another, `told_order` says which.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter, lt
from typing import cast

from msgspec.structs import replace

from baton.connect.assembly.gathering import LAST_TIME, Gathered, time_of
from baton.connect.assembly.people import NO_SPAWN, Person
from baton.connect.import_report import ImportReport
from baton.connect.seen import Link, SeenEvent
from baton.trace.graph.lineage import NO_EFFECT
from baton.trace.vocabulary import EventType

NO_CALL = "a tool's result is there and its call is not"
OPEN_CALL = "a result names no call: the latest open call of its tool"
_NOT_ACTS = frozenset(("tool_result", "human_intervention"))
_TIME = attrgetter("t")
_AGENT = attrgetter("agent")
_CALL = attrgetter("call")
_TYPE = attrgetter("type")


class AgentLines:
    """The events of a session by place, and the places of each agent's events in order."""

    def __init__(self, gathered: Gathered, people: dict[str, Person], report: ImportReport) -> None:
        self.people = people
        self.report = report
        self.calls = gathered.calls
        self.events: list[SeenEvent] = list(gathered.events.values())
        self.place: dict[str, int] = dict(zip(gathered.events, range(len(self.events)), strict=True))
        """Key of an event -> its place in `events`."""
        self._seen = len(self.events)
        """How many were seen; behind them stand those that were made up."""
        self.of: dict[str, list[int]] = {}
        """Key of an agent -> places of its events, in its own order."""
        self.answers: dict[int, int] = {}
        """Place of a tool's result -> place of its call, where that is the same agent's."""
        self.answered_by: dict[int, int] = {}
        """The same, also where that is another's."""
        self.first_of_call: dict[str, int] = {}
        """Key of a call -> place of the first event that it said."""
        self._settle_times()
        self._carry_calls()
        self._settle_spawns()
        self._put_in_order()
        self._find_answers()
        self.say()

    def told_order(self, places: Iterable[int]) -> list[int]:
        """Places by their events' keys, those that were made up last: the same however the sightings came."""
        events, seen = self.events, self._seen
        found = sorted(places)
        return sorted((place for place in found if place < seen), key=lambda place: events[place].key) + [
            place for place in found if place >= seen
        ]

    def _first_told(self, places: list[int]) -> int:
        seen = [place for place in places if place < self._seen]
        return min(seen, key=lambda place: self.events[place].key) if seen else places[0]

    def _settle_times(self) -> None:
        """What is no time is none."""
        odd = [
            place
            for place, t in enumerate(map(_TIME, self.events))
            if t is not None and not 0 <= t < LAST_TIME
        ]
        for place in self.told_order(odd):
            event = self.events[place]
            self.events[place] = replace(event, t=time_of(event.t, self.report, event.at))
        for key, call in self.calls.items():
            if call.t is not None and not 0 <= call.t < LAST_TIME:
                self.calls[key] = replace(call, t=time_of(call.t, self.report, call.at))

    def add(self, event: SeenEvent) -> int:
        place = self.place[event.key] = len(self.events)
        self.events.append(event)
        return place

    def free_key(self, key: str) -> str:
        while key in self.place:
            key += "'"
        return key

    def say(self) -> None:
        """Find which event each call said first."""
        first: dict[str | None, int] = {}
        calls = list(map(_CALL, self.events))
        for places in reversed(self.of.values()):  # from the back, so that the first is what stays
            back = places[::-1]
            first.update(zip(map(calls.__getitem__, back), back, strict=True))
        self.first_of_call = {call: place for call, place in first.items() if call is not None}

    def _carry_calls(self) -> None:
        """A call that led to no event gets one of its own, so that its tokens are charged."""
        calls = list(map(_CALL, self.events))
        said = set(calls)
        for key in sorted(self.calls.keys() - said):
            call = self.calls[key]
            self.add(
                SeenEvent(
                    session=call.session, key=self.free_key(f"{key}/answer"), at=call.at, why=call.why,
                    agent=call.agent, type="orchestrator_decision", decision="continue", order=call.order,
                    t=call.t, call=key, status=call.status,
                )
            )  # fmt: skip
        lost = said - self.calls.keys() - {None}
        for place in (
            self.told_order(place for place, call in enumerate(calls) if call in lost) if lost else ()
        ):
            event = self.events[place]
            self.report.mend("an event names a call that is not there: it stands without one", event.at)
            self.events[place] = replace(event, call=None)

    def _settle_spawns(self) -> None:
        """Every agent with a parent is spawned once, by that parent or by whoever says so."""
        made: dict[str, SeenEvent] = {}
        spawns = [
            place
            for place, type_ in enumerate(map(_TYPE, self.events))
            if type_ == "spawn" and _makes_somebody(self.events[place])
        ]
        spawns.sort(key=lambda place: _by_time(self.events[place]))
        for place in spawns:
            event = self.events[place]
            if event.to is None or event.to == event.agent or self._is_above(event.to, event.agent):
                self.report.mend("a spawn makes nobody new: taken as a decision", event.at)
                self.events[place] = _as_decision(event)
            elif event.to in made:
                self.report.mend("an agent is spawned again: taken as a delegation to it", event.at)
                self.events[place] = replace(event, type="message", decision="delegate")
            else:
                made[event.to] = event
                self.people[event.to].parent = event.agent
        lost = [key for key, person in self.people.items() if person.parent is not None and key not in made]
        if lost:
            by_agent: dict[str, list[SeenEvent]] = {}
            for event in self.events:
                by_agent.setdefault(event.agent, []).append(event)
            for key in lost:
                self._infer_spawn(self.people[key], by_agent)

    def _is_above(self, key: str, below: str) -> bool:
        above: str | None = below
        for _ in range(len(self.people)):
            if above is None or above == key:
                break
            above = self.people[above].parent
        return above == key

    def _infer_spawn(self, person: Person, by_agent: dict[str, list[SeenEvent]]) -> None:
        """It stands after what the parent did by the time of the child's first sign."""
        assert person.parent is not None
        own, parents = by_agent.get(person.key, []), by_agent.get(person.parent, [])
        t = min((event.t for event in own if event.t is not None), default=None)
        before = [event.order for event in parents if t is None or event.t is None or event.t <= t]
        if before:
            last = max(before)
            order = (*last, 0.0) if last else ()
        else:  # nothing yet, or the child's clock is behind
            order = min((event.order for event in parents), default=())
        self.add(
            SeenEvent(
                session=own[0].session if own else "", key=self.free_key(f"{person.key}/spawn"), at=person.at,
                why=person.why or NO_SPAWN, agent=person.parent, type="spawn", to=person.key, order=order, t=t,
            )
        )  # fmt: skip

    def _put_in_order(self) -> None:
        events = self.events
        of: dict[str, list[int]] = {}
        before, own = None, list[int]()
        for place, agent in enumerate(map(_AGENT, events)):
            if agent is not before:
                before, own = agent, of.setdefault(agent, [])
            own.append(place)
        if len(of) > 1:  # agents by the least key of theirs
            agents = {self._first_told(places): agent for agent, places in of.items()}
            of = {agents[place]: of[agents[place]] for place in self.told_order(agents)}
        self.of = of
        for places in of.values():
            orders = [events[place].order for place in places]
            if not all(map(lt, orders, orders[1:])):
                keyed = [
                    (event.order, -1.0 if event.t is None else event.t, event.key, place)
                    for event, place in zip([events[place] for place in places], places, strict=True)
                ]
                keyed.sort()
                places[:] = [each[3] for each in keyed]
            # Whom an agent made stands before its last word, however late they were first seen.
            last = len(places)
            while (
                last and events[places[last - 1]].type == "spawn" and events[places[last - 1]].why is not None
            ):
                last -= 1
            if 0 < last < len(places) and events[places[last - 1]].decision == "stop":
                places.append(places.pop(last - 1))

    def _find_answers(self) -> None:
        """Join every tool's result to its call."""
        events, types = self.events, list(map(_TYPE, self.events))
        named: dict[int, int | None] = {}
        answers: dict[int, int] = {}
        plain = True  # every result names its call, and by the same tool
        for place, type_ in enumerate(types):
            if type_ == "tool_result":
                result = events[place]
                call = named[place] = self._call_of(result)
                if call is None or _is_misnamed(result, events[call]):
                    plain = False
                elif events[call].agent == result.agent:
                    answers[place] = call
        taken = set(named.values())  # no result that names none gets one of these
        if plain and len(taken) == len(named):
            self.answers, self.answered_by = answers, cast(dict[int, int], named)
        else:
            self._join_answers(types, named, taken)

    def _join_answers(
        self, types: list[EventType], named: dict[int, int | None], taken: set[int | None]
    ) -> None:
        """Where some results name no call, or one that another names, or another tool."""
        events, answered = self.events, set[int]()
        for agent in sorted(self.of):
            open_calls: dict[int, str | None] = {}
            line: list[int] = []
            for place in self.of[agent]:
                type_ = types[place]
                if type_ != "tool_result":
                    if type_ == "tool_call" and place not in taken:
                        open_calls[place] = events[place].tool
                    line.append(place)
                    continue
                call = named[place]
                if call is not None and call in answered:
                    self._answer_again(place)
                    line.append(place)
                    continue
                if call is None:
                    call = self._open_call(place, events[place], open_calls, line)
                self._go_by_call(place, call)
                answered.add(call)
                open_calls.pop(call, None)
                if events[call].agent == agent:
                    self.answers[place] = call
                line.append(place)
            self.of[agent] = line

    def _answer_again(self, place: int) -> None:
        event = self.events[place]
        self.report.mend("a second result of one tool call: kept as an event of its own", event.at)
        self.events[place] = _as_decision(event)

    def _go_by_call(self, result: int, call: int) -> None:
        """A result is of the tool that was called, whatever it calls it."""
        self.answered_by[result] = call
        own, called = self.events[result], self.events[call]
        if _is_misnamed(own, called):
            self.report.mend("a result names another tool than its call: it goes by the call", own.at)
            self.events[result] = replace(own, tool=called.tool)

    def _call_of(self, result: SeenEvent) -> int | None:
        for link in result.after:
            place = self.place.get(link.key)
            if place is not None and self.events[place].type == "tool_call":
                return place
        return None

    def _open_call(
        self, place: int, result: SeenEvent, open_calls: dict[int, str | None], line: list[int]
    ) -> int:
        """The call of a result that names none: the latest open one of its tool, else one that is made up."""
        for call in reversed(open_calls):
            if result.tool is None or open_calls[call] == result.tool:
                link = Link(self.events[call].key, "tool_dependency", OPEN_CALL)
                self.events[place] = replace(result, after=(*result.after, link))
                return call
        key = self.free_key(f"{result.key}/call")
        call = self.add(
            SeenEvent(
                session=result.session, key=key, at=result.at, why=NO_CALL, agent=result.agent,
                type="tool_call", tool=result.tool, order=result.order, t=result.t,
            )
        )  # fmt: skip
        self.events[place] = replace(result, after=(*result.after, Link(key, "tool_dependency", NO_CALL)))
        line.append(call)
        return call


def _is_misnamed(result: SeenEvent, call: SeenEvent) -> bool:
    return result.tool is not None and call.tool is not None and result.tool != call.tool


def _makes_somebody(event: SeenEvent) -> bool:
    return event.status not in NO_EFFECT


def _as_decision(event: SeenEvent) -> SeenEvent:
    """An event that cannot stand as what it is, kept as nobody's choice."""
    extra = {**event.extra, "source_type": event.type}
    return replace(event, type="orchestrator_decision", decision=event.decision or "none", extra=extra)


def _by_time(event: SeenEvent) -> tuple[float, str]:
    return (float("inf") if event.t is None else event.t, event.key)


def acts(events: list[SeenEvent], places: Iterable[int]) -> list[int]:
    """Those of an agent's line that are its own doing, and so what something sent to it can reach."""
    return [place for place in places if events[place].type not in _NOT_ACTS]
