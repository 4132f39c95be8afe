"""The environment of a Python process that a test starts and that must find more than what is installed."""

from __future__ import annotations

import os
from pathlib import Path


def on_path(*folders: Path) -> dict[str, str]:
    """This process's environment, with folders before everything else that Python looks in."""
    places = [*map(str, folders), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}


def with_support() -> dict[str, str]:
    """For a process that imports the tests' shared helpers."""
    return on_path(Path(__file__).parent)
