"""The page's own files, as one script and one style sheet.

The page is written as plain ES modules that import only each other. Here each becomes a function that returns
what it exports, in the order of their imports, so that one file with one hash holds them all: the server sends
it in one reply, and an exported page carries it inside.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from baton.errors import BatonError

PAGE = Path(str(files("baton.view"))) / "page"
_VENDORED = (
    "d3-dispatch.min.js",
    "d3-timer.min.js",
    "d3-quadtree.min.js",
    "d3-force.min.js",
    "d3-hierarchy.min.js",
    "dagre.min.js",
)
_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w.]+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?(?:function|const|class) (\w+))", re.MULTILINE)


def index() -> str:
    """The page without its script and its style."""
    return (PAGE / "index.html").read_text("utf-8")


@lru_cache(1)
def style() -> str:
    """The page's style sheet, and the report's for the figures of a run, nested so that it touches them alone."""
    figures = files("baton.view.report").joinpath("figures.css").read_text("utf-8")
    return f"{(PAGE / 'style.css').read_text('utf-8')}\n.report {{\n{figures}}}\n"


@lru_cache(1)
def script() -> str:
    """The libraries as they came, then the page's own modules."""
    libraries = [(PAGE / "vendor" / name).read_text("utf-8") for name in _VENDORED]
    return ";\n".join([*libraries, bundle("app")])


def bundle(entry: str) -> str:
    """The modules that an entry needs."""
    made: dict[str, str] = {}
    _add(entry, made, ())
    return "".join(made.values())


def _add(name: str, made: dict[str, str], above: tuple[str, ...]) -> None:
    if name in made:
        return
    if name in above:
        raise BatonError(f"the page's modules import each other in a circle: {' -> '.join((*above, name))}.")
    source = (PAGE / f"{name}.js").read_text("utf-8")
    for _, other in _IMPORT.findall(source):
        _add(other, made, (*above, name))
    exported = [match[1] for match in _EXPORT.findall(source)]
    source = _EXPORT.sub(r"\1", source)
    source = _IMPORT.sub(lambda found: f"const {{{found[1]}}} = {_module(found[2])};\n", source)
    made[name] = (
        f'const {_module(name)} = (() => {{\n"use strict";\n{source}\nreturn {{{", ".join(exported)}}};\n}})();\n'
    )


def _module(name: str) -> str:
    return f"module_{name.replace('.', '_')}"
