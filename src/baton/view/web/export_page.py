"""One trace as one file: the same page with its files inside and every answer it could ask for. No network.

The content policy allows the one script and the one style sheet by their hashes, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from typing import Any

import msgspec

from baton import __version__
from baton.errors import BatonError
from baton.measure.prices import price
from baton.trace.trace import Trace
from baton.view.web.answers import regret, told
from baton.view.web.assets import index, script, style
from baton.view.web.attached import Attached
from baton.view.web.detail import Details
from baton.view.web.picture import picture
from baton.view.web.taint_overlay import overlay
from baton.view.web.transcript import Transcript

_OUTSIDE = re.compile(r'<(?:link|script) [^>]*"page/[^>]*>(?:</script>)?\n?')


def export_html(trace: Trace, attached: Attached) -> str:
    """One trace as one HTML file that holds the page, its script and every answer the page may ask for."""
    policy = (
        f"default-src 'none'; script-src {_hash(script())}; style-src {_hash(style())}; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    data = msgspec.json.encode(_answers(trace, attached), enc_hook=str).decode()
    head = [
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">',
        f"<style>{style()}</style>",
    ]
    # Data, not a script: `<` never appears in it, so nothing in a trace can end the element.
    body = [
        '<script type="application/json" id="answers">' + data.replace("<", "\\u003c") + "</script>",
        f"<script>{script()}</script>",
    ]
    title = f"<title>{html.escape(trace.trace_id)} – Baton</title>"
    page = _OUTSIDE.sub("", index()).replace("<title>Baton</title>", title)
    return page.replace("</head>", "\n".join([*head, "</head>"])).replace(
        "</body>", "\n".join([*body, "</body>"])
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _answers(trace: Trace, attached: Attached) -> dict[str, Any]:
    """Question and place -> answer, as the page asks."""
    details = Details(trace, attached, whole=True)
    found: dict[str, Any] = {
        "setup": {"version": __version__, "places": [], "fork": False, "file": trace.trace_id},
        "trace": picture(trace),
        "ledger": regret(trace, attached),
        "transcript": Transcript(trace).page(whole=True, said=False),  # each event has its words
        "headline": told(trace, attached),
        "cost": price(trace, attached.prices),
    }
    try:
        found["taint"] = overlay(trace, attached.labels)
    except BatonError as error:
        found["taint"] = {"error": str(error)}
    for row in range(len(trace.events)):
        found[f"event {row}"] = details.event(row)
    for row in range(len(trace.calls)):
        found[f"call {row}"] = details.call(row)
    return found
