"""Baton trains teams of LLM agents by reinforcement learning on their orchestration traces.

    import baton

    trace = baton.run("shard-sum", policy="reference")
    assert baton.replay(trace) == trace

Importing this package is cheap: names load on first use, and torch never loads from here.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

# name -> module that defines it. Kept small (at most 25): the nouns and verbs that a person meets first.
_EXPORTS = {
    "BatonError": "baton.errors",
    "Engine": "baton.team.protocol",
    "Recipe": "baton.learn.recipe",
    "Recorder": "baton.trace",
    "Role": "baton.team.agent",
    "Task": "baton.tasks.task",
    "Team": "baton.team.team",
    "Topology": "baton.team.team",
    "Trace": "baton.trace",
    "evaluate": "baton.api",
    "fork": "baton.api",
    "import_traces": "baton.connect.importing",
    "read": "baton.trace",
    "replay": "baton.api",
    "resume": "baton.api",
    "run": "baton.api",
    "score": "baton.api",
    "tool": "baton.team.tools.tool",
    "train": "baton.api",
    "validate": "baton.trace",
    "write": "baton.trace",
}
_MODULES = ("aio", "credit", "measure")
_MOVED = ("Call", "Credit", "Edge", "Event", "Graph", "Payload", "Reward")
"""What version 0.1 had here and `baton.trace` has now."""

__all__ = ["__version__", *sorted((*_EXPORTS, *_MODULES))]

if TYPE_CHECKING:
    from baton import aio as aio
    from baton.api import credit as credit
    from baton.api import evaluate as evaluate
    from baton.api import fork as fork
    from baton.api import measure as measure
    from baton.api import replay as replay
    from baton.api import resume as resume
    from baton.api import run as run
    from baton.api import score as score
    from baton.api import train as train
    from baton.connect.importing import import_traces as import_traces
    from baton.errors import BatonError as BatonError
    from baton.learn.recipe import Recipe as Recipe
    from baton.tasks.task import Task as Task
    from baton.team.agent import Role as Role
    from baton.team.protocol import Engine as Engine
    from baton.team.team import Team as Team
    from baton.team.team import Topology as Topology
    from baton.team.tools.tool import tool as tool
    from baton.trace import Recorder as Recorder
    from baton.trace import Trace as Trace
    from baton.trace import read as read
    from baton.trace import validate as validate
    from baton.trace import write as write


class _Verb(ModuleType):
    """A package that is a verb as well: `baton.credit(traces)` and `baton.credit.estimator` both work.

    Importing a submodule makes Python set the package as an attribute here, in whatever order things are imported. So
    the package itself is made callable as it is set (`_Root`), and hands the call on to the function of its name.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(import_module("baton.api"), self.__name__.rpartition(".")[2])(*args, **kwargs)


class _Root(ModuleType):
    """This package, which makes verbs of those of its packages that are."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("credit", "measure") and isinstance(value, ModuleType):
            value.__class__ = _Verb
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Root


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    if name in _MODULES:
        return import_module(f"baton.{name}")
    if name in _MOVED:
        raise AttributeError(f"baton.{name} is baton.trace.{name} now. Write: from baton.trace import {name}")
    raise AttributeError(f"module 'baton' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
