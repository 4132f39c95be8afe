"""What a trace remembers of a run, by the thing that was waited for: the answers to feed back.

A run is a chain of blocks. Each block begins when something outside completes (a call is answered,
a tool finishes, a timer fires, a person speaks), runs without a pause, and its first event carries
the time and the place in the order. So the completions with their times are all that is needed to
run the same team again: replay, resume and fork all feed from here.
"""

from __future__ import annotations

from baton.errors import TraceError
from baton.team.protocol import Answer, EngineError
from baton.trace.records import Call, Event
from baton.trace.trace import Header, Trace, meta_as

Moment = tuple[float, int]
"""When a block began, and its place in the order."""


def moment(event: Event) -> Moment:
    """When the block an event opens began: at the event's end, since what took time is what was waited for."""
    return event.t + (event.duration_s or 0.0), event.seq


def replicates_of(header: Header) -> tuple[int, ...]:
    """Of a fork, its replicate and before it those of the forks it was made of; those that are 0 are left out."""
    told = meta_as(header, tuple[int, ...], "run", "replicates")
    if told is not None:
        return told
    last = meta_as(header, int, "run", "replicate")  # all that older headers tell
    return (last,) if last else ()


class Recording:
    """The completions of one trace."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.events: dict[str, Event] = {event.id: event for event in trace.events}
        self.calls: dict[str, Call] = trace.call_by_id
        self.said_by: dict[str, Event] = {}
        """Call -> the first event its answer led to."""
        self.timers: dict[str, Moment] = {}
        self.people: list[Event] = []
        for event in trace.events:
            if event.call is not None:
                self.said_by.setdefault(event.call, event)
            if "timer" in event.extra:
                self.timers.setdefault(event.extra["timer"], moment(event))
            if event.type == "human_intervention" and "edits" not in event.extra:
                self.people.append(event)

    def answer(self, call_id: str) -> tuple[Answer | EngineError, Moment] | None:
        """How a call was answered, or None when it never was."""
        event = self.said_by.get(call_id)
        call = self.calls.get(call_id)
        if event is None or call is None:
            return None
        when = moment(event)
        if call.finish_reason == "error":
            return EngineError(self._text(event.content_ref, event.id)), when
        answer = Answer(
            text=self._text(call.completion_ref, call.id),
            policy=call.policy or "",
            policy_version=call.policy_version or "0",
            completion_ids=call.completion_ids,
            logprobs=call.logprobs,
            token_ends=call.token_ends,
            choice=event.choice,
            option_propensities=event.option_propensities,
            prompt_tokens=call.prompt_tokens,
            completion_tokens=call.completion_tokens,
            finish_reason=call.finish_reason or "stop",
        )
        return answer, when

    def tool(self, tool_call_id: str) -> tuple[Event, str, Moment] | None:
        """The result of a tool call, its text, and when it came. None when it never did."""
        event = self.events.get(tool_call_id + "r")
        if event is None or event.duration_s is None:  # no duration: the agent was cancelled while it ran
            return None
        return event, self._text(event.content_ref, event.id), moment(event)

    def text(self, event: Event) -> str:
        return self._text(event.content_ref, event.id)

    def _text(self, ref: str | None, what: str) -> str:
        text = self.trace.text(ref)
        if text is None:
            raise TraceError(
                f"{what}: its text was withheld from the trace, so the run cannot be fed from it. "
                "Use a trace saved with payloads."
            )
        return text
