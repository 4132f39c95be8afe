"""Whether a value is what a JSON schema asks for: the part of JSON Schema that structured answers are asked for with.

Known: type, properties, required, additionalProperties, items, prefixItems, enum, const, anyOf, oneOf, allOf, $ref to
$defs, minimum, maximum, minLength, maxLength, minItems, maxItems, pattern. Other words are not checked.
"""

from __future__ import annotations

import re
from typing import Any

_KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_DEEPEST = 200


def misfit(value: Any, schema: Any) -> str | None:
    """What is wrong with a value, in words; None: it fits."""
    try:
        return _wrong(value, schema, schema, "the answer", 0)
    except re.error:
        return None  # a pattern that Python does not understand is not checked


def _wrong(value: Any, schema: Any, root: Any, where: str, depth: int) -> str | None:
    if schema is True or not isinstance(schema, dict):
        return f"{where} is not allowed" if schema is False else None
    if depth > _DEEPEST:
        return f"{where} is nested too deep"
    if isinstance(schema.get("$ref"), str):
        target = _target(schema["$ref"], root)
        if target is not None:
            return _wrong(value, target, root, where, depth + 1)
    return (
        _wrong_kind(value, schema, where)
        or _wrong_value(value, schema, where)
        or _wrong_union(value, schema, root, where, depth)
        or _wrong_inside(value, schema, root, where, depth)
    )


def _target(reference: str, root: Any) -> Any:
    found = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        if part and isinstance(found, dict):
            found = found.get(part.replace("~1", "/").replace("~0", "~"))
    return found


def _wrong_kind(value: Any, schema: dict[str, Any], where: str) -> str | None:
    kinds = schema.get("type")
    if kinds is None:
        return None
    names = kinds if isinstance(kinds, list) else [kinds]
    return (
        None if any(_is(value, name) for name in names) else f"{where} is no {' or '.join(map(str, names))}"
    )


def _is(value: Any, kind: Any) -> bool:
    if isinstance(value, bool):
        return bool(kind == "boolean")
    if kind == "integer" and isinstance(value, float):
        return bool(value.is_integer())
    return isinstance(value, _KINDS.get(kind, (object,)))


def _wrong_value(value: Any, schema: dict[str, Any], where: str) -> str | None:
    if "enum" in schema and value not in schema["enum"]:
        return f"{where} is none of {schema['enum']!r:.100}"
    if "const" in schema and value != schema["const"]:
        return f"{where} is not {schema['const']!r:.100}"
    for least, most, kind in (("minLength", "maxLength", "string"), ("minItems", "maxItems", "array")):
        if _is(value, kind):
            if len(value) < schema.get(least, 0):
                return f"{where} is shorter than {schema[least]}"
            if most in schema and len(value) > schema[most]:
                return f"{where} is longer than {schema[most]}"
    if isinstance(value, str) and isinstance(schema.get("pattern"), str):
        return (
            None if re.search(schema["pattern"], value) else f"{where} does not match {schema['pattern']!r}"
        )
    if isinstance(value, int | float) and not isinstance(value, bool):
        if "minimum" in schema and value < schema["minimum"]:
            return f"{where} is less than {schema['minimum']}"
        if "maximum" in schema and value > schema["maximum"]:
            return f"{where} is more than {schema['maximum']}"
    return None


def _wrong_union(value: Any, schema: dict[str, Any], root: Any, where: str, depth: int) -> str | None:
    for name in ("anyOf", "oneOf"):
        options = schema.get(name)
        if isinstance(options, list) and options:
            fits = sum(_wrong(value, each, root, where, depth + 1) is None for each in options)
            if fits == 0 or (name == "oneOf" and fits > 1):
                return f"{where} fits {fits} of its {len(options)} forms"
    for each in schema.get("allOf") or ():
        wrong = _wrong(value, each, root, where, depth + 1)
        if wrong is not None:
            return wrong
    return None


def _wrong_inside(value: Any, schema: dict[str, Any], root: Any, where: str, depth: int) -> str | None:
    if isinstance(value, dict):
        return _wrong_object(value, schema, root, where, depth)
    if isinstance(value, list):
        first = schema.get("prefixItems") or ()
        for place, each in enumerate(value):
            inner = first[place] if place < len(first) else schema.get("items", True)
            wrong = _wrong(each, inner, root, f"{where}[{place}]", depth + 1)
            if wrong is not None:
                return wrong
    return None


def _wrong_object(
    value: dict[str, Any], schema: dict[str, Any], root: Any, where: str, depth: int
) -> str | None:
    for name in schema.get("required") or ():
        if name not in value:
            return f"{where} lacks {name!r}"
    properties = schema.get("properties") or {}
    for name, each in value.items():
        inner = properties.get(name, schema.get("additionalProperties", True))
        if inner is False and name not in properties:
            return f"{where} has {name!r}, which was not asked for"
        wrong = _wrong(each, inner, root, f"{where}.{name}", depth + 1)
        if wrong is not None:
            return wrong
    return None
