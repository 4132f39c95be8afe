"""A difference between two texts as a person reads it: which words went, which came, and some around."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from baton.serve.replay.masks import Masks
from baton.serve.replay.match import Miss
from baton.serve.replay.question import QuestionPiece

_WORDS = re.compile(r"\s+|\w+|[^\w\s]")
_AROUND = 8
"""Words before and after a difference."""
_MOST = 4_000
"""Words compared; of longer texts the part around the first difference."""


def inline(before: str, after: str, *, around: int = _AROUND) -> str:
    """Both texts in one line: [-what went-] {+what came+}, with equal words around them."""
    one, other = _WORDS.findall(before), _WORDS.findall(after)
    start = next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    start = max(0, start - 2 * around)
    cut = start > 0
    one, other = one[start : start + _MOST], other[start : start + _MOST]
    said: list[str] = ["… "] if cut else []
    for what, a, b, c, d in SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        if what == "equal":
            words = one[a:b]
            if len(words) > 4 * around:
                ending = words[-2 * around :] if b < len(one) else []
                words = [*words[: 2 * around], " … ", *ending]
            said.append("".join(words))
            continue
        said.append(f"[-{''.join(one[a:b])}-]" if b > a else "")
        said.append(f"{{+{''.join(other[c:d])}+}}" if d > c else "")
    return re.sub(r"\s+", " ", "".join(said)).strip()


def place_said(piece: QuestionPiece | None) -> str:
    """Where a piece stands, in words."""
    if piece is None:
        return "the end"
    if piece.message is None:
        return {"extra": "other fields"}.get(piece.part, piece.part)
    who = {
        "system": "the system's",
        "user": "the user's",
        "assistant": "the assistant's",
        "tool": "a tool's result",
    }
    return f"message {piece.message + 1}, {who.get(piece.part, piece.part)}"


def miss_said(miss: Miss, number: int, masks: Masks) -> str:
    """Which call differs from the recording, in which message, and in which words. `number` counts from 1."""
    if miss.num_given:
        often = "once" if miss.num_given == 1 else f"{miss.num_given} times"
        return f"call {number} was recorded {often} and is asked once more."
    if miss.nearest is None or miss.unlike is None:
        return f"call {number} was not recorded: every recorded answer had been given out."
    nearest, unlike = miss.nearest, miss.unlike
    head = f"call {number} is in no recording; nearest is call {nearest.number + 1} ({nearest.id}), "
    before, after = unlike.recorded, unlike.now
    if before is None:
        assert after is not None
        return f"{head}which ends before {place_said(after)}: {{+{_short(after.text)}+}}"
    if after is None:
        return f"{head}which goes on with {place_said(before)}: [-{_short(before.text)}-]"
    if before.place != after.place:
        return (
            f"{head}which has {place_said(before)} [-{_short(before.text)}-] where this one has "
            f"{place_said(after)} {{+{_short(after.text)}+}}"
        )
    return f"{head}which differs in {place_said(before)}: {differing(before.text, after.text, masks)}"


def differing(before: str, after: str, masks: Masks) -> str:
    """What differs in two texts beside what may; where nothing else does, that."""
    one, other = _told(before, masks), _told(after, masks)
    return inline(one, other) if one != other else inline(before, after)


def _told(text: str, masks: Masks) -> str:
    cut = masks.cut(text)
    kinds = (*(f"<{masks.called(kind)}>" for kind in cut.kinds), "")
    return "".join(literal + kind for literal, kind in zip(cut.literals, kinds, strict=True))


def _short(text: str, most: int = 160) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
