"""Finds the recorded exchange whose answer a question gets.

Tried in this order, each only where the one before found nothing among the exchanges not given out yet:
1. a question equal to it;
2. one that is the same under masks (times, ids);
3. one that is the same with names that tools made in this run;
4. one that is the same but for notes that came earlier or later (what a harness tells an agent when it is known).

Every recorded answer is given once. Equal questions are interchangeable: the first to come gets the first answer, and
later questions may hold these answers in each other's places (`exchanged`). Nothing else is: a word that differs is a
miss.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from msgspec import Struct

from baton.serve.exchange import Ask, Exchange
from baton.serve.replay.alike import LIBERTIES, Alike, Liberty, QuestionComparer, Unlike
from baton.serve.replay.clock import Clocks
from baton.serve.replay.exchanged import ExchangedAnswers
from baton.serve.replay.masks import Masks
from baton.serve.replay.names import NamePairs
from baton.serve.replay.question import LaidQuestion, QuestionPiece, lay_out

Note = Literal["early", "late", "skipped", "again"]
"""What became of notes: they came before they had, or after; an answer that only waited for one was passed over; the
last answer was given again because one came after it."""


class Match(Struct, frozen=True, kw_only=True):
    """A recorded exchange, and what it took to see that it is the one."""

    exchange: Exchange
    liberty: Liberty
    masked: tuple[str, ...] = ()
    note: Note | None = None
    skipped: tuple[str, ...] = ()
    """Exchanges that were passed over on the way."""


class Miss(Struct, frozen=True, kw_only=True):
    """No recorded question is this one; the nearest, and where it first differs."""

    nearest: Exchange | None
    """None: all that was recorded has been given out."""
    unlike: Unlike | None
    num_messages: int = 0
    num_given: int = 0
    """How many recorded questions are this one, all given out already."""


class _Recorded:
    """A recorded exchange and its question."""

    def __init__(self, exchange: Exchange, question: LaidQuestion) -> None:
        self.exchange = exchange
        self.question = question
        self.shape = tuple(piece.place for piece in question.pieces)
        self.bare_shape = tuple(piece.place for piece in question.bare)
        self.given = False


class Matcher:
    """The exchanges of a recording, each to be given out once."""

    def __init__(self, exchanges: Iterable[Exchange], masks: Masks, *, now: float | None = None) -> None:
        """`now` is when this run began, in seconds since 1970; None: times may be of any day."""
        answered = [one for one in exchanges if one.reply is not None or one.refused is not None]
        begun = min((one.begun for one in answered if one.begun), default=None)
        self.masks = masks
        self.names = NamePairs()
        self.recorded = [_Recorded(one, lay_out(one.ask, masks)) for one in answered]
        self.answers = ExchangedAnswers([] if masks.exact else _equal_questions(self.recorded, masks))
        self._comparing = QuestionComparer(masks, self.names, Clocks(begun, now), self.answers)
        self._equal: dict[bytes, list[_Recorded]] = {}
        for one in self.recorded:
            self._equal.setdefault(one.question.digest, []).append(one)
        self._notes = [note for one in self.recorded for note in one.question.notes]
        self._again: Counter[str] = Counter()
        self.told_again: list[str] = []
        """Last answers that were given once more, after a late note: a program may print them as often."""

    @property
    def left(self) -> list[Exchange]:
        """Those that nobody asked for."""
        return [one.exchange for one in self.recorded if not one.given]

    def find(self, ask: Ask) -> Match | Miss:
        """The exchange whose answer an ask gets, which counts as given."""
        question = lay_out(ask, self.masks)
        found = next((one for one in self._equal.get(question.digest, ()) if not one.given), None)
        if found is not None:
            return self._give(found, Alike(liberty="exactly", pairs={}))
        if self.masks.exact:
            return self._miss(question)
        return self._same(question) or self._but_for_notes(question) or self._miss(question)

    def same_text(self, recorded: str, now: str) -> tuple[str, ...] | None:
        """In which kinds of values two texts differ, by the names as they are known; None: in more than that."""
        pair = (QuestionPiece(None, "text", recorded),), (QuestionPiece(None, "text", now),)
        found = self._comparing.compare(*pair)
        return found.masked if isinstance(found, Alike) else None

    def _give(self, one: _Recorded, alike: Alike, **more: object) -> Match:
        one.given = True
        self.names.learn(alike.pairs, alike.kinds)
        if alike.exchanged is not None:
            self.answers.domains = alike.exchanged
        return Match(exchange=one.exchange, liberty=alike.liberty, masked=alike.masked, **more)  # type: ignore[arg-type]

    def _same(self, question: LaidQuestion) -> Match | None:
        """The least liberty wins, then what was asked first."""
        shape = tuple(piece.place for piece in question.pieces)
        best: tuple[int, _Recorded, Alike] | None = None
        for one in self.recorded:
            if one.given or one.shape != shape:
                continue
            alike = self._comparing.compare(one.question.pieces, question.pieces)
            if isinstance(alike, Alike):
                rank = LIBERTIES.index(alike.liberty)
                if best is None or rank < best[0]:
                    best = (rank, one, alike)
        return None if best is None else self._give(best[1], best[2])

    # -- notes ------------------------------------------------------------------------------------

    def _but_for_notes(self, question: LaidQuestion) -> Match | None:
        if not self._notes or not all(map(self._is_known, question.notes)):
            return None
        shape = tuple(piece.place for piece in question.bare)
        for one in self.recorded:
            if one.given or one.bare_shape != shape:
                continue
            alike = self._comparing.compare(one.question.bare, question.bare)
            if isinstance(alike, Alike):
                return self._passing_over(one, alike, question)
        return self._given_again(question)

    def _passing_over(self, one: _Recorded, alike: Alike, question: LaidQuestion) -> Match:
        """Where all is known already that a later answer had waited for, that answer is the one."""
        skipped: list[_Recorded] = []
        while (after := self._only_waited(one)) is not None and self._holds(
            question.notes, after.question.notes
        ):
            skipped.append(one)
            one = after
        for each in skipped:
            each.given = True
        if skipped:
            return self._give(one, alike, note="skipped", skipped=tuple(each.exchange.id for each in skipped))
        more = not self._holds(one.question.notes, question.notes)
        return self._give(one, alike, note="early" if more else "late")

    def _only_waited(self, one: _Recorded) -> _Recorded | None:
        """The exchange that followed an answer which did nothing, with nothing between but a note."""
        reply = one.exchange.reply
        if reply is None or any(choice.message.uses for choice in reply.choices):
            return None
        for other in self.recorded:
            if (
                not other.given
                and self._goes_on(one, other.question.bare)
                and len(other.question.notes) > len(one.question.notes)
            ):
                return other
        return None

    def _goes_on(self, one: _Recorded, bare: Sequence[QuestionPiece]) -> bool:
        """Whether a question is another one with its answer, and nothing more. Both are recorded, or `bare` is now."""
        if one.exchange.reply is None:
            return False
        said = one.exchange.reply.choices[0].message
        frame = [piece for piece in one.question.bare if piece.message is None]
        before = [piece for piece in one.question.bare if piece.message is not None]
        place = 1 + max((piece.message for piece in before if piece.message is not None), default=-1)
        whole = (*before, QuestionPiece(place, "assistant", said.text), *frame)
        rest = [piece for piece in bare if not (piece.message == place and piece.part == "thinking")]
        return isinstance(self._comparing.compare(whole, rest), Alike)

    def _given_again(self, question: LaidQuestion) -> Match | None:
        """A note came after the last answer, to which it had come before: that answer is still the answer."""
        if not question.notes:
            return None
        for one in self.recorded:
            last = one.exchange.id
            if one.given and self._goes_on(one, question.bare) and self._again[last] < len(question.notes):
                self._again[last] += 1
                if one.exchange.reply is not None:
                    self.told_again.append(one.exchange.reply.choices[0].message.text)
                return Match(exchange=one.exchange, liberty="exactly", note="again")
        return None

    def _is_known(self, note: str) -> bool:
        return any(self._same_note(one, note) for one in self._notes)

    def _same_note(self, recorded: str, now: str) -> bool:
        return self.same_text(recorded, now) is not None

    def _holds(self, notes: Sequence[str], wanted: Sequence[str]) -> bool:
        """Whether some notes include all of others."""
        left = list(notes)
        for each in wanted:
            found = next(
                (one for one in left if self._same_note(each, one) or self._same_note(one, each)), None
            )
            if found is None:
                return False
            left.remove(found)
        return True

    # -- misses -----------------------------------------------------------------------------------

    def _miss(self, question: LaidQuestion) -> Miss:
        best: tuple[tuple[int, int, float], _Recorded, Unlike] | None = None
        num_given = 0
        for one in self.recorded:
            unlike = self._comparing.compare(one.question.pieces, question.pieces)
            if isinstance(unlike, Alike):  # it has been given out
                num_given += 1
                continue
            score = (0 if one.given else 1, unlike.equal, _nearness(unlike))
            if best is None or score > best[0]:
                best = (score, one, unlike)
        num_messages = len(question.ask.messages)
        if best is None:
            return Miss(nearest=None, unlike=None, num_messages=num_messages, num_given=num_given)
        return Miss(nearest=best[1].exchange, unlike=best[2], num_messages=num_messages, num_given=num_given)


def _equal_questions(recorded: Sequence[_Recorded], masks: Masks) -> Iterator[list[Exchange]]:
    """The exchanges whose questions are equal, but for what masks cover."""
    shapes: dict[object, list[_Recorded]] = {}
    for one in recorded:
        shapes.setdefault(one.shape, []).append(one)
    for alike in shapes.values():
        if len(alike) < 2:
            continue
        equal: dict[object, list[Exchange]] = {}
        for one in alike:
            form = tuple(masks.cut(piece.text).literals for piece in one.question.pieces)
            equal.setdefault(form, []).append(one.exchange)
        yield from (group for group in equal.values() if len(group) > 1)


def _nearness(unlike: Unlike) -> float:
    """How much of the texts that differ is the same, at their beginning and their end."""
    if unlike.recorded is None or unlike.now is None or unlike.recorded.place != unlike.now.place:
        return -1.0
    one, other = unlike.recorded.text, unlike.now.text
    same = _begins_alike(one, other) + _begins_alike(one[::-1], other[::-1])
    return same / max(len(one), len(other), 1)


def _begins_alike(one: str, other: str) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
