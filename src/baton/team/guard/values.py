"""Values traced to texts: whether what an agent wants to pass on stands in words that may be believed.

A value is traced where each part of it (a string, a number; of lists and tables every one) stands in one of the texts,
whole: `13` does not stand in `130`, nor `a@b.org` in `x.a@b.org`. A truth value is a choice and stands nowhere.

Invariant: what is traced was written by somebody trusted, letter by letter. Which of the written values is taken may
still be a stranger's choice: this bounds what can come in, not what is picked.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any

_JOINS = re.compile(r"[\w@+\-/]")
_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?![\w])")
_SPACE = re.compile(r"\s+")
_MANY_PARTS = 1_000
_ADDRESS = re.compile(
    r"[\w.+-]+@[\w-]+(?:\.[\w-]+)*"  # of mail
    r"|[A-Za-z][A-Za-z0-9+.-]*:/{1,}[^\s<>\"']+"  # of the web, with its scheme
    r"|(?:[\w-]+\.)+[A-Za-z]{2,}(?:[/:?#][^\s<>\"']*)?"  # or without
    r"|\b\d{1,3}(?:\.\d{1,3}){3}\b"  # of a machine
    r"|\b[A-Z]{2}\d{2}[A-Za-z0-9]{8,}\b"  # of an account
    r"|\+?\d[\d ()/-]{6,}\d"  # of a telephone or a card
)


def untraced(value: Any, texts: Iterable[str]) -> list[Any]:
    """The parts of a value that stand in none of the texts."""
    plain = [_SPACE.sub(" ", text) for text in texts]
    numbers: set[Decimal] | None = None
    missing: list[Any] = []
    for count, part in enumerate(_parts(value)):
        if count >= _MANY_PARTS:
            return [*missing, "..."]
        if isinstance(part, bool):
            missing.append(part)
        elif isinstance(part, int | float):
            numbers = {number for text in plain for number in _numbers(text)} if numbers is None else numbers
            if _exactly(part) not in numbers:
                missing.append(part)
        elif isinstance(part, str) and not any(stands_in(part, text) for text in plain):
            missing.append(part)
    return missing


def addresses(value: Any) -> list[str]:
    """What in a value one could go to, write to or pay to. Of two readings, more."""
    found: list[str] = []
    for count, part in enumerate(_parts(value)):
        if count >= _MANY_PARTS:
            return [*found, "..."]
        if isinstance(part, str):
            text = unicodedata.normalize("NFKC", part)
            text = "".join(c for c in text if unicodedata.category(c) != "Cf")  # what one does not see
            found += [each.rstrip(".,;:!?)") for each in _ADDRESS.findall(text)]
    return found


def stands_in(part: str, text: str) -> bool:
    """Whether a string stands in a text as a whole, whatever white space is between its words."""
    part = _SPACE.sub(" ", part).strip()
    if not part:
        return True
    at = text.find(part)
    while at >= 0:
        end = at + len(part)
        if not (_joined_before(text, at) or _joined_after(text, end)):
            return True
        at = text.find(part, at + 1)
    return False


def without(text: str, given: Any, is_known: Callable[[str], bool]) -> str:
    """A text without what a caller gave, in capitals or not, and without the words that this is part of.

    What is known to come from elsewhere stays. So a tool that says back what it was given says
    nothing with it; a whole word goes, since a part of it would be another.
    """
    for count, part in enumerate(_parts(given)):
        if count >= _MANY_PARTS:
            return ""
        words = str(part).split()
        if not words or isinstance(part, bool) or is_known(str(part)):
            continue
        inner = r"\s+".join(map(re.escape, words))
        text = re.sub(rf"[\w@+\-/.:]*{inner}[\w@+\-/.:]*", "\x00", text, flags=re.IGNORECASE)
    return text


def _joined_before(text: str, at: int) -> bool:
    if at == 0 or not _JOINS.match(text[at]):
        return False
    before = text[at - 1]
    if before == ".":
        return at > 1 and bool(_JOINS.match(text[at - 2]))
    return bool(_JOINS.match(before)) and text[max(0, at - 2) : at] != "//"


def _joined_after(text: str, end: int) -> bool:
    if end == len(text) or not _JOINS.match(text[end - 1]):
        return False
    after = text[end]
    if after in ".,:":  # the end of a sentence, unless the word goes on behind it
        return end + 1 < len(text) and bool(_JOINS.match(text[end + 1]))
    return bool(_JOINS.match(after))


def _numbers(text: str) -> Iterator[Decimal]:
    for found in _NUMBER.findall(text):
        yield Decimal(found.replace(",", ""))


def _exactly(number: float) -> Decimal | None:
    """A number as it is written; None: one that nobody would write."""
    try:
        return Decimal(str(number))
    except ValueError:  # more digits than Python writes
        return None


def _parts(value: Any) -> Iterator[Any]:
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            left.extend(one.keys())
            left.extend(one.values())
        elif isinstance(one, list | tuple):
            left.extend(one)
        elif one is not None:
            yield one
