"""Sanitisers: what of a stranger's text may be believed, as a function of the text.

A rule of a guard names one in two places. `sanitise`: what comes out is all that anybody reads of a result, and it
counts as trusted; the text itself stays in the trace under its address. `values`: the result is read as it is and
stays untrusted, and what comes out are words that arguments may come from, by the tool's name.

A sanitiser of your own is a function from text to text (docs/extending.md). It decides what a stranger may say: one
that keeps free text keeps what stands in it. Invariant: the same text gives the same, so a replay reads what was read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from baton import registry
from baton.errors import UsageError

Sanitiser = Callable[[str], str]

_MANY = 1_000
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_EMAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+")
_DATE = re.compile(r"\b\d{4}-\d{2}-\d{2}\b")


def _keeping(pattern: re.Pattern[str]) -> Sanitiser:
    def keep(text: str) -> str:
        return "\n".join(dict.fromkeys(pattern.findall(text)[:_MANY]))

    return keep


def _yes_or_no(text: str) -> str:
    word = text.strip().lower().rstrip(".!")
    return word if word in ("yes", "no") else "neither yes nor no"


def _withhold(_: str) -> str:
    return "withheld"


SANITISERS: Mapping[str, Sanitiser] = {
    "numbers": _keeping(_NUMBER),
    "emails": _keeping(_EMAIL),
    "dates": _keeping(_DATE),
    "yes-or-no": _yes_or_no,
    "withhold": _withhold,
}
"""Shipped ones: what is left of a text."""


def sanitiser(name: str) -> Sanitiser:
    """The sanitiser of a name: shipped, registered, of an installed package, or `module:attr`."""
    found: Any = registry.resolve("sanitiser", name)
    if not callable(found):
        raise UsageError(
            f"sanitiser {name!r} is a {type(found).__name__}; expected a function from text to text."
        )
    made: Sanitiser = found
    return made


def sanitised(clean: Sanitiser, text: str) -> str:
    """What a sanitiser leaves of a text; nothing where it fails or gives no text."""
    try:
        left: Any = clean(text)
    except Exception as error:  # somebody's code, on a stranger's text: nothing of either is passed on
        return f"withheld: it could not be sanitised ({type(error).__name__})"
    return left if isinstance(left, str) else "withheld: its sanitiser gave no text"
