"""Text from a trace, made safe to print.

Names and payloads come from models, tools and the web. Invariant: nothing in them can move the
cursor, change colours, start a new line, hide or reorder what follows: every character that is not
plainly visible is shown as its escape.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection

from baton.errors import nearest

# Control (Cc), format incl. bidi overrides and zero-width (Cf), surrogates, private use, unassigned,
# line and paragraph separators; spaces other than the plain one are shown by their code too.
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}
_MOST = 1e15
"""Numbers beyond this, which no run counts up to, and what is no number, are shown in powers of ten or by name."""
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\e"}


def printable(text: str) -> str:
    """The text on one line, with everything invisible escaped."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if _plain(char) else _SHORT.get(char) or _escape(char) for char in text)


def shortened(text: str, width: int) -> str:
    """The printable text in at most `width` characters, an ellipsis where it was cut."""
    shown = printable(text[: width + 1])
    if len(shown) <= width:
        return shown
    kept = ""
    for char in text:  # whole escapes or none of one
        if len(kept) + len(more := printable(char)) > width - 1:
            break
        kept += more
    return kept + "…"


def number(value: float) -> str:
    """A number for people: with thousands separators, and no more digits than carry meaning."""
    if not abs(value) < _MOST:
        return f"{value:.3g}"
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def tokens_said(tokens: float, estimated: float | None) -> str:
    """A number of tokens; a tilde before it says that it is, or holds, an estimate."""
    return f"{'~' if estimated else ''}{number(tokens)}"


def money(value: float, currency: str) -> str:
    """An amount with its currency."""
    return f"{amount(value)} {printable(currency)}"


def amount(value: float) -> str:
    """So much money: cents where there are whole ones, and more digits where there are not."""
    if not value or abs(value) >= 1:
        return f"{value:,.2f}"
    return f"{value:.3g}" if abs(value) >= 0.0001 else f"{value:.1e}"


def count(n: int, noun: str) -> str:
    """A number with its noun: 1 event, 2 events."""
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


def percent(was: float, now: float) -> str:
    """`-97 %`, of `was`. What is not quite gone never reads -100 %."""
    change = 100 * (now - was) / was
    return f"{max(change, -99.9):+.1f} %" if now and -100 < change < -99 else f"{change:+.0f} %"


def nearest_name(given: str, known: Collection[str]) -> str:
    """The end of a message about an unknown name that came out of a trace, of which there may be many."""
    hint = nearest(given, known)
    return printable(hint) if len(known) <= 20 or hint.startswith("Did") else f"There are {len(known):,}."


def duration(seconds: float) -> str:
    """How long: 0.3ms, 0.52s, 12.0s, 3m20s, 2h05m."""
    return f"{seconds * 1000:.1f}ms" if 0 < seconds < 0.01 else moment(seconds)


def moment(seconds: float) -> str:
    """When, since the start: 0.52s, 12.0s, 3m20s, 2h05m."""
    if not abs(seconds) < _MOST:
        return f"{seconds:.3g}s"
    if seconds < 59.95:
        return f"{seconds:.2f}s" if seconds < 9.995 else f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600:,}h{whole % 3600 // 60:02d}m"


def _plain(char: str) -> bool:
    return char == " " or unicodedata.category(char) not in _HIDDEN


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
