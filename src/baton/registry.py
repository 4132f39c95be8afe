"""One resolver for every extension point: a name becomes the thing that goes by it.

A name is looked up in this order: what this process registered, what Baton ships, the entry points of installed
packages (group `baton.KIND`), and `module:attr`, which is imported. So one name works the same from Python, in a
recipe and on the command line.

    [project.entry-points."baton.topology"]
    star = "my_package:star"

Invariant: a name that comes out of a file (a trace, a recipe) imports nothing that the person has not installed or
agreed to: `check_trusted` refuses `module:attr` there. What a person types or passes needs no leave.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module, invalidate_caches
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from traceback import extract_tb
from typing import Any, Final, TypeVar

from baton.errors import BatonError, MissingExtraError, UsageError, nearest

T = TypeVar("T")

HOMES: Final[Mapping[str, str]] = {
    "topology": "baton.team.topology:TOPOLOGIES",
    "aggregator": "baton.team.aggregate:AGGREGATORS",
    "surface": "baton.team.surface:SURFACES",
    "tool": "baton.team.tools:TOOLS",
    "engine": "baton.engine:ENGINES",
    "task": "baton.tasks.catalog:TASKS",
    "game": "baton.games.library:GAMES",
    "reward": "baton.reward.reward_recipe:RULES",
    "estimator": "baton.credit:ESTIMATORS",
    "loss": "baton.learn.loss:LOSSES",
    "critic": "baton.learn.critics.critic:CRITICS",
    "metric": "baton.measure.metrics:METRICS",
    "format": "baton.trace.formats.shipped:FORMATS baton.connect.writers:FORMATS",
    "source": "baton.connect.readers:SOURCES",
    "monitor": "baton.learn.watch:MONITORS",
    "logger": "baton.learn.run.loggers:LOGGERS",
    "sanitiser": "baton.team.guard.sanitisers:SANITISERS",
    "cost": "baton.learn.constraint.costs:COSTS",
    "recipe": "baton.learn.recipe:RECIPES",
}
"""Kind -> the mappings of what Baton ships of it, by name. Imported when they are asked for."""

TRUST: Final = "--trust"
"""What a person types to let a file import code and reach servers."""

_registered: dict[str, dict[str, Any]] = {kind: {} for kind in HOMES}


def register(kind: str, name: str) -> Callable[[T], T]:
    """Give something a name for this process: `@register("topology", "star")` above a function or class."""
    _check_kind(kind)

    def named(thing: T) -> T:
        if name in _registered[kind] or name in shipped(kind):
            raise UsageError(f"there already is a {kind} {name!r}; give this one another name.")
        _registered[kind][name] = thing
        return thing

    return named


def resolve(kind: str, name: str) -> Any:
    """What goes by a name. A name that nobody knows is an error with the nearest right one."""
    _check_kind(kind)
    for known in (_registered[kind], shipped(kind)):
        if name in known:
            return known[name]
    entry = _entry_points(kind).get(name)
    if entry is not None:
        return _loaded(kind, name, entry.load)
    if is_reference(name) and (_is_there(name) or not _is_near(kind, name)):
        return imported(kind, name)
    raise UsageError(
        f"there is no {kind} {name!r}. {nearest(name, names(kind))} For one of your own, give module:attr."
    )


def names(kind: str) -> tuple[str, ...]:
    """Every name that is known now: shipped, registered, installed."""
    _check_kind(kind)
    return tuple(dict.fromkeys((*shipped(kind), *_registered[kind], *_entry_points(kind))))


def knows(kind: str, name: str) -> bool:
    """Whether a name is shipped, registered or installed. Nothing is imported but Baton's own lists."""
    return name in names(kind)


def every(kind: str) -> dict[str, Any]:
    """Everything that has a name now. What is installed and cannot be loaded is left out: it may be for other work."""
    found: dict[str, Any] = {}
    for name in names(kind):
        with suppress(UsageError):
            found[name] = resolve(kind, name)
    return found


def shipped(kind: str) -> Mapping[str, Any]:
    """What Baton itself has of a kind."""
    found: Mapping[str, Any] = {}
    for home in HOMES[kind].split():
        module, _, attribute = home.partition(":")
        more: Mapping[str, Any] = getattr(import_module(module), attribute)
        found = {**found, **more} if found else more
    return found


def is_reference(name: str) -> bool:
    """Whether a name is written `module:attr`, so that resolving it imports a module."""
    module, colon, attribute = name.partition(":")
    return bool(colon) and _is_dotted(module) and _is_dotted(attribute)


def check_trusted(kind: str, given: Iterable[str], whose: str) -> None:
    """Refuse code that a file names and nobody vouched for. `whose` is the file, in words."""
    for name in given:
        if is_reference(name) and not knows(kind, name):
            raise UsageError(
                f"{whose} names {name!r} as its {kind}: that would import the Python module "
                f"{name.partition(':')[0]!r}. If you trust it, type: {TRUST}"
            )


def import_modules(modules: Iterable[str], whose: str, *, trust: bool) -> None:
    """The modules that a recipe lists under `import`, for what they register."""
    for module in modules:
        if not _is_dotted(module):
            raise UsageError(f"{whose}: import has {module!r}; expected the name of a Python module.")
        if not trust:
            raise UsageError(
                f"{whose} imports the Python module {module!r}, which runs its code. If you trust it, type: {TRUST}"
            )
        _loaded("module", module, lambda module=module: _imported_module(module))  # type: ignore[misc]  # bound now


def _is_there(name: str) -> bool:
    """Whether the module of `module:attr` can be found, by what it is called."""
    top = name.partition(".")[0].partition(":")[0]
    return find_spec(top) is not None or (Path.cwd() / f"{top}.py").is_file()


def _is_near(kind: str, name: str) -> bool:
    """Whether a name looks like a known one, mistyped: there are names with a colon that are no module's."""
    return nearest(name, names(kind)).startswith("Did")


def _check_kind(kind: str) -> None:
    if kind not in HOMES:
        raise UsageError(f"there is no kind of extension {kind!r}. {nearest(kind, HOMES)}")


def _is_dotted(text: str) -> bool:
    return bool(text) and all(part.isidentifier() for part in text.split("."))


@cache
def _entry_points(kind: str) -> dict[str, Any]:
    return {entry.name: entry for entry in entry_points(group=f"baton.{kind}")}


def imported(kind: str, name: str) -> Any:
    """What `module:attr` leads to; `kind` is what it is to be, for messages."""
    module, _, attribute = name.partition(":")

    def load() -> Any:
        found: Any = _imported_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
        return found

    return _loaded(kind, name, load)


def _imported_module(module: str) -> Any:
    """A module that a person named or vouched for; the current folder is looked into last, as `python -m` does first.

    The folder stays on the path, since the module may import its neighbours later. It is put there for such a module
    alone: an optional package that is not installed is never looked for in whatever folder somebody stands in.
    """
    top = module.partition(".")[0]
    here = Path.cwd()
    lies_here = (here / f"{top}.py").is_file() or (here / top).is_dir()
    if lies_here and str(here) not in sys.path and top not in sys.modules and find_spec(top) is None:
        sys.path.append(str(here))
        invalidate_caches()
    return import_module(module)


def _loaded(kind: str, name: str, load: Callable[[], Any]) -> Any:
    """What `load` gives; a package that cannot be imported is a person's mistake, said in one line."""
    try:
        return load()
    except MissingExtraError:
        raise
    except (ImportError, AttributeError) as error:
        near = nearest(error.name or "", dir(error.obj)) if isinstance(error, AttributeError) else ""
        hint = near if near.startswith("Did") else "Check the name."
        raise UsageError(
            f"{kind} {name!r} cannot be loaded: {error}. {hint} Its package has to be installed, or its folder be "
            "this one or on PYTHONPATH."
        ) from None
    except BatonError:
        raise
    except Exception as error:  # of its own code, as it is imported
        raise UsageError(f"{kind} {name!r} cannot be loaded: {_fault(error)}.") from error


def _fault(error: Exception) -> str:
    """What went wrong in somebody's module, and in which of its lines."""
    what = f"{type(error).__name__}: {error}".rstrip(": .")
    if isinstance(error, SyntaxError):  # names its file and line by itself
        return what
    own = [each for each in extract_tb(error.__traceback__) if not each.filename.startswith("<frozen")]
    return f"{Path(own[-1].filename).name}, line {own[-1].lineno}: {what}" if own else what
