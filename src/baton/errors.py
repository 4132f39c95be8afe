"""The one exception tree. A message says what was given, what was expected, and what to type next."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from baton.installed import install_hint


class BatonError(Exception):
    """Anything Baton raises on purpose. The command line prints it as one line and exits 2."""


class UsageError(BatonError):
    """A person asked for something that does not exist or does not fit together."""


class FormatError(BatonError):
    """A file cannot be read as what it was taken for."""


class CorruptError(FormatError):
    """A file was damaged or altered after Baton wrote it."""


class TraceError(BatonError):
    """A trace does not hold what the operation needs."""


class MissingExtraError(BatonError):
    """An optional feature's packages are not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs packages that are not installed. Type: {install_hint(extra)}")
        self.extra = extra


def nearest(given: str, known: Iterable[str]) -> str:
    """The end of an error message about an unknown name: the nearest right one, or all of them."""
    names = sorted(known)
    close = get_close_matches(given, names, n=1, cutoff=0.5)
    return f"Did you mean {close[0]!r}?" if close else f"Expected one of: {', '.join(names)}."
