"""How models write that they ask for tools, one file for each family of models; and which one a chat template shows.

Invariant: reading never fails. What is not well formed is text, as the model said it.
"""

from __future__ import annotations

from typing import Any

from baton.errors import UsageError, nearest
from baton.serve.tool_parsers.hermes import HermesTools
from baton.serve.tool_parsers.json import JsonTools
from baton.serve.tool_parsers.lines import BareTools, LineTools
from baton.serve.tool_parsers.llama import LlamaTools
from baton.serve.tool_parsers.mistral import MistralTools
from baton.serve.tool_parsers.tool_form import ToolParser
from baton.serve.tool_parsers.xml import XmlTools

__all__ = ["PARSERS", "find_parser", "parser_of"]

PARSERS: dict[str, ToolParser] = {
    "hermes": HermesTools(),
    "llama": LlamaTools(),
    "mistral": MistralTools(),
    "xml": XmlTools(),
    "json": JsonTools(),
    "lines": LineTools(),
    "bare": BareTools(),
}
"""By name; `hermes` is also that of Qwen 2.5 and 3, `xml` that of Qwen Coder, `json` for templates that show tools in a
form of their own, `lines` for models that know none, `bare` for those that are trained to
use tools without being told of them."""

_SHOWN = (
    ("<function=", "xml"),
    ("<tool_call>", "hermes"),
    ("[TOOL_CALLS]", "mistral"),
    ("<|python_tag|>", "llama"),
    ("ipython", "llama"),
)


def find_parser(name: str) -> ToolParser:
    """A parser by name."""
    if name not in PARSERS:
        raise UsageError(f"there is no form of tools {name!r}. {nearest(name, PARSERS)}")
    return PARSERS[name]


def parser_of(template: Any) -> ToolParser:
    """The parser for what a chat template shows its model; `lines` where it shows no tools.

    `template` is a text, or several by name.
    """
    text = "\n".join(map(str, template.values())) if isinstance(template, dict) else str(template or "")
    if "tools" not in text:
        return PARSERS["lines"]
    return PARSERS[next((name for mark, name in _SHOWN if mark in text), "json")]
