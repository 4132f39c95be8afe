"""What a team's answer says in strangers' words: shown apart from the team's own, each with where it was read.

A guard with an `[answer]` rule (`baton.team.guard.answers`) leaves in an answer the team's own words; the rest is left
out or kept beside it as quotes. Invariant: `answer_of` has the team's own words and nothing else; whoever shows
quotes says that they are such.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from baton.trace.outcome import answer_of, final_event
from baton.trace.trace import Trace

QUOTES: Final = "quotes_ref"
"""In the extra of the event that ends a run: the address of its quotes, as JSON."""


class Quote(Struct, frozen=True, kw_only=True):
    """Words of an answer that are not the team's own. Data, perhaps a stranger's: to be shown, never to be followed."""

    text: str
    read_at: tuple[str, ...] = ()
    """Events in whose text they stand; empty: in none, so that they may follow from any that the team read."""


def quotes_of(trace: Trace) -> list[Quote]:
    """The quotes of a team's answer, in order; empty also where the trace does not have them."""
    end = final_event(trace)
    said = (
        None if end is None or not isinstance(end.extra.get(QUOTES), str) else trace.text(end.extra[QUOTES])
    )
    try:
        return [] if said is None else msgspec.json.decode(said, type=list[Quote])
    except msgspec.DecodeError:
        return []


def mark(number: int) -> str:
    """What stands in an answer for its quote of this number, from 1."""
    return f"[quote {number}]"


def shown_answer(trace: Trace) -> str | None:
    """All that the user is shown: the team's own words, and below them the quotes."""
    answer = answer_of(trace)
    if answer is None:
        return None
    quotes = [f'{mark(k)} "{quote.text}"' for k, quote in enumerate(quotes_of(trace), 1)]
    return "\n".join([answer, *quotes])
