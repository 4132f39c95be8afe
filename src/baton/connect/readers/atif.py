"""ATIF, the Agent Trajectory Interchange Format of Harbor: versions 1.0 to 1.8, one file or several.

A trajectory is an agent; its steps are what it was told, said and did. An agent step is a call; its tool calls are
events, and each result of its observation answers one of them. A result that refers to another trajectory is a spawn
and that agent's return: by `trajectory_id` among the embedded ones (1.7 and later), by `trajectory_path` in a file
beside (only below the folder of the file itself), by `session_id` before 1.7. A tool call that such a result answers is
the spawn and no tool call beside it. Steps copied for context were recorded elsewhere and are not counted again. A
continuation (`continued_trajectory_ref`, `NAME.cont-1.json`) is the same agent, later.

Token ids and log-probabilities are taken as they are; where there is not one log-probability for each id they are left
out, and the report says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from baton.connect.import_report import ImportReport
from baton.connect.readers.atif_marks import agent_mark, run_mark
from baton.connect.readers.atif_steps import AtifTrajectory, steps_of
from baton.connect.readers.chat_messages import as_text
from baton.connect.readers.json_documents import documents, first_document
from baton.connect.readers.place_names import any_of, digest, files_of
from baton.connect.seen import Seen, SeenReward, SeenSession

_CONTINUED = re.compile(r"[.-]cont-(\d+)$")
_MOST_DEEP = 64


class AtifSource:
    """Trajectories of Harbor and of what else writes ATIF."""

    kind = "atif"
    about = "ATIF trajectories (Harbor's trajectory.json), 1.0 to 1.8"
    endings = (".json", ".jsonl")

    def recognises(self, place: Path) -> bool:
        return any_of(place, _is_mine, (".json", ".jsonl"), most=12, likely="trajectory*.json")

    def read(self, place: Path, report: ImportReport) -> Iterator[Seen]:
        taken: set[Path] = set()
        sessions: dict[str, str] = {}
        paths = [
            path for path in files_of(place, (".json", ".jsonl")) if not place.is_dir() or _is_mine(path)
        ]
        told = {path: list(_named_by(path)) for path in paths} if len(paths) > 1 else {}
        named = {other for others in told.values() for other in others}
        # Those that nobody refers to come first: whom they refer to belongs to their run.
        for path in sorted(paths, key=lambda path: (path.resolve() in named, path)):
            if path.resolve() not in taken:
                yield from _file(path, report, taken, sessions)


def _is_mine(path: Path) -> bool:
    value = first_document(path)
    value = value[0] if isinstance(value, list) and value else value
    version = value.get("schema_version") if isinstance(value, dict) else None
    return isinstance(version, str) and version.startswith("ATIF-v")


def _named_by(path: Path) -> Iterator[Path]:
    """The files that a file refers to."""
    for row in documents(path, ImportReport()):
        if isinstance(row.value, dict):
            for reference in _paths_in(row.value):
                found = _beside(path, reference)
                if found is not None:
                    yield found


def _paths_in(document: dict[str, Any]) -> Iterator[Any]:
    yield document.get("continued_trajectory_ref")
    for step in _dicts(document.get("steps")):
        observation = step.get("observation")
        for result in _dicts(observation.get("results") if isinstance(observation, dict) else None):
            for reference in _dicts(result.get("subagent_trajectory_ref")):
                yield reference.get("trajectory_path")
    for inner in _dicts(document.get("subagent_trajectories")):
        yield from _paths_in(inner)


def _dicts(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        return [value]
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _beside(path: Path, reference: Any) -> Path | None:
    """The file a reference names, if it lies below the folder of the file that names it."""
    if not isinstance(reference, str) or not reference or "://" in reference:
        return None
    folder = path.resolve().parent
    for tried in (folder / reference, folder / Path(reference).name):
        found = tried.resolve()
        if found.is_relative_to(folder) and found.is_file():
            return found
    return None


def _file(path: Path, report: ImportReport, taken: set[Path], sessions: dict[str, str]) -> Iterator[Seen]:
    taken.add(path.resolve())
    for row in documents(path, report):
        value = row.value
        if not isinstance(value, dict) or not isinstance(value.get("steps"), list):
            report.read()
            report.skip("an entry that is no trajectory", row.at)
            continue
        run = _Run(path, value, row.at, report, taken)
        if _parent_session(value) is None and not _CONTINUED.search(path.stem):
            # Some programs give every run the same id: it names one run only where the runs begin alike.
            begins = digest(value["steps"][:3])
            if sessions.setdefault(run.session, begins) != begins:
                report.join("several runs under one session id, told apart by how they begin")
                run.session = f"{run.session}-{begins}"
        yield from run.sightings()


class _Run:
    """One root trajectory with everything it refers to."""

    def __init__(
        self, path: Path, root: dict[str, Any], at: str, report: ImportReport, taken: set[Path]
    ) -> None:
        self.path = path
        self.root = root
        self.at = at
        self.report = report
        self.taken = taken
        named = as_text(root.get("session_id")) or _id_of(root)
        self.session = _parent_session(root) or named or f"{path.stem}-{digest(root['steps'][:2])}"
        self.done: set[str] = set()

    def sightings(self) -> Iterator[Seen]:
        root, agent = self.root, self.root.get("agent")
        agent = agent if isinstance(agent, dict) else {}
        system = " ".join(as_text(agent[word]) for word in ("name", "version") if agent.get(word))
        kept = {word: root[word] for word in ("schema_version", "notes", "extra") if root.get(word)}
        if tools := agent.get("tool_definitions"):
            kept["tool_definitions"] = tools
        main = self.trajectory(root, self.path, self.at, None, {})
        yield SeenSession(
            session=self.session, key=self.session, at=self.at, system=system or None, task=main.task(),
            topology=run_mark(root).topology, finished=run_mark(root).finished,
            meta={"atif": kept},
        )  # fmt: skip
        yield from self.walk(main, 0)
        yield from self.rewards()

    def trajectory(
        self, document: dict[str, Any], path: Path, at: str, parent: str | None, above: dict[str, Any]
    ) -> AtifTrajectory:
        inner = {
            as_text(each.get("trajectory_id") or each.get("session_id")): each
            for each in _dicts(document.get("subagent_trajectories"))
        }
        segment = _CONTINUED.search(path.stem)
        return AtifTrajectory(
            document=document, path=path, at=at, session=self.session, parent=parent,
            key=_id_of(document) or self.session, segment=int(segment[1]) if segment and parent is None else 0,
            inner={**above, **inner},
        )  # fmt: skip

    def walk(self, trajectory: AtifTrajectory, depth: int) -> Iterator[Seen]:
        mark = f"{trajectory.key}\0{trajectory.segment}"
        if mark in self.done or depth > _MOST_DEEP:
            return
        self.done.add(mark)
        children: list[AtifTrajectory] = []

        def find(reference: dict[str, Any]) -> str | None:
            child = self._find(trajectory, reference)
            if child is not None:
                children.append(child)
                return child.key
            name = reference.get("trajectory_id") or reference.get("session_id")
            self.report.skip("a sub-agent's trajectory that is not there", trajectory.at)
            return as_text(name) or None

        yield from steps_of(trajectory, find, self.report)
        for child in children:
            yield from self.walk(child, depth + 1)
        yield from self._unnamed(trajectory, depth)
        following = _beside(trajectory.path, trajectory.document.get("continued_trajectory_ref"))
        if following is not None:
            yield from self._continue(trajectory, following, depth)
        elif trajectory.document.get("continued_trajectory_ref"):
            self.report.skip("a continuation that is not there", trajectory.at)

    def _unnamed(self, trajectory: AtifTrajectory, depth: int) -> Iterator[Seen]:
        """Trajectories that are embedded and that nothing refers to."""
        for document in _dicts(trajectory.document.get("subagent_trajectories")):
            key = _id_of(document)
            if key is None or f"{key}\0{0}" in self.done or not isinstance(document.get("steps"), list):
                continue
            about = document.get("agent")
            mark = agent_mark(about) if isinstance(about, dict) else None
            prefix = trajectory.key.rpartition("/")[0]
            parent: str | None = trajectory.key
            if mark is not None:
                parent = None if mark.parent is None else f"{prefix}/{mark.parent}"
            at = f"{trajectory.at}#{key}"
            found = self.trajectory(document, trajectory.path, at, parent, trajectory.inner)
            yield from self.walk(found.unnamed() if mark is None else found, depth + 1)

    def _continue(self, trajectory: AtifTrajectory, path: Path, depth: int) -> Iterator[Seen]:
        self.taken.add(path)
        for row in documents(path, self.report):
            if isinstance(row.value, dict) and isinstance(row.value.get("steps"), list):
                later = self.trajectory(row.value, path, row.at, trajectory.parent, trajectory.inner)
                segment = max(later.segment, trajectory.segment + 1)
                yield from self.walk(later.again(trajectory.key, segment), depth + 1)

    def _find(self, trajectory: AtifTrajectory, reference: dict[str, Any]) -> AtifTrajectory | None:
        for word in ("trajectory_id", "session_id"):
            document = trajectory.inner.get(as_text(reference.get(word)))
            if document is not None and isinstance(document.get("steps"), list):
                at = f"{trajectory.at}#{as_text(reference.get(word))}"
                return self.trajectory(document, trajectory.path, at, trajectory.key, trajectory.inner)
        path = _beside(trajectory.path, reference.get("trajectory_path"))
        if path is None:
            return None
        self.taken.add(path)
        for row in documents(path, self.report):
            if isinstance(row.value, dict) and isinstance(row.value.get("steps"), list):
                return self.trajectory(row.value, path, row.at, trajectory.key, trajectory.inner)
        return None

    def rewards(self) -> Iterator[Seen]:
        """What Harbor's verifier gave, where the trajectory lies in a trial's folder."""
        for number, reward in enumerate(run_mark(self.root).rewards):
            if reward.unit in ("team", "agent", "role"):
                key = f"{self.session}/{reward.target}" if reward.unit == "agent" else reward.target
                yield SeenReward(
                    session=self.session, key=f"reward:{number}", value=reward.value, at=self.at,
                    family=reward.family, unit=reward.unit, name=reward.name, by=reward.by,
                    target=None if reward.unit == "team" else key,
                )  # fmt: skip
        result = _result_beside(self.path)
        if result is not None:
            found = next((row.value for row in documents(result, ImportReport())), None)
            verified = found.get("verifier_result") if isinstance(found, dict) else None
            rewards = verified.get("rewards") if isinstance(verified, dict) else None
            for name, value in (rewards or {}).items() if isinstance(rewards, dict) else ():
                if isinstance(value, int | float):
                    yield SeenReward(
                        session=self.session, key=f"verifier:{name}", value=float(value), at=str(result),
                        name=None if name == "reward" else as_text(name), by="harbor verifier",
                    )  # fmt: skip


def _result_beside(path: Path) -> Path | None:
    """What Harbor wrote of the trial whose trajectory this is."""
    folder = path.resolve().parent
    return next((file for up in (folder, folder.parent) if (file := up / "result.json").is_file()), None)


def _id_of(document: dict[str, Any]) -> str | None:
    return as_text(document.get("trajectory_id") or document.get("session_id")) or None


def _parent_session(document: dict[str, Any]) -> str | None:
    """Terminus writes into a summariser's file whose summariser it is."""
    agent = document.get("agent")
    extra = agent.get("extra") if isinstance(agent, dict) else None
    return as_text(extra.get("parent_session_id")) or None if isinstance(extra, dict) else None
