"""Where runs are kept: a place's store, and what is said of names and files that are none."""

from __future__ import annotations

import shlex
from pathlib import Path

from baton.errors import UsageError
from baton.registry import TRUST
from baton.trace.formats import detect, format_of_name

STORE = "run.db"

_WORDS = {
    "jsonl": "JSON Lines",
    "survey": "the survey's JSON",
    "chrome": "a Chrome trace",
    "mermaid": "Mermaid",
}


def store_path(place: str) -> Path:
    """The store of a run's directory, or the store itself."""
    if not place:
        raise UsageError("'' names no place. Give one, such as runs/sum")
    path = Path(place)
    return path / STORE if path.is_dir() or not path.suffix else path


def store_to_write(place: str) -> Path:
    """The store that a run is written to, as it goes. No other format can be."""
    path = store_path(place)
    if path.is_file():
        if path != Path(place) and not path.stat().st_size:
            path.unlink()  # all that a run left whose disk was full, or that was killed, as its store was made
            return path
        check_store(path)
        return path
    kind = _kind_of_name(path)
    if kind in _WORDS:
        folder = path.with_name(path.name.partition(".")[0])
        convert = shlex.join(["baton", "convert", str(folder), place])
        raise UsageError(
            f"{place} is a name for {_WORDS[kind]}, and a run is written to a store. "
            f"Type: --out {shlex.quote(str(folder))}, then: {convert}"
        )
    return path


def check_store(path: Path) -> None:
    """What is there can be added to."""
    if other := _other_than_store(path):
        raise UsageError(f"{path} is {other}, not a store. Give another --out.")


def store_to_resume(place: str) -> Path:
    """The store in which runs go on."""
    path = store_path(place)
    if not path.exists():
        if (Path(place) / "recipe.toml").is_file():
            raise UsageError(
                f"{place} is a training run. Type: baton train --resume --out {shlex.quote(place)}"
            )
        raise UsageError(f"there is no run in {place}: {path} does not exist.")
    if other := _other_than_store(path):
        store = str(path.with_suffix(".db"))
        convert = shlex.join(["baton", "convert", str(path), store])
        empty = not path.stat().st_size
        hint = "Nothing was kept in it." if empty else f"Type: {convert}, then: {resume_command(store)}"
        raise UsageError(f"{path} is {other}, not a store, in which runs go on. {hint}")
    return path


def resume_command(
    place: str, *, trace_id: str | None = None, policies: tuple[str, ...] = (), trust: bool = False
) -> str:
    """What to type to go on with the runs in a place."""
    words = ["baton", "resume", place, *(("--trace", trace_id) if trace_id else ())]
    for policy in policies:
        words += ["--policy", policy]
    return shlex.join([*words, *([TRUST] if trust else [])])


def _other_than_store(path: Path) -> str | None:
    """What a file is, in words; None: a store. Raises where it is nothing that Baton reads."""
    if path.is_file() and not path.stat().st_size:
        return "an empty file"
    kind = detect(path)
    return None if kind == "sqlite" else _WORDS[kind]


def _kind_of_name(path: Path) -> str | None:
    try:
        return format_of_name(path)
    except UsageError:  # the name says nothing, as of runs/v0.1
        return None
