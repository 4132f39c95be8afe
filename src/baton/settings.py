"""One settings layer for everything a person sets: recipes, rewards, tasks, topologies, estimators, `--set`.

A table (TOML, JSON, keyword arguments) is decoded strictly into a frozen struct, or into the arguments of a function.
Bounds are annotations of the fields, so that a setting says itself what it can be:

    class Walk(Struct, frozen=True, kw_only=True):
        steps: Count = 10
        discount: Share = 0.9

    decode(Walk, {"steps": 0})    # UsageError: steps is 0; expected 1 or more.

Invariant: every mistake is a `UsageError` of one style. It says what was given and where, what was expected, and for
an unknown key or word the nearest right one. Where tables are read from files is `baton.settings`' concern as well:
`read_table` finds a shipped TOML file by name, a path, or what another package offers, with its `base` merged in.
"""

from __future__ import annotations

import logging
import math
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from inspect import Parameter, signature
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import msgspec
from msgspec import Meta, Struct
from msgspec import inspect as shapes

from baton import registry
from baton.errors import FormatError, UsageError, nearest

T = TypeVar("T")

Count = Annotated[int, Meta(ge=1)]
Whole = Annotated[int, Meta(ge=0)]
"""A count that may be none."""
NotNegative = Annotated[float, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
Chance = Annotated[float, Meta(gt=0, le=1)]
"""A probability of something that has to be possible."""

Maker = Callable[[Mapping[str, Any], str, str], Any]
"""Makes a struct of a table itself: (table, where, at)."""

_MOST_BASES = 16


def decode(
    kind: type[T],
    table: Mapping[str, Any],
    where: str = "",
    at: str = "",
    makers: Mapping[type, Maker] | None = None,
) -> T:
    """The struct that a table describes.

    `where` is the file or thing it stands in, `at` the dotted path to it there; both are for messages. `makers` has
    structs that say themselves how a table becomes one, such as reward rules, which name their own class.
    """
    found: T = _Decoder(where, makers or {}).value(_shape(kind), table, at)  # type: ignore[arg-type]  # types are hashable
    return found


def convert(kind: Any, value: Any, where: str = "", at: str = "") -> Any:
    """One value as a type that is annotated with its bounds."""
    return _Decoder(where, {}).value(_shape(kind), value, at)


def arguments(
    build: Callable[..., Any], given: Mapping[str, Any], where: str = "", at: str = ""
) -> dict[str, Any]:
    """The settings of a function or class as the types that it declares. A parameter without a type takes anything."""
    known = signature(build).parameters
    hints = types_of(build.__init__ if isinstance(build, type) else build)  # type: ignore[misc]  # a class's own
    if not any(each.kind is Parameter.VAR_KEYWORD for each in known.values()):
        _check_keys(given, [name for name in known if name != "self"], where, at)
    return {
        name: convert(hints[name], value, where, _joined(at, name)) if name in hints else value
        for name, value in given.items()
    }


def types_of(build: Callable[..., Any]) -> dict[str, Any]:
    """The types that a function declares, bounds included; none where they are only there for a type checker."""
    try:
        return get_type_hints(build, include_extras=True)
    except NameError:
        return {}


def check(struct: Struct, where: str = "") -> None:
    """Refuse a struct that was made in Python with a value out of its bounds."""
    decode(type(struct), plain(struct), where)


def plain(struct: Any) -> dict[str, Any]:
    """A struct as a table of plain values; what is None is left out, which means the same."""
    found: dict[str, Any] = _without_none(msgspec.to_builtins(struct))
    return found


def read_value(text: str) -> Any:
    """What a person typed as a value: JSON, or a bare word."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def read_change(change: str) -> tuple[str, Any]:
    """`a.b=VALUE`, as `--set` takes it: the dotted path and the value."""
    path, equals, text = change.partition("=")
    if not equals or not path:
        raise UsageError(f"--set {change!r} has no value. Type: --set {path or 'NAME'}=VALUE")
    return path, read_value(text)


def apply_change(table: dict[str, Any], change: str) -> None:
    """Make a change such as `credit.0.weight=2` to a table. Tables that are not there yet are made."""
    path, value = read_change(change)
    set_at(table, path, value, f"--set {change!r}")


def set_at(table: Any, path: str, value: Any, where: str, *, grow: bool = True) -> None:
    """Put a value where a dotted path leads. `grow`: tables on the way may be made."""
    *way, last = path.split(".")
    here: Any = table
    for word in way:
        if isinstance(here, list) and word.isdigit() and int(word) < len(here):
            here = here[int(word)]
        elif isinstance(here, dict) and (grow or word in here):
            here = here.setdefault(word, {})
        else:
            raise UsageError(f"{where}: there is no {word!r} there. Tables in a list have numbers, from 0.")
    if not isinstance(here, dict):
        raise UsageError(f"{where}: {'.'.join(way)} is not a table.")
    here[last] = value


def merge(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A table over another: tables are merged, everything else (lists too) takes the place of the base's."""
    found = dict(base)
    for key, value in own.items():
        before = found.get(key)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        found[key] = merge(before, value) if both else value  # type: ignore[arg-type]  # both are tables
    return found


class Shipped(Mapping[str, Traversable]):
    """The TOML files in a folder of a package, by name without the ending."""

    def __init__(self, package: str, folder: str) -> None:
        self._package, self._folder = package, folder

    def __getitem__(self, name: str) -> Traversable:
        place = files(self._package).joinpath(self._folder, f"{name}.toml")
        if not place.is_file():
            raise KeyError(name)
        return place

    def __iter__(self) -> Iterator[str]:
        places = files(self._package).joinpath(self._folder).iterdir()
        return iter(sorted(p.name.removesuffix(".toml") for p in places if p.name.endswith(".toml")))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def read_table(
    name: str,
    shipped: Mapping[str, Any],
    *,
    what: str = "recipe",
    trust: bool = False,
    beside: Path | None = None,
) -> dict[str, Any]:
    """The table that a name leads to, with its `base` merged in.

    A name is that of a shipped file, a path that ends in .toml, or a `recipe` of another package (`baton.registry`).
    What a file names as its base is imported only with `trust`.
    """
    table, place = _own_table(name, shipped, what, beside)
    return _whole(table, name, _Library(shipped, what, trust), place)


def parse_table(
    text: str, where: str, shipped: Mapping[str, Any], *, what: str = "recipe", trust: bool = False
) -> dict[str, Any]:
    """The same from TOML text; paths in it start from here."""
    return _whole(_toml(text, where), where, _Library(shipped, what, trust), None)


def with_changes(
    table: dict[str, Any], changes: Sequence[str], where: str, renamed: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """A table with `--set` changes, and with settings of earlier versions under the names of now (old -> new)."""
    _rename(table, renamed or {}, where)
    for change in changes:
        apply_change(table, change)
        _rename(table, renamed or {}, f"--set {change}")
    return table


def _own_table(
    name: str, shipped: Mapping[str, Any], what: str, beside: Path | None
) -> tuple[dict[str, Any], Path | None]:
    """A table as it is written, and the folder that paths in it start from."""
    if name.endswith(".toml"):
        path = (beside or Path()) / name
        if not path.is_file():
            raise UsageError(
                f"there is no file {str(path)!r}. Give a path to a .toml that is there, or a {what} by name: "
                f"{', '.join(list(shipped)[:3])}, ..."
            )
        return _file(path, name), path.parent
    found = shipped[name] if name in shipped else _elsewhere(name, shipped, what)
    if isinstance(found, Mapping):
        return dict(found), None
    if isinstance(found, Struct):
        return plain(found), None
    return _file(Path(found) if isinstance(found, str) else found, name), None


def _elsewhere(name: str, shipped: Mapping[str, Any], what: str) -> Any:
    """What another package offers by a name: a struct, a table, or the path of a TOML file."""
    if registry.is_reference(name) or (what == "recipe" and registry.knows("recipe", name)):
        return registry.resolve("recipe", name)
    raise UsageError(
        f"there is no {what} {name!r}. {nearest(name, shipped)} For your own, give a path that ends in .toml."
    )


class _Library(Struct, frozen=True):
    """Where bases are looked for."""

    shipped: Mapping[str, Any]
    what: str
    trust: bool


def _whole(
    table: dict[str, Any], where: str, library: _Library, beside: Path | None, depth: int = 0
) -> dict[str, Any]:
    """A table over its base, less what it is `without`."""
    own = dict(table)
    base, without = own.pop("base", None), convert(tuple[str, ...], own.pop("without", ()), where, "without")
    if base is None:
        if without:
            raise UsageError(
                f"{where}: without takes settings of a base out, and there is none. Add base, or leave it out."
            )
        return own
    if not isinstance(base, str):
        raise UsageError(
            f"{where}: base is {_shown(base)}; expected a {library.what}'s name or a path that ends in .toml."
        )
    if depth == _MOST_BASES:
        raise UsageError(f"{where}: its base leads back to itself. Name another base, or none.")
    if not library.trust:
        registry.check_trusted("recipe", [base], where)
    below, place = _own_table(base, library.shipped, library.what, beside)
    below = _whole(below, base, library, place, depth + 1)
    for path in without:
        _take_out(below, path, where, base)
    return merge(below, own)


def _take_out(table: dict[str, Any], path: str, where: str, base: str) -> None:
    here, last = _holder(table, path)
    if last not in here:
        raise UsageError(
            f"{where}: without names {path!r}, which its base {base!r} does not have. Leave it out."
        )
    del here[last]


def _holder(table: dict[str, Any], path: str) -> tuple[dict[str, Any], str]:
    """The table that a dotted path leads into, an empty one where there is none, and the last name."""
    *way, last = path.split(".")
    here: Any = table
    for word in way:
        here = here.get(word) if isinstance(here, dict) else None
    return here if isinstance(here, dict) else {}, last


def _file(place: Any, where: str) -> dict[str, Any]:
    try:
        return _toml(place.read_text("utf-8"), where)
    except UnicodeDecodeError:
        raise FormatError(f"{where} is not UTF-8 text; expected a recipe in TOML.") from None


def _toml(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FormatError(f"{where}: not valid TOML: {error}.") from None


def _rename(table: dict[str, Any], renamed: Mapping[str, str], where: str) -> None:
    """Settings under their names of now. Runs of earlier versions keep theirs in their folders."""
    found = []
    for old, new in renamed.items():
        here, last = _holder(table, old)
        if last in here:
            set_at(table, new, here.pop(last), where)
            found.append(f"{old} is called {new} now")
    if found:
        _tell_once(f"{where}: {', and '.join(found)}.")


@cache
def _tell_once(notice: str) -> None:
    """A recipe is read several times by one command; its reader is told once."""
    logging.getLogger("baton").warning(notice)


class _Decoder:
    """Walks a table and a type side by side, and makes what the type says."""

    def __init__(self, where: str, makers: Mapping[type, Maker]) -> None:
        self.where = where
        self.makers = makers

    def value(self, shape: shapes.Type, value: Any, at: str) -> Any:
        """A value of a type, or an error."""
        match shape:
            case shapes.AnyType():
                return value
            case shapes.UnionType():
                return self._one_of(shape, value, at)
            case shapes.LiteralType():
                if not any(value is word or value == word for word in shape.values):
                    raise UsageError(
                        f"{self._at(at)} is {_shown(value)}. {nearest(str(value), _words(shape))}"
                    )
                return value
            case shapes.Metadata():
                return self.value(shape.type, value, at)
        if not _fits(shape, value):
            raise UsageError(f"{self._at(at)} is {_shown(value)}; expected {_named(shape)}.")
        match shape:
            case shapes.StructType():
                return self._struct(shape, value, at)
            case shapes.IntType() | shapes.FloatType():
                return self._number(shape, value, at)
            case shapes.DictType():
                return {
                    key: self.value(shape.value_type, each, _joined(at, key)) for key, each in value.items()
                }
            case shapes.VarTupleType() | shapes.ListType() | shapes.SetType() | shapes.FrozenSetType():
                made = [
                    self.value(shape.item_type, each, _joined(at, str(n))) for n, each in enumerate(value)
                ]
                return _COLLECTIONS[type(shape)](made)
            case shapes.TupleType():
                pairs = zip(shape.item_types, value, strict=True)
                return tuple(
                    self.value(each, item, _joined(at, str(n))) for n, (each, item) in enumerate(pairs)
                )
        return value

    def _one_of(self, shape: shapes.UnionType, value: Any, at: str) -> Any:
        fitting = [each for each in shape.types if _fits(each, value)]
        tagged = [
            each for each in fitting if isinstance(each, shapes.StructType) and each.tag_field is not None
        ]
        if len(tagged) > 1 and isinstance(value, Mapping):
            field = tagged[0].tag_field or ""
            kinds = {str(each.tag): each for each in tagged}
            if value.get(field) not in kinds:
                word = _shown(value.get(field))
                raise UsageError(f"{self._at(at)}: there is no {field} {word}. {nearest(word, kinds)}")
            return self.value(kinds[value[field]], value, at)
        if fitting:
            return self.value(fitting[0], value, at)
        words = [
            word for each in shape.types if isinstance(each, shapes.LiteralType) for word in _words(each)
        ]
        if words and isinstance(value, str):
            raise UsageError(f"{self._at(at)} is {_shown(value)}. {nearest(value, words)}")
        names = " or ".join(
            dict.fromkeys(_named(each) for each in shape.types if not isinstance(each, shapes.NoneType))
        )
        raise UsageError(f"{self._at(at)} is {_shown(value)}; expected {names}.")

    def _struct(self, shape: shapes.StructType, table: Any, at: str) -> Any:
        if isinstance(table, shape.cls):
            return table
        if shape.cls in self.makers:
            return self.makers[shape.cls](table, self.where, at)
        fields = {each.encode_name: each for each in shape.fields}
        tag = () if shape.tag_field is None else (shape.tag_field,)
        _check_keys(table, [*fields, *tag], self.where, at)
        made = {
            each.name: self.value(each.type, table[key], _joined(at, key))
            for key, each in fields.items()
            if key in table
        }
        for key, each in fields.items():
            if each.required and key not in table:
                raise UsageError(f"{_place(self.where, at)} needs a value for {key!r}.")
        try:
            return shape.cls(**made)
        except (ValueError, TypeError) as error:  # what a struct refuses of its fields together
            raise UsageError(f"{_place(self.where, at)}: {error}") from None

    def _number(self, shape: shapes.IntType | shapes.FloatType, value: Any, at: str) -> int | float:
        number: int | float = int(value) if isinstance(shape, shapes.IntType) else float(value)
        bounds = _bounds(shape)
        holds = (
            math.isfinite(number)
            and (shape.ge is None or number >= shape.ge)
            and (shape.gt is None or number > shape.gt)
            and (shape.le is None or number <= shape.le)
            and (shape.lt is None or number < shape.lt)
        )
        if not holds:
            raise UsageError(f"{self._at(at)} is {_shown(value)}; expected {bounds or 'a finite number'}.")
        return number

    def _at(self, at: str) -> str:
        return f"{self.where}: {at}" if self.where and at else at or self.where


_COLLECTIONS: Mapping[type, Callable[[Iterable[Any]], Any]] = {
    shapes.VarTupleType: tuple,
    shapes.ListType: list,
    shapes.SetType: set,
    shapes.FrozenSetType: frozenset,
}


_ACCEPTED: Mapping[type, Any] = {
    shapes.NoneType: type(None),
    shapes.BoolType: bool,
    shapes.IntType: Integral,
    shapes.FloatType: Real,
    shapes.StrType: str,
    shapes.DictType: Mapping,
    shapes.VarTupleType: list | tuple,
    shapes.ListType: list | tuple,
    shapes.SetType: list | tuple | set | frozenset,
    shapes.FrozenSetType: list | tuple | set | frozenset,
}
"""Type -> what is taken for it; others take anything."""


def _fits(shape: shapes.Type, value: Any) -> bool:
    """Whether a value is of a type, whatever its bounds and what it holds."""
    match shape:
        case shapes.IntType() | shapes.FloatType() if isinstance(value, bool):
            return False
        case shapes.LiteralType():
            return value in shape.values
        case shapes.StructType():
            return isinstance(value, Mapping | shape.cls)
        case shapes.TupleType():
            return isinstance(value, list | tuple) and len(value) == len(shape.item_types)
        case shapes.CustomType():
            return isinstance(value, shape.cls) if isinstance(shape.cls, type) else True
    return isinstance(value, _ACCEPTED.get(type(shape), object))


_NAMES: Mapping[type, str] = {
    shapes.NoneType: "nothing",
    shapes.BoolType: "true or false",
    shapes.IntType: "a whole number",
    shapes.FloatType: "a number",
    shapes.StrType: "text",
    shapes.DictType: "a table",
    shapes.StructType: "a table",
}


def _named(shape: shapes.Type) -> str:
    """A type in words."""
    match shape:
        case shapes.LiteralType():
            return f"one of: {', '.join(_words(shape))}"
        case shapes.TupleType():
            return f"a list of {len(shape.item_types)}"
        case shapes.VarTupleType() | shapes.ListType() | shapes.SetType() | shapes.FrozenSetType():
            return f"a list of {_plural(shape.item_type)}"
        case shapes.CustomType(cls=cls):
            return "a function" if cls.__name__ == "Callable" else f"a {getattr(cls, '__name__', cls)}"
        case shapes.UnionType():
            return " or ".join(_named(each) for each in shape.types)
    return _NAMES.get(type(shape), "anything")


def _plural(shape: shapes.Type) -> str:
    """What a list holds, in words."""
    words = _named(shape)
    kind, of, rest = words.removeprefix("a ").partition(" of ")
    return f"{kind}s{of}{rest}" if words.startswith("a ") else words


def _bounds(shape: shapes.IntType | shapes.FloatType) -> str:
    if shape.ge is not None:
        return f"{shape.ge:,} or more" if shape.le is None else f"{shape.ge:,} to {shape.le:,}"
    if shape.gt is not None:
        return f"more than {shape.gt:,}" if shape.le is None else f"above {shape.gt:,} and up to {shape.le:,}"
    return "" if shape.le is None else f"{shape.le:,} or less"


def _words(shape: shapes.LiteralType) -> list[str]:
    return [str(word) for word in shape.values]


def _check_keys(table: Mapping[str, Any], known: Sequence[str], where: str, at: str) -> None:
    for key in table:
        if key not in known:
            end = nearest(str(key), known) if known else "It has none."
            raise UsageError(f"{_place(where, at)} has no setting {key!r}. {end}")


def _place(where: str, at: str) -> str:
    """A table in a message."""
    return f"{where}, [{at}]" if where and at else at or where or "this"


def _joined(at: str, key: str) -> str:
    return f"{at}.{key}" if at else key


def _shown(value: Any) -> str:
    """A value as a person would type it, shortened."""
    text = (
        {None: "null", True: "true", False: "false"}.get(value, "")
        if value is None or isinstance(value, bool)
        else repr(value)
    )
    return text if len(text) <= 80 else text[:80] + "…"


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(each) for key, each in value.items() if each is not None}
    return [_without_none(each) for each in value] if isinstance(value, list | tuple) else value


@cache
def _shape(kind: Any) -> shapes.Type:
    return shapes.type_info(kind)
