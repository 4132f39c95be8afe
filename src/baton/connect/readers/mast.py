"""MAST: traces of multi-agent systems that people annotated with failure modes (arXiv 2503.13657), as published.

A file is a run: `instance_id`, `problem_statement`, `other_data` (whether it came out right), `note` (the annotation,
kept in the session's meta), and `trajectory`: messages with a name (AG2) or lines of a log (HyperAgent). The dataset in
one file has rows of `mas_name`, `trace` and `mast_annotation`. A trajectory that is text and cannot be told apart by
speaker is one message of the system, and the report says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from baton.connect.import_report import ImportReport
from baton.connect.readers.chat_messages import as_text
from baton.connect.readers.group_chat import ChatEntry, group_chat
from baton.connect.readers.json_documents import documents, first_document
from baton.connect.readers.place_names import any_of, digest, files_of
from baton.connect.seen import Seen, SeenReward, SeenSession

FINAL: Final = "the chat ends with it"
INTERN: Final = "the intern that the planner names is the agent of that name"
UNSPLIT: Final = "the trace is one text that names no speakers"
_LOGGED = re.compile(r"^\S+ - (?:INFO|DEBUG|WARNING|ERROR) - (?P<text>.*)$", re.DOTALL)
_SPOKE = re.compile(r"^(?P<name>[\w .-]{1,40})'s Response: ?(?P<text>.*)$", re.DOTALL)
_TOLD = re.compile(r"^(?P<name>[\w .-]{1,40})->(?P<to>[\w .-]{1,40}): ?(?P<text>.*)$", re.DOTALL)
_INTERN = re.compile(r"^Intern Name: *(?:Codebase )?(?P<to>[\w-]+)", re.MULTILINE)


class MastSource:
    """The traces of the taxonomy's authors."""

    kind = "mast"
    about = "MAST: annotated traces of AG2, HyperAgent and others, JSON"
    single_files = True

    def recognises(self, place: Path) -> bool:
        return any_of(place, _is_mine, (".json", ".jsonl"))

    def read(self, place: Path, report: ImportReport) -> Iterator[Seen]:
        for path in files_of(place, (".json", ".jsonl")):
            for row in documents(path, report):
                value = row.value
                if isinstance(value, dict) and "trajectory" in value:
                    yield from _run(value, row.at, report, value.get("note"), None)
                elif isinstance(value, dict) and isinstance(value.get("trace"), dict | list | str):
                    yield from _dataset_row(value, row.at, report)
                else:
                    report.read()
                    report.skip("an entry without a trajectory", row.at)


def _is_mine(path: Path) -> bool:
    value = first_document(path)
    value = value[0] if isinstance(value, list) and value else value
    if not isinstance(value, dict):
        return False
    return {"instance_id", "trajectory"} <= value.keys() or {"mas_name", "trace"} <= value.keys()


def _dataset_row(value: dict[str, Any], at: str, report: ImportReport) -> Iterator[Seen]:
    inner = value["trace"]
    run = dict(inner) if isinstance(inner, dict) else {"trajectory": inner}
    run["instance_id"] = "-".join(
        as_text(part)
        for part in (value.get("mas_name"), value.get("benchmark_name"), value.get("trace_id"))
        if part is not None
    )
    kept = {name: value[name] for name in ("llm_name", "benchmark_name") if name in value}
    yield from _run(
        run,
        at,
        report,
        {**kept, "mast_annotation": value.get("mast_annotation")},
        as_text(value.get("mas_name")),
    )


def _run(run: dict[str, Any], at: str, report: ImportReport, note: Any, system: str | None) -> Iterator[Seen]:
    steps = run.get("trajectory")
    session = f"{as_text(run.get('instance_id')) or 'run'}-{digest(steps)}"
    logged = isinstance(steps, list) and any(isinstance(step, str) for step in steps)
    if isinstance(steps, list) and not logged:
        chat = list(_messages(steps, at, report))
        system = system or "ag2"
    else:
        text = "\n".join(map(as_text, steps)) if isinstance(steps, list) else as_text(steps)
        chat = _log(text, at, report, system)
        system = system or "hyperagent"
    known = run.get("other_data")
    other = known if isinstance(known, dict) else {}
    answer = other.get("answer")
    meta: dict[str, Any] = {"mast": {"note": note, "other_data": other}}
    if answer is not None:
        meta["gold"] = {"answer": answer}
    yield SeenSession(
        session=session, key=session, at=at, system=system, task=_joined(run.get("problem_statement")) or None,
        finished=True, meta=meta,
    )  # fmt: skip
    yield from group_chat(chat, session)
    if isinstance(other.get("correct"), bool):
        yield SeenReward(session=session, key="outcome", value=float(other["correct"]), at=at, by="mast")


def _joined(text: Any) -> str:
    """The files keep texts as lists of lines."""
    return "\n".join(map(as_text, text)) if isinstance(text, list) else as_text(text)


def _messages(steps: list[Any], at: str, report: ImportReport) -> Iterator[ChatEntry]:
    report.read(len(steps))
    for place, step in enumerate(steps):
        if not isinstance(step, dict) or not isinstance(step.get("name") or step.get("role"), str):
            report.skip("an entry of a trajectory without a speaker", f"{at}#{place}")
            continue
        last = place == len(steps) - 1
        yield ChatEntry(
            speaker=step.get("name") or step["role"], text=_joined(step.get("content")), key=str(place),
            at=f"{at}#{place}", type="orchestrator_decision" if last else "message",
            decision="stop" if last else None, why=FINAL if last else None,
        )  # fmt: skip


def _log(text: str, at: str, report: ImportReport, system: str | None) -> list[ChatEntry]:
    """Entries of a log: what its loggers wrote, each to the next one's beginning."""
    if not any(_LOGGED.match(line) for line in text.split("\n")):
        report.read()
        if not text.strip():
            return []
        return [ChatEntry(speaker=system or "system", text=text, key="0", at=at, why=UNSPLIT)]
    chat: list[ChatEntry] = []
    for place, entry in enumerate(_logged(text)):
        report.read()
        told, spoke = _TOLD.match(entry), _SPOKE.match(entry)
        where = f"{at}#{place}"
        if told:
            chat.append(
                ChatEntry(
                    speaker=told["name"], to=told["to"], text=told["text"].strip(), key=str(place), at=where
                )
            )
        elif spoke:
            intern = _INTERN.search(entry)
            chat.append(
                ChatEntry(
                    speaker=spoke["name"], text=spoke["text"].strip(), key=str(place), at=where,
                    type="message" if intern else "orchestrator_decision", to=intern["to"] if intern else None,
                    decision="delegate" if intern else "continue", why=INTERN if intern else None,
                )
            )  # fmt: skip
        else:
            report.skip("a line of a log that nobody said", where)
    return chat


def _logged(text: str) -> Iterator[str]:
    """A log's entries without their marks; a line without one goes on with the entry before it."""
    entry: list[str] = []
    for line in text.split("\n"):
        mark = _LOGGED.match(line)
        if mark:
            if entry:
                yield "\n".join(entry)
            entry = [mark["text"]]
        else:
            entry.append(line)
    if entry:
        yield "\n".join(entry)
