"""Joins sightings into traces: one session, one trace.

Invariant: the same sightings give the same trace, in whatever order they come and however often. What they do not say
is concluded only with a reason, which stands on the event or edge and in the report; what cannot be known is None. What
contradicts itself is mended and told, never dropped in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from baton.connect.assembly.agent_lines import AgentLines
from baton.connect.assembly.building import Built, is_empty
from baton.connect.assembly.causal import Order
from baton.connect.assembly.contents import Contents
from baton.connect.assembly.gathering import Gathered
from baton.connect.assembly.links import ties_of
from baton.connect.assembly.people import people_of
from baton.connect.import_report import ImportReport
from baton.connect.seen import Seen
from baton.trace.formats.decoding import no_collection
from baton.trace.trace import Trace


class Assembler:
    """Takes sightings of any number of sessions, and gives their traces."""

    def __init__(
        self, kind: str, report: ImportReport, contents: Contents | None = None, *, live: bool = False
    ) -> None:
        """`kind` is the source's: it is part of the traces' names. `live`: what does not say that it ended goes on."""
        self.kind = kind
        self.live = live
        self.report = report
        self._contents = Contents(report) if contents is None else contents
        self._sessions: dict[str, Gathered] = {}

    def see(self, sightings: Iterable[Seen]) -> None:
        sessions = self._sessions
        gathered: Gathered | None = None
        with no_collection():
            for seen in sightings:
                session = seen.session
                if gathered is None or session is not gathered.session:
                    gathered = sessions.get(session) or sessions.setdefault(session, Gathered(session))
                before = gathered.of[type(seen)].setdefault(seen.key, seen)
                if before is not seen and not gathered.sees_more(before, seen):
                    self.report.join("entries that say what was known")

    def traces(self) -> Iterator[Trace]:
        """By session; each is let go of when its trace is made."""
        for session in sorted(self._sessions):
            trace = self._trace(self._sessions.pop(session))
            if trace is not None:
                yield trace

    def _trace(self, gathered: Gathered) -> Trace | None:
        report, contents = self.report, self._contents
        if is_empty(gathered):
            report.mend("a session in which nothing happened gives no trace")
            return None
        with no_collection():
            gathered.settle(report)
            contents.begin()
            lines = AgentLines(gathered, people_of(gathered, contents, report), report)
            gathered.events.clear()  # they are let go of one by one as they are told
            ties = ties_of(lines)
            order = Order(lines, ties, logged=gathered.about().logged)
            built = Built(self.kind, gathered, lines, order, contents, report)
            return built.trace(gathered.rewards, live=self.live)


def assemble(
    sightings: Iterable[Seen], report: ImportReport | None = None, *, kind: str = "import"
) -> list[Trace]:
    """The traces of all sessions that sightings tell of."""
    assembler = Assembler(kind, ImportReport() if report is None else report)
    assembler.see(sightings)
    return list(assembler.traces())
