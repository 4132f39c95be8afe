"""Settings as the types that a function or a struct declares for them, so that a wrong one is an error at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any, get_type_hints

import msgspec

from baton.errors import UsageError, nearest


def typed_settings(build: Callable[..., Any], given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """For a call of `build`; unknown names are left for it to refuse. `where` is what a person writes before them."""
    hints = get_type_hints(build.__init__ if isinstance(build, type) else build)  # type: ignore[misc]  # a class's own
    known = signature(build).parameters
    return {
        name: _converted(f"{where}{name}", value, hints[name]) if name in known and name in hints else value
        for name, value in given.items()
    }


def make_struct(
    kind: Any, given: Mapping[str, Any], what: str, where: str, possible: Mapping[str, Any] | None = None
) -> Any:
    """A struct of settings; `what` is its name in messages, `possible` goes before its own types."""
    for name in given:
        if name not in kind.__struct_fields__:
            raise UsageError(f"{what} has no {name!r}. {nearest(name, kind.__struct_fields__)}")
    hints = get_type_hints(kind, include_extras=True) | dict(possible or {})
    return kind(**{name: _converted(f"{where}{name}", value, hints[name]) for name, value in given.items()})


def _converted(name: str, value: Any, type_: Any) -> Any:
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        reason = str(error).partition(" - at ")[0]
        raise UsageError(f"{name}={value}: {reason[0].lower()}{reason[1:]}.") from None
