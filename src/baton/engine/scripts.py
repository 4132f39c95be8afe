"""Built-in scripts, by name. Each is one function from a Request to a reply; see `scripted`."""

from __future__ import annotations

from importlib import import_module

from baton.engine.scripted import Script
from baton.errors import UsageError, nearest
from baton.team.policy import Request

__all__ = ["SCRIPTS", "find_script"]


def echo(request: Request) -> str:
    """Say the last entry again."""
    return request.entries[-1].text if request.entries else ""


def first(request: Request) -> str | int:
    """Take the first option; where there is none, echo."""
    return 0 if request.options else echo(request)


SCRIPTS: dict[str, Script] = {"echo": echo, "first": first}


def find_script(name: str) -> Script:
    """A built-in script by name, or `module:function`."""
    if name in SCRIPTS:
        return SCRIPTS[name]
    module_name, colon, function_name = name.partition(":")
    if not colon:
        raise UsageError(
            f"there is no built-in script {name!r}. {nearest(name, SCRIPTS)} Or give module:function."
        )
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise UsageError(
            f"cannot import {module_name!r} for the script {name!r}: {error}. "
            "Expected module:function, with the module on PYTHONPATH."
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise UsageError(
            f"module {module_name!r} has no function {function_name!r}. {nearest(function_name, known)}"
        )
    return function  # type: ignore[no-any-return]  # what it returns is checked call by call
