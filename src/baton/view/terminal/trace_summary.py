"""What stands above and below the tree: the trace's scale and costs, its rewards and credits."""

from __future__ import annotations

from collections.abc import Sequence

from baton.measure.metrics.scale import Scale, scale
from baton.measure.prices import PriceTable
from baton.trace.outcome import lost_tokens
from baton.trace.records import Charge, Credit, Reward
from baton.trace.trace import Trace
from baton.view.headline import headline
from baton.view.terminal.endings import failures_said
from baton.view.terminal.fitting import Line
from baton.view.text import count, duration, number, printable, tokens_said

_SHOWN = 12
_SAID_ALREADY = {"tokens", "wall_clock_s", "messages", "tool_calls"}


def above(trace: Trace, prices: PriceTable | None = None, *, working: bool = False) -> list[Line]:
    """Which trace this is, how large, and what it comes to. `working`: its run goes on now."""
    working = working and not trace.finished
    size = scale(trace)
    title: Line = [
        (printable(trace.trace_id), "bold"),
        (f"  task {printable(trace.header.task_id)}  {size.topology}  ", ""),
        _standing(trace, working),
    ]
    lines = [title, [("  ".join(_counts(size)), "")], [("  ".join(_costs(size, lost_tokens(trace))), "")]]
    forced = not (trace.finished or working) or "forced" in size.statuses
    ended, *further_said = headline(trace, prices=prices, working=working)
    lines.append([(f"{ended.about}  ", ""), (ended.text, "red" if forced else "")])
    lines += [
        [(f"{one.about}  ", ""), (one.text, "red" if one.about == "wrong" else "")] for one in further_said
    ]
    lines += [[(f"{label}  ", ""), (told, "red")] for label, told in failures_said(trace)]
    further = {name: value for name, value in trace.costs.items() if name not in _SAID_ALREADY}
    for name, values in (("costs", further), ("metrics", trace.metrics)):
        if values:
            said = "  ".join(f"{printable(key)} {number(value)}" for key, value in sorted(values.items()))
            lines.append([(f"{name}  {said}", "")])
    return [*lines, []]


def _standing(trace: Trace, working: bool) -> tuple[str, str]:
    if trace.finished:
        return "finished", "green"
    return ("under way", "bold green") if working else ("unfinished", "bold red")


def _counts(size: Scale) -> list[str]:
    said = [count(size.events, "event")]
    if size.agents is not None:
        team = f"{number(size.spawned or 0)} spawned, depth {size.max_depth}"
        if size.max_concurrency is not None:
            team += f", {size.max_concurrency} busy at once"
        said.insert(0, f"{count(size.agents, 'agent')} ({team})")
    said += [
        count(size.messages, "message"),
        count(size.tool_calls, "tool call"),
        count(size.calls, "LLM call"),
    ]
    return said + [f"{n:,} {status}" for status, n in size.statuses.items() if status != "ok"]


def _costs(size: Scale, lost: int) -> list[str]:
    estimated = size.estimated_tokens
    tokens = "tokens not measured" if size.tokens is None else f"{tokens_said(size.tokens, estimated)} tokens"
    said = [f"{tokens} (estimated)" if estimated else tokens]
    if lost:
        said.append(f"{lost:,} more charged for calls that were lost")
    said.append("times not measured" if size.seconds is None else f"took {duration(size.seconds)}")
    if size.work_s is not None and size.span_s is not None:
        said.append(f"work {duration(size.work_s)}, span {duration(size.span_s)}")
    if size.parallelism is not None:
        said.append(f"parallelism {size.parallelism:.2f}")
    return said


def below(trace: Trace, *, fold: bool) -> list[Line]:
    """What stands below the tree: the rewards, the credits and the charges of the trace."""
    lines: list[Line] = []
    every = (
        ("rewards", _rewards(trace.rewards)),
        ("credits", _credits(trace.credits)),
        ("charges", _charges(trace.charges)),
    )
    for title, rows in every:
        if rows:
            lines += [[], [(title, "bold")]]
            shown = rows if not fold or len(rows) <= _SHOWN + 1 else rows[:_SHOWN]
            widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
            for row in shown:
                cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
                lines.append([(f"  {'  '.join(cells)}".rstrip(), "")])
            if len(shown) < len(rows):
                lines.append([(f"  … {len(rows) - len(shown):,} more {title} left out", "dim italic")])
    return lines


def _rewards(rewards: Sequence[Reward]) -> list[tuple[str, ...]]:
    return [
        (
            printable(reward.channel),
            *_aim(reward),
            number(reward.value),
            f"by {printable(reward.by)}" if reward.by else "",
        )
        for reward in rewards
    ]


def _credits(credits: Sequence[Credit]) -> list[tuple[str, ...]]:
    return [
        (
            printable(credit.estimator),
            *_aim(credit),
            number(credit.value) + ("" if credit.stderr is None else f" ± {number(credit.stderr)}"),
        )
        for credit in credits
    ]


def _charges(charges: Sequence[Charge]) -> list[tuple[str, ...]]:
    return [(printable(charge.channel), *_aim(charge), number(charge.value)) for charge in charges]


def _aim(record: Reward | Credit | Charge) -> tuple[str, str]:
    return record.unit, "" if record.unit == "team" else printable(record.target)
