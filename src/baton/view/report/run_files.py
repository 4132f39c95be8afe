"""The files of a training run: run.json, and the JSON Lines of its metrics and evaluations.

Files may be written while they are read. A half-written last line is not there yet; a line that is no JSON
object is left out and counted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from baton.errors import FormatError


def run_of(directory: Path) -> dict[str, Any] | None:
    """What the run says it is; None where that cannot be read now."""
    try:
        return json_object(directory / "run.json")
    except FormatError:
        return None


def json_object(path: Path) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"{path} is not JSON: {error}.") from None
    except RecursionError:
        raise FormatError(f"{path} is nested too deep to be what a training run writes there.") from None
    if not isinstance(found, dict):
        raise FormatError(f"{path} holds no JSON object; expected what a training run writes there.")
    return found


def json_lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Objects of a JSON Lines file, and how many whole lines are none. No file: no lines yet."""
    try:
        whole, _, _ = path.read_bytes().rpartition(b"\n")
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror}.") from None
    found: list[dict[str, Any]] = []
    bad = 0
    for line in whole.split(b"\n"):
        if not line.strip():
            continue
        try:
            one = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            one = None
        if isinstance(one, dict):
            found.append(one)
        else:
            bad += 1
    return found, bad
