"""The golden imports, as outlines. `python tests/support/golden_connect.py` writes them again: look at what changed."""

from __future__ import annotations

from pathlib import Path

from outlines import outline

from baton.connect.assemble import assemble
from baton.connect.import_report import ImportReport
from baton.connect.readers.atif import AtifSource
from baton.connect.readers.claude_code.source import ClaudeCode
from baton.connect.readers.codex.source import Codex
from baton.connect.readers.inspect_eval.source import InspectSource
from baton.connect.readers.magentic_one import MagenticOneSource
from baton.connect.readers.mast import MastSource
from baton.connect.readers.messages import MessagesSource
from baton.connect.readers.otlp.reader import OtlpSource
from baton.connect.readers.who_and_when import WhoAndWhenSource
from baton.connect.source import Source

HERE = Path(__file__).parents[1] / "golden" / "connect"
SOURCES: list[Source] = [
    AtifSource(), InspectSource(), WhoAndWhenSource(), MastSource(), MagenticOneSource(), MessagesSource(),
    ClaudeCode(), Codex(), OtlpSource(),
]  # fmt: skip
PLACES = sorted(
    path
    for path in HERE.iterdir()
    if path.name.partition(".")[0].startswith(tuple(source.kind for source in SOURCES))
    and path.suffix != ".outline"
)


def source_of(place: Path) -> Source:
    """The one source that takes a place for its own."""
    found = [source for source in SOURCES if source.recognises(place)]
    assert len(found) == 1, f"{place.name}: {[source.kind for source in found]}"
    return found[0]


def golden_outline(place: Path) -> str:
    source, report = source_of(place), ImportReport()
    traces = assemble(source.read(place, report), report, kind=source.kind)
    told = report.as_dict()
    told.pop("places")
    by_reason = {
        name: dict(sorted(value.items())) if isinstance(value, dict) else value
        for name, value in told.items()
    }
    lines = [f"# {name}: {value}" for name, value in by_reason.items() if value]
    return "\n".join([*lines, *map(outline, traces)])


if __name__ == "__main__":
    for place in PLACES:
        (HERE / f"{place.name}.outline").write_text(golden_outline(place))
