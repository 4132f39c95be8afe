"""Whether a program said the same as it did when it was recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from baton.serve.exchange import Posted
from baton.serve.program_run import ProgramRun
from baton.serve.replay.difference import differing
from baton.serve.replay.match import Matcher


class ComparedOutput(Struct, frozen=True, kw_only=True):
    """The output of two runs, held side by side."""

    same: bool
    how: Literal["identical", "as far as kept", "but for masks", "but for notes", "different", "not recorded"]
    said: str


def recorded_end(posted: Sequence[Posted]) -> Posted | None:
    """What a recording kept of the program's end, if it was run by Baton; an answer that was posted is no output."""
    return next((one for one in reversed(posted) if one.ended and one.exit_code is not None), None)


def compare_output(run: ProgramRun, end: Posted | None, matcher: Matcher) -> ComparedOutput:
    """The exit code and standard output of a run against the recorded ones."""
    if end is None or end.answer is None:
        return ComparedOutput(
            same=True, how="not recorded", said="output    not compared: the recording kept none"
        )
    if end.exit_code is not None and end.exit_code != run.exit_code:
        return ComparedOutput(
            same=False, how="different", said=f"exit code [-{end.exit_code}-]{{+{run.exit_code}+}}"
        )
    if end.answer == run.text:
        size = len(run.stdout)
        if run.stdout_cut:
            said = f"output    identical in its first {size:,} bytes, and no more is kept; exit code {run.exit_code}"
            return ComparedOutput(same=True, how="as far as kept", said=said)
        return ComparedOutput(
            same=True, how="identical", said=f"output    identical: {size:,} bytes, exit code {run.exit_code}"
        )
    kinds = matcher.same_text(end.answer, run.text)
    if kinds is not None:
        said = f"output    identical but for {', '.join(kinds)}; exit code {run.exit_code}"
        return ComparedOutput(same=True, how="but for masks", said=said)
    once = _told_once(run.text, matcher.told_again)
    if once != run.text and matcher.same_text(end.answer, once) is not None:
        said = f"output    identical but for an answer told again, after a late notification; exit code {run.exit_code}"
        return ComparedOutput(same=True, how="but for notes", said=said)
    return ComparedOutput(
        same=False, how="different", said=f"output    {differing(end.answer, run.text, matcher.masks)}"
    )


def _told_once(text: str, again: Sequence[str]) -> str:
    """An output without what the program printed once more because it was given once more."""
    for said in filter(None, again):
        first, last = text.find(said), text.rfind(said)
        if first < last:
            text = text[:last].rstrip() + text[last + len(said) :]
    return text
