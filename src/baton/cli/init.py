"""`baton init`: a small project that works as it is written, to start from: a task, a reward, a recipe, a test."""

from __future__ import annotations

import argparse
import keyword
import re
import shlex
import sys
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from baton import registry
from baton.errors import UsageError
from baton.trace.formats.durable import naming
from baton.view.terminal.screen import emit

_NAME = "lost-and-found"
"""What the files under `starter/` are called by; a name that is given takes its place in them."""
_FILES = {
    "README.md.txt": "README.md",
    "task.py.txt": "{module}.py",
    "reward.py.txt": "{module}_reward.py",
    "recipe.toml.txt": "recipe.toml",
    "test.py.txt": "test_{module}.py",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", metavar="FOLDER", nargs="?", help="where it goes (default: the task's name)"
    )
    parser.add_argument(
        "--task-name", metavar="NAME", default=_NAME, help=f"the task's name, such as {_NAME} (the default)"
    )
    parser.epilog = (
        "Nothing is overwritten. The project runs, trains and passes its tests as it is written.\n\n"
        "examples:\n  baton init\n  baton init work/errands --task-name errands"
    )


def run(args: argparse.Namespace) -> int:
    name = _checked(args.task_name)
    folder = Path(args.folder or name)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file. Give a folder: baton init {shlex.quote(f'{folder}-project')}")
    texts = _project(name)
    if there := [each for each in texts if (folder / each).exists()]:
        raise UsageError(
            f"{folder / there[0]} is there already, and nothing is overwritten. Give another folder: "
            f"baton init {shlex.quote(f'{folder}-2')}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder, texts)
    emit([[(f"{folder / each}", "")] for each in texts])
    lines = [f"cd {shlex.quote(str(folder))}", *_commands(name)]
    emit([[], [("Type:", "bold")], *([(f"  {line}", "green")] for line in lines)])
    return 0


def _write(folder: Path, texts: dict[str, str]) -> None:
    """All of the files, or none: what is left of a try would be in the way of the next."""
    made: list[Path] = []
    try:
        for each, text in texts.items():
            with naming(folder / each), (folder / each).open("x", encoding="utf-8") as file:
                made.append(folder / each)
                file.write(text)
    except OSError:
        for path in made:
            path.unlink(missing_ok=True)
        raise


def _commands(name: str) -> list[str]:
    """What works in the project's folder, in this order."""
    task = f"{_module(name)}:{_class(name)}"
    return [
        f"baton run {task} --out runs/first",
        "baton show runs/first",
        "baton train recipe.toml --trust --out runs/trained",
        "python -m pytest -q",
    ]


def _project(name: str) -> dict[str, str]:
    """File -> its text."""
    words = {
        _NAME: name,
        _module(_NAME): _module(name),
        _class(_NAME): _class(name),
        "@COMMANDS@": "\n".join(_commands(name)),
    }
    source = files("baton.cli").joinpath("starter")
    found = {}
    for template, file in _FILES.items():
        text = source.joinpath(template).read_text("utf-8")
        either = re.compile("|".join(map(re.escape, words)))
        found[file.format(module=_module(name))] = either.sub(lambda match: words[match[0]], text)
    return found


def _checked(name: str) -> str:
    """A name that a task can have, whose module hides nobody's."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise UsageError(
            f"--task-name {name!r}: expected small letters and digits, in words joined by hyphens. Type: "
            f"--task-name {_suggested(name)}"
        )
    if registry.knows("task", name):
        raise UsageError(f"--task-name {name}: there is a task of that name. Type: --task-name my-{name}")
    module = _module(name)
    taken = keyword.iskeyword(module) or module in sys.stdlib_module_names
    if taken or any(_importable(each) for each in (module, f"{module}_reward", f"test_{module}")):
        raise UsageError(
            f"--task-name {name}: Python has a module or a word {module!r} already. Type: --task-name my-{name}"
        )
    return name


def _importable(module: str) -> bool:
    """Whether a module of this name is installed; one in this folder does not count."""
    found = find_spec(module)
    place = None if found is None else found.origin
    return found is not None and (place is None or Path(place).parent != Path.cwd())


def _suggested(name: str) -> str:
    words = re.findall(r"[a-z0-9]+", name.lower())
    joined = "-".join(words) or _NAME
    return joined if joined[0].isalpha() else f"task-{joined}"


def _module(name: str) -> str:
    return name.replace("-", "_")


def _class(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("-"))
