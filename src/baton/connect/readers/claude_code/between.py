"""What passes between the lives of a session: returns that have arrived, messages on their way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from baton.connect.import_report import ImportReport
from baton.connect.readers.claude_code.entries import SendInput
from baton.connect.readers.claude_code.index import ClaudeRow, SessionIndex
from baton.connect.readers.claude_code.people import People
from baton.connect.seen import SeenEvent
from baton.trace.vocabulary import Status

LAST = 1e9
"""A depth below all entries of the same instant."""


class AgentReturn(Struct):
    """A return that has arrived. It is told in the life of the agent that gave it, with the call that said it."""

    event: SeenEvent
    t: float
    words: str
    told: bool = False


class Lives:
    """Reads the lives of one session; what one life tells of another's is kept here."""

    def __init__(
        self,
        index: SessionIndex,
        people: People,
        report: ImportReport,
        names: list[str],
        line: Callable[[ClaudeRow], bytes],
    ) -> None:
        """`line` gives a row's entry as it is written."""
        self.index = index
        self.people = people
        self.report = report
        self.names = names
        self.line = line
        self.returns: dict[str, list[AgentReturn]] = {}
        self.mail: dict[str, list[tuple[float, str, str]]] = {}
        """Agent -> what was sent to it and has not arrived yet: when, key, words."""
        self.asked_by_person = False
        self._send_all()

    def _send_all(self) -> None:
        """Every message of the session, before the first life is read: receivers may stand before senders."""
        for call, agent in self.people.resumed.items():
            spawn = self.index.spawns[call]
            self.mail.setdefault(agent, []).append((spawn.t, call, spawn.asked.prompt or ""))
        for sent in self.index.sent.values():
            for number, agent in enumerate(self.receivers(sent.by, sent.asked)):
                key = sent.call if number == 0 else f"{sent.call}/{number}"
                self.mail.setdefault(agent, []).append((sent.t, key, words_of(sent.asked) or ""))
        for letters_of_one in self.mail.values():
            letters_of_one.sort()

    def receivers(self, sender: str, asked: SendInput) -> list[str]:
        name = asked.to or asked.recipient
        if name == "*" or asked.type == "broadcast":
            return [agent for agent in self.people.agents if agent != sender]
        found = self.people.find(name)
        return [] if found is None else [found]

    def at(self, row: ClaudeRow) -> str:
        return f"{self.names[row.file]}:{row.line}"

    def gives_back(
        self, agent: str, words: str, status: Status, row: ClaudeRow, extra: dict[str, Any]
    ) -> str:
        """A return arrives. It is the one before unless the agent has worked in between. Its key."""
        before = self.returns.setdefault(agent, [])
        times = self.index.times.get(agent, ())
        last = before[-1] if before else None
        if last is not None:
            worked = (
                any(last.t < at <= row.t for at in times) if times else words.strip() != last.words.strip()
            )
            if not worked:
                self.report.join("a return that arrived twice")
                return last.event.key
        person = self.people.agents.get(agent)
        event = SeenEvent(
            session=self.index.key, key=f"{agent}/return/{len(before)}", at=self.at(row), agent=agent, type="return",
            t=row.t or None, order=(row.t, LAST, 0.0), to=(person.parent if person else None) or row.agent,
            content=words, status=status, extra=extra,
        )  # fmt: skip
        before.append(AgentReturn(event, row.t, words))
        return event.key


def words_of(asked: SendInput) -> str | None:
    return asked.message if isinstance(asked.message, str) else asked.content
