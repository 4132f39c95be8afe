"""Magentic-One's logs: the console's text, the first version's `log.jsonl`, and autogen's messages as JSON Lines.

In the console's text an entry begins with a line of dashes around its speaker's name. Before the first such line stands
what the program printed while it started, after `SCENARIO.PY COMPLETE` what it printed when it ended: both are counted
as skipped lines. Nothing there says who was meant: the orchestrator's word goes to the one who speaks next, the others
answer the orchestrator, and both are inferred. `log.jsonl` has times, who was meant, actions of the web surfer, and the
tokens of each call without its agent: these stand in the session's metrics.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from baton.connect.import_report import ImportReport
from baton.connect.readers.chat_messages import as_text, count_of, seconds_of, text_of
from baton.connect.readers.group_chat import NEXT, ChatEntry, group_chat
from baton.connect.readers.json_documents import documents, first_document, head_of
from baton.connect.readers.place_names import any_of, digest, files_of, session_of
from baton.connect.seen import Seen, SeenSession

ANSWERS: Final = "Magentic-One's agents answer its orchestrator"
FINAL: Final = "the orchestrator's last word"
_ENDINGS = (".txt", ".log", ".jsonl")
_HEAD = re.compile(r"^-{10} (?:\w+ \((?P<inner>.+)\)|(?P<plain>.+)) -{10}$")
_OVER = re.compile(r"^(SCENARIO\.PY COMPLETE|SCENARIO\.PY RUNTIME:|RUN\.SH COMPLETE|-{10} Summary -{10}$)")
_ASIDE = re.compile(r"^(?P<name>.*?)\s*\((?P<aside>.*)\)$")
_PEOPLE = ("user", "human", "UserProxy")
_EVENTS = frozenset(("OrchestrationEvent", "AgentEvent", "WebSurferEvent", "LLMCallEvent"))


class MagenticOneSource:
    """Logs of Magentic-One teams."""

    kind = "magentic-one"
    about = "Magentic-One: console_log.txt, log.jsonl, or autogen's messages as JSON Lines"
    single_files = True

    def recognises(self, place: Path) -> bool:
        return any_of(place, _is_mine, _ENDINGS, most=40)

    def read(self, place: Path, report: ImportReport) -> Iterator[Seen]:
        for path in files_of(place, _ENDINGS):
            if path.suffix == ".jsonl" or head_of(path)[:1] == b"{":
                yield from _log(path, report)
            elif not place.is_dir() or _is_mine(path):
                yield from _console(path, report)


def _is_mine(path: Path) -> bool:
    if path.suffix == ".jsonl":
        value = first_document(path)
        return isinstance(value, dict) and (value.get("type") in _EVENTS or _is_chat(value))
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return any(_HEAD.match(line.rstrip("\r\n")) for _, line in zip(range(5000), file, strict=False))
    except OSError:
        return False


def _is_chat(value: dict[str, Any]) -> bool:
    return "source" in value and "models_usage" in value


def _is_orchestrator(name: str) -> bool:
    return name.endswith("Orchestrator")


def _console(path: Path, report: ImportReport) -> Iterator[Seen]:
    entries = list(_entries(path, report))
    report.read(len(entries))
    if not entries:
        return
    task = next((text for name, text, _ in entries if name in _PEOPLE), None)
    session = session_of(path, [task, entries[0][1]])
    chat: list[ChatEntry] = []
    for place, (name, text, line) in enumerate(entries):
        at, key = f"{path}:{line}", str(place)
        last = place == len(entries) - 1
        if name in _PEOPLE:
            chat.append(ChatEntry(speaker=name, text=text, key=key, at=at, person=True))
        elif _is_orchestrator(name) and last:
            chat.append(
                ChatEntry(
                    speaker=name, text=text, key=key, at=at, type="orchestrator_decision", decision="stop",
                    why=FINAL,
                )
            )  # fmt: skip
        elif _is_orchestrator(name):
            speaks = entries[place + 1][0]
            if _is_orchestrator(speaks) or speaks in _PEOPLE:
                chat.append(
                    ChatEntry(
                        speaker=name, text=text, key=key, at=at, type="orchestrator_decision",
                        decision="continue",
                    )
                )  # fmt: skip
            else:
                chat.append(
                    ChatEntry(
                        speaker=name, text=text, key=key, at=at, to=speaks, decision="delegate", why=NEXT
                    )
                )
        else:
            leader = next((each for each, _, _ in entries if _is_orchestrator(each)), None)
            chat.append(
                ChatEntry(speaker=name, text=text, key=key, at=at, to=leader, why=ANSWERS if leader else None)
            )
    gold = _beside(path, "expected_answer.txt")
    yield SeenSession(
        session=session, key=session, at=str(path), system="magentic-one", task=task, topology="centralized",
        meta={"gold": {"answer": gold}} if gold else {},
    )  # fmt: skip
    yield from group_chat(chat, session)


def _beside(path: Path, name: str) -> str | None:
    """AutoGenBench puts the right answer into a file of its own."""
    try:
        return (path.parent / name).read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def _entries(path: Path, report: ImportReport) -> Iterator[tuple[str, str, int]]:
    """Speaker, text and line of each entry."""
    name, begun, text = None, 0, list[str]()
    over = False
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            line = line.rstrip("\r\n")
            head = _HEAD.match(line)
            if _OVER.match(line):
                over = True
            elif head:
                if name is not None:
                    yield name, "\n".join(text), begun
                over = False
                name, begun, text = head["inner"] or head["plain"], number, []
                continue
            if over or name is None:
                report.skip("a line that nobody said", f"{path}:{number}")
            else:
                text.append(line)
    if name is not None:
        yield name, "\n".join(text), begun


def _log(path: Path, report: ImportReport) -> Iterator[Seen]:
    chat: list[ChatEntry] = []
    tokens = {"prompt_tokens": 0, "completion_tokens": 0}
    known: set[str] = set()
    for row in documents(path, report, is_one=lambda _: True):
        report.read()
        value = row.value
        if not isinstance(value, dict):
            report.skip("an entry that is no event", row.at)
            continue
        name = digest(value, 8)
        if name in known:
            report.join("an entry that stands twice in its file")
            continue
        known.add(name)
        kind = value.get("type")
        if kind == "LLMCallEvent":
            for word in tokens:
                tokens[word] += count_of(value.get(word)) or 0
            report.join("tokens of a call that names no agent, added up in the session's metrics")
        elif isinstance(value.get("source"), str):
            chat.append(_event(value, row.at, row.number))
        else:
            report.skip("an event of a type that is not known", row.at)
    if not chat:
        return
    chat.sort(key=lambda said: (said.order, said.key))
    session = session_of(path, [said.key for said in chat[:2]])
    chat = _with_answers(chat)
    task = next((said.text for said in chat if said.person), None)
    yield SeenSession(
        session=session, key=session, at=str(path), system="magentic-one", task=task, topology="centralized",
        metrics={name: float(count) for name, count in tokens.items() if count},
    )  # fmt: skip
    yield from group_chat(chat, session)


def _event(value: dict[str, Any], at: str, number: int) -> ChatEntry:
    t = seconds_of(value.get("timestamp", value.get("created_at")))
    text = text_of(value.get("message", value.get("content")))
    key = digest(value, 8)
    order = (float(number),) if t is None else (t,)
    aside = _ASIDE.match(value["source"])
    name, mark = (aside["name"], aside["aside"].strip()) if aside else (value["source"], "")
    extra = {word: value[word] for word in ("url", "action", "arguments", "models_usage") if value.get(word)}
    if "type" in value and value["type"] not in ("OrchestrationEvent", "AgentEvent"):
        extra["type"] = as_text(value["type"])
    if name in _PEOPLE:
        return ChatEntry(speaker=name, text=text, key=key, at=at, order=order, t=t, person=True)
    if mark.startswith("->"):
        to = mark.removeprefix("->").strip()
        return ChatEntry(
            speaker=name, text=text, key=key, at=at, order=order, t=t, to=to, decision="delegate", extra=extra
        )
    if value.get("type") == "WebSurferEvent" and value.get("action"):
        return ChatEntry(
            speaker=name, text=as_text(value.get("arguments", {})), key=key, at=at, order=order, t=t,
            type="tool_call", tool=as_text(value["action"]), extra=extra,
        )  # fmt: skip
    if mark or value.get("type") == "WebSurferEvent":
        stops = mark in ("termination condition", "final answer")
        if mark:
            extra["aside"] = mark
        return ChatEntry(
            speaker=name, text=text, key=key, at=at, order=order, t=t, type="orchestrator_decision",
            decision="stop" if stops else "continue", extra=extra,
        )  # fmt: skip
    return ChatEntry(speaker=name, text=text, key=key, at=at, order=order, t=t, extra=extra)


def _with_answers(chat: list[ChatEntry]) -> list[ChatEntry]:
    """Whom the others answer, where the log does not say it."""
    leader = next((said.speaker for said in chat if _is_orchestrator(said.speaker)), None)
    found = []
    for said in chat:
        if (
            said.type == "message"
            and said.to is None
            and not said.person
            and leader not in (None, said.speaker)
        ):
            fields = {name: getattr(said, name) for name in said.__struct_fields__}
            said = ChatEntry(**{**fields, "to": leader, "why": ANSWERS})
        found.append(said)
    return found
