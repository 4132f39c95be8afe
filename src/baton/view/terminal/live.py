"""A line on stderr about what is going on: on a terminal after two seconds, in a log now and then."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_AFTER_SECONDS = 2.0
_EVERY_SECONDS = 0.25
_LOG_SECONDS = 10.0


@contextmanager
def live_line(tell: Callable[[float], str]) -> Iterator[None]:
    """`tell(seconds so far)` is shown while the body runs; on a terminal it is gone afterwards."""
    over = threading.Event()

    def show() -> None:
        began = time.monotonic()
        if over.wait(_AFTER_SECONDS):
            return
        while not over.wait(_EVERY_SECONDS):
            sys.stderr.write(f"\r\x1b[K{tell(time.monotonic() - began)}")
            sys.stderr.flush()
        sys.stderr.write("\r\x1b[K")

    def log() -> None:
        began = time.monotonic()
        while not over.wait(_LOG_SECONDS):
            print(tell(time.monotonic() - began), file=sys.stderr, flush=True)

    thread = threading.Thread(target=show if sys.stderr.isatty() else log, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
