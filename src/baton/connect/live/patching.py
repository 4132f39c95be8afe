"""Listening where a framework has no hook: methods are wrapped while a recorder is open, and put back after.

A wrapper passes everything through, results and exceptions alike; what it tells the recorder cannot fail.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from typing import Any

from baton.errors import UsageError

_listening: dict[str, Any] = {}


class Patches:
    """The methods that a recorder has wrapped, put back in reverse."""

    def __init__(self) -> None:
        self._before: list[tuple[type, str, Any]] = []
        self._done: set[tuple[type, str]] = set()

    def wrap(self, owner: type, name: str, around: Callable[[Any], Any]) -> None:
        """Replace a method that the class itself defines; one that it inherits is wrapped where it stands."""
        method = owner.__dict__.get(name)
        if method is None or (owner, name) in self._done:
            return
        self._done.add((owner, name))
        self._before.append((owner, name, method))
        setattr(owner, name, around(method))

    def wrap_all(self, kind: type, name: str, around: Callable[[Any], Any]) -> None:
        """The same for a class and everything above it."""
        for owner in kind.__mro__:
            self.wrap(owner, name, around)

    def undo(self) -> None:
        while self._before:
            owner, name, method = self._before.pop()
            setattr(owner, name, method)
        self._done.clear()


def one_at_a_time(framework: str, recorder: Any) -> None:
    """Methods are wrapped once: a second recorder of one framework would see everything twice."""
    if _listening.get(framework) is not None:
        raise UsageError(
            f"a recorder of {framework} is open already in this program. Close it first, or keep the one: it records "
            "every team and tells them apart."
        )
    _listening[framework] = recorder


def no_longer(framework: str) -> None:
    _listening.pop(framework, None)


async def with_value(stream: Any, variable: ContextVar[Any], value: Any) -> AsyncIterator[Any]:
    """An async generator whose every step runs with a context variable set, which its caller does not see."""
    try:
        while True:
            token = variable.set(value)
            try:
                item = await stream.__anext__()
            except StopAsyncIteration:
                return
            finally:
                variable.reset(token)
            yield item
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
