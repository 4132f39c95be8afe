"""What `baton credit` tells a person: what it may cost, what was left out or bound, and who got what."""

from __future__ import annotations

from collections.abc import Sequence

from baton.cli.printing import aligned, remark
from baton.compose.credit_traces import Expected
from baton.credit.core.covering import Grounds, grounds_of
from baton.credit.estimator import CreditError, Credits, Estimator
from baton.trace.acts import EVENT_UNITS
from baton.trace.outcome import estimated_tokens
from baton.trace.trace import Trace, is_fork, repeats
from baton.view.terminal.screen import emit
from baton.view.text import count, printable, tokens_said

_NAMED = 3


def tell_of_those_left_out(
    traces: list[Trace], credits: Credits, refused: Sequence[tuple[Sequence[Trace], CreditError]] = ()
) -> None:
    """Say which traces have no credit, and why, where others have some."""
    for group, error in refused[:_NAMED]:
        whose = ", ".join(trace.trace_id for trace in group)
        remark(f"baton credit: no credit for {printable(whose)}: {printable(str(error))}")
    if len(refused) > _NAMED:
        remark(f"baton credit: and none for {count(len(refused) - _NAMED, 'group')} more")
    known = {id(trace) for group, _ in refused for trace in group}
    left = [n for n, mine in enumerate(credits) if not mine and id(traces[n]) not in known]
    again = repeats(traces)
    forks = [traces[n].trace_id for n in left if is_fork(traces[n])]
    repeated = [f"{traces[n].trace_id} ({traces[again[n]].trace_id})" for n in left if n in again]
    alone = [traces[n].trace_id for n in left if n not in again and not is_fork(traces[n])]
    for why, names in (
        ("it is too few rollouts of its task by the same weights", alone),
        ("a fork is no rollout of its own", forks),
        ("a repeat, draw for draw, is no rollout of its own", repeated),
    ):
        if names and any(credits):
            told = printable(", ".join([*names[:_NAMED], *(["…"] if len(names) > _NAMED else [])]))
            remark(f"baton credit: not compared, for {why}: {told}")


def tell_of_the_cost(estimator: Estimator, expected: Expected) -> None:
    """Before anything is spent: what running the traces again may take, and how to bound it."""
    own = tokens_said(expected.own, expected.estimated)
    what = f"{estimator.name} runs parts of {count(expected.num_traces, 'trace')} ({own} tokens) again"
    if expected.most is None:
        most = ""
    else:
        most = f": up to about {tokens_said(expected.most, expected.estimated)} tokens"
    less = ". For less: --set spend=N, times a trace's own cost" if "spend" in estimator.settings else ""
    remark(f"baton credit: {what}{most}{less}")


def tell_of_the_bound(credits: Credits) -> None:
    """Where a budget of forks was in the way: by how much, and what to type for all."""
    notes = dict.fromkeys(
        note for mine in credits for credit in mine for note in credit.assumes if "bound by spend" in note
    )
    if notes:
        more = f" (and {len(notes) - 1} more)" if len(notes) > 1 else ""
        remark(f"baton credit: {next(iter(notes))}{more}. For all of it: --set spend=null")


def print_credits(traces: Sequence[Trace], credits: Credits) -> None:
    """Print who got what, on what it rests, and on what grounds."""
    rows = [("trace", "unit", "target", "credit", "± stderr", "re-run")]
    rows.extend(
        (
            printable(trace.trace_id),
            credit.unit,
            printable(credit.target),
            f"{credit.value:+.4f}",
            "not known" if credit.stderr is None else f"{credit.stderr:.4f}",
            f"{tokens_said(credit.cost_tokens or 0, credit.cost_tokens and estimated_tokens(trace))} tokens",
        )
        for trace, mine in zip(traces, credits, strict=True)
        for credit in mine
    )
    emit(aligned(rows, ""))
    notes = sorted({note for mine in credits for credit in mine for note in credit.assumes})
    if notes:
        emit([[(f"assumes: {printable('; '.join(notes))}", "dim")]])
    if any(credit.unit in EVENT_UNITS for mine in credits for credit in mine):
        emit([[(_grounds(grounds_of(traces, credits)), "dim")]])


def _grounds(found: Grounds) -> str:
    told = (
        f"of {found.events:,} events: {found.zero:.0%} without credit, {found.borrowed:.0%} told by rollouts that are "
        f"alike, {found.alone:.0%} by the return alone"
    )
    if not found.is_bare:
        return told
    return (
        f"{told}. Warning: these groups tell hardly any event from another. Give more rollouts, compare over instances "
        "(--group-by task), or give a critic (--set value=module:function, where the estimator takes one)."
    )
