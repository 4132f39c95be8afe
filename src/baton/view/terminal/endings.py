"""How a run ended, and why: what `baton run` says last and `baton show` says first.

The reasons are those the trace has: who stopped it, which limit forced that, which calls were not answered and with
what error. Where nothing says why, that is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from baton.errors import CorruptError, TraceError
from baton.trace.outcome import estimated_tokens, final_event
from baton.trace.records import Event
from baton.trace.trace import Trace
from baton.view.text import count, moment, printable, shortened, tokens_said

_NAMED = 3
_ERROR_CHARACTERS = 300
_ENDING_CHARACTERS = 24


def why_ended(trace: Trace, *, working: bool = False) -> str:
    """In a few words, why there is no more of a trace. `working`: its run goes on, so there will be."""
    if not trace.finished:
        if not trace.events:
            return f"{'under way' if working else 'unfinished'}: nothing has happened yet"
        last = max(trace.events, key=lambda event: event.seq)
        if working:
            return f"under way: the last event is {printable(last.id)}, at {moment(last.t)}"
        return f"unfinished: it breaks off after {printable(last.id)}, at {moment(last.t)}"
    end = _end(trace)
    if end is None:
        wrong = max(trace.events, key=lambda event: event.seq, default=None)
        if wrong is not None and wrong.decision == "stop" and wrong.status == "failed":
            return f"{printable(wrong.agent)} failed: {_why(wrong)}"
        return f"finished, and nobody gave an answer{_left_open(trace)}"
    if end.status == "forced":
        return f"{printable(end.agent)} was forced to stop: {_why(end)}"
    return f"{printable(end.agent)} {'stopped' if end.decision == 'stop' else 'gave the last answer'}"


def ending(trace: Trace) -> str:
    """Why there is no more of a trace, in a word or two that many share: what a table of traces is filtered by."""
    if not trace.finished:
        return "unfinished"
    end = _end(trace)
    if end is None:
        last = max(trace.events, key=lambda event: event.seq, default=None)
        failed = last is not None and last.decision == "stop" and last.status == "failed"
        return "failed" if failed else "no answer"
    if end.status != "forced":
        return "stopped" if end.decision == "stop" else "answered"
    if isinstance(end.extra.get("budget"), str):
        return f"budget: {shortened(end.extra['budget'], _ENDING_CHARACTERS)}"
    return "deadlock" if "deadlock" in end.extra else "forced"


def _left_open(trace: Trace) -> str:
    """What was still at work when a trace ended without an answer: a log that was cut off shows by it."""
    answered = {edge.src for edge in trace.edges if edge.type == "tool_dependency"}
    calls = sum(event.type == "tool_call" and event.id not in answered for event in trace.events)
    started = {event.to for event in trace.events if event.type == "spawn" and event.status == "ok"}
    agents = len(started - {event.agent for event in trace.events if event.type == "return"} - {None})
    work = [count(n, what) for n, what in ((agents, "agent"), (calls, "tool call")) if n]
    return f": {' and '.join(work)} had not come back" if work else ""


def how_it_went(trace: Trace) -> str:
    """A run in one line: why it ended, what it earned, how many took part, what it cost."""
    rewards = ", ".join(f"{printable(r.channel)} {r.value:g}" for r in trace.rewards if r.unit == "team")
    agents = 1 + sum(event.type == "spawn" and event.status == "ok" for event in trace.events)
    facts = [f"reward {rewards}" if rewards else "no reward", count(agents, "agent")]
    facts.append(f"{tokens_said(trace.costs.get('tokens', 0), estimated_tokens(trace))} tokens")
    return f"{why_ended(trace)}; {', '.join(facts)}"


def failures_said(trace: Trace) -> list[tuple[str, str]]:
    """What went wrong on the way: a label, and what happened to how many, with the first reason."""
    end = _end(trace)
    said: list[tuple[str, str]] = []
    lost = [event for event in trace.events if event.status == "failed"]
    unanswered = [event for event in lost if _is_unanswered(trace, event)]
    if unanswered:
        share = f"{len(unanswered):,} of {count(len(trace.calls), 'call')}"
        said.append(("failed", f"{share} not answered; {_first(trace, unanswered)}"))
    forced = [event for event in trace.events if event.status == "forced" and event is not end]
    cut = {event.agent for event in forced} | ({end.agent} if end is not None else set())
    # What a limit refused is told below, with whom it cut off.
    others = [event for event in lost if not (event.type == "safety_event" and event.agent in cut)]
    for kind, events in _by_type(event for event in others if event not in unanswered).items():
        said.append(("failed", f"{count(len(events), kind)}; {_first(trace, events)}"))
    for why, number in Counter(map(_why, forced)).most_common(_NAMED):
        names = [printable(event.agent) for event in forced if _why(event) == why]
        who = ", ".join([*names[:_NAMED], *(["…"] if number > _NAMED else [])])
        said.append(("cut off", f"{who}: {why}"))
    return said


def _end(trace: Trace) -> Event | None:
    try:
        return final_event(trace)
    except TraceError:  # agents that spawn each other in a circle have no leader
        return None


def _by_type(events: Iterable[Event]) -> dict[str, list[Event]]:
    found: dict[str, list[Event]] = {}
    for event in events:
        found.setdefault(event.type.replace("_", " "), []).append(event)
    return found


def _is_unanswered(trace: Trace, event: Event) -> bool:
    call = trace.call_by_id.get(event.call or "")
    return call is not None and call.finish_reason == "error"


def _first(trace: Trace, events: list[Event]) -> str:
    first = events[0]
    who = f"{'first, ' if len(events) > 1 else ''}{printable(first.agent)}"
    return f"{who}: {_error(trace, first)}"


def _error(trace: Trace, event: Event) -> str:
    try:
        text = trace.text(event.content_ref)
    except CorruptError:
        text = None
    if not text:
        return _why(event)
    text = text.strip()
    cut = len(text) > _ERROR_CHARACTERS
    return printable(text[:_ERROR_CHARACTERS]) + ("…" if cut else "")


def reason_of(event: Event) -> str | None:
    """Why an event failed or was forced, by its own record; None: it does not say."""
    extra = event.extra
    why = extra.get("why")
    if isinstance(why, str) and why:
        return printable(why)
    called = extra.get("call_extra")
    if isinstance(called, dict) and isinstance(called.get("refused"), str):
        return printable(called["refused"])
    if isinstance(extra.get("budget"), str):
        used = ", ".join(f"{name} {extra[name]}" for name in ("limit", "used", "asked") if name in extra)
        return printable(f"the budget of {extra['budget']} ({used})")
    return "everyone waits for someone else" if "deadlock" in extra else None


def _why(event: Event) -> str:
    return reason_of(event) or "the trace does not say why"
