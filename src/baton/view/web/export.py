"""One trace as one file: the same page with its files inside and every answer it could ask for. No network.

The page's modules are plain ES modules that import only each other. Here each becomes a function that
returns what it exports, in the order of their imports, so that one script with one hash holds them all; the content
policy allows that hash and nothing else.
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
from baton.trace.trace import Trace
from baton.view.web.answers import regret
from baton.view.web.attached import Attached
from baton.view.web.detail import Details
from baton.view.web.picture import picture
from baton.view.web.server import PAGE
from baton.view.web.taint import overlay

__all__ = ["bundle", "export_html"]

_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w.]+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?(?:function|const|class) (\w+))", re.MULTILINE)
_SCRIPT = re.compile(r'<script (?:defer|type="module") src="page/([\w./-]+)"></script>\n?')
_ICON = re.compile(r'<link rel="icon" href="[^"]*">\n?')
_STYLE = re.compile(r'<link rel="stylesheet" href="page/([\w./-]+)">\n?')


def export_html(trace: Trace, attached: Attached) -> str:
    """The whole file."""
    index = (PAGE / "index.html").read_text("utf-8")
    styles = "\n".join((PAGE / name).read_text("utf-8") for name in _STYLE.findall(index))
    names = _SCRIPT.findall(index)
    vendored = [(PAGE / name).read_text("utf-8") for name in names if name.startswith("vendor/")]
    scripts = [*vendored, bundle("app")]
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_hash, scripts))}; style-src {_hash(styles)}; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    data = msgspec.json.encode(_answers(trace, attached), enc_hook=str).decode()
    head = [
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">',
        f"<style>{styles}</style>",
    ]
    # Data, not a script: `<` never appears in it, so nothing in a trace can end the element.
    body = ['<script type="application/json" id="answers">' + data.replace("<", "\\u003c") + "</script>"]
    body += [f"<script>{script}</script>" for script in scripts]
    bare = _ICON.sub("", _STYLE.sub("", _SCRIPT.sub("", index)))
    title = f"<title>{html.escape(trace.trace_id)} – Baton</title>"
    bare = re.sub(r"<title>.*?</title>", lambda _: title, bare)
    return bare.replace("</head>", "\n".join(head) + "\n</head>").replace(
        "</body>", "\n".join(body) + "\n</body>"
    )


def bundle(entry: str) -> str:
    """The modules that an entry needs as one script."""
    made: dict[str, str] = {}
    _add(entry, made, ())
    return '"use strict";\n' + "".join(made.values())


def _add(name: str, made: dict[str, str], above: tuple[str, ...]) -> None:
    if name in made:
        return
    if name in above:
        raise BatonError(f"the page's modules import each other in a circle: {' -> '.join((*above, name))}.")
    source = (PAGE / f"{name}.js").read_text("utf-8")
    for _, other in _IMPORT.findall(source):
        _add(other, made, (*above, name))
    exported = [match[1] for match in _EXPORT.findall(source)]
    source = _EXPORT.sub(r"\1", source)
    source = _IMPORT.sub(lambda found: f"const {{{found[1]}}} = {_module(found[2])};\n", source)
    made[name] = f"const {_module(name)} = (() => {{\n{source}\nreturn {{{', '.join(exported)}}};\n}})();\n"


def _module(name: str) -> str:
    return f"module_{name.replace('.', '_')}"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _answers(trace: Trace, attached: Attached) -> dict[str, Any]:
    """Question and place -> answer, as the page asks."""
    details = Details(trace, attached, whole=True)
    found: dict[str, Any] = {
        "setup": {"version": __version__, "places": [], "fork": False, "file": trace.trace_id},
        "trace": picture(trace),
        "ledger": regret(trace, attached),
    }
    try:
        found["taint"] = overlay(trace, attached.labels)
    except BatonError as error:
        found["taint"] = {"error": str(error)}
    for index in range(len(trace.events)):
        found[f"event {index}"] = details.event(index)
    for index in range(len(trace.calls)):
        found[f"call {index}"] = details.call(index)
    return found
