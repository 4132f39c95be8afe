"""What secrets look like: keys by the letters their issuers begin them with, and whatever stands behind a telling name.

Each form has hints: without one of them in a text (in small letters) there is nothing of that form in it, so most
texts are never searched. Where a form has a group `secret`, that alone is taken out and the name before it stays.
No form begins with an open repetition: a long run of letters, such as an image, costs no more than its length.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct


class SecretForm(Struct, frozen=True):
    """One kind of secret."""

    name: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]


_KEY = r"[_ -]?(?:access[_-]?)?key(?:[_-]?id)?"
# By their first letter, which a class of letters finds many times faster than names of either case.
_NAMES = (
    r"[aAcCeEmMpPsStT_-](?i:"
    rf"(?<=a)(?:(?:pi|ccess|ccount|uth){_KEY}|uthorization)"
    rf"|(?<=s)(?:(?:igning|hared|torage|ubscription){_KEY}|ecret(?:{_KEY})?)"
    rf"|(?<=p)(?:assw(?:or)?d|assphrase|rivate{_KEY}|(?<![a-z]p)wd)"
    rf"|(?<=t)oken|(?<=c)redentials?|(?<=e)ncryption{_KEY}|(?<=m)aster{_KEY}|(?<=[_-])pass)"
)
NAMED: Final = "named secret"
SECRET_NAME: Final = re.compile(_NAMES + r"\Z")
"""A name that ends as those of secrets do."""
SHORTEST: Final = 6
"""Of a secret that a name tells: what is shorter is more often none."""
_BETWEEN = r"(?:\\*[\"'])?(?:\s{0,32}(?:=>|:=|[=:])\s{0,32}|>)(?:[|>][+-]?[ \t]*\r?\n[ \t]*)?[bru]?"
_NO_SECRET = r"(?!\[redacted|\$\{?[A-Z_]{3,}|process\.env|os\.environ)"
# In quotes, also in those of JSON that stands in a text of JSON; and without any.
_BEHIND_IT = (
    rf"\"{_NO_SECRET}(?P<secret>(?:[^\"\\\r\n]|\\[^\r\n]){{{SHORTEST},}})"
    rf"|'{_NO_SECRET}(?P<single>(?:[^'\\\r\n]|\\[^\r\n]){{{SHORTEST},}})"
    rf"|\\+[\"']{_NO_SECRET}(?P<nested>[^\"'\\\r\n]{{{SHORTEST},}})"
    rf"|{_NO_SECRET}(?P<bare>(?:[^\s\"',;{{}}\[\]()\\<]|\\/|<(?!/)){{8,}})"
)
_ARGUMENTS = r"password|passwd|token|api-key|secret|access-key|secret-key"

_PATTERNS: Final[tuple[tuple[str, tuple[str, ...], str], ...]] = (
    (
        "private key",
        ("begin ", "age-secret-key"),
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\Z)"
        r"|\bAGE-SECRET-KEY-1[0-9A-Z]{40,}",
    ),
    (
        "API key",
        (
            "sk-", "pk-", "rk-", "aiza", "hf_", "akia", "asia", "k_live", "k_test", "xai-", "gsk_", "r8_", "nvapi-",
            "lsv2_", "dapi", "tvly-", "pplx-", "tgp_v1_", "whsec_", "sg.", "csk-", "e2b_", "ntn_", "fc-",
        ),
        r"\b(?:c?sk|pk|rk)-(?:[A-Za-z0-9]+-)*[A-Za-z0-9_-]{16,}|\bAIza[0-9A-Za-z_-]{30,}|\bhf_[A-Za-z0-9]{20,}"
        r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\b(?:sk|rk|pk)_(?:live|test)_[0-9A-Za-z]{16,}|\bxai-[A-Za-z0-9]{20,}"
        r"|\b(?:gsk_|r8_|pplx-|ntn_|e2b_)[A-Za-z0-9]{20,}|\b(?:nvapi-|tvly-|tgp_v1_|whsec_)[A-Za-z0-9_-]{16,}"
        r"|\blsv2_[a-z]{2}_[A-Za-z0-9_]{20,}|\bdapi[0-9a-f]{32}\b|\bfc-[0-9a-f]{32}\b"
        r"|\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
    ),
    (
        "access token",
        (
            "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "xapp-", "npm_", "pypi-", "hvs.",
            "shpat_", "shpss_", "shpca_", "shppa_", "_v1_", "tskey-", "gocspx-", "ya29.", "dckr_pat_", "glsa_",
            "figd_", ":aa", "/webhooks/", "hooks.slack.com",
        ),
        r"\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}|\bglpat-[A-Za-z0-9_-]{16,}"
        r"|\bxox[abeoprs]-[A-Za-z0-9-]{10,}|\bxapp-[A-Za-z0-9-]{20,}|\bnpm_[A-Za-z0-9]{30,}|\bpypi-[A-Za-z0-9_-]{30,}"
        r"|\bhvs\.[A-Za-z0-9_-]{20,}|\bshp(?:at|ss|ca|pa)_[0-9a-fA-F]{32}|\bdo[opr]_v1_[0-9a-f]{32,}"
        r"|\btskey-[a-z]+-[A-Za-z0-9-]{16,}|\bGOCSPX-[A-Za-z0-9_-]{20,}|\bya29\.[A-Za-z0-9_-]{20,}"
        r"|\b(?:dckr_pat_|glsa_|figd_)[A-Za-z0-9_-]{20,}|\b[0-9]{8,10}:AA[A-Za-z0-9_-]{30,}"
        r"|(?<=hooks\.slack\.com/services/)[A-Za-z0-9/]{20,}|(?<=/webhooks/)[0-9]{15,}/[A-Za-z0-9_-]{20,}",
    ),
    ("web token", ("eyj",), r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+"),
    ("bearer", ("bearer", "basic"), r"(?i:\b(?:bearer|basic)\s+)(?P<secret>[A-Za-z0-9._~+/=-]{12,})"),
    (
        "authorization",
        ("authorization",),
        rf"(?i:authorization){_BETWEEN}\\*[\"']?[A-Za-z-]{{2,20}}\s+{_NO_SECRET}(?P<secret>[^\s\"'\\,;]{{8,}})",
    ),
    ("cookie", ("cookie",), r"(?i:\bcookie" + _BETWEEN + r")\\*[\"']?(?P<secret>[\w.-]+=[^\r\n\"'\\]{4,})"),
    (
        "password in an address",
        ("://", r":\/\/"),
        r"(?:(?<=://)|(?<=:\\/\\/))[^\s:/@\"'\\]{0,64}:[^\s:/@\"'\\]{1,128}(?=@)",
    ),
    (
        "key in an address",
        ("key=", "sig=", "signature=", "code=", "auth=", "sid="),
        r"(?<=[?&])(?i:(?:api_?)?key|sig|x-(?:amz|goog)-signature|signature|code|auth|sid)=(?!\[redacted)(?P<secret>[^\s&\"'\\<>#]{12,})",
    ),
    (
        "secret argument",
        ("--pass", "--token", "--api-key", "--secret", "--access-key", "login ", "curl"),
        r"(?<![\w-])--(?:" + _ARGUMENTS + r")\s+(?!-)" + _NO_SECRET + r"(?P<secret>[^\s\"'\\]{6,})"
        r"|\blogin\s+\S{1,64}\s+password\s+(?!\[redacted)(?P<login>[^\s\"'\\]{4,})"
        r"|\bcurl\b[^\r\n|;]{0,400}?\s(?:-u|--user)[ =]?\\*[\"']?(?P<user>[^\s:\"'\\]{1,64}:[^\s\"'\\]{1,})",
    ),
    (
        NAMED,
        ("key", "secret", "token", "passw", "passphrase", "pwd", "pass", "credential", "authorization"),
        _NAMES + _BETWEEN + "(?:" + _BEHIND_IT + ")",
    ),
)  # fmt: skip

FORMS: Final = tuple(SecretForm(name, hints, re.compile(form, re.DOTALL)) for name, hints, form in _PATTERNS)
