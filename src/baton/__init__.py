"""Baton trains teams of LLM agents by reinforcement learning on their orchestration traces.

Importing this package is cheap: names load on first use, and torch never loads from here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# name -> module that defines it. Kept small (at most 25): the nouns a user meets first.
_EXPORTS = {
    "BatonError": "baton.errors",
    "Call": "baton.trace",
    "Credit": "baton.trace",
    "Edge": "baton.trace",
    "Event": "baton.trace",
    "Graph": "baton.trace",
    "Payload": "baton.trace",
    "Recorder": "baton.trace",
    "Reward": "baton.trace",
    "Trace": "baton.trace",
    "read": "baton.trace",
    "validate": "baton.trace",
    "write": "baton.trace",
}

__all__ = ["__version__", *_EXPORTS]

if TYPE_CHECKING:
    from baton.errors import BatonError as BatonError
    from baton.trace import Call as Call
    from baton.trace import Credit as Credit
    from baton.trace import Edge as Edge
    from baton.trace import Event as Event
    from baton.trace import Graph as Graph
    from baton.trace import Payload as Payload
    from baton.trace import Recorder as Recorder
    from baton.trace import Reward as Reward
    from baton.trace import Trace as Trace
    from baton.trace import read as read
    from baton.trace import validate as validate
    from baton.trace import write as write


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'baton' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
