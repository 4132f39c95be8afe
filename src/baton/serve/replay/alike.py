"""Whether two questions are the same up to the liberties of a replay, and where they first differ if not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from baton.serve.replay.clock import Clocks
from baton.serve.replay.masks import Masks
from baton.serve.replay.names import NamePairs
from baton.serve.replay.question import QuestionPiece

Liberty = Literal["exactly", "under masks", "renamed"]
"""What it took to see that two questions are the same: nothing; that times and ids differ; that names do."""
LIBERTIES: tuple[Liberty, ...] = ("exactly", "under masks", "renamed")


class Alike(Struct, frozen=True, kw_only=True):
    """Two questions are the same."""

    liberty: Liberty
    pairs: dict[str, str]
    """NamePairs that were learned on the way."""
    kinds: dict[str, str] = {}
    """Of which kinds they are."""
    masked: tuple[str, ...] = ()
    """Kinds of values that differ."""


class Unlike(Struct, frozen=True, kw_only=True):
    """Two questions differ first in these pieces; None: the other one has no such piece."""

    recorded: QuestionPiece | None
    now: QuestionPiece | None
    equal: int
    """Pieces that were the same before."""


class QuestionComparer:
    """What two questions are compared by."""

    def __init__(self, masks: Masks, names: NamePairs, clocks: Clocks) -> None:
        self.masks = masks
        self.names = names
        self.clocks = clocks

    def compare(self, recorded: Sequence[QuestionPiece], now: Sequence[QuestionPiece]) -> Alike | Unlike:
        """The pieces of a recorded question beside those of the present one."""
        pairs: dict[str, str] = {}
        liberty: Liberty = "exactly"
        masked: set[str] = set()
        told: dict[str, str] = {}
        for place, (before, after) in enumerate(zip(recorded, now, strict=False)):
            if before.place != after.place:
                return Unlike(recorded=before, now=after, equal=place)
            if before.text == after.text:
                continue
            found = self._texts(before, after, pairs, told, recorded[:place], now[:place])
            if found is None:
                return Unlike(recorded=before, now=after, equal=place)
            masked |= found
            liberty = "renamed" if "name" in found or liberty == "renamed" else "under masks"
        if len(recorded) != len(now):
            place = min(len(recorded), len(now))
            more = (*recorded[place : place + 1], None)[0], (*now[place : place + 1], None)[0]
            return Unlike(recorded=more[0], now=more[1], equal=place)
        kinds = {self.masks.called(kind) for kind in masked}
        return Alike(liberty=liberty, pairs=pairs, kinds=told, masked=tuple(sorted(kinds)))

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
