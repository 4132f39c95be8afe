"""The package itself: loaded when a suite is asked for, and asked for nothing but data, tools and verdicts.

AgentDojo (arXiv 2406.13352) is MIT-licensed and on PyPI; all it needs is in its wheel, so nothing is fetched. Its
metadata asks for more than is imported: Baton's extra names what importing the suites really needs, and the package
goes beside it without its dependencies.
"""

from __future__ import annotations

import warnings
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final, Literal

from baton.errors import MissingExtraError, UsageError
from baton.installed import install_hint

SuiteName = Literal["workspace", "travel", "banking", "slack"]
SUITES: Final[tuple[SuiteName, ...]] = ("workspace", "travel", "banking", "slack")
PREFIX: Final = "agentdojo:"
RELEASE: Final = "0.1.35"
VERSION: Final = "v1.2.2"
"""Of the benchmark: 97 user tasks, 35 injections, 949 pairs."""


class MissingAgentDojo(MissingExtraError):
    """The package is not installed, or something that it imports is not."""

    def __init__(self) -> None:
        super().__init__("agentdojo", "agentdojo")
        self.args = (
            f"the tasks of agentdojo need packages that are not installed. Type: {install_hint('agentdojo')} && "
            f"pip install --no-deps agentdojo=={RELEASE}",
        )


def module(name: str) -> ModuleType:
    """A module of the package."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the clients of model servers that it imports
            return import_module(f"agentdojo.{name}")
    except ImportError as error:
        raise MissingAgentDojo from error


@cache
def suite(name: str, version: str = VERSION) -> Any:
    """One of the four suites, as the package has it."""
    suites = module("task_suite.load_suites").get_suites(version)
    if name not in suites:
        raise UsageError(f"agentdojo {version!r} has no suite {name!r}; expected {', '.join(SUITES)}.")
    return suites[name]


@cache
def important_instructions() -> str:
    """The wording of the package's strongest attack that is the same for every model: {user}, {model} and {goal}."""
    attacks = module("attacks.important_instructions_attacks")
    return str(attacks.ImportantInstructionsAttack._JB_STRING)
