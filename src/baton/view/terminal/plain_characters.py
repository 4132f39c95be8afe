"""What is printed where a terminal has no more than ASCII: an arrow is `->`, a bar is `#`, a name is escaped.

Invariant: after `prepare_streams` no character fails to print on standard output or standard error.
"""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Mapping
from typing import Any

_HANDLER = "baton.plain"
_ASCII_LOCALES = ("C", "POSIX")
_PLAIN = {
    **dict(zip("▁▂▃▄▅▆▇█", "_.:-=+*#", strict=True)),
    **dict(zip("├└│─━", "|`|--", strict=True)),
    **dict.fromkeys("–—−", "-"),
    **dict.fromkeys("●•", "*"),
    "…": "...", "→": "->", "±": "+-", "×": "x", "·": "-", "≠": "!=", "⊂": "in", "○": "o", "’": "'",
}  # fmt: skip
_TABLE = str.maketrans(_PLAIN)


def plain(text: str) -> str:
    """The text with Baton's own signs in ASCII; what others wrote stays, to be escaped where it must be."""
    return text if text.isascii() else text.translate(_TABLE)


def takes_only_ascii(stream: Any) -> bool:
    """Whether a stream's encoding has no arrows."""
    return not str(getattr(stream, "encoding", None) or "utf-8").lower().startswith("utf")


def prepare_streams(environ: Mapping[str, str] = os.environ) -> None:
    """Let standard output and standard error take every character, each in the form they have for it."""
    codecs.register_error(_HANDLER, _substituted)
    for stream in (sys.stdout, sys.stderr):
        if (reconfigure := getattr(stream, "reconfigure", None)) is None:
            continue
        if stream.isatty() and _is_ascii_terminal(environ):
            reconfigure(encoding="ascii", errors=_HANDLER)
        elif stream.errors != _HANDLER:
            reconfigure(errors=_HANDLER)


def _is_ascii_terminal(environ: Mapping[str, str]) -> bool:
    """Whether the person asked for the C locale. Python itself takes it for UTF-8, and says so in LC_CTYPE."""
    asked = environ.get("LC_ALL") or environ.get("LC_CTYPE", "")
    if not asked or (asked.upper() in ("C.UTF-8", "C.UTF8", "UTF-8") and not environ.get("LC_ALL")):
        asked = environ.get("LANG", "")
    return asked in _ASCII_LOCALES or (not asked and environ.get("TERM") == "dumb")


def _substituted(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    found = error.object[error.start : error.end]
    return "".join(_PLAIN.get(char) or _escaped(char) for char in found), error.end


def _escaped(char: str) -> str:
    code = ord(char)
    if 0x2800 <= code < 0x2900:  # a spinner's dots
        return "*"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
