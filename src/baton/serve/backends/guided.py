"""Answers that have to have a form (JSON of a schema, a use of a tool) are held to it while they are drawn.

At every place the tokens that cannot go on to such an answer are taken away, and the next is drawn from the rest; the
log-probabilities are of that distribution. Which tokens those are is told by llguidance (Microsoft, MIT), from the
schema and the way in which the model's family writes tools. Where it is not installed, knows a schema's words not, or
the family's form holds no JSON, answers are drawn freely, and again where they do not fit.

Training never holds a policy to a form: what is learned from has to be drawn from the policy's own distribution.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

from baton.serve.exchange import Ask, ToolAsk, ToolOffer
from baton.serve.tool_parsers.tool_form import ToolParser

_SENTINEL = '{"here": 0}'
_WRITING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""JSON as most models were shown it; free white space would let a weak model go on with it for ever."""


class Form(NamedTuple):
    """What an answer has to be."""

    grammar: str | None
    """In llguidance's form; None: it cannot be held to it."""
    why: str
    """What it is held to, or why it is not."""


class AnswerWatch:
    """Beside the drawing of one answer; fulfils `TokenWatch`."""

    def __init__(self, matcher: Any | None, top: int) -> None:
        self.top = top
        self.heard: list[list[tuple[int, float]]] = []
        self._matcher = matcher
        self._taken = 0

    def mask(self, ids: Sequence[int]) -> bytes | None:
        matcher = self._matcher
        if matcher is None:
            return None
        matcher.consume_tokens(list(ids[self._taken :]))
        self._taken = len(ids)
        if matcher.is_error():  # its own limits, such as of time: from here on anything may come
            self._matcher = None
            return None
        found: bytes = matcher.compute_bitmask()
        return found

    def hear(self, tokens: Sequence[int], logprobs: Sequence[float]) -> None:
        self.heard.append(list(zip(tokens, logprobs, strict=True)))


class AnswerGuides:
    """Forms and watches for the answers of one model."""

    def __init__(self, tokenizer: Any, *, vocabulary: int, ends: Sequence[int]) -> None:
        """Raises `ImportError` without llguidance, and what that raises for a tokenizer that it cannot read."""
        self._matchers: Any = import_module("llguidance").LLMatcher
        read = import_module("llguidance.hf").from_tokenizer
        self._tokenizer: Any = read(tokenizer, n_vocab=vocabulary, eos_token=list(ends))
        self._marks = {
            token.content: id
            for id, token in tokenizer.added_tokens_decoder.items()
            if self._tokenizer.is_special_token(id)
        }
        self._checked = lru_cache(maxsize=256)(self._error_of)

    def form(self, ask: Ask, parser: ToolParser) -> Form | None:
        """What an ask's answer is held to; None: it may be anything."""
        wanted = _wanted(ask)
        if wanted is None:
            return None
        rules, said = [], []
        if wanted.schema is not None:
            rules.append(f"%json {_json({**wanted.schema, 'x-guidance': _WRITING})}")
            said.append("the schema" if ask.json_schema is not None else "JSON")
        for tool in wanted.tools:
            rule = self._tool(tool, parser)
            if rule is None:
                return Form(None, f"tools written as {parser.name} cannot be held to a form")
            rules.append(rule)
            said.append(f"the tool {tool.name}")
        lines = ["start: " + " | ".join(f"r{number}" for number in range(len(rules)))]
        grammar = "\n".join([*lines, *(f"r{number}: {rule}" for number, rule in enumerate(rules))])
        why = self._checked(grammar)
        return Form(None, why) if why else Form(self._matchers.grammar_from_lark(grammar), " or ".join(said))

    def watch(self, form: Form | None, top: int) -> AnswerWatch:
        """Who stands beside the drawing of one answer."""
        if form is None or form.grammar is None:
            return AnswerWatch(None, top)
        return AnswerWatch(self._matchers(self._tokenizer, form.grammar), top)

    def _error_of(self, grammar: str) -> str:
        """Why a grammar cannot be used, in a line; empty: it can."""
        matcher = self._matchers(self._tokenizer, self._matchers.grammar_from_lark(grammar))
        return matcher.get_error().strip().splitlines()[0][:200] if matcher.is_error() else ""

    def _tool(self, tool: ToolOffer, parser: ToolParser) -> str | None:
        """Asking for a tool, as the model's family writes it; None: its arguments are not written as JSON."""
        written = parser.write((ToolAsk(id="", name=tool.name, arguments=_SENTINEL),))
        before, found, after = written.partition(_SENTINEL)
        if not found:
            return None
        schema = {"type": "object", **tool.parameters, "x-guidance": _WRITING}
        return " ".join(filter(None, (self._literal(before), f"%json {_json(schema)}", self._literal(after))))

    def _literal(self, text: str) -> str:
        """A text in a grammar, with the tokenizer's own marks as the tokens that they are."""
        for mark, id in self._marks.items():
            if mark and mark in text:
                before, _, after = text.partition(mark)
                return " ".join(filter(None, (self._literal(before), f"<[{id}]>", self._literal(after))))
        return _json(text) if text else ""


class _Wanted(NamedTuple):
    schema: Mapping[str, Any] | None
    tools: tuple[ToolOffer, ...]


def _wanted(ask: Ask) -> _Wanted | None:
    """The forms that an answer may have; None: any."""
    tools = ask.tools if ask.tool_choice != "none" else ()
    if tools and ask.tool_choice == "required":
        return _Wanted(None, tools)
    if tools and ask.tool_choice.startswith("tool:"):
        name = ask.tool_choice.removeprefix("tool:")
        named = tuple(tool for tool in tools if tool.name == name)
        return _Wanted(None, named) if named else None
    if ask.json_schema is not None:
        return _Wanted(ask.json_schema, tools)
    return _Wanted({"type": "object"}, tools) if ask.json else None


def _json(value: Any) -> str:
    return json.dumps(value)
