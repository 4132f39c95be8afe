"""A trace as a few readable lines, for golden files: everything that an import can get wrong, and no time."""

from __future__ import annotations

from collections.abc import Iterator

from baton.trace.trace import Trace


def outline(trace: Trace) -> str:
    return "\n".join(_lines(trace)) + "\n"


def _lines(trace: Trace) -> Iterator[str]:
    header = trace.header
    yield f"trace {header.trace_id} system={header.system} topology={header.topology} finished={trace.finished}"
    yield f"task {header.task_id!r}"
    for event in trace.events:
        said = trace.text(event.content_ref)
        parts = [event.id, event.agent, event.type, event.decision]
        parts += [f"->{event.to}"] if event.to else []
        parts += [f"tool={event.tool}"] if event.tool else []
        parts += [f"call={event.call}"] if event.call else []
        parts += [f"tokens={event.tokens}"] if event.tokens is not None else []
        parts += [event.status] if event.status != "ok" else []
        parts += [f"inferred({event.why})"] if event.inferred else []
        yield " ".join(parts) + (f" {said[:80]!r}" if said is not None else "")
    for edge in trace.edges:
        yield f"{edge.src} -{edge.type}-> {edge.dst}" + (f" inferred({edge.why})" if edge.inferred else "")
    for call in trace.calls:
        ids = "" if call.completion_ids is None else f" ids={list(call.completion_ids)}"
        probs = "" if call.logprobs is None else f" logprobs={list(call.logprobs)}"
        yield (
            f"{call.id} {call.agent} {call.policy} parent={call.parent} keep={call.keep} "
            f"tokens={call.prompt_tokens}+{call.completion_tokens}{ids}{probs}"
        )
    for reward in trace.rewards:
        yield f"reward {reward.channel} {reward.unit} {reward.value}"
