"""Shape, second half: values of the right type that no trace can hold.

Types say "a float"; these rules say "finite and not negative". One table serves both ways of
checking: whole columns at C speed while all is well, value by value once something is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from operator import attrgetter
from typing import Annotated, Any, get_args

import numpy as np
from msgspec import NODEFAULT, Meta, Struct, defstruct, structs

from baton.trace.records import Call, Charge, Credit, Edge, Event, Payload, Reward, Sampling, VersionSpan
from baton.trace.trace import End, Header
from baton.trace.validation.problem import shown

Fault = tuple[str, str, str]
"""Code, what was found, what was expected."""

_MAX_COUNT = 2**63 - 1
_FINITE = "a finite number"
_AT_LEAST_0 = "a finite number >= 0"
_COUNT = "an integer from 0 to 2^63 - 1"


def _name(value: str) -> Fault | None:
    return None if value else ("shape/empty", "''", "at least one character")


def _number(value: float) -> Fault | None:
    return None if isfinite(value) else ("shape/not-finite", shown(value), _FINITE)


def _seconds(value: float) -> Fault | None:
    if not isfinite(value):
        return ("shape/not-finite", shown(value), _AT_LEAST_0)
    return ("shape/negative", shown(value), _AT_LEAST_0) if value < 0 else None


def _count(value: int) -> Fault | None:
    if value < 0:
        return ("shape/negative", shown(value), _COUNT)
    return ("shape/too-large", shown(value), _COUNT) if value > _MAX_COUNT else None


def _version(value: int) -> Fault | None:
    return None if value >= 1 else ("shape/unknown-value", shown(value), "a format version, from 1")


def _codec(value: str) -> Fault | None:
    return None if value in ("raw", "zlib") else ("shape/unknown-value", shown(value), "'raw' or 'zlib'")


def _numbers(values: Sequence[float]) -> Fault | None:
    return next(filter(None, map(_number, values)), None)


def _tokens(values: Sequence[int]) -> Fault | None:
    return next(filter(None, map(_count, values)), None)


def _named_numbers(values: dict[str, float]) -> Fault | None:
    for name, value in values.items():
        if fault := _number(value):
            return (fault[0], f"{name}: {fault[1]}", fault[2])
    return None


def _costs(values: dict[str, float]) -> Fault | None:
    for name, value in values.items():
        # A cost that the survey's schema does not name may be any number.
        rule = _seconds if name in ("tokens", "wall_clock_s", "tool_calls", "messages") else _number
        if fault := rule(value):
            return (fault[0], f"{name}: {fault[1]}", fault[2])
    return None


def _properties(value: Any) -> Fault | None:
    """Foreign properties may be anything but a number that JSON cannot hold."""
    todo = [value]
    looked_into: set[int] = set()  # what was made in memory may hold itself
    while todo:
        part = todo.pop()
        if isinstance(part, dict | list | tuple):
            if id(part) not in looked_into:
                looked_into.add(id(part))
                todo.extend(part.values() if isinstance(part, dict) else part)
        elif isinstance(part, float) and (fault := _number(part)):
            return fault
    return None


_TABLES_OF_RUN = ("task", "policies", "limits", "latency", "settings")


def _meta(value: dict[str, Any]) -> Fault | None:
    """Anything of anyone's, but for the two objects that Baton itself reads."""
    if fault := _properties(value):
        return fault
    run = value.get("run")
    tables = {"run": run, "train": value.get("train")}
    if isinstance(run, dict):
        tables |= {f"run.{name}": run.get(name) for name in _TABLES_OF_RUN}
    for name, table in tables.items():
        if table is not None and not isinstance(table, dict):
            return ("shape/wrong-type", f"{name}: {shown(table)}", "an object, as Baton writes there")
    return None


def _sampling(value: Sampling) -> Fault | None:
    # Counts are not checked: servers write "no limit" as -1.
    for name in ("temperature", "top_p"):
        if fault := _seconds(getattr(value, name)):
            return (fault[0], f"{name}: {fault[1]}", fault[2])
    return None


def _versions(values: Sequence[VersionSpan]) -> Fault | None:
    for span in values:
        if fault := _name(span.version) or _count(span.end):
            return fault
    return None


# Whole columns. May say False of a good column that holds odd types; never True of a bad one.
def _all_counts(column: list[int]) -> bool:
    return min(column) >= 0 and max(column) <= _MAX_COUNT


def _all_seconds(column: list[float]) -> bool:
    values = np.array(column, dtype=np.float64)
    return bool(values.min() >= 0 and np.isfinite(values).all())


def _all_finite(column: list[float]) -> bool:
    return bool(np.isfinite(np.array(column, dtype=np.float64)).all())


def _all_arrays_finite(column: list[Any]) -> bool:
    return _all_finite([value for values in column for value in values])


def _all_arrays_tokens(column: list[Any]) -> bool:
    return all(not len(values) or values.numpy().min() >= 0 for values in column)


_Rule = Callable[[Any], Fault | None]
_COLUMN: dict[_Rule, Callable[[list[Any]], bool]] = {
    _name: all,
    _count: _all_counts,
    _seconds: _all_seconds,
    _number: _all_finite,
    _numbers: _all_arrays_finite,
    _tokens: _all_arrays_tokens,
    _properties: lambda column: not any(column) or not any(map(_properties, column)),
}

_RULES: dict[type[Struct], dict[str, _Rule]] = {
    Header: {"trace_id": _name, "task_id": _name, "version": _version, "meta": _meta},
    Event: {
        "id": _name,
        "agent": _name,
        "t": _seconds,
        "seq": _count,
        "duration_s": _seconds,
        "tokens": _count,
        "propensity": _number,
        "option_propensities": _numbers,
        "extra": _properties,
    },
    Edge: {"src": _name, "dst": _name},
    Call: {
        "id": _name,
        "agent": _name,
        "keep": _count,
        "prompt_ids": _tokens,
        "completion_ids": _tokens,
        "logprobs": _numbers,
        "token_ends": _tokens,
        "prompt_tokens": _count,
        "completion_tokens": _count,
        "sampling": _sampling,
        "versions": _versions,
        "t": _seconds,
        "duration_s": _seconds,
    },
    Payload: {"ref": _name, "size": _count, "codec": _codec},
    Reward: {"target": _name, "value": _number},
    Credit: {
        "target": _name,
        "value": _number,
        "stderr": _seconds,
        "cost_tokens": _count,
        "cost_calls": _count,
    },
    Charge: {"channel": _name, "target": _name, "value": _number},
    End: {
        "costs": _costs,
        "metrics": _named_numbers,
        "counts": lambda counts: _tokens(list(counts.values())),
    },
}


# The same rules as the decoder knows them. JSON has no NaN and no infinity to begin with.
_IN_JSON: dict[_Rule, Meta | None] = {
    _name: Meta(min_length=1),
    _count: Meta(ge=0, le=_MAX_COUNT),
    _seconds: Meta(ge=0),
    _number: None,
    _numbers: None,
    _properties: None,
}


def in_range(kind: type[Struct]) -> Any:
    """A struct like `kind` into which only values within their ranges decode from JSON."""
    fields: list[Any] = []
    for info in structs.fields(kind):
        meta = _IN_JSON[_RULES[kind][info.name]] if info.name in _RULES[kind] else None
        if meta is None:
            continue
        if info.default is NODEFAULT:
            fields.append((info.name, Annotated[info.type, meta]))
        else:
            value = next(option for option in get_args(info.type) if option is not type(None))
            fields.append((info.name, Annotated[value, meta] | None, info.default))
    config = kind.__struct_config__
    return defstruct(
        kind.__name__,
        fields,
        bases=(kind,),
        tag_field=config.tag_field,
        tag=config.tag,
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
        gc=config.gc,
    )


def faults_in(kind: type[Struct], field: str, value: Any) -> Fault | None:
    """What is wrong with one well-typed value."""
    rule = _RULES.get(kind, {}).get(field)
    return None if rule is None or value is None else rule(value)


def ruled_fields(kind: type[Struct]) -> Iterable[str]:
    """The fields of which not every well-typed value will do."""
    return _RULES[kind]


def fields_at_fault(kind: type[Struct], records: Sequence[Any]) -> list[str]:
    """The fields that hold a bad value in some of these well-typed records."""
    bad = []
    for field, rule in _RULES[kind].items():
        column = list(map(attrgetter(field), records))
        if None in column:
            column = [value for value in column if value is not None]
        if not column:
            continue
        whole = _COLUMN.get(rule)
        if not (whole(column) if whole else not any(map(rule, column))):
            bad.append(field)
    return bad
