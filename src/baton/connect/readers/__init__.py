"""Readers: one for each kind of files, from entries to sightings; `SOURCES` has them by kind.

A reader is imported when its files are first asked for, so that a kind that is not used costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Final

from baton.connect.source import Source

_SHIPPED: Final[dict[str, str]] = {}
"""Kind -> module below this one, and the class in it. The order is that in which a place is asked what it is."""


class _Shipped(Mapping[str, Source]):
    """The readers that Baton ships."""

    def __init__(self) -> None:
        self._made: dict[str, Source] = {}

    def __getitem__(self, kind: str) -> Source:
        if kind not in self._made:
            module, _, name = _SHIPPED[kind].partition(":")
            made: Source = getattr(import_module(f"{__name__}.{module}"), name)()
            self._made[kind] = made
        return self._made[kind]

    def __contains__(self, kind: object) -> bool:
        return kind in _SHIPPED

    def __iter__(self) -> Iterator[str]:
        return iter(_SHIPPED)

    def __len__(self) -> int:
        return len(_SHIPPED)


SOURCES: Final[Mapping[str, Source]] = _Shipped()
