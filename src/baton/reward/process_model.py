"""A process reward model learned from traces: how likely the team succeeds, after each of its turns.

Every prefix that ends with a turn is labelled with how its trace came out in the end, as Math-Shepherd labels steps
without people (arXiv 2312.08935 [M]; one completion a prefix, the one that was played). What is learned is a logistic
regression on what has happened so far: who did what, with which words; penalised, fitted by Newton's method, and kept
as a readable file of weights by feature. Each trace counts once, however many turns it has, so that long traces, and
padded ones, do not weigh more. Small on purpose: it sees words and acts, not sense. A critic with a network is
`baton.learn.critics.network`.

Invariant: the same traces in any order give the same model up to rounding; a model's values are in (0, 1), and are
the same whatever file the trace was read from.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from baton.errors import FormatError, TraceError, UsageError
from baton.trace.acts import turns
from baton.trace.formats.durable import naming
from baton.trace.graph.lineage import in_seq_order
from baton.trace.records import Event
from baton.trace.trace import Trace

Array = NDArray[np.float64]

_WORDS_OF_EVENT = 64
_NEWTON_STEPS = 25
_ENOUGH_TRACES = 8
FORMAT = "baton-process-model-1"


class ProcessModel(Struct, frozen=True, kw_only=True):
    """Weights by feature, and how the fit went."""

    format: str = FORMAT
    bias: float
    weights: dict[str, float]
    num_traces: int
    """How many it was learned from."""
    penalty: float

    def along(self, trace: Trace) -> list[float]:
        """The chance of success before the first turn, and after each."""
        return [_sigmoid(self._score(seen)) for seen in _prefixes(trace)]

    def _score(self, seen: Mapping[str, int]) -> float:
        known = (math.log1p(n) * self.weights[name] for name, n in seen.items() if name in self.weights)
        return self.bias + math.fsum(known)

    def __call__(self, trace: Trace) -> float:
        """The chance of success after all of a trace, or of the beginning of one: what `Gold.scorer` is asked."""
        return self.along(trace)[-1]

    def save(self, path: str | Path) -> None:
        """Write it as JSON, features by name."""
        with naming(path):
            Path(path).write_bytes(msgspec.json.format(msgspec.json.encode(self, order="sorted")))


def load_process_model(path: str | Path) -> ProcessModel:
    """A model that was saved, or an error that says what the file is not."""
    place = Path(path)
    if not place.is_file():
        raise UsageError(
            f"{path}: there is no such process model. Learn one: baton reward TRACE... --learn {path}"
        )
    return _loaded(place, place.stat().st_mtime_ns)


@lru_cache(maxsize=8)
def _loaded(place: Path, _changed: int) -> ProcessModel:
    try:
        found = msgspec.json.decode(place.read_bytes(), type=ProcessModel)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise FormatError(f"{place} is no process model: {error}.") from None
    if found.format != FORMAT:
        raise FormatError(f"{place} has the format {found.format!r}; expected {FORMAT!r}.")
    return found


class ModelQuality(Struct, frozen=True, kw_only=True):
    """How well a model tells success from failure on traces it was not learned from."""

    traces: int
    prefixes: int
    brier: float
    """Mean squared error of the chance, each trace counting once."""
    brier_of_base_rate: float
    """The same of always saying how often the traces it was learned from succeeded."""
    auc: float | None
    """How often a prefix of a trace that succeeds has the higher chance than one, at the same turn, of a trace that
    does not; None: there is no such pair."""


def learn_process_model(
    traces: Sequence[Trace],
    outcomes: Sequence[float],
    *,
    penalty: float = 1.0,
    most_features: int = 400,
    in_traces: int = 2,
) -> ProcessModel:
    """Learn one. `outcomes`: how each trace came out, from 0 to 1.

    Features that fewer than `in_traces` traces show are left out.
    """
    if len(traces) < _ENOUGH_TRACES:
        raise UsageError(
            f"{len(traces)} traces are too few to learn a process model from; expected {_ENOUGH_TRACES} at the least."
        )
    if any(not 0 <= outcome <= 1 for outcome in outcomes):
        raise UsageError("a process model is learned from outcomes between 0 and 1; some lie outside.")
    if max(outcomes) - min(outcomes) < 1e-12:
        raise UsageError(
            f"all {len(traces)} traces came out at {outcomes[0]:g}: nothing shows what leads there. Give traces that "
            "came out differently."
        )
    rows = [(seen, k) for k, trace in enumerate(traces) for seen in _prefixes(trace)]
    names = _chosen(rows, outcomes, most_features, in_traces)
    place = {name: k for k, name in enumerate(names)}
    x = np.zeros((len(rows), len(names) + 1))
    x[:, -1] = 1.0
    for row, (seen, _) in enumerate(rows):
        for name, n in seen.items():
            if name in place:
                x[row, place[name]] = math.log1p(n)
    lengths = Counter(k for _, k in rows)
    y = np.array([outcomes[k] for _, k in rows])
    weight = np.array([1 / lengths[k] for _, k in rows])
    found = _fitted(x, y, weight, penalty)
    return ProcessModel(
        bias=float(found[-1]),
        weights=dict(zip(names, map(float, found[:-1]), strict=True)),
        num_traces=len(traces),
        penalty=penalty,
    )


def quality_of(
    model: ProcessModel, traces: Sequence[Trace], outcomes: Sequence[float], base_rate: float
) -> ModelQuality:
    """How well the model does on these traces, which it should not have been learned from."""
    along = [model.along(trace) for trace in traces]
    errors, plain = [], []
    for values, outcome in zip(along, outcomes, strict=True):
        errors.append(math.fsum((value - outcome) ** 2 for value in values) / len(values))
        plain.append((base_rate - outcome) ** 2)
    return ModelQuality(
        traces=len(traces),
        prefixes=sum(map(len, along)),
        brier=math.fsum(errors) / len(errors),
        brier_of_base_rate=math.fsum(plain) / len(plain),
        auc=_auc(along, outcomes),
    )


def _auc(along: Sequence[Sequence[float]], outcomes: Sequence[float]) -> float | None:
    """At the same turn: early prefixes know less, and comparing them with late ones would reward length."""
    above = pairs = 0.0
    for turn in range(max(map(len, along))):
        good = [
            v[turn] for v, outcome in zip(along, outcomes, strict=True) if outcome >= 0.5 and turn < len(v)
        ]
        bad = [v[turn] for v, outcome in zip(along, outcomes, strict=True) if outcome < 0.5 and turn < len(v)]
        if turn == 0 or not good or not bad:
            continue  # before the first turn there is nothing to tell them apart by
        first, second = np.array(good)[:, None], np.array(bad)[None, :]
        above += float((first > second).sum() + 0.5 * (first == second).sum())
        pairs += len(good) * len(bad)
    return above / pairs if pairs else None


def _prefixes(trace: Trace) -> Iterator[Counter[str]]:
    """What has happened before the first turn and after each one; one counter that grows."""
    starts = [trace.events[turn.start].seq for turn in turns(trace)]
    if not starts:
        raise TraceError(f"trace {trace.trace_id}: a process model looks at turns and no call is recorded.")
    seen: Counter[str] = Counter()
    ends = iter([*starts, math.inf])
    end = next(ends)
    for event in in_seq_order(trace):
        while event.seq >= end:
            yield seen.copy()
            end = next(ends)
        seen.update(_features(trace, event))
    yield seen


def _features(trace: Trace, event: Event) -> Iterator[str]:
    who = event.role or "-"
    yield f"{who} {event.type} {event.decision}"
    if event.status != "ok":
        yield f"{who} {event.status}"
    text = trace.text(event.content_ref) or ""
    for word in dict.fromkeys(re.findall(r"\w+", text.casefold())[:_WORDS_OF_EVENT]):
        yield f"{who} {event.type}: {'#' if word.isdigit() else word}"


def _chosen(
    rows: Sequence[tuple[Mapping[str, int], int]], outcomes: Sequence[float], most: int, in_traces: int
) -> list[str]:
    """The features that go furthest with the outcome, of those that enough traces show and not all of them alike."""
    shown: dict[str, dict[int, float]] = {}
    for seen, k in rows:
        for name, n in seen.items():
            shown.setdefault(name, {})[k] = math.log1p(n)
    middle = math.fsum(outcomes) / len(outcomes)
    strength: dict[str, float] = {}
    for name, values in shown.items():
        if len(values) < in_traces:
            continue
        mean = math.fsum(values.values()) / len(outcomes)
        spread = math.fsum((values.get(k, 0.0) - mean) ** 2 for k in range(len(outcomes)))
        both = math.fsum(
            (values.get(k, 0.0) - mean) * (outcome - middle) for k, outcome in enumerate(outcomes)
        )
        if spread > 1e-12:
            strength[name] = abs(both) / math.sqrt(spread)
    # By name where two are as strong, so that the order of the traces does not show.
    return sorted(sorted(strength, key=lambda name: (-round(strength[name], 9), name))[:most])


def _fitted(x: Array, y: Array, weight: Array, penalty: float) -> Array:
    """Penalised logistic regression by Newton's method; the bias, last, is not penalised."""
    ridge = np.full(x.shape[1], penalty)
    ridge[-1] = 1e-6
    found = np.zeros(x.shape[1])
    for _ in range(_NEWTON_STEPS):
        chance = 1 / (1 + np.exp(-np.clip(x @ found, -30, 30)))
        slope = x.T @ (weight * (chance - y)) + ridge * found
        bend = (x * (weight * chance * (1 - chance))[:, None]).T @ x + np.diag(ridge)
        step = np.linalg.solve(bend, slope)
        found -= step
        if float(np.abs(step).max()) < 1e-9:
            break
    return found


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, value))))


def held_out(traces: Sequence[Trace], every: int = 5) -> list[bool]:
    """Which traces to keep for measuring: one in `every`, whole tasks where there are enough of them."""
    tasks = {trace.header.task_id for trace in traces}
    keys = [trace.header.task_id if len(tasks) >= every else trace.trace_id for trace in traces]
    place = {key: k for k, key in enumerate(sorted(set(keys)))}
    return [place[key] % every == every - 1 for key in keys]
