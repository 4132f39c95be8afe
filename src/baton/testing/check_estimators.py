"""Check a credit estimator: records on things that are there, each event once, the same again and from a file."""

from __future__ import annotations

import asyncio
import inspect
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from baton.credit import ESTIMATORS
from baton.credit.core.covering import Covering, check_disjoint
from baton.credit.estimator import Credits, Estimator, find
from baton.credit.project import project
from baton.errors import BatonError, TraceError
from baton.team.forks import Forks
from baton.testing.check_tools import CheckFailed, require
from baton.testing.sample_rollouts import sample_forks, sample_group
from baton.trace.formats import read_all, write
from baton.trace.records import Credit
from baton.trace.trace import Trace
from baton.trace.vocabulary import CREDIT_UNITS


def check_estimator(
    name: str,
    group: Sequence[Trace] = (),
    *,
    unit: str | None = None,
    runner: Forks | None = None,
    in_order: bool = False,
    **settings: Any,
) -> None:
    """`group` holds rollouts of one task; without any, those of a small team are taken.

    `runner` runs your own group again, for an estimator that does. `in_order`: it keeps a state from rollout to
    rollout, so their order counts. `settings` are the estimator's own.
    """
    found = find(name)
    _check_listing(found)
    traces = list(group) or sample_group()
    again = runner or sample_forks()

    def ask(some: Sequence[Trace]) -> Credits | None:
        answer = _asked(found, some, again, unit, settings)
        return None if isinstance(answer, TraceError) else answer

    credits = _asked(found, traces, again, unit, settings)
    if isinstance(credits, TraceError):
        raise CheckFailed(f"{name}: it refused the group: {credits}")
    require(any(credits), f"{name}: it gave no credit at all to {len(traces)} rollouts.")
    _check_records(found, traces, credits)
    require(
        _same(ask(traces), credits),
        f"{name}: the same group was judged in two ways. Draw by key, from a seed.",
    )
    if not in_order:
        backwards = ask(traces[::-1])
        require(
            backwards is not None and _same(backwards[::-1], credits),
            f"{name}: the order of the rollouts changes their credit; say in_order=True if it is meant to.",
        )
    with tempfile.TemporaryDirectory() as folder:
        write(traces, Path(folder) / "traces.jsonl")
        saved = list(read_all(Path(folder) / "traces.jsonl"))
        if "runtime" not in found.needs:
            require(_same(ask(saved), credits), f"{name}: the group, saved and read back, gets other credit.")
    alone = ask(traces[:1])
    if alone is not None:
        _check_records(found, traces[:1], alone)
    if found.takes_reward:
        ask([structs.replace(trace, rewards=()) for trace in traces])


def _check_listing(found: Estimator) -> None:
    require(
        ESTIMATORS.get(found.name) is found, f"{found.name}: it is not listed. Decorate it: @estimator(...)"
    )
    require(
        found.units and set(found.units) <= set(CREDIT_UNITS),
        f"{found.name}: its units are {found.units}; expected some of {', '.join(CREDIT_UNITS)}.",
    )
    text = inspect.getdoc(found.function) or ""
    require("Source:" in text, f"{found.name}: its docstring has no 'Source: ...'; say whose idea it is.")
    for tag in found.evidence.split("/"):
        require(
            tag in "PCAMI" and f"[{tag}]" in text,
            f"{found.name}: its evidence is {found.evidence!r}; expected some of PCAMI, and [{tag}] in the docstring.",
        )


def _asked(
    found: Estimator, group: Sequence[Trace], runner: Forks, unit: str | None, settings: dict[str, Any]
) -> Credits | TraceError:
    """The credits, or the error with which it refused, as what traces cannot support has to be."""
    try:
        if "runtime" in found.needs:
            bound = found.bind(unit=unit, **settings)
            credits: Credits = asyncio.run(found.function(group, runner=runner, **bound))
            return credits
        return found(group, unit=unit, **settings)
    except TraceError as error:
        return error
    except BatonError:
        raise
    except Exception as error:
        raise CheckFailed(
            f"{found.name}: {len(group)} rollouts raised {type(error).__name__}: {error}; expected credits, or "
            "CreditError with what is missing."
        ) from error


def _check_records(found: Estimator, group: Sequence[Trace], credits: Credits) -> None:
    require(
        len(credits) == len(group),
        f"{found.name}: {len(group)} rollouts, {len(credits)} lists of credit; expected one for each, in order.",
    )
    for trace, mine in zip(group, credits, strict=True):
        covering = Covering(trace)
        for credit in mine:
            where = f"{found.name}, trace {trace.trace_id}, {credit.unit} {credit.target!r}"
            require(credit.estimator == found.name, f"{where}: the record names {credit.estimator!r}.")
            require(credit.unit in found.units, f"{where}: it is listed for {', '.join(found.units)}.")
            require(math.isfinite(credit.value), f"{where}: the value is {credit.value}.")
            require(
                credit.stderr is None or (credit.stderr >= 0 and math.isfinite(credit.stderr)),
                f"{where}: the standard error is {credit.stderr}; expected None where it cannot be told.",
            )
            require(credit.assumes, f"{where}: it does not say what it assumes.")
            require(
                credit.unit == "token" or covering.of(credit),
                f"{where}: there is no such {credit.unit}, or nobody chose it.",
            )
        check_disjoint(trace, mine)
        if any(call.completion_ids for call in trace.calls):
            project(trace, mine)


def _same(one: Credits | None, other: Credits) -> bool:
    """Alike but for what was paid: a branch that was run before costs nothing again."""
    return one is not None and [list(map(_free, mine)) for mine in one] == [
        list(map(_free, m)) for m in other
    ]


def _free(credit: Credit) -> Credit:
    return structs.replace(credit, cost_tokens=0, cost_calls=0)
