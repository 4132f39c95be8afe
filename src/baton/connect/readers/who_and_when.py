"""Who&When: failed runs of agent teams, with the agent and the step that people blamed (arXiv 2505.00212).

Each JSON file is one run: `history` is who said what; `mistake_agent`, `mistake_step`, `mistake_reason`, `ground_truth`
are kept in the session's meta, under the file's own words. Two halves differ: in the hand-crafted one (Magentic-One) a
speaker is "Orchestrator (-> WebSurfer)", which says who was meant; in the algorithm-generated one (AG2's CaptainAgent)
`name` is the speaker and everybody reads everything.

The events of a run are its history one by one: `mistake_step` 12 is the event whose source key is 12. The task itself,
where a person put it, stands in the session and not among the events.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from baton.connect.import_report import ImportReport
from baton.connect.readers.chat_messages import as_text, text_of
from baton.connect.readers.group_chat import ChatEntry, group_chat
from baton.connect.readers.json_documents import documents, first_document
from baton.connect.readers.place_names import any_of, digest, files_of
from baton.connect.seen import Seen, SeenEvent, SeenReward, SeenSession

ANSWERS: Final = "Magentic-One's agents answer its orchestrator"
WRONG: Final = "Who&When holds failed runs"
_ASIDE = re.compile(r"^(?P<name>.*?)\s*\((?P<aside>.*)\)$")
_EXIT = re.compile(r"^exitcode: (-?\d+)")
_KEPT = (
    "question_ID", "level", "ground_truth", "is_correct", "is_corrected", "mistake_agent", "mistake_step",
    "mistake_reason", "mistake_type", "labels",
)  # fmt: skip


class WhoAndWhenSource:
    """The files of the benchmark."""

    kind = "who-and-when"
    about = "Who&When: JSON files of failed runs, with the blamed agent and step"
    single_files = True

    def recognises(self, place: Path) -> bool:
        return any_of(place, _is_mine, (".json", ".jsonl"))

    def read(self, place: Path, report: ImportReport) -> Iterator[Seen]:
        for path in files_of(place, (".json", ".jsonl")):
            for row in documents(path, report):
                if isinstance(row.value, dict) and isinstance(row.value.get("history"), list):
                    yield from _run(path, row.value, row.at, report)
                else:
                    report.read()
                    report.skip("an entry without a history", row.at)


def _is_mine(path: Path) -> bool:
    value = first_document(path)
    value = value[0] if isinstance(value, list) and value else value
    return isinstance(value, dict) and "history" in value and bool(value.keys() & set(_KEPT))


def _run(path: Path, run: dict[str, Any], at: str, report: ImportReport) -> Iterator[Seen]:
    # One question was given to several teams, so its id alone does not name a run.
    question = as_text(run.get("question_ID")) or path.stem
    session = f"{question}-{digest(run['history'], 4)}"
    handcrafted = not any(isinstance(entry, dict) and entry.get("name") for entry in run["history"])
    chat = [
        said
        for place, entry in enumerate(run["history"])
        if (said := _said(entry, place, handcrafted, f"{at}#{place}", report)) is not None
    ]
    kept = {name: run[name] for name in _KEPT if name in run}
    yield SeenSession(
        session=session, key=session, at=at, system="magentic-one" if handcrafted else "ag2 captain-agent",
        task=as_text(run.get("question")).strip() or None, topology="centralized" if handcrafted else None,
        finished=True, meta={"who_and_when": kept, "gold": {"answer": run.get("ground_truth")}},
    )  # fmt: skip
    blamed = as_text(run.get("mistake_step"))
    for seen in group_chat(chat, session):
        if isinstance(seen, SeenEvent) and seen.key == blamed:
            seen.extra["who_and_when"] = {"mistake_reason": as_text(run.get("mistake_reason"))}
        yield seen
    correct = run.get("is_correct", run.get("is_corrected"))
    yield SeenReward(
        session=session, key="outcome", value=1.0 if as_text(correct).lower() == "true" else 0.0, at=at,
        by="who-and-when", why=WRONG if correct is None else None,
    )  # fmt: skip


def _said(entry: Any, place: int, handcrafted: bool, at: str, report: ImportReport) -> ChatEntry | None:
    report.read()
    if not isinstance(entry, dict) or not isinstance(entry.get("role"), str):
        report.skip("an entry of a history without a speaker", at)
        return None
    text = text_of(entry.get("content"))
    key = str(place)
    if not handcrafted:
        name = as_text(entry.get("name")) or entry["role"]
        code = _EXIT.match(text)
        failed = code is not None and code.group(1) != "0"
        return ChatEntry(speaker=name, text=text, key=key, at=at, status="failed" if failed else None)
    aside = _ASIDE.match(entry["role"])
    name, mark = (aside["name"], aside["aside"].strip()) if aside else (entry["role"], "")
    if mark.startswith("->"):
        to = mark.removeprefix("->").strip()
        return ChatEntry(speaker=name, text=text, key=key, at=at, to=to, decision="delegate")
    if mark == "termination condition":
        return ChatEntry(
            speaker=name, text=text, key=key, at=at, type="orchestrator_decision", decision="stop"
        )
    if mark:
        return ChatEntry(
            speaker=name, text=text, key=key, at=at, type="orchestrator_decision", decision="continue",
            extra={"aside": mark},
        )  # fmt: skip
    if name.lower() in ("human", "user"):
        return ChatEntry(speaker=name, text=text, key=key, at=at, person=True)
    return ChatEntry(speaker=name, text=text, key=key, at=at, to="Orchestrator", why=ANSWERS)
