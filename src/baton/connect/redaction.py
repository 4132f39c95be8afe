"""Taking secrets out of what is kept: known forms of keys and tokens, and whatever patterns a person gives.

Everything that is kept passes `Contents` once, and `Contents` passes it here; so nothing is written that was not looked
at. What stands in a text in another form (encoded, split over two messages) is not found: a pattern is no proof.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from baton.connect.import_report import ImportReport
from baton.errors import UsageError

SECRETS: Final = "secrets"
"""What a person types for the built-in forms alone."""
_BUILT_IN: Final = {
    "private key": r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)",
    "API key": r"\b(?:sk|pk|rk)-(?:[A-Za-z0-9]+-)*[A-Za-z0-9_-]{16,}|\bAIza[0-9A-Za-z_-]{30,}|\bhf_[A-Za-z0-9]{20,}"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\b(?:sk|rk|pk)_(?:live|test)_[0-9A-Za-z]{16,}|\bxai-[A-Za-z0-9]{20,}",
    "access token": r"\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}|\bglpat-[A-Za-z0-9_-]{16,}"
    r"|\bxox[abeoprs]-[A-Za-z0-9-]{10,}|\bnpm_[A-Za-z0-9]{30,}|\bpypi-[A-Za-z0-9_-]{30,}",
    "web token": r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+",
    "bearer": r"(?i:\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{12,}",
    "password in an address": r"(?<=://)[^\s:/@\"']{1,64}:[^\s:/@\"']{1,128}(?=@)",
    "named secret": r"(?i:[\"']?[\w-]*(?:api[_-]?key|secret|token|passw(?:or)?d|authorization)[\"']?\s*[=:]\s*[\"']?)"
    r"(?!\[redacted)[^\s\"',;{}\[\]()]{8,}",
}
# What every built-in form has in it: a text without any is not searched further.
_HINT: Final = re.compile(
    r"BEGIN |[sprk]{2}[-_]|AIza|hf_|AKIA|ASIA|xai-|gh[pousr]_|github_pat|glpat|xox|npm_|pypi-|eyJ"
    r"|(?i:bearer|basic|api[_-]?key|secret|token|passw|authorization)|://[^\s/]*@"
)
_KEPT: Final = re.compile(r"^(?:(?i:bearer|basic)\s+|[^=:]*[=:]\s*[\"']?)")


class Redaction:
    """Finds secrets of the built-in forms and of a person's own patterns, and writes what was there in their place."""

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        """`patterns` are regular expressions; the word `secrets` stands for the built-in forms, which always count."""
        given = [pattern for pattern in patterns if pattern != SECRETS]
        self._own = [(f"pattern {number}", _compiled(pattern)) for number, pattern in enumerate(given, 1)]
        self._secrets = [(name, re.compile(form, re.DOTALL)) for name, form in _BUILT_IN.items()]

    def __call__(self, text: str, report: ImportReport) -> str:
        if _HINT.search(text):
            for name, form in self._secrets:
                text = self._without(name, form, text, report)
        for name, form in self._own:
            text = self._without(name, form, text, report)
        return text

    def _without(self, name: str, form: re.Pattern[str], text: str, report: ImportReport) -> str:
        def put(found: re.Match[str]) -> str:
            report.redacted[name] += 1
            kept = _KEPT.match(found[0]) if name in ("bearer", "named secret") else None
            return f"{kept[0] if kept else ''}[redacted {name}]"

        return form.sub(put, text)


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
