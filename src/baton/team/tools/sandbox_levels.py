"""How well sandboxed code is kept in: four levels, what each is made of, and the refusal of a weaker one.

Invariant: code runs at the strongest level that the machine gives, or not at all when that is weaker than was asked
for. Nobody gets less without having named it. What each level promises and what not: docs/sandbox.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, get_args

from msgspec import Struct

from baton.errors import UsageError, nearest

Level = Literal["audit", "seccomp", "landlock", "bubblewrap"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""From the weakest to the strongest."""
DEFAULT: Level = "landlock"
"""Weaker ones leave the files open that the user may read."""
LAYERS = ("bubblewrap", "quota", "namespaces", "limits", "capabilities", "landlock", "seccomp")
"""What can be laid around the code, from the outside in."""
WRAPPED, UNWRAPPED = ("bubblewrap", "quota"), ("namespaces",)
"""Those that are tried only inside bubblewrap, and only without it."""

NEEDED: Mapping[Level, tuple[str, ...]] = {
    "audit": (),
    "seccomp": ("limits", "seccomp"),
    "landlock": ("limits", "capabilities", "landlock", "seccomp"),
    "bubblewrap": ("bubblewrap", "limits", "capabilities", "seccomp"),
}
"""The layers that make a level."""

PROTECTS: Mapping[Level, str] = {
    "audit": "Python alone hinders it: it can get at all that you can",
    "seccomp": "no network, no processes, no signals; your files are open",
    "landlock": "also no files but Python's; names and sizes can be seen",
    "bubblewrap": "also its own mounts, processes, network: nothing in sight",
}
"""What a level keeps the code from, in one line."""


class Protection(Struct, frozen=True, kw_only=True):
    """What the machine gives, as tried."""

    level: Level | None
    """None: the sandbox does not start at all."""
    layers: tuple[str, ...]
    missing: dict[str, str]
    """Layer that is not in force -> why."""

    def meets(self, least: Level) -> bool:
        return self.level is not None and LEVELS.index(self.level) >= LEVELS.index(least)


class SandboxRefused(UsageError):
    """The machine protects less than was asked for, so nothing was run."""


def level_of(layers: Collection[str]) -> Level:
    """The strongest level that these layers make."""
    return next(level for level in reversed(LEVELS) if set(NEEDED[level]) <= set(layers))


def refusal(found: Protection, least: Level) -> str:
    """Why code is not run here, and what to type."""
    has = (
        f"reaches level {found.level!r} here ({PROTECTS[found.level]})"
        if found.level
        else "does not start here"
    )
    reasons = "; ".join(f"{layer}: {why}" for layer, why in found.missing.items())
    said = f"the Python sandbox {has}, and at least {least!r} was asked for."
    said += f" Not in force: {reasons}." if reasons else ""
    said += " Type: apt-get install bubblewrap (as root; other systems call the package the same)"
    if found.level is None:
        return said + "."
    return (
        f"{said}, or ask for what there is by its name: --set task.sandbox={found.level} (of a recipe: "
        f'task.settings.sandbox), in Python SandboxLimits(least="{found.level}").'
    )


class SandboxLimits(Struct, frozen=True, kw_only=True):
    """What one run may take."""

    wall_seconds: float = 10.0
    cpu_seconds: int = 5
    memory_bytes: int = 512 * 2**20
    """Address space; Python itself needs some 40 MiB."""
    file_bytes: int = 16 * 2**20
    """The most that any one file may hold."""
    disk_bytes: int = 64 * 2**20
    """The most that all files may hold together. Inside bubblewrap the kernel sees to it; else it is looked at every
    50 ms, so a fast writer gets past it by a little."""
    num_files: int = 1_000
    """Files and directories together, kept likewise."""
    kept_bytes: int = 4 * 2**20
    """Of an agent's folder, the most that the trace keeps, so that a resumed run and a fork have it again."""
    num_threads: int = 32
    """Where the kernel counts them; running as root it does not, and memory is the bound."""
    output_bytes: int = 65_536
    least: Level = DEFAULT
    """The weakest level that will do: "audit", "seccomp", "landlock" or "bubblewrap". Weaker is refused."""
    layers: tuple[str, ...] = LAYERS
    """The layers of confinement to try."""

    def __post_init__(self) -> None:
        if self.least not in LEVELS:
            raise UsageError(f"there is no sandbox level {self.least!r}. {nearest(self.least, LEVELS)}")
