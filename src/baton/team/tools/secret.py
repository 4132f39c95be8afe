"""A credential as a tool is given it: a value that shows itself to nobody who does not ask for it by name."""

from __future__ import annotations

from typing import NoReturn


class ToolSecret:
    """A credential's value. Type a tool's parameter as this, and the runtime gives it; no model sees the parameter.

    Printed, formatted, compared or encoded it is only its name: what a tool sends on it takes from `reveal()`.
    """

    __slots__ = ("_value", "name")

    def __init__(self, name: str, value: str) -> None:
        self.name = name
        self._value = value

    def reveal(self) -> str:
        """The value itself."""
        return self._value

    def __repr__(self) -> str:
        return f"[credential {self.name}]"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} is not written down, so it cannot be pickled")
