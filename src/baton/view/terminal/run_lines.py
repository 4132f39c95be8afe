"""A team's run in a few lines: what it is doing now, and what came out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from baton.trace.outcome import estimated_tokens, final_event, lost_tokens
from baton.trace.quotes import Quote, quotes_of
from baton.trace.trace import Trace
from baton.view.terminal.live import live_line
from baton.view.text import count, tokens_said

_MOST_CHARACTERS = 200


def describe(trace: Trace) -> str:
    """One paragraph: what came out and what it took."""
    stop = final_event(trace)
    answer = trace.text(stop.content_ref) if stop else None
    lines = []
    if answer is not None:
        forced = f" (forced: {stop.extra.get('why', 'a limit')})" if stop and stop.status == "forced" else ""
        lines.append(f"answer   {_printable(answer)}{forced}")
        lines += [f"quote {k:<2} {_quoted(trace, quote)}" for k, quote in enumerate(quotes_of(trace), 1)]
    if trace.rewards:
        lines.append("reward   " + ", ".join(f"{r.channel} {r.value:g}" for r in trace.rewards))
    lines += _cut(trace)
    agents = 1 + sum(e.type == "spawn" for e in trace.events)
    costs = trace.costs
    lines.append(
        f"took     {count(agents, 'agent')}, {count(len(trace.calls), 'call')}, {count(len(trace.events), 'event')}, "
        f"{spent(trace)}, {costs.get('wall_clock_s', 0):.2f} s on the team's clock"
    )
    return "\n".join(lines)


def _quoted(trace: Trace, quote: Quote) -> str:
    """Words that are not the team's own, and where they stand."""
    tools = {event.id: event.tool for event in trace.events if event.id in quote.read_at}
    where = ", ".join(f"{tools.get(name) or 'the task'}, {name}" for name in quote.read_at)
    return f'"{_printable(quote.text)}" ({where or "it stands in no text that was read"})'


def spent(trace: Trace) -> str:
    """The tokens of a trace, said to be an estimate where nobody counted."""
    estimated = estimated_tokens(trace)
    said = f"{tokens_said(trace.costs.get('tokens', 0), estimated)} tokens"
    lost = lost_tokens(trace)
    marked = f"{said} (estimated)" if estimated else said
    return f"{marked} and {lost:,} charged for calls that were lost" if lost else marked


def _cut(trace: Trace) -> list[str]:
    """Says so where answers ended at their limit of tokens: what was left to say was not carried out."""
    cut = [call for call in trace.calls if call.finish_reason == "length"]
    if not cut:
        return []
    limits: dict[str, int] = {}
    for call in cut:
        if call.sampling is not None and call.sampling.max_tokens is not None:
            role = call.role or call.agent
            limits[role] = max(limits.get(role, 0), call.sampling.max_tokens)
    where = ", ".join(f"{role} {limit:,}" for role, limit in limits.items())
    more = 2 * max(limits.values(), default=1024)
    return [
        f"cut      {count(len(cut), 'answer')} at the limit of tokens"
        + (f" ({where})" if where else "")
        + f"; what came after was not carried out. For more room: --set max_tokens={more}"
    ]


def _printable(text: str) -> str:
    clean = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return clean if len(clean) <= _MOST_CHARACTERS else clean[:_MOST_CHARACTERS] + "…"


def watching(run: Any) -> AbstractContextManager[None]:
    """A line that says what a team is doing, for as long as it runs."""
    return live_line(at_work(run))


def at_work(run: Any) -> Callable[[float], str]:
    """What a team's run is doing, for `live_line`."""

    def tell(seconds: float) -> str:
        alive, steps = len(run.state.active), len(run.writer.calls)
        tokens = int(run.state.budget.used("tokens"))
        paused = "paused by a person; " if run.state.paused else ""
        return (
            f"{paused}{count(alive, 'agent')} at work, {count(steps, 'call')}, {count(tokens, 'token')}, "
            f"{count(len(run.writer.events), 'event')}, "
            f"{seconds:.0f} s ({tokens / seconds:,.0f} tokens/s)"
        )

    return tell
