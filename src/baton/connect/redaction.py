"""Taking secrets out of what is kept: known forms of keys and tokens, and whatever patterns a person gives.

Everything that is kept passes `Contents` once, and `Contents` passes it here; so nothing is written that was not looked
at. In base64 they are found too; in another code, or split over two messages, they are not: a pattern is no proof.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from functools import partial
from typing import Final

from baton.connect.import_report import ImportReport
from baton.connect.secret_forms import FORMS, NAMED, SECRET_NAME, SHORTEST
from baton.errors import UsageError

SECRETS: Final = "secrets"
"""What a person types for the built-in forms alone."""
_CODED: Final = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{24,}={0,2}")
_MOST_CODED = 1 << 16
_IN_CODE = "secret in base64"


class Redaction:
    """Finds secrets of the built-in forms and of a person's own patterns, and writes what was there in their place."""

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        """`patterns` are regular expressions; the word `secrets` stands for the built-in forms, which always count."""
        given = [pattern for pattern in patterns if pattern != SECRETS]
        self._own = [(f"pattern {number}", _compiled(pattern)) for number, pattern in enumerate(given, 1)]

    def __call__(self, text: str, report: ImportReport) -> str:
        text = self._plain(text, report)

        def put(found: re.Match[str]) -> str:
            said = _decoded(found[0])
            if said is None or self._plain(said, ImportReport()) == said:
                return found[0]
            report.redacted[_IN_CODE] += 1
            return f"[redacted {_IN_CODE}]"

        return _CODED.sub(put, text)

    def under(self, name: str, text: str, report: ImportReport) -> str:
        """A text that stands by itself under a name, as a value does in a map: the name may say that it is a secret."""
        found = self(text, report)
        is_secret = len(text) >= SHORTEST and SECRET_NAME.search(name) is not None
        return _put_for(NAMED, report) if is_secret and not found.startswith("[redacted") else found

    def _plain(self, text: str, report: ImportReport) -> str:
        small = text.lower()
        for form in FORMS:
            if any(hint in small for hint in form.hints):
                text = form.pattern.sub(partial(_taken_out, form.name, report), text)
        for name, pattern in self._own:
            text = pattern.sub(partial(_put_for, name, report), text)
        return text


def _put_for(name: str, report: ImportReport, _: re.Match[str] | None = None) -> str:
    report.redacted[name] += 1
    return f"[redacted {name}]"


def _taken_out(name: str, report: ImportReport, found: re.Match[str]) -> str:
    """What a form found, without its secret part."""
    start, end = found.span(found.lastgroup or 0)
    before = found.start()
    return found[0][: start - before] + _put_for(name, report) + found[0][end - before :]


def _decoded(code: str) -> str | None:
    """What base64 says, if it is a text."""
    code = code[:_MOST_CODED].rstrip("=")
    code = code[: len(code) - (len(code) % 4 == 1)]
    try:
        raw = base64.b64decode(
            code + "=" * (-len(code) % 4), altchars=b"-_" if {"-", "_"} & set(code) else None
        )
        said = raw.decode()
    except (binascii.Error, ValueError):
        return None
    return said if said.isprintable() or "\n" in said else None


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        found = re.compile(pattern)
    except re.error as error:
        raise UsageError(
            f"--redact {pattern!r} is no regular expression: {error}. For the built-in forms, type: --redact {SECRETS}"
        ) from None
    if found.match(""):
        raise UsageError(
            f"--redact {pattern!r} matches the empty text, and so everywhere. Give a narrower one."
        )
    return found
