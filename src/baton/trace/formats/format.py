"""What a trace format is: how it is recognised, read and written. The one thing to make for a format of your own.

    CSV = Format(name="csv", about="one row per event", endings=(".csv",), encode=rows_of)
    baton.write(trace, "out", format="my_package:CSV")

A format's name is looked up by `baton.registry` (kind "format"), so `baton convert in out --to my_package:CSV` works
as well, and an installed package's entry point or `register("format", "csv")` gives it a short name and its endings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from baton import registry
from baton.errors import UsageError
from baton.trace.trace import Trace


class Format(Struct, frozen=True, kw_only=True):
    """One form that traces are kept in. It can be read (`read_all`), written (`encode` or `write`), or both."""

    name: str
    about: str
    """What it is, in a few words, for the help of `baton convert`."""
    endings: tuple[str, ...] = ()
    """Ends of file names that say this format, with their dot: ('.csv',)."""
    recognises: Callable[[bytes], bool] | None = None
    """Whether a file's first bytes are this format's. None: a reader must be told its name."""
    read_all: Callable[[Path], Iterator[Trace]] | None = None
    """The traces of a file, one after the other. None: it cannot be read back."""
    encode: Callable[[Iterable[Trace]], Iterable[bytes]] | None = None
    """The bytes of a file that holds these traces, in pieces. None for what is no stream of bytes."""
    write: Callable[[Iterable[Trace], Path], None] | None = None
    """Put traces into a place. None: what `encode` gives becomes the file, whole or not at all."""
    one_trace: bool = False
    """It holds one trace, never more: `encode` and `write` are given exactly one."""
    is_folder: bool = False
    """It is written to a folder and not to a file."""
    is_lossless: bool = False
    """Every trace is read back equal to what was written."""

    @property
    def is_text(self) -> bool:
        """Whether it is a stream of bytes: a file that is replaced whole, or standard output."""
        return self.encode is not None


def find_format(name: str) -> Format:
    """The format that goes by a name: shipped, registered, installed, or `module:attr`."""
    found = registry.resolve("format", name)
    if not isinstance(found, Format):
        raise UsageError(
            f"format {name!r} is {type(found).__name__} {found!r:.60}; expected a baton.trace.formats.Format."
        )
    return found


def known_formats() -> dict[str, Format]:
    """Every format that has a name. An installed one that cannot be loaded is left out: it may be for other work."""
    found: dict[str, Format] = {}
    for name in registry.names("format"):
        with suppress(UsageError):
            found[name] = find_format(name)
    return found
