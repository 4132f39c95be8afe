"""A line on stderr about what is going on, where a person looks and it takes over two seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["live_line"]

_AFTER_SECONDS = 2.0
_EVERY_SECONDS = 0.25


@contextmanager
def live_line(tell: Callable[[float], str]) -> Iterator[None]:
    """`tell(seconds so far)` is shown while the body runs, and gone afterwards."""
    if not sys.stderr.isatty():
        yield
        return
    over = threading.Event()

    def show() -> None:
        began = time.monotonic()
        if over.wait(_AFTER_SECONDS):
            return
        while not over.wait(_EVERY_SECONDS):
            sys.stderr.write(f"\r\x1b[K{tell(time.monotonic() - began)}")
            sys.stderr.flush()
        sys.stderr.write("\r\x1b[K")

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
