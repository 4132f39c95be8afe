"""The one exception tree. A message says what was given, what was expected, and what to type next."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

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


_LISTED = 60
_SUCH_AS = 8


def nearest(given: str, known: Iterable[str]) -> str:
    """The end of an error message about an unknown name: the one that was meant, or else what there is."""
    names = sorted(known)
    close = closest(given, names)
    if close is not None:
        return f"Did you mean {close!r}?"
    if len(names) > _LISTED:
        return f"There are {len(names):,}, such as {', '.join(names[:_SUCH_AS])}."
    return f"Expected one of: {', '.join(names)}." if names else "There are none."


def closest(given: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant: it is a slip of the finger away, or begun and not finished; or None.

    A slip is a character too many, too few, another or two in the wrong order; one in four characters may be one, and
    one in a short name. Of what is begun, most must be there. Capitals count for nothing, nor which sign joins words,
    nor a kind before a colon that is right.
    """
    kind, colon, rest = given.partition(":")
    names = list(names)
    of_kind = {name[len(kind) + 1 :]: name for name in names if colon and name.startswith(f"{kind}:")}
    if of_kind and not rest.isdigit():
        return of_kind.get(closest(rest, of_kind) or "")
    wanted = _plain(given)
    if not wanted:
        return None
    most = max(1, round(len(wanted) / 4))
    best: tuple[int, int, str] | None = None
    begun = []
    for name in names:
        plain = _plain(name)
        size = max(len(plain), len(wanted))
        alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(wanted, plain, strict=False)))
        if alike >= (3 if alike == len(wanted) else max(4, 0.6 * size)):
            begun.append(name)
        allowed = min(most, size - 1, most if best is None else best[0])
        if abs(len(plain) - len(wanted)) > allowed or (far := _slips(wanted, plain)) > allowed:
            continue
        if best is None or (far, -alike) <= best[:2]:  # of a row of numbers, the last
            best = (far, -alike, name)
    if best is not None:
        return best[2]
    return begun[0] if len(begun) == 1 else None


def _plain(name: str) -> str:
    return name.casefold().replace("_", "-").strip(" '\"")


def _slips(one: str, other: str) -> int:
    """How many slips lie between two words (optimal string alignment)."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        above, before, row = before, row, [i]
        for j, b in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and b == one[i - 2]:
                cost = min(cost, above[j - 2] + 1)
            row.append(cost)
    return row[-1]
