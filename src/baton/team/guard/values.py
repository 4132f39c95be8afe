"""Values traced to texts: whether what an agent wants to pass on stands in words that may be believed.

A value is traced where each part of it (a string, a number; of lists and tables every one) stands in one of the texts,
whole: `13` does not stand in `130`, nor `a@b.org` in `x.a@b.org`, nor 13 in `13.5` or `13,7`. A truth value is a choice
and stands nowhere; so is a value that says nothing (`is_choice`).

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
_NUMBER = re.compile(r"(?<![\w.])(?<!\d,)-?\d[\d.,]*+(?!\w)")
_WRITTEN = re.compile(r"-?(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d+)?")
_SPACE = re.compile(r"\s+")
_MANY_PARTS = 1_000
_ADDRESS = re.compile(
    r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)*"  # of mail
    r"|(?<![\w.])@\w[\w.-]*"  # of somebody in a service
    r"|(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]*:/{1,}[^\s<>\"']+"  # of the web, with its scheme
    r"|\b(?:javascript|vbscript|data|file|tel|sms):[^\s<>\"']+"
    r"|//[\w-][^\s<>\"']*|\\\\[\w.-]+\\[^\s<>\"']*"  # with half of it
    r"|(?<![\w-])(?<![\w-]\.)(?:[\w-]+\.)+[^\W\d_]{2,}(?:[/:?#][^\s<>\"']*)?"  # or without
    r"|(?<![\w-])[A-Za-z][\w-]*:\d{2,5}(?!\w)"  # of a machine
    r"|\b\d{1,3}(?:\.\d{1,3}){3}\b"
    r"|\b(?:[0-9A-Fa-f]{1,4}:){4,}[0-9A-Fa-f:]*|\b[0-9A-Fa-f]{1,4}(?::[0-9A-Fa-f]{1,4})*::[0-9A-Fa-f:.]+"
    r"|\b[A-Z]{2}\d{2}[A-Za-z0-9]{8,}\b"  # of an account
    r"|\b(?=[A-Za-z]*+\d)(?=\d*+[A-Za-z])[A-Za-z0-9]{20,}\b"
    r"|\+?\d[\d ()/-]{6,}\d|\+?\d{1,3}(?:\.\d{2,4}){2,}|\d{7,}"  # of a telephone or a card
)
_UNSEEN = re.compile("[\u115f\u1160\u17b4\u17b5\u3164\uffa0]")
_OTHER_DOT = re.compile("(?<=[A-Za-z0-9])\u3002(?=[A-Za-z0-9])")


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
    """What in a value one could go to, write to or pay to, as it is seen (`as_seen`). Of two readings, more."""
    found: list[str] = []
    for count, part in enumerate(_parts(value)):
        if count >= _MANY_PARTS:
            return [*found, "..."]
        if isinstance(part, str):
            found += [each.rstrip(".,;:!?)") for each in _ADDRESS.findall(as_seen(part))]
    return found


def as_seen(text: str) -> str:
    """A text as machines take its addresses: without what one does not see, each letter in its plain form."""
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKC", text)
    text = "".join(c for c in text if unicodedata.category(c) not in ("Cf", "Mn", "Mc", "Me"))
    return _OTHER_DOT.sub(".", _UNSEEN.sub("", text))


def is_choice(value: Any) -> bool:
    """Whether a value, or a part of it, says nothing that could stand in a text: none, empty, or white space alone."""
    left = [value]
    for _ in range(_MANY_PARTS):
        if not left:
            return False
        one = left.pop()
        if one is None or (isinstance(one, str) and not one.strip()) or one in ([], (), {}):
            return True
        if isinstance(one, dict):
            left.extend(one.values())
        elif isinstance(one, list | tuple):
            left.extend(one)
    return False


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are the same as JSON has them: true is not 1, as it is for Python."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    return bool(one == other)


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
    if at == 0:
        return False
    first, before = text[at], text[at - 1]
    if unicodedata.category(first)[0] == "M":
        return True
    if not _JOINS.match(first):
        return first in ".," and bool(_JOINS.match(before))
    if before == ".":
        return at > 1 and bool(_JOINS.match(text[at - 2]))
    if before == "," and first.isdigit():
        return at > 1 and text[at - 2].isdigit()
    return bool(_JOINS.match(before)) and text[max(0, at - 2) : at] != "//"


def _joined_after(text: str, end: int) -> bool:
    if end == len(text):
        return False
    last, after = text[end - 1], text[end]
    if unicodedata.category(after)[0] == "M":  # what is put on the letter before it
        return True
    if not _JOINS.match(last):
        return last in ".,:" and bool(_JOINS.match(after))
    if after in ".,:":  # the end of a sentence, unless the word goes on behind it
        return end + 1 < len(text) and bool(_JOINS.match(text[end + 1]))
    return bool(_JOINS.match(after))


def _numbers(text: str) -> Iterator[Decimal]:
    for found in _NUMBER.findall(text):
        written = found.rstrip(".,")
        if _WRITTEN.fullmatch(written):  # 1,000 is one number; 10,20 is two, or none that anybody could tell
            yield Decimal(written.replace(",", ""))


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
