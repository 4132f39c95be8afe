"""A trace format of your own: how it is recognised, read and written. Here, a table of events for a spreadsheet.

`encode` gives the bytes of a file that holds these traces. A format that can be read back has `read_all` as well, is
recognised by its content and not by its name, and says `is_lossless` where traces come back equal.

    baton convert runs/sum events.csv --to my_format:CSV
"""

import csv
import io
from collections.abc import Iterable, Iterator
from pathlib import Path

import baton
from baton.testing import check_format
from baton.trace.formats import Format

COLUMNS = ("trace", "seq", "t", "agent", "type", "to", "tool", "tokens", "text")


def rows(traces: Iterable[baton.Trace]) -> Iterator[bytes]:
    """One line of each event, in the order in which they happened."""
    yield line(COLUMNS)
    for trace in traces:
        for event in sorted(trace.events, key=lambda event: event.seq):
            known = (event.to, event.tool, event.tokens, trace.text(event.content_ref))
            yield line((trace.trace_id, event.seq, event.t, event.agent, event.type, *known))


def line(cells: Iterable[object]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow("" if cell is None else cell for cell in cells)
    return text.getvalue().encode()


CSV = Format(name="csv", about="one row per event, for spreadsheets", endings=(".csv",), encode=rows)

if __name__ == "__main__":
    check_format(CSV)
    trace = baton.run("shard-sum")
    baton.write(trace, Path("events.csv"), format="my_format:CSV")
    print(Path("events.csv").read_text()[:300])
