"""One order for all events: along every dependency, and by time where those leave a choice.

Clocks of different machines disagree, so dependencies come first and times follow them: along none does a time go back.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from operator import attrgetter, le

from baton.connect.assembly.agent_lines import AgentLines
from baton.connect.assembly.links import RECEIVED, Tie

TIMED = "a duration, from when its entry and what it waited for were written"
_CIRCLE = "dependencies went in a circle: the least sure one was left out"
_INFINITY = float("inf")
_TIME = attrgetter("t")
_BACK = "a time before that of what it depends on: moved up to it"
# What gives way first where dependencies contradict each other.
_SURENESS = {"temporal": 5, "tool_dependency": 4, "spawn": 3, "return": 2, "aggregate": 1}


class Order:
    """The places of events in causal order, the ties that hold, and the times that follow."""

    def __init__(self, lines: AgentLines, ties: list[Tie], *, logged: bool = False) -> None:
        """`logged`: times are those at which something had ended."""
        self.lines = lines
        self.times = self._own_times()
        self.timed = any(t is not None for t in self.times) or any(
            e.duration_s is not None for e in lines.events
        )
        """Whether the source says of anything when it was."""
        self.ranks, self.places = self._rank()
        self.ties = ties
        self._sort()
        self.into = self._into()
        self.seconds = self._moved_times()
        self.took: dict[int, float] = {}
        """Place -> seconds, of what was timed by the entries of a log."""
        if logged:
            self._time_by_log()

    def _own_times(self) -> list[float | None]:
        """When each event began: an event that carries a call began with it, unless it was timed itself."""
        events, calls = self.lines.events, self.lines.calls
        times: list[float | None] = list(map(_TIME, events))
        for key, place in self.lines.first_of_call.items():
            t = calls[key].t
            if t is not None and events[place].duration_s is None:
                times[place] = t
        return times

    def _rank(self) -> tuple[list[int], list[int]]:
        """Events by time, as far as each agent's own line allows; last of all, what ends an agent's work.

        Place -> rank, and rank -> place.
        """
        keyed: list[tuple[float, tuple[float, ...], str, int, int]] = []
        events, times = self.lines.events, self.times
        if len(self.lines.of) == 1:
            (places,) = self.lines.of.values()
            orders = [events[place].order for place in places]
            if all(map(le, orders, orders[1:])):  # nothing beside the line to set it against
                return _ranked(places)
        for agent, places in self.lines.of.items():
            latest = 0.0
            for position, place in enumerate(places):
                t = times[place]
                if t is not None and t > latest:
                    latest = t
                keyed.append((latest, events[place].order, agent, position, place))
            if places and events[places[-1]].decision == "stop":
                keyed[-1] = (_INFINITY, *keyed[-1][1:])
        keyed.sort()
        return _ranked([each[4] for each in keyed])

    def _sort(self) -> None:
        """Put what depends on something behind it, where time alone does not."""
        ranks = self.ranks
        for tie in self.ties:
            if ranks[tie.src] >= ranks[tie.dst]:
                break
        else:
            return
        while len(order := self._kahn()) < len(ranks):
            self._cut(set(range(len(ranks))).difference(order))
        self.places = order

    def _into(self) -> list[list[Tie] | None]:
        """Place -> what it depends on."""
        into: list[list[Tie] | None] = [None] * len(self.ranks)
        for tie in self.ties:
            ties = into[tie.dst]
            if ties is None:
                into[tie.dst] = [tie]
            else:
                ties.append(tie)
        return into

    def _kahn(self) -> list[int]:
        ranks = self.ranks
        waits = [0] * len(ranks)
        after: list[list[int]] = [[] for _ in ranks]
        for tie in self.ties:
            waits[tie.dst] += 1
            after[tie.src].append(tie.dst)
        ready = [(ranks[place], place) for place, count in enumerate(waits) if count == 0]
        heapify(ready)
        order: list[int] = []
        while ready:
            _, place = heappop(ready)
            order.append(place)
            for follower in after[place]:
                waits[follower] -= 1
                if waits[follower] == 0:
                    heappush(ready, (ranks[follower], follower))
        return order

    def _cut(self, left: set[int]) -> None:
        """Leave out the least sure dependency of every circle that is found going back from what is left."""
        into: dict[int, list[Tie]] = {}
        for tie in self.ties:
            if tie.src in left and tie.dst in left:
                into.setdefault(tie.dst, []).append(tie)
        ranks = self.ranks
        for ties in into.values():
            ties.sort(key=lambda tie: (ranks[tie.src], tie.type))
        gone: set[int] = set()
        done: set[int] = set()
        for start in sorted(left, key=ranks.__getitem__):
            path: list[Tie] = []
            at: dict[int, int] = {}
            place = start
            while place not in done and place not in at:
                back = next((tie for tie in into.get(place, ()) if id(tie) not in gone), None)
                if back is None:
                    break
                at[place] = len(path)
                path.append(back)
                place = back.src
            if place in at:
                gone.add(id(min(path[at[place] :], key=self._sureness)))
                self.lines.report.mend(_CIRCLE, self.lines.events[place].at)
            done.update(at)
        self.ties = [tie for tie in self.ties if id(tie) not in gone]

    def _sureness(self, tie: Tie) -> tuple[int, int, int, int]:
        types = (self.lines.events[tie.src].type, self.lines.events[tie.dst].type)
        if types == ("tool_call", "tool_result"):
            sure = 3  # a result without its call would be nobody's
        else:
            sure = 2 if tie.why is None else 0 if tie.why == RECEIVED else 1
        return (sure, _SURENESS.get(tie.type, 0), self.ranks[tie.src], self.ranks[tie.dst])

    def _moved_times(self) -> list[float]:
        """Seconds for every event, never before those of what it depends on."""
        times, into = self.times, self.into
        earliest = min([t for t in times if t is not None], default=0.0)
        seconds = [earliest] * len(times)
        for place in self.places:
            least = earliest
            for tie in into[place] or ():
                if (before := seconds[tie.src]) > least:
                    least = before
            t = times[place]
            if t is None:
                t = least
            elif t < least:
                if least - t > 1e-6:
                    self.lines.report.mend(_BACK, self.lines.events[place].at)
                t = least
            seconds[place] = t
        return seconds

    def _time_by_log(self) -> None:
        """An answer began when all that it waited for was written, a tool when its call was; each ended when it was."""
        lines, seconds = self.lines, self.seconds
        ends = list(seconds)
        answers = {place: key for key, place in lines.first_of_call.items()}
        for place, ties in enumerate(self.into):
            event = lines.events[place]
            if ties is None or event.t is None or event.duration_s is not None:
                continue
            call = event.call
            if call is not None and lines.calls[call].duration_s is not None:
                continue
            if place in answers or event.type == "tool_result":
                began = max([ends[tie.src] for tie in ties])
                seconds[place] = began
                self.took[place] = int((ends[place] - began) * 1e6 + 0.5) / 1e6


def _ranked(places: list[int]) -> tuple[list[int], list[int]]:
    ranks = [0] * len(places)
    for rank, place in enumerate(places):
        ranks[place] = rank
    return ranks, places
