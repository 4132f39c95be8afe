"""Small files as Claude Code and Codex write them, in forms of old and new versions, for tests to put together."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from baton.connect.assemble import assemble
from baton.connect.import_report import ImportReport
from baton.connect.source import Source
from baton.trace.trace import Trace

_ZERO = datetime(2026, 3, 1, 12, tzinfo=UTC)


def stamp(seconds: float) -> str:
    return (_ZERO + timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Transcript:
    """Entries of Claude Code, each the child of the one before unless it says otherwise."""

    def __init__(self, session: str = "s1", **common: Any) -> None:
        self.common = {"sessionId": session, "isSidechain": False, "version": "2.1.39", **common}
        self.lines: list[dict[str, Any]] = []
        self.clock = 0.0
        self.last: str | None = None
        self.name = str(common.get("agentId", "m"))

    def add(self, type: str, /, **fields: Any) -> str:
        self.clock += 1
        uuid = f"{self.name}{len(self.lines)}"
        entry = {"uuid": uuid, "parentUuid": self.last, "timestamp": stamp(self.clock), "type": type}
        self.lines.append({**entry, **self.common, **fields})
        self.last = uuid
        return uuid

    def user(self, text: str, **fields: Any) -> str:
        return self.add("user", message={"role": "user", "content": text}, **fields)

    def result(self, call: str, text: str, *, error: bool = False, **fields: Any) -> str:
        block = {"type": "tool_result", "tool_use_id": call, "content": text, "is_error": error}
        return self.add("user", message={"role": "user", "content": [block]}, **fields)

    def says(self, id: str, *blocks: Any, out: int = 10, reason: str | None = None, **fields: Any) -> str:
        """An answer; a block is a text, or (id, tool, input)."""
        content = [
            {"type": "text", "text": block}
            if isinstance(block, str)
            else {"type": "tool_use", "id": block[0], "name": block[1], "input": block[2]}
            for block in blocks
        ]
        usage = {"input_tokens": 3, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 100}
        message = {
            "id": id, "role": "assistant", "model": "m", "content": content, "stop_reason": reason,
            "usage": {**usage, "output_tokens": out},
        }  # fmt: skip
        return self.add("assistant", message=message, **fields)

    def write(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in self.lines))
        return path


def rollout(*payloads: tuple[str, dict[str, Any]]) -> str:
    """Lines of a rollout without numbers, a second apart."""
    return "".join(
        json.dumps({"timestamp": stamp(place), "type": type, "payload": payload}) + "\n"
        for place, (type, payload) in enumerate(payloads)
    )


def imported(source: Source, place: Path) -> tuple[list[Trace], ImportReport]:
    report = ImportReport()
    return assemble(source.read(place, report), report, kind=source.kind), report


def counts(trace: Trace) -> dict[str, int]:
    """Events by type, and what was billed."""
    found: dict[str, int] = {}
    for event in trace.events:
        found[event.type] = found.get(event.type, 0) + 1
    found["calls"] = len(trace.calls)
    found["in"] = sum(call.prompt_tokens or 0 for call in trace.calls)
    found["out"] = sum(call.completion_tokens or 0 for call in trace.calls)
    return found


def arrows(trace: Trace, type: str) -> list[tuple[str, str | None]]:
    """(who, to whom) of the events of a type, in order."""
    return [(event.agent, event.to) for event in trace.events if event.type == type]
