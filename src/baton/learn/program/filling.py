"""What a run of a program is given: its command, its environment and its input, with an instance's fields filled in."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from baton.errors import UsageError, nearest
from baton.learn.program.part import ProgramPart
from baton.tasks.task import Instance

_PLACE = re.compile(r"\{([A-Za-z_]\w*)\}")
_ENV = "{env}"
_PASSED = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TERM", "VIRTUAL_ENV", "PYTHONPATH",
    "LD_LIBRARY_PATH", "NODE_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "XDG_CACHE_HOME", "OMP_NUM_THREADS",
)  # fmt: skip
"""Variables of ours that say where things are, and hold no secrets; and all that begin with LC_."""


class FilledProgram(Struct, frozen=True, kw_only=True):
    """One run, ready to start."""

    command: tuple[str, ...]
    env: dict[str, str]
    """The recipe's own variables, and those that it passes on."""
    stdin: bytes | None


def values_of(instance: Instance, session: str, part: ProgramPart, work: Path | str) -> dict[str, str]:
    """What stands for each `{name}`: the fields of the instance, and what every run has."""
    data = instance.data if isinstance(instance.data, Mapping) else {}
    fields = {
        str(name): value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in data.items()
    }
    own = {
        "question": instance.prompt,
        "prompt": instance.prompt,
        "seed": str(instance.seed),
        "split": instance.split,
    }
    run = {"session": session, "work": str(work), "folder": part.folder or str(Path.cwd())}
    return own | fields | run  # a line's own field `question` is what its author means by it


def filled(part: ProgramPart, values: Mapping[str, str], *, command: Sequence[str] = ()) -> FilledProgram:
    """The program for one run; `command` in the place of the part's own."""
    words = tuple(_word(word, part, values) for word in command or part.command)
    env = {name: os.environ[name] for name in part.pass_env if name in os.environ}
    env |= {name: fill(text, values) for name, text in part.env.items()}
    wrap = tuple(fill(word, values) if word != _ENV else word for word in part.wrap)
    stdin = None if part.stdin is None else fill(part.stdin, values).encode()
    return FilledProgram(command=(*wrap, *words), env=env, stdin=stdin)


def expand_env(command: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """The word "{env}" of a wrapping command as `--env NAME` for each variable, as docker and podman read them."""
    found: list[str] = []
    for word in command:
        found += [each for name in names for each in ("--env", name)] if word == _ENV else [word]
    return tuple(found)


def base_environment() -> dict[str, str]:
    """The variables of this process that a program gets without being named."""
    return {name: value for name, value in os.environ.items() if name in _PASSED or name.startswith("LC_")}


def fill(text: str, values: Mapping[str, str]) -> str:
    """Text with each `{name}` that is known replaced, once: what is filled in is not looked through again."""
    return _PLACE.sub(lambda place: values.get(place[1], place[0]), text)


def _word(word: str, part: ProgramPart, values: Mapping[str, str]) -> str:
    if not _PLACE.search(word):
        there = Path(part.folder or ".") / word
        return str(there.resolve()) if word and not Path(word).is_absolute() and there.is_file() else word
    return fill(word, values)


def check_command(part: ProgramPart, instance: Instance) -> None:
    """Refuse a command that cannot be started, and places that nothing fills."""
    known = [*values_of(instance, "", part, "")]
    where = {"command": part.command, "alone": part.alone, "wrap": [w for w in part.wrap if w != _ENV]}
    where |= {"stdin": (part.stdin or "",), "env": tuple(part.env.values())}
    for setting, texts in where.items():
        for name in (place[1] for text in texts for place in _PLACE.finditer(text)):
            if name not in known:
                raise UsageError(
                    f"program.{setting} has {{{name}}}, and an instance has no such field. {nearest(name, known)}"
                )
    if not part.command:
        raise UsageError(
            'program.command is empty. Write what you would type: ["python", "my_agent.py", "{question}"].'
        )
    for command in filter(None, ((*part.wrap, *part.command), part.alone)):
        _check_there(command, part)


def _check_there(command: Sequence[str], part: ProgramPart) -> None:
    word = _word(command[0], part, {})
    if shutil.which(word) is None:
        raise UsageError(
            f"there is no program {command[0]!r} on the PATH or in {part.folder}. Install it, or give its whole path: "
            "--set 'program.command=[\"/path/to/program\", ...]'"
        )
    for script in command[1:2]:
        if (
            script.endswith((".py", ".js", ".mjs", ".sh", ".ts"))
            and not Path(_word(script, part, {})).is_file()
        ):
            raise UsageError(
                f"there is no file {script!r} in {part.folder}, where the program's files are looked for. "
                "Set program.folder, or give its whole path."
            )
