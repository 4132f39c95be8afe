"""What the user is told: an answer of a team that read strangers' words, divided into its own words and theirs.

An answer is cut where sentences, lists and labels are cut, and no finer than it has to be. A piece is the team's own
where it stands, whole and letter by letter, in a text that the rule names, or where it is a number and the rule lets
numbers through; so are the fixed words of an answer that was planned as a template. All else is quoted or left out.

Invariant: own words were written by somebody trusted, piece by piece. Which pieces are said, and in which order, may
still be a stranger's choice, as with the arguments of calls. Punctuation is nobody's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from baton.team.guard.templates import filled_in, fixed_parts
from baton.trace.quotes import Quote, mark

LEFT_OUT = "[left out]"
"""What stands for words that nobody is shown."""
_CUTS = tuple(
    re.compile(f"({cut})")
    for cut in (
        r"\n+",
        r"(?<=[.!?;])\s+",
        r",\s+|\s+[-–—|]\s+|(?<!\S)[(\[]+|[)\]]+(?=[\s.,;:!?]|$)",
        r":\s+|\s+=\s+",
    )
)
"""Where an answer is cut, the widest first. Never inside a word: half an address is no address."""
_EDGES = " \t\r\n.,;:!?\"'*_`“”‘’()[]<>|-–—#"
_NUMBER = r"[-+]?[$€£¥]?(?:\d{1,3}(?:,\d{3}){1,2}|\d{1,6})(?:\.\d{1,4})?\s?[%$€£¥]?"
_NUMBERS = re.compile(rf"{_NUMBER}(?:\s?[-–]\s?{_NUMBER})?", re.ASCII)
_LONGEST = 20_000
_MANY = 1_000


class AnswerPiece(Struct, frozen=True):
    """Part of an answer."""

    text: str
    own: bool
    """Whether it is said in the team's own words."""


class ToldAnswer(Struct, frozen=True, kw_only=True):
    """What becomes of an answer."""

    text: str
    """The team's own words, with a mark where something else stood."""
    quotes: tuple[Quote, ...] = ()
    num_left_out: int = 0


def is_number(text: str) -> bool:
    """Whether a text is a number of six digits or nine with commas, or from one to another."""
    return _NUMBERS.fullmatch(text) is not None


def divided(text: str, is_own: Callable[[str], bool], planned: str | None = None) -> list[AnswerPiece]:
    """An answer in pieces, which come to the same text. `planned`: a template that it fits."""
    if len(text) > _LONGEST:
        return [*divided(text[:_LONGEST], is_own), AnswerPiece(text[_LONGEST:], False)]
    found: list[AnswerPiece] = []
    places = None if planned is None else filled_in(planned, text)
    if planned is None or places is None:
        found = list(_pieces(text, is_own, 0))
    else:
        fixed = fixed_parts(planned)
        for k, part in enumerate(fixed):
            found.append(AnswerPiece(part, True))
            if k < len(places):
                found += _pieces(places[k], is_own, 0)
    return _joined(found)


def _pieces(text: str, is_own: Callable[[str], bool], level: int) -> Iterator[AnswerPiece]:
    core = text.strip(_EDGES)
    if not core or is_own(core):
        yield AnswerPiece(text, True)
        return
    if level == len(_CUTS):
        yield AnswerPiece(text, False)
        return
    for k, part in enumerate(_CUTS[level].split(text)):
        if k % 2:  # what it is cut at
            yield AnswerPiece(part, True)
        elif part:
            yield from _pieces(part, is_own, level + 1)


def _joined(pieces: Sequence[AnswerPiece]) -> list[AnswerPiece]:
    """Strangers' pieces with nothing but marks between them are one; what is behind many is all one."""
    found: list[AnswerPiece] = []
    between: list[AnswerPiece] = []
    for piece in pieces:
        last = found[-1] if found else None
        if piece.own and not piece.text.strip(_EDGES) and last is not None and not last.own:
            between.append(piece)
        elif not piece.own and last is not None and not last.own:
            found[-1] = AnswerPiece(last.text + "".join(each.text for each in between) + piece.text, False)
            between = []
        else:
            found += [*between, piece]
            between = []
    found += between
    if len(found) > _MANY:
        found = [*found[:_MANY], AnswerPiece("".join(each.text for each in found[_MANY:]), False)]
    return found


def told(
    pieces: Sequence[AnswerPiece], *, quoted: bool, read_at: Callable[[str], tuple[str, ...]]
) -> ToldAnswer:
    """The answer as the user is shown it. `read_at` says in which events a text stands."""
    said: list[str] = []
    quotes: list[Quote] = []
    left_out = 0
    for piece in pieces:
        if piece.own:
            said.append(piece.text)
            continue
        core = piece.text.strip()
        before, after = piece.text[: piece.text.find(core)], piece.text[piece.text.find(core) + len(core) :]
        if quoted:
            quotes.append(Quote(text=core, read_at=read_at(core.strip(_EDGES))))
        left_out += not quoted
        said += [before, mark(len(quotes)) if quoted else LEFT_OUT, after]
    return ToldAnswer(text="".join(said), quotes=tuple(quotes), num_left_out=left_out)
