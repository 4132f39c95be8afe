"""Record a program of your own while it runs: two lines, and its team is in Baton.

    from baton.connect import record

    with record.langgraph("runs/mine") as recorder:
        graph.invoke(question, config={"callbacks": [recorder]})

Each function takes the folder to record into. `payloads=False` keeps all content out of it; `redact` takes secrets
out, and what matches its patterns (`redact=()`: secrets alone), before anything is written. While the program runs,
`baton view runs/mine` shows it; afterwards every command works on it. The frameworks are the reader's own installs
and are imported when the recorder is made.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import import_module
from typing import Any

Folder = str | os.PathLike[str]


def openai_agents(folder: Folder, *, payloads: bool = True, redact: Iterable[str] | None = None) -> Any:
    """`with record.openai_agents("runs/mine"): Runner.run_sync(...)`; every run inside is recorded."""
    return _made("openai_agents", folder, payloads, redact)


def langgraph(folder: Folder, *, payloads: bool = True, redact: Iterable[str] | None = None) -> Any:
    """`with record.langgraph("runs/mine") as recorder: graph.invoke(..., config={"callbacks": [recorder]})`."""
    return _made("langgraph", folder, payloads, redact)


def autogen(folder: Folder, *, payloads: bool = True, redact: Iterable[str] | None = None) -> Any:
    """`with record.autogen("runs/mine"): await team.run(task=...)`; every team and agent run inside is recorded."""
    return _made("autogen", folder, payloads, redact)


def crewai(folder: Folder, *, payloads: bool = True, redact: Iterable[str] | None = None) -> Any:
    """`with record.crewai("runs/mine"): crew.kickoff()`."""
    return _made("crewai", folder, payloads, redact)


def adk(folder: Folder, *, payloads: bool = True, redact: Iterable[str] | None = None) -> Any:
    """`with record.adk("runs/mine") as recorder: Runner(..., plugins=[recorder])`."""
    return _made("adk", folder, payloads, redact)


def ag2(folder: Folder, *, payloads: bool = True, redact: Iterable[str] | None = None) -> Any:
    """`with record.ag2("runs/mine"): await agent.ask(...)`."""
    return _made("ag2", folder, payloads, redact)


def _made(name: str, folder: Folder, payloads: bool, redact: Iterable[str] | None) -> Any:
    return import_module(f"baton.connect.live.{name}").make(folder, payloads=payloads, redact=redact)
