"""Shape, first half: one record, field by field.

Records that decode into their struct never come here. One that does not is looked at loosely, so
that all its problems are reported and not just the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from msgspec import NODEFAULT, Struct, ValidationError, convert, structs

from baton.errors import nearest
from baton.trace.records import Floats, Ints, Sampling, decode_hook
from baton.trace.validation.problem import clip, shown
from baton.trace.validation.ranges import Fault, faults_in

_WORDS = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    bytes: "base64 text",
    Ints: "an array of 32-bit integers",
    Floats: "an array of numbers",
    Sampling: "an object with the fields of a sampling",
    tuple[str, ...]: "an array of strings",
    tuple[float, ...]: "an array of numbers",
    tuple[int, int]: "an array of two integers",
    dict[str, Any]: "an object",
    list[Any]: "an array",
    dict[str, float]: "an object of numbers",
    dict[str, int]: "an object of integers",
}


def field_faults(
    kind: type[Struct],
    given: Mapping[str, Any],
    *,
    ranges_of: type[Struct] | None = None,
    closed: bool = True,
    num_hints: int = 20,
) -> list[tuple[str, Fault]]:
    """Everything wrong with a record's fields, each with the name it has in the file.

    `ranges_of` names the struct whose value rules apply, where it is not `kind` itself; with
    `closed` False, further fields are welcome; `num_hints` names are compared with the right ones.
    """
    faults: list[tuple[str, Fault]] = []
    known = _fields(kind)
    for name, info in known.items():
        if name in given:
            fault = _value_fault(info, given[name], ranges_of or kind)
            if fault:
                faults.append((name, fault))
        elif info.default is NODEFAULT and info.default_factory is NODEFAULT:
            faults.append((name, ("shape/missing-field", "nothing", _expected(info.type))))
    unknown = [name for name in given if name not in known and name != "kind"] if closed else []
    for number, name in enumerate(unknown):
        # Looking for the nearest name takes a thousand times as long as all else here.
        hint = f" {nearest(clip(name), known)}" if number < num_hints else ""
        faults.append((clip(name), ("shape/unknown-field", shown(given[name]), f"no such field.{hint}")))
    return faults


@cache
def _fields(kind: type[Struct]) -> dict[str, structs.FieldInfo]:
    return {info.encode_name: info for info in structs.fields(kind)}


def _value_fault(info: structs.FieldInfo, value: Any, ranges_of: type[Struct]) -> Fault | None:
    expected = _expected(info.type)
    if isinstance(value, Ints | Floats):  # in memory; in a file they are plain lists
        value = value.tolist()
    try:
        typed = convert(value, info.type, dec_hook=decode_hook)
    except (ValidationError, OverflowError) as error:
        options = _literal(info.type)
        if options and isinstance(value, str):
            return (
                "shape/unknown-value",
                shown(value),
                f"a word of its list. {nearest(clip(value), options)}",
            )
        if isinstance(value, list) and "32-bit" in str(error):
            return ("shape/too-large", shown(value), expected)
        where = str(error).partition(" - at ")[2].strip("`").removeprefix("$")
        return ("shape/wrong-type", shown(value) + (f" at {where}" if where else ""), expected)
    return faults_in(ranges_of, info.name, typed)


def _without_none(kind: Any) -> Any:
    if get_origin(kind) in (UnionType, Union):
        rest = [option for option in get_args(kind) if option is not type(None)]
        return rest[0] if len(rest) == 1 else kind
    return kind


def _literal(kind: Any) -> tuple[str, ...]:
    kind = _without_none(kind)
    return get_args(kind) if get_origin(kind) is Literal else ()


def _expected(kind: Any) -> str:
    plain = _without_none(kind)
    words = _literal(plain)
    text = f"one of {', '.join(words)}" if words else _WORDS.get(plain, str(plain))
    return text if plain is kind else f"{text}, or no such field"
