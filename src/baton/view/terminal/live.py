"""A line on stderr about what is going on: on a terminal after a second of silence, in a log now and then.

There is one line, whoever has something to tell: the innermost `live_line` does. Whoever prints calls `hush` first, so
that the line is gone; it comes back when it has been quiet for as long again.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Tell = Callable[[float], str]

_AFTER_SECONDS = 1.0
_EVERY_SECONDS = 0.25
_LOG_SECONDS = 10.0
_SLOW_IMPORTS = ("transformers", "torch")
_ERASE = "\r\x1b[K"


class _SlowImports:
    """Says that a large library is loaded before that begins: while it is, nothing else may get to run for seconds."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:  # noqa: ARG002
        """Asked by Python for every module; the answer is always that another should look."""
        if name in _SLOW_IMPORTS:
            self._say(f"loading {name}")


class _Terminal:
    """The one line of a terminal, and those who have something to tell."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._tellers: list[tuple[Tell, float]] = []
        self._quiet_since = 0.0
        self._silent = False
        self._drawn = False
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._imports = _SlowImports(self._say_now)

    @contextmanager
    def telling(self, tell: Tell) -> Iterator[None]:
        with self._lock:
            now = time.monotonic()
            if not self._tellers:
                self._quiet_since, self._silent, self._over = now, False, threading.Event()
                self._thread = threading.Thread(target=self._show, args=(self._over,), daemon=True)
                self._thread.start()
                sys.meta_path.insert(0, self._imports)
            self._tellers.append((tell, now))
        try:
            yield
        finally:
            with self._lock:
                self._tellers.remove((tell, now))
                ended = not self._tellers
                if ended:
                    sys.meta_path.remove(self._imports)
                    self._over.set()
                    self._erase()
            if ended and self._thread is not None:
                self._thread.join()

    def hush(self, *, for_good: bool) -> None:
        with self._lock:
            self._quiet_since = time.monotonic()
            self._silent = self._silent or for_good
            self._erase()

    def _erase(self) -> None:
        if self._drawn:
            sys.stderr.write(_ERASE)
            sys.stderr.flush()
            self._drawn = False

    def _say_now(self, text: str) -> None:
        with self._lock:
            if not self._silent:
                self._draw(text)

    def _draw(self, text: str) -> None:
        text = text[: shutil.get_terminal_size().columns - 1]
        if os.environ.get("TERM", "dumb") == "dumb":  # a line cannot be taken back there
            sys.stderr.write(f"{text}\n")
            self._quiet_since = time.monotonic() + _LOG_SECONDS - _AFTER_SECONDS
        else:
            sys.stderr.write(_ERASE + text)
            self._drawn = True
        sys.stderr.flush()

    def _show(self, over: threading.Event) -> None:
        while not over.wait(_EVERY_SECONDS):
            with self._lock:
                now = time.monotonic()
                if over.is_set() or self._silent or now - self._quiet_since < _AFTER_SECONDS:
                    continue
                tell, began = self._tellers[-1]
                self._draw(_loading(now - began) or tell(now - began))


_terminal = _Terminal()


@contextmanager
def live_line(tell: Tell, *, logged: bool = True) -> Iterator[None]:
    """`tell(seconds so far)` is shown while the body runs; on a terminal it is gone afterwards.

    With `logged`, stderr that is no terminal gets it as well, every ten seconds.
    """
    if sys.stderr.isatty():
        with _terminal.telling(tell):
            yield
        return
    if not logged:
        yield
        return
    over = threading.Event()

    def log() -> None:
        began = time.monotonic()
        while not over.wait(_LOG_SECONDS):
            print(tell(time.monotonic() - began), file=sys.stderr, flush=True)

    thread = threading.Thread(target=log, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def hush(*, for_good: bool = False) -> None:
    """Take the line away, for something is printed now; `for_good` where someone is asked, or another picture drawn."""
    _terminal.hush(for_good=for_good)


def _loading(seconds: float) -> str | None:
    """Which large library is being imported just now: that takes seconds, and nobody is there to say so."""
    for name in _SLOW_IMPORTS:
        spec = getattr(sys.modules.get(name), "__spec__", None)
        if getattr(spec, "_initializing", False):
            return f"loading {name}, {seconds:.0f} s"
    return None
