"""From a session to its orchestration trace: who asked, who began whom, what was decided, with every token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from baton.connect.assemble import Assembler
from baton.connect.assembly.building import trace_id_of
from baton.connect.import_report import ImportReport
from baton.serve.exchange import Exchange, Posted
from baton.serve.journal import SpansLine
from baton.serve.lineage.otel import named_by_spans
from baton.serve.lineage.team import team_of
from baton.serve.lineage.telling import sightings
from baton.trace.trace import Header, Trace

KIND = "serve"


def session_trace(
    exchanges: Sequence[Exchange],
    posted: Sequence[Posted] = (),
    spans: Sequence[SpansLine] = (),
    *,
    name: str,
    about: Mapping[str, Any] | None = None,
    report: ImportReport | None = None,
) -> Trace:
    """The trace of a session as far as it is known: unfinished until somebody said that it ended.

    `about` is said of it in the header. What was concluded and what could not be is counted in `report`. One pass over
    what the program sent and was sent: time grows with that, and with nothing else.
    """
    told = ImportReport() if report is None else report
    ended = any(one.ended for one in posted)
    if not exchanges:
        trace_id = trace_id_of(KIND, name)
        return Trace(header=Header(trace_id=trace_id, task_id=trace_id, system="baton serve"), finished=ended)
    assembler = Assembler(KIND, told, live=True)
    team = team_of(exchanges, named_by_spans(exchanges, spans, told))
    assembler.see(sightings(name, team, posted))
    (trace,) = assembler.traces()
    if not about:
        return trace
    return replace(trace, header=replace(trace.header, meta={**trace.header.meta, **about}))
