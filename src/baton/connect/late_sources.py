"""Readers by kind, each imported when its files are first asked for: a kind that is not used costs nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from baton.connect.source import Source


class LateSources(Mapping[str, Source]):
    """Kind -> reader. Their order is that in which a place is asked what it is."""

    def __init__(self, package: str, classes: dict[str, str]) -> None:
        """`classes`: kind -> module below `package`, and the class in it, as `module:Class`."""
        self._package = package
        self._classes = classes
        self._made: dict[str, Source] = {}

    def __getitem__(self, kind: str) -> Source:
        if kind not in self._made:
            module, _, name = self._classes[kind].partition(":")
            made: Source = getattr(import_module(f"{self._package}.{module}"), name)()
            self._made[kind] = made
        return self._made[kind]

    def __contains__(self, kind: object) -> bool:
        return kind in self._classes

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def __len__(self) -> int:
        return len(self._classes)
