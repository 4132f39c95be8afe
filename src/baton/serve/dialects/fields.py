"""Reading JSON that somebody else wrote: every wrong type is one sentence that names the field.

A null is the same as nothing, as it is for the servers whose dialects these are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from baton.serve.dialects.codec import BadAsk

MAX_DEPTH = 128
MAX_ENTRIES = 10_000
"""Of a list of messages, parts or tools."""
MAX_VALUES = 2_000_000
"""Of a whole body: each takes far more memory than the two bytes it may be written in."""
_SHOWN = 40


def parsed(body: bytes) -> dict[str, Any]:
    """The object that a request's body is."""
    if body.count(b",") > MAX_VALUES:
        raise BadAsk(f"The body has more than {MAX_VALUES:,} values.", status=413)
    try:
        value = msgspec.json.decode(body)
    except RecursionError:
        raise BadAsk(f"The body nests deeper than {MAX_DEPTH} levels.") from None
    except UnicodeDecodeError:
        raise BadAsk("The body is not UTF-8.") from None
    except msgspec.MsgspecError as error:
        hint = " (half of a surrogate pair is no character)" if b"\\ud" in body.lower() else ""
        raise BadAsk(f"The body is not JSON: {error}{hint}.") from None
    if not isinstance(value, dict):
        raise BadAsk(f"The body is {shown(value)}; expected a JSON object.")
    _bounded(value)
    return value


def _bounded(value: Any) -> None:
    """Refuse what nests too deep for whoever reads it later; level by level, so depth costs no stack."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) is dict or type(inner) is list  # what JSON is read as, and nothing else
        ]
        if not level:
            return
    raise BadAsk(f"The body nests deeper than {MAX_DEPTH} levels.")


def shown(value: Any) -> str:
    """A value as an error names it: its kind, and itself where it is short."""
    if value is None:
        return "missing"
    kinds = {
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "a list",
        dict: "an object",
    }
    kind = kinds.get(type(value), "something else")
    if isinstance(value, list | dict):
        return kind
    text = repr(value)
    return f"{kind} ({text if len(text) <= _SHOWN else text[: _SHOWN - 1] + '…'})"


def wrong(path: str, value: Any, expected: str) -> BadAsk:
    """The error for a value of the wrong kind."""
    return BadAsk(f"`{path}` is {shown(value)}; expected {expected}.", field=path)


class Fields:
    """An object's fields by name and type; knows where in the body it stands."""

    __slots__ = ("_where", "raw")

    def __init__(self, value: Any, where: str | tuple[Fields, str, int] = "") -> None:
        """`where`: its name, or the list of another object that it is in and its place there."""
        self._where = where
        if not isinstance(value, dict):
            raise wrong(self.path, value, "an object")
        self.raw: dict[str, Any] = value

    @property
    def path(self) -> str:
        """Where it stands, as an error says it; put together only when there is one."""
        if isinstance(self._where, str):
            return self._where
        above, name, place = self._where
        return f"{above.at(name)}[{place}]"

    def at(self, name: str) -> str:
        """The full name of a field, as an error says it."""
        path = self.path
        return f"{path}.{name}" if path else name

    def get(self, name: str) -> Any:
        """A value of any kind."""
        return self.raw.get(name)

    def has(self, name: str) -> bool:
        """Whether something other than null is there."""
        return self.raw.get(name) is not None

    def text(self, name: str, default: str | None = None) -> str:
        """A string; without a default it must be there."""
        value = self.raw.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise wrong(self.at(name), value, "a string")
        return value

    def maybe_text(self, name: str) -> str | None:
        """A string, or None."""
        return self.text(name) if self.has(name) else None

    def flag(self, name: str, default: bool) -> bool:
        """A boolean."""
        value = self.raw.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise wrong(self.at(name), value, "true or false")
        return value

    def whole(self, name: str, least: int, most: int | None = None) -> int | None:
        """A whole number within bounds, or None."""
        value = self.raw.get(name)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
            value = int(value)  # JavaScript has one kind of number
        bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
        if isinstance(value, bool) or not isinstance(value, int):
            raise wrong(self.at(name), value, f"a whole number {bounds}")
        if value < least or (most is not None and value > most):
            raise wrong(self.at(name), value, f"a whole number {bounds}")
        return value

    def number(self, name: str, least: float, most: float) -> float | None:
        """A number within bounds, or None."""
        value = self.raw.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise wrong(self.at(name), value, f"a number from {least:g} to {most:g}")
        return float(value)

    def texts(self, name: str, most: int | None = None) -> tuple[str, ...]:
        """A list of strings, or one string that stands for a list of one."""
        value = self.raw.get(name)
        if value is None:
            return ()
        if isinstance(value, str):
            return (value,)
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise wrong(self.at(name), value, "a string or a list of strings")
        if most is not None and len(value) > most:
            raise BadAsk(
                f"`{self.at(name)}` has {len(value)} strings; expected at most {most}.", field=self.at(name)
            )
        return tuple(value)

    def inner(self, name: str) -> Fields | None:
        """An object, or None."""
        return Fields(self.raw[name], self.at(name)) if self.has(name) else None

    def object(self, name: str) -> dict[str, Any]:
        """An object as it is; an empty one where there is none."""
        value = self.raw.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise wrong(self.at(name), value, "an object")
        return value

    def entries(self, name: str, *, needed: bool = False) -> list[Any]:
        """The entries of a list of objects, not yet looked at."""
        value = self.raw.get(name)
        if value is None and not needed:
            return []
        if not isinstance(value, list):
            raise wrong(self.at(name), value, "a list of objects")
        if len(value) > MAX_ENTRIES:
            why = f"`{self.at(name)}` has {len(value):,} entries; expected at most {MAX_ENTRIES:,}."
            raise BadAsk(why, field=self.at(name))
        return value

    def each(self, name: str, *, needed: bool = False) -> Iterator[Fields]:
        """The objects of a list."""
        for place, each in enumerate(self.entries(name, needed=needed)):
            yield Fields(each, (self, name, place))


def without_nulls(value: Any) -> Any:
    """The same without fields that are null, for comparing: null and nothing mean the same."""
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value
