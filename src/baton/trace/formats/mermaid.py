"""Mermaid sequence diagrams, out: a trace in a document.

Source: the Mermaid project's sequence diagram syntax. Invariant: whatever an agent is called and
whatever it says, the text is only text. Every character but letters, digits and a few harmless
marks is written as its code (`#60;`), which the diagram shows and never interprets.
"""

from __future__ import annotations

from collections.abc import Iterator

from baton.errors import UsageError
from baton.trace.records import Event
from baton.trace.trace import Trace

_MAX_NAME = 40
_MAX_WORDS = 60
_HARMLESS = frozenset(" _.,-")


def to_mermaid(trace: Trace, max_events: int = 100) -> str:
    """A `sequenceDiagram` of the first `max_events` events; says how many it left out."""
    if max_events < 1:
        raise UsageError(f"max_events is {max_events}; expected 1 or more.")
    lanes = _Lanes()
    body = [line for event in trace.events[:max_events] for line in _lines(event, trace, lanes)]
    left_out = len(trace.events) - max_events
    if left_out > 0:
        body.append(f"note over {lanes.first_and_last()}: {left_out} more events left out")
    lines = ["sequenceDiagram", *lanes.declared(), *body]
    return "\n    ".join(lines) + "\n"


def encode_mermaid(trace: Trace, *, fenced: bool = False) -> bytes:
    """`fenced`: as a block of a Markdown document."""
    text = to_mermaid(trace)
    return (f"```mermaid\n{text}```\n" if fenced else text).encode()


class _Lanes:
    """The diagram's participants, in the order they turn up. Their ids are ours, never the trace's."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}
        self.caller: dict[str, str] = {}  # tool -> who called it last

    def of(self, name: str) -> str:
        return self._ids.setdefault(name, f"p{len(self._ids)}")

    def declared(self) -> Iterator[str]:
        for name, lane in self._ids.items():
            yield f"participant {lane} as {_text(name, _MAX_NAME) or '-'}"

    def first_and_last(self) -> str:
        return "p0" if len(self._ids) == 1 else f"p0,p{len(self._ids) - 1}"


def _lines(event: Event, trace: Trace, lanes: _Lanes) -> Iterator[str]:
    words = _words(event, trace)
    me = lanes.of(event.agent)
    if event.type == "tool_call" and event.tool is not None and event.tool != event.agent:
        lanes.caller[event.tool] = event.agent
        yield f"{me}->>{lanes.of(event.tool)}: {words}"
    elif event.type == "tool_result" and event.tool is not None and event.tool != event.agent:
        yield f"{lanes.of(event.tool)}-->>{me}: {words}"
    elif event.type == "tool_result" and event.agent in lanes.caller:
        yield f"{me}-->>{lanes.of(lanes.caller[event.agent])}: {words}"
    elif event.to is not None and event.to != event.agent:
        arrow = "-->>" if event.type == "return" else "-x" if event.type == "despawn" else "->>"
        yield f"{me}{arrow}{lanes.of(event.to)}: {words}"
    else:
        yield f"note over {me}: {words}"


def _words(event: Event, trace: Trace) -> str:
    """What happened, then how it went if not well, then what was said."""
    parts = [event.type.replace("_", " ")]
    if event.decision not in ("none", event.type):
        parts.append(f"({event.decision})")
    if event.type == "spawn" and event.role:
        parts.append(f"as {event.role}")
    if event.status != "ok":
        parts.append(f"[{event.status}]")
    said = trace.text(event.content_ref)
    return _text(" ".join(parts) + (f" – {said}" if said else ""), _MAX_WORDS)


def _text(raw: str, limit: int) -> str:
    """Text the diagram's grammar cannot mistake for anything else."""
    plain = " ".join("".join(char if char.isprintable() else " " for char in raw[: 4 * limit]).split())
    if len(plain) > limit:
        plain = plain[: limit - 1] + "…"
    codes = (char if char.isalnum() or char in _HARMLESS else f"#{ord(char)};" for char in plain)
    # `end` closes blocks; its first letter as a code reads the same.
    return " ".join(_guarded(word) for word in "".join(codes).split(" "))


def _guarded(word: str) -> str:
    return f"#{ord(word[0])};{word[1:]}" if word.lower() == "end" else word
