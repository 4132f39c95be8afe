"""A campaign of escapes from the Python sandbox: a table of attacks, run at a level, each with its outcome.

`run_escapes(level)` gives (name, outcome) for every attack. An outcome is "held"; "open: " and why, where
docs/sandbox.md says that the level leaves this open; or "ESCAPED: " and what was seen. What each attack may use
besides Python is in `escape_world.PRELUDE`. Level "none" runs them without a sandbox: most have to get through there.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache
from pathlib import Path

from escape_world import Runner, Seen, World, program, unconfined
from msgspec import Struct

from baton.team.tools.sandbox import run_python
from baton.team.tools.sandbox_levels import LAYERS, SandboxLimits

WALL_SECONDS = 3.0


class Attack(Struct, frozen=True, kw_only=True):
    """One way to try to get out."""

    name: str
    group: str
    code: str

    @property
    def is_safe(self) -> bool:
        """Whether it may be tried without a sandbox."""
        return self.group != "resource" and "PDEATHSIG" not in self.name


@cache
def table() -> tuple[Attack, ...]:
    """All attacks, in the order of their file."""
    found = []
    for part in re.split(r"^## ", (Path(__file__).with_suffix(".txt")).read_text(), flags=re.MULTILINE)[1:]:
        group, _, rest = part.partition("\n")
        for each in re.split(r"^== ", rest, flags=re.MULTILINE)[1:]:
            name, _, code = each.partition("\n")
            found.append(Attack(name=name, group=group, code=code.strip()))
    return tuple(found)


FIRST_FIVE = tuple(attack.name for attack in table() if attack.group == "issue")
"""What got through when the sandbox was first attacked from outside the project."""
OPEN = {("landlock", "see"): "names, sizes and times of files outside can be seen, /proc among them"}
"""Level and group of attacks that are known to get through -> why."""


def run_escapes(level: str, names: Collection[str] | None = None) -> list[tuple[str, str]]:
    """Try every attack (or those named) at "bubblewrap", "landlock" or "none"; never weaker than said."""
    runner = _runner(level)
    found = []
    with World() as world:
        for attack in table():
            if names is not None and attack.name not in names:
                continue
            if level == "none" and not attack.is_safe:
                found.append((attack.name, "not tried"))
                continue
            told = world.prepare()
            seen = runner(program(attack.code, told), world.marker)
            outcome = world.judge(seen, WALL_SECONDS)
            if outcome != "held" and (level, attack.group) in OPEN:
                outcome = f"open: {OPEN[level, attack.group]}"
            if outcome == "held" and any(
                error in seen.output for error in ("NameError", "SyntaxError", "TypeError")
            ):
                outcome = f"BROKEN: {seen.output[-300:]}"  # an attack with a mistake in it proves nothing
            found.append((attack.name, outcome))
    return found


def _runner(level: str) -> Runner:
    if level == "none":
        return unconfined
    layers = LAYERS if level == "bubblewrap" else LAYERS[1:]

    def confined(code: str, marker: str) -> Seen:
        limits = SandboxLimits(
            wall_seconds=WALL_SECONDS,
            cpu_seconds=2,
            memory_bytes=int(marker),
            layers=layers,
            least=level,  # type: ignore[arg-type]  # checked there
        )
        result = run_python(code, limits)
        if result.level != level:
            raise RuntimeError(f"the sandbox does not reach {level!r} here: {result.output}")
        return Seen(output=result.output, duration_s=result.duration_s, stopped=result.stopped)

    return confined
