"""The one channel on which the page is told what changed: Server-Sent Events, one message a topic that has a new stamp.

A topic is a question with its query (`trace?place=runs&id=t1`). The stamp of each is sent at once, and again whenever
it is another, so that a page whose connection broke (a laptop that was closed) misses nothing: it compares stamps and
asks for what it has not got. Files are looked at here, by one look for all who listen, and only while somebody does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from baton.errors import BatonError, UsageError

MOST_WATCHED = 32
_LOOK_SECONDS = 0.5
_ALIVE_SECONDS = 15.0
_FORGET_SECONDS = 60.0

Stamped = dict[str, Any]
"""`topic`, and `stamp` or `error`."""


class Glances:
    """What was seen at the last look at each topic; the same for all who listen."""

    def __init__(self, stamp_of: Callable[[str, dict[str, str]], str]) -> None:
        self._stamp_of = stamp_of
        self._seen: dict[str, tuple[float, Stamped]] = {}
        self._lock = threading.Lock()
        self.ended = False

    def end(self) -> None:
        """Whoever listens hears no more."""
        self.ended = True

    def look(self, topics: Sequence[str]) -> list[Stamped]:
        """The stamp of each topic now, or of a moment ago."""
        now = time.monotonic()
        with self._lock:
            self._seen = {topic: one for topic, one in self._seen.items() if now - one[0] < _FORGET_SECONDS}
            return [self._of(topic) for topic in topics]

    def _of(self, topic: str) -> Stamped:
        then, found = self._seen.get(topic, (-_FORGET_SECONDS, {}))
        if time.monotonic() - then > 0.8 * _LOOK_SECONDS:
            self._seen[topic] = (time.monotonic(), found := self._stamped(topic))
        return found

    def _stamped(self, topic: str) -> Stamped:
        name, _, query = topic.partition("?")
        try:
            return {
                "topic": topic,
                "stamp": self._stamp_of(name, dict(parse_qsl(query, keep_blank_values=True))),
            }
        except BatonError as error:
            return {"topic": topic, "error": str(error)}
        except OSError as error:
            return {"topic": topic, "error": f"a file cannot be read: {error}."}


def checked_topics(topics: Sequence[str]) -> list[str]:
    """The topics, each once. Raises `UsageError` where there are none or too many."""
    found = list(dict.fromkeys(topics))
    if not 0 < len(found) <= MOST_WATCHED:
        raise UsageError(f"{len(found)} topics were given to watch; expected 1 to {MOST_WATCHED}.")
    return found


async def changes(glances: Glances, topics: Sequence[str]) -> AsyncIterator[bytes]:
    """Messages until the server ends; whoever listens no more cancels it."""
    import anyio
    from starlette.concurrency import run_in_threadpool

    told: dict[str, Stamped] = {}
    spoken = time.monotonic()
    while not glances.ended:
        for one in await run_in_threadpool(glances.look, topics):
            if told.get(one["topic"]) != one:
                told[one["topic"]] = one
                spoken = time.monotonic()
                yield b"data: " + msgspec.json.encode(one) + b"\n\n"
        if time.monotonic() - spoken > _ALIVE_SECONDS:  # so that a connection that is no more is noticed
            spoken = time.monotonic()
            yield b": alive\n\n"
        await anyio.sleep(_LOOK_SECONDS)
