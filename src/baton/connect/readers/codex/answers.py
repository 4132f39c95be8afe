"""Places of entries, and answers of a model while their items come in."""

from __future__ import annotations

from msgspec import Struct, field

from baton.connect.readers.codex.entries import CodexUsage
from baton.connect.seen import Link


class Where(Struct, gc=False):
    """The place of an entry: in its thread's order, in time, and for a person."""

    order: tuple[float, float]
    t: float | None
    at: str

    @property
    def mark(self) -> str:
        """Its part of the names of things that have none of their own."""
        return f"{self.order[0]:.0f}.{self.order[1]:g}"


class CodexAnswer(Struct, gc=False):
    """One answer while its items come in."""

    key: str
    where: Where
    due: tuple[Link, ...]
    model: str | None
    begun: float | None
    """When what it answers had come in: the entry before it."""
    words: list[str] = field(default_factory=list)
    last: Where | None = None
    ended: float | None = None
    tools: int = 0
    goes_on: bool = False
    """Whether it called something whose result the program gives back."""
    usage: CodexUsage | None = None
    response: str | None = None
    heard: bool = False


def whole(count: int | float | None) -> int | None:
    return int(count) if count is not None and 0 <= count < 1 << 53 else None


def difference(total: CodexUsage, before: CodexUsage | None) -> CodexUsage:
    """What came to the bill, of versions that only tell how much it is by now."""
    if before is None:
        return total
    return CodexUsage(
        **{
            name: max(0, (getattr(total, name) or 0) - (getattr(before, name) or 0))
            for name in CodexUsage.__struct_fields__
            if getattr(total, name) is not None
        }
    )
