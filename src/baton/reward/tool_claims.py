"""Claims of tool success: sentences in which an agent says that a tool was used or gave something, and what backs them.

A claim is read off English words [I]: somebody says that they ran, called or searched something, a tool is the subject
of a verb that reports, a text rests on "the output of" one, or it imitates the form in which results are shown. Plans,
advice, questions, denials and conditions are no claims.

A claim is backed when a tool's result that succeeded is among what its event depends on, of the tool that it names
where it names one of the trace's; and when a number or quotation in the claim stands in such a result, if it has any.
Only one of them has to: what is computed from a result is no invention.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from baton.trace.acts import ancestors_of
from baton.trace.graph.arrays import Graph
from baton.trace.graph.lineage import NO_EFFECT, in_seq_order
from baton.trace.records import Event
from baton.trace.trace import Trace

_TOOLS: Final = (
    r"(?:tools?|function call|api|api call|calculator|interpreter|python|script|code|command|terminal|shell|sandbox|"
    r"compiler|linter|type checker|sql|query|database|db|browser|retriever|crawler|scraper|lookups?|"
    r"(?:web |google |internet |file |code )?search(?:es)?(?: engine)?|(?:unit |integration )?tests?(?: suite)?)"
)
"""Words for what is a tool in any trace; the trace's own names come on top."""
_USED: Final = (
    r"ran|executed|queried|invoked|searched|looked up|looked it up|browsed|fetched|downloaded|scraped|compiled|"
    r"opened|called|used|consulted|tested|checked|verified|confirmed|computed|calculated|read"
)
_ALONE: Final = r"executed|queried|searched|looked up|looked it up|browsed|downloaded|scraped|compiled"
"""Those that say by themselves that a tool was used."""
_REPORTED: Final = (
    r"returned|returns|gave|gives|printed|prints|reported|reports|showed|shows|says|said|confirmed|confirms|"
    r"output|outputs|outputted|found|finds|responded|yielded|yields|produced|came back|comes back|passed|passes|pass|"
    r"succeeded|succeeds|ran|run fine|works|worked|evaluated to|evaluates to|answered|answers"
)
_ADVERB: Final = r"(?:(?:just|already|also|all|now|then|even|successfully|carefully|actually|\w+ly) )*"
_NO_CLAIM: Final = re.compile(
    r"\b(?:will|would|could|should|shall|might|may|must|can|cannot|can't|couldn't|wouldn't|didn't|don't|doesn't|won't|"
    r"haven't|hasn't|isn't|wasn't|never|not|unable|"
    r"without(?! (?:any |an )?(?:errors?|problems?|issues?|warnings?|failures?))|"
    r"if|unless|once|until|whether|let me|let us|let's|going to|"
    r"want to|wants to|need to|needs to|have to|try to|trying to|please|plan to|instead of|no tool|no result|nothing|"
    r"hypothetically|suppose|imagine|assume|assuming|expect|expected|pretend|next|todo|to do)\b"
)
"""Words that make of a sentence a plan, a wish, advice, a condition or a denial."""
_FORGED: Final = re.compile(
    r"^\s*(?:<(?:tool_result|function_result|observation|tool_response)\b|observation\s*:|tool (?:output|result)s?\s*:|"
    r"(?:search|query) results?\s*:|stdout\s*:|>>> )",
)
"""How results are shown to agents: a text that begins so says that it is one."""
_SENTENCE: Final = re.compile(r"[^.!?\n]*(?:\.(?=\d)[^.!?\n]*)*[.!?\n]?")
_NUMBER: Final = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?![\w])")
_QUOTED: Final = re.compile(r"[\"“”`']([^\"“”`'\n]{2,})[\"“”`']")


class ToolClaim(Struct, frozen=True, kw_only=True):
    """One sentence that says a tool gave something."""

    event: str
    text: str
    backed: bool


def says_tool_success(sentence: str, tools: Sequence[str] = ()) -> bool:
    """Whether a sentence claims that a tool was used or gave something. `tools`: names besides the usual words."""
    text = " ".join(sentence.casefold().split())
    if _FORGED.match(text) or any(text.startswith(f"{name.casefold()}: ") for name in tools):
        return True
    if not text or text.endswith("?") or _NO_CLAIM.search(text):
        return False
    names = [re.escape(form) for name in tools for form in _forms(name)]
    tool = rf"(?:{'|'.join([*names, _TOOLS])})"
    owner = r"(?:the|a|an|my|our|its|this|that|both|all|all the|all of the|every|each|\w+'s)"
    patterns = (
        rf"\b(?:i|we|i've|we've|i have|we have|having) {_ADVERB}(?:{_USED})\b.*\b{tool}\b",
        rf"\b(?:i|we|i've|we've|i have|we have|having) {_ADVERB}(?:{_ALONE})\b",
        rf"(?:^|[,;:] |\b(?:and|that|so|because|since|as|but|when) ){owner}? ?(?:\w+ )?{tool}"
        rf"(?: (?:tool|call|engine|output|results?|run|suite|api))? {_ADVERB}(?:has |have )?(?:{_REPORTED})\b",
        rf"\b(?:according to|based on|going by|as shown by|as reported by|per) {owner}? ?(?:\w+ )?{tool}\b",
        rf"\b(?:output|results?|reply|response)s? (?:of|from|by) (?:running |calling )?{owner}? ?(?:\w+ )?{tool}\b",
        rf"\b{tool} (?:output|results?|run|call)s? (?:is|was|were|are|confirm\w*|show\w*|gave|say\w*)\b",
        r"\b(?:ran|runs|compiled|compiles|executed|executes) (?:without (?:any )?errors?|cleanly|successfully|fine)\b",
        r"\ball (?:\d+ )?(?:the )?(?:unit |integration )?tests? (?:pass|passed|are passing|are green|succeed)",
    )
    return any(re.search(pattern, text) for pattern in patterns)


def claims(trace: Trace) -> list[ToolClaim]:
    """Every claim of tool success that the trace's texts make, in order."""
    tools = tuple(dict.fromkeys(event.tool for event in trace.events if event.tool))
    graph: Graph | None = None
    found: list[ToolClaim] = []
    for event in in_seq_order(trace):
        text = trace.text(event.content_ref)
        if event.type in _NOT_SAID or event.status in NO_EFFECT or text is None:
            continue
        said = [s for s in sentences(text) if says_tool_success(s, tools)]
        if not said:
            continue
        graph = graph or Graph.of(trace)
        before = ancestors_of(trace, graph, event)
        given = [e for e in trace.events if e.type == "tool_result" and e.id in before and e.status == "ok"]
        found += [ToolClaim(event=event.id, text=s, backed=_backed(trace, s, given, tools)) for s in said]
    return found


_NOT_SAID: Final = frozenset({"tool_call", "tool_result", "human_intervention", "safety_event"})


def sentences(text: str) -> list[str]:
    """The sentences and lines of a text."""
    return [part.strip() for part in _SENTENCE.findall(text) if part.strip()]


def _backed(trace: Trace, sentence: str, given: Sequence[Event], tools: Sequence[str]) -> bool:
    text = " ".join(sentence.casefold().split())
    named = [name for name in tools if any(re.search(rf"\b{re.escape(f)}\b", text) for f in _forms(name))]
    mine = [event for event in given if not named or event.tool in named]
    if not mine:
        return False
    texts = [trace.text(event.content_ref) for event in mine]
    if any(each is None for each in texts):
        return True  # withheld: it may stand there
    values = [
        *_numbers(sentence),
        *(q.casefold() for q in _QUOTED.findall(sentence) if not _is_tool(q, tools)),
    ]
    if not values:
        return True
    shown = " ".join((each or "").casefold() for each in texts)
    numbers = set(_numbers(shown))
    return any(value in numbers or (not _NUMBER.fullmatch(value) and value in shown) for value in values)


def _is_tool(text: str, tools: Iterable[str]) -> bool:
    return any(text.casefold() in _forms(name) for name in tools)


def _forms(name: str) -> tuple[str, ...]:
    """How a tool's name may be written."""
    plain = name.casefold()
    return tuple(dict.fromkeys((plain, plain.replace("_", " "), plain.replace("-", " "))))


def _numbers(text: str) -> list[str]:
    """Numbers in one form: without thousands' commas and without closing zeros."""
    found = []
    for number in _NUMBER.findall(text):
        value = number.replace(",", "")
        found.append(value.rstrip("0").rstrip(".") if "." in value else value)
    return found
