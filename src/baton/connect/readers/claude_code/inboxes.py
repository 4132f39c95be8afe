"""A team's letters: `teams/<team>/inboxes/<name>.json`, one file for each member."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path

from baton.connect.import_report import ImportReport
from baton.connect.readers.claude_code.entries import INBOXES, TEAMS, decoded
from baton.connect.readers.claude_code.index import MAIN
from baton.connect.readers.claude_code.people import LEAD
from baton.connect.readers.claude_code.texts import PROGRAM_SENDER
from baton.connect.readers.iso_time import seconds
from baton.connect.seen import Seen, SeenAgent, SeenEvent, SeenSession


def letters_of(place: Path, report: ImportReport, told: set[tuple[str, str | None, str]]) -> Iterator[Seen]:
    """Letters below a folder that transcripts have not `told` (session, receiver, words)."""
    if not place.is_dir():
        return
    for inbox in sorted(place.rglob("inboxes/*.json")):
        team = inbox.parent.parent
        config = decoded(TEAMS, _content(team / "config.json"))
        session = (config.leadSessionId if config is not None else None) or f"team:{team.name}"
        letters = decoded(INBOXES, _content(inbox))
        if letters is None:
            report.read()
            report.skip("an inbox that cannot be read", str(inbox.name))
            continue
        yield SeenSession(session=session, key=session, at=inbox.name, system="claude-code")
        to = _member(inbox.stem, team.name)
        yield SeenAgent(session=session, key=to, name=None if to == MAIN else inbox.stem)
        for number, letter in enumerate(letters):
            report.read()
            if letter.sender == PROGRAM_SENDER:
                report.skip("a note of the program in a team's inbox", f"{inbox.name}:{number + 1}")
                continue
            sender = _member(letter.sender or "unknown", team.name)
            t = seconds(letter.timestamp)
            text = letter.text or ""
            if (session, to, text.strip()) in told:
                report.join("a letter that its sender's transcript tells")
                continue
            yield SeenAgent(session=session, key=sender, name=None if sender == MAIN else letter.sender)
            yield SeenEvent(
                session=session, key=f"{inbox.stem}/inbox/{letter.timestamp or number}/{sender}",
                at=f"{inbox.name}:{number + 1}", agent=sender, type="message", to=to, content=text, t=t,
                order=(t or 0.0, 0.0, float(number)),
                decision="delegate" if '"task_assignment"' in text[:200] else "communicate",
            )  # fmt: skip


def _member(name: str, team: str) -> str:
    return MAIN if name in LEAD else f"{name}@{team}"


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes().removeprefix(BOM_UTF8)
    except OSError:
        return b""
