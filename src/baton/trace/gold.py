"""What is known of an instance besides its trace, and how an answer is compared with it.

Rewards and measures know no task: whatever they need of one (the right answer, a verifier, milestones, judges) is
handed over in `Gold` as plain data or callables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from baton.errors import TraceError
from baton.trace.outcome import plain
from baton.trace.trace import Trace

Judge = Callable[[Trace, str], float]
"""Scores what was said in one event of a trace: (trace, event id) -> score."""


class Gold(Struct, frozen=True, kw_only=True):
    """The truth about one instance. None: not known."""

    answer: str | None = None
    """The right answer. Case, runs of space and closing punctuation do not matter."""
    verify: Callable[[str], float] | None = None
    """Score of an answer, from 0 to 1. Goes before `answer`."""
    items: tuple[Any, ...] | None = None
    """The right items of an answer that is a list or a table: texts, or rows as mappings."""
    key: tuple[str, ...] = ()
    """Columns that name a row; a table is then scored cell by cell, else row by row."""
    parts: tuple[str, ...] | None = None
    """What the task splits into."""
    covers: Callable[[str], Collection[str]] | None = None
    """Which parts a subtask's text asks for; without it, those it names as whole words."""
    subtask_of: Callable[[str], str] | None = None
    """Which subtask a task's text asks for; without it, texts that differ are different subtasks."""
    facts: tuple[str, ...] | None = None
    """Texts that the answer cannot do without."""
    milestones: tuple[str, ...] | None = None
    reached: Callable[[Trace], Collection[str]] | None = None
    """Which milestones a trace, or the beginning of one, has reached. What is reached stays reached."""
    scorer: Callable[[Trace], float] | None = None
    """A trained scorer of prefixes."""
    judges: Mapping[str, Judge] | None = None
    """By name. Without them, verdicts on the trace are used: rewards whose channel is `verdict`."""
    rubrics: Mapping[str, Judge] | None = None
    """Role -> score of the last thing an agent of that role said."""
    without: Mapping[str, float] | None = None
    """Agent -> the outcome when it is barred, from forks."""
    shapley: Mapping[str, float] | None = None
    """Spawned agent -> its Shapley value, from forks with some of them alone."""
    solo: float | None = None
    """The outcome when the last agent works alone."""
    optimum: float | None = None
    """V*: what the best policy gets on average."""
    reference: float | None = None
    """V_ref: what a policy to compare with gets, such as a uniform one."""
    best_aggregate: float | None = None
    """Acc_opt: how often the best aggregator would be right."""
    least_work_s: float | None = None
    """T1*: the least work that solves the instance."""
    least_span_s: float | None = None
    """Tinf*: its longest chain, at the least."""
    slots: int | None = None
    """P: how many agents may be at work at once."""

    @property
    def can_verify(self) -> bool:
        """Whether an answer can be told right from wrong."""
        return self.verify is not None or self.answer is not None


def verifier(gold: Gold | None, what: str) -> Callable[[str], float]:
    """The judge of answers, or an error that says what needs it."""
    if gold is not None and gold.verify is not None:
        return gold.verify
    if gold is not None and gold.answer is not None:
        right = plain(gold.answer)
        return lambda answer: float(plain(answer) == right)
    raise TraceError(f"{what} needs the right answer: give gold data with `verify` or `answer`.")


def item_f1(answer: str, gold: Gold, key: Sequence[str] = ()) -> float:
    """F1 of an answer's items against the right ones, each counted as often as it stands there.

    Counts and not sets, because a list that names one right item five times is a worse answer than one that names it
    once, and a table may rightly hold the same row twice; WideSearch scores rows one against one as well.
    """
    if gold.items is None:
        raise TraceError("no right items are given: give gold data with `items`.")
    key = key or gold.key
    return f1(items_in(answer, key), _items(gold.items, key))


def f1(found: Iterable[str], right: Iterable[str]) -> float:
    """2 PR/(P + R) of items with their counts; nothing found where nothing was to be found is right."""
    found, right = Counter(found), Counter(right)
    every = found.total() + right.total()
    return 2 * (found & right).total() / every if every else 1.0


def items_in(text: str, key: Sequence[str] = ()) -> list[str]:
    """Items of an answer: of a JSON list its entries or its rows' cells, of an object its pairs, else its lines."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        value = None
    if isinstance(value, list):
        return _items(value, key)
    if isinstance(value, dict):
        return [_cell((), name, entry) for name, entry in value.items()]
    return [item for line in text.splitlines() if (item := plain(line.lstrip("-*• \t")))]


def _items(values: Iterable[Any], key: Sequence[str]) -> list[str]:
    found: list[str] = []
    for value in values:
        if isinstance(value, Mapping) and key:
            row = tuple(_flat(value.get(column)) for column in key)
            found += [_cell(row, name, entry) for name, entry in value.items() if name not in key]
            found.append(_cell(row, "", ""))
        else:
            found.append(_flat(value))
    return found


def _cell(row: tuple[str, ...], name: str, entry: Any) -> str:
    return msgspec.json.encode([*row, plain(name), _flat(entry)]).decode()


def _flat(value: Any) -> str:
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, Mapping):
        value = {plain(str(name)): _flat(entry) for name, entry in value.items()}
    return msgspec.json.encode(value, order="deterministic").decode()
