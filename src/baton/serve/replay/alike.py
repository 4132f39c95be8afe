"""Whether two questions are the same up to the liberties of a replay, and where they first differ if not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct, structs

from baton.serve.replay.clock import Clocks
from baton.serve.replay.exchanged import EXCHANGED, Domains, ExchangedAnswers
from baton.serve.replay.masks import Masks
from baton.serve.replay.names import NamePairs
from baton.serve.replay.question import QuestionPiece

Liberty = Literal["exactly", "under masks", "renamed", "exchanged"]
"""What it took to see that two questions are the same: nothing; that times and ids differ; that names do; that answers
of equal questions are in each other's places."""
LIBERTIES: tuple[Liberty, ...] = ("exactly", "under masks", "renamed", "exchanged")


class Alike(Struct, frozen=True, kw_only=True):
    """Two questions are the same."""

    liberty: Liberty
    pairs: dict[str, str]
    """NamePairs that were learned on the way."""
    kinds: dict[str, str] = {}
    """Of which kinds they are."""
    masked: tuple[str, ...] = ()
    """Kinds of values that differ."""
    exchanged: Domains | None = None
    """What is known now of who got whose answer."""


class Unlike(Struct, frozen=True, kw_only=True):
    """Two questions differ first in these pieces; None: the other one has no such piece."""

    recorded: QuestionPiece | None
    now: QuestionPiece | None
    equal: int
    """Pieces that were the same before."""


class QuestionComparer:
    """What two questions are compared by."""

    def __init__(self, masks: Masks, names: NamePairs, clocks: Clocks, answers: ExchangedAnswers) -> None:
        self.masks = masks
        self.names = names
        self.clocks = clocks
        self.answers = answers

    def compare(self, recorded: Sequence[QuestionPiece], now: Sequence[QuestionPiece]) -> Alike | Unlike:
        """The pieces of a recorded question beside those of the present one."""
        pairs: dict[str, str] = {}
        liberty: Liberty = "exactly"
        masked: set[str] = set()
        told: dict[str, str] = {}
        known, same = self.answers.domains, list[str]()
        for place, (before, after) in enumerate(zip(recorded, now, strict=False)):
            if before.place != after.place:
                return Unlike(recorded=before, now=after, equal=place)
            if before.text == after.text:
                if before.message:
                    same.append(before.text.strip())
                continue
            earlier = recorded[:place], now[:place]
            learned, kinds_told = dict(pairs), dict(told)
            found = self._texts(before, after, pairs, told, *earlier)
            if found is None and (undone := self._undone(before, after, known)) is not None:
                pairs, told = learned, kinds_told
                after, known = undone
                found = self._texts(before, after, pairs, told, *earlier)
                found = None if found is None else {*found, EXCHANGED}
            if found is None:
                return Unlike(recorded=before, now=now[place], equal=place)
            masked |= found
            liberty = "renamed" if "name" in found or liberty == "renamed" else "under masks"
        if len(recorded) != len(now):
            place = min(len(recorded), len(now))
            more = (*recorded[place : place + 1], None)[0], (*now[place : place + 1], None)[0]
            return Unlike(recorded=more[0], now=more[1], equal=place)
        exchanged = self.answers.confirm(same, known) if EXCHANGED in masked else None
        if EXCHANGED in masked and exchanged is None:
            return Unlike(recorded=recorded[-1], now=now[-1], equal=len(now) - 1)
        kinds = {self.masks.called(kind) for kind in masked}
        return Alike(
            liberty="exchanged" if exchanged is not None else liberty,
            pairs=pairs,
            kinds=told,
            masked=tuple(sorted(kinds)),
            exchanged=exchanged,
        )

    def _undone(
        self, before: QuestionPiece, after: QuestionPiece, known: Domains
    ) -> tuple[QuestionPiece, Domains] | None:
        """The present piece with the recorded answers of equal questions in their places."""
        found = None if self.masks.exact else self.answers.undo(before.text, after.text, known)
        return None if found is None else (structs.replace(after, text=found[0]), found[1])

    def _texts(
        self,
        before: QuestionPiece,
        after: QuestionPiece,
        pairs: dict[str, str],
        told: dict[str, str],
        earlier: Sequence[QuestionPiece],
        earlier_now: Sequence[QuestionPiece],
    ) -> set[str] | None:
        """The kinds of values in which two texts differ; None: in more than that."""
        if self.masks.exact:
            return None
        changed = self.names.changed | {old: new for old, new in pairs.items() if old != new}
        tells = before.tells_names and after.tells_names
        one = self.masks.cut(before.text, names=changed, tells_names=tells)
        other = self.masks.cut(after.text, names=changed.values(), tells_names=tells)
        if (one.literals, one.kinds) != (other.literals, other.kinds):
            return None
        kinds: set[str] = set()
        for kind, old, new in zip(one.kinds, one.values, other.values, strict=True):
            fresh = kind == "named" and old != new and not self._known(old, pairs)
            if fresh and (_said(old, earlier) or _said(new, earlier_now)):
                return None  # it stood there before the tool told it, so the tool did not make it
            if not self._value(kind, old, new, pairs):
                return None
            if old != new:
                if kind != "name":
                    told.setdefault(old, "name" if kind == "named" else kind)
                kinds.add(self.names.kinds.get(old) or told[old])
        return kinds

    def _value(self, kind: str, old: str, new: str, pairs: dict[str, str]) -> bool:
        if kind in ("name", "named") or kind in self.masks.ids:
            return self.names.fits(old, new, pairs)
        return old == new or kind not in self.masks.clocks or self.clocks.tell(old, new)

    def _known(self, old: str, pairs: dict[str, str]) -> bool:
        return old in self.names.now or old in pairs


def _said(value: str, pieces: Sequence[QuestionPiece]) -> bool:
    return any(value in piece.text for piece in pieces)
