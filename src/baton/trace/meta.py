"""Reading a header's `meta`, which may hold anything: what Baton wrote, another system's words, or damage.

`run` says how `baton run` and `baton train` set a team up, `train` which step it was of; both are objects. Invariant:
nothing in `meta` makes a reader fail but by `TraceError`, which says what is wrong and what to type.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from baton.errors import TraceError
from baton.trace.trace import Header

__all__ = ["meta_as", "meta_table"]

T = TypeVar("T")


def meta_table(header: Header, *names: str) -> dict[str, Any]:
    """An object inside `meta`, such as `"run", "task"`; empty where there is none, or something else in its place."""
    found: Any = header.meta
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def meta_as(header: Header, kind: type[T], *names: str) -> T | None:
    """What stands inside `meta`, as a type; None where nothing does."""
    *above, last = names
    found = meta_table(header, *above).get(last)
    if found is None:
        return None
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        raise TraceError(
            f"trace {header.trace_id}: meta.{'.'.join(names)} is not what Baton writes there: {error}. "
            "Type: baton validate FILE, for every problem."
        ) from None
