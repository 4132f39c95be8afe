"""Structure, of calls: what events say they said, and what calls grow from.

Lengths that a trace does not know (token ids not recorded, nothing billed) are not checked.
"""

from __future__ import annotations

import numpy as np

from baton.trace.records import Call
from baton.trace.validation.order import cycles
from baton.trace.validation.parts import Indexes, Parts
from baton.trace.validation.problem import Found, shown

_SHOWN_OF_CYCLE = 12


def check_calls(parts: Parts, found: Found) -> None:
    _check_said(parts, found)
    _check_grown(parts, found)


def _check_said(parts: Parts, found: Found) -> None:
    for index in parts.having("span"):
        event = parts.events[index]
        if event.call is None:
            parts.report(
                found,
                "structure/span-without-call",
                "event",
                index,
                "span",
                was=shown(event.span),
                expected="a call",
            )
    for index in parts.having("call"):
        event = parts.events[index]
        at = parts.call_position.get(event.call or "")
        if at is None:
            if not parts.excuses(event.call):
                was = shown(event.call)
                parts.report(
                    found,
                    "structure/unknown-call",
                    "event",
                    index,
                    "call",
                    was=was,
                    expected="the id of a call",
                )
        elif event.span is not None:
            length = _completion_length(parts.calls[at])
            start, end = event.span
            if not 0 <= start <= end or (length is not None and end > length):
                expected = f"0 <= start <= end <= {length:,}" if length is not None else "0 <= start <= end"
                was = shown(event.span)
                parts.report(
                    found, "structure/span-outside-call", "event", index, "span", was=was, expected=expected
                )


def _completion_length(call: Call) -> int | None:
    return len(call.completion_ids) if call.completion_ids is not None else call.completion_tokens


def _prompt_length(call: Call) -> int | None:
    return call.keep + len(call.prompt_ids) if call.prompt_ids is not None else call.prompt_tokens


def _check_lengths(parts: Parts, found: Found, index: int, call: Call) -> None:
    if call.completion_ids is None:
        return
    wanted = len(call.completion_ids)
    for name, values in (("logprobs", call.logprobs), ("token_ends", call.token_ends)):
        if values is not None and len(values) != wanted:
            code = f"structure/{name.replace('_', '-')}-length"
            was, expected = f"{len(values):,} of them", f"{wanted:,}, one for each completion token"
            parts.report(found, code, "call", index, name, was=was, expected=expected)


def _check_grown(parts: Parts, found: Found) -> None:
    src, dst = [], []
    for index, call in enumerate(parts.calls):
        _check_lengths(parts, found, index, call)
        if call.parent is None:
            if call.keep > 0:
                was, expected = f"keep {call.keep:,} and no parent", "a parent to keep tokens of"
                parts.report(
                    found, "structure/keep-outside-parent", "call", index, "keep", was=was, expected=expected
                )
            continue
        at = parts.call_position.get(call.parent)
        if at is None:
            if not parts.excuses(call.parent):
                was = shown(call.parent)
                parts.report(
                    found,
                    "structure/unknown-parent",
                    "call",
                    index,
                    "parent",
                    was=was,
                    expected="the id of a call",
                )
            continue
        src.append(at)
        dst.append(index)
        prompt, completion = _prompt_length(parts.calls[at]), _completion_length(parts.calls[at])
        if prompt is not None and completion is not None and call.keep > prompt + completion:
            was, expected = (
                shown(call.keep),
                f"at most {prompt + completion:,}, its parent's prompt and completion",
            )
            parts.report(
                found, "structure/keep-outside-parent", "call", index, "keep", was=was, expected=expected
            )
    _check_call_cycles(parts, found, np.array(src, dtype=np.int64), np.array(dst, dtype=np.int64))


def _check_call_cycles(parts: Parts, found: Found, src: Indexes, dst: Indexes) -> None:
    if bool((src < dst).all()):  # every call stands after its parent, as a writer puts them
        return
    for circle in cycles(len(parts.calls), src, dst):
        ids = [parts.calls[index].id for index in circle[:_SHOWN_OF_CYCLE]]
        was, expected = " > ".join([*ids, ids[0]]), "no call to grow from itself"
        parts.report(found, "structure/call-cycle", "call", circle[0], "parent", was=was, expected=expected)
