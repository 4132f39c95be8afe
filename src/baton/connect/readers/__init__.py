"""Readers: one for each kind of files, from entries to sightings; `SOURCES` has them by kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from baton.connect.late_sources import LateSources
from baton.connect.source import Source

SOURCES: Final[Mapping[str, Source]] = LateSources(
    __name__,
    {
        "claude-code": "claude_code.source:ClaudeCode",
        "codex": "codex.source:Codex",
        "otlp": "otlp.reader:OtlpSource",
        "seen": "seen_journal:SeenJournal",
        "inspect": "inspect_eval.source:InspectSource",
        "atif": "atif:AtifSource",
        "who-and-when": "who_and_when:WhoAndWhenSource",
        "mast": "mast:MastSource",
        "magentic-one": "magentic_one:MagenticOneSource",
        "messages": "messages:MessagesSource",
    },
)
"""The more particular a kind, the earlier it stands: a place is of the first kind that knows it."""
