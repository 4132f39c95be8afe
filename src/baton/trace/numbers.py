"""Immutable arrays of numbers inside records: token ids and log-probabilities.

A tuple of Python ints costs 36 bytes a token; these cost 4 (ids) and 8 (log-probs), compare by
value, hash, slice to their own kind, and give numpy a view without a copy. In JSON they are
plain lists; in Parquet, list columns.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, Self, TypeVar, overload

import numpy as np

N = TypeVar("N", int, float)


class _Numbers(Sequence[N], Generic[N]):
    """A read-only typed array. Subclasses name the element's typecode."""

    __slots__ = ("_data",)
    typecode: str

    def __init__(self, values: Iterable[N] | array[N] = ()) -> None:
        self._data: array[N] = array(self.typecode, values)

    @classmethod
    def from_buffer(cls, buffer: bytes | memoryview | np.ndarray[Any, Any]) -> Self:
        """From machine-order bytes, or from a numpy array of any numeric kind."""
        made = cls()
        raw = buffer.astype(cls.typecode).tobytes() if isinstance(buffer, np.ndarray) else buffer
        made._data.frombytes(raw)
        return made

    def numpy(self) -> np.ndarray[Any, Any]:
        """A read-only view; no copy."""
        view = np.frombuffer(self._data, dtype=self.typecode)
        view.flags.writeable = False
        return view

    def tolist(self) -> list[N]:
        return self._data.tolist()

    def tobytes(self) -> bytes:
        return self._data.tobytes()

    def __len__(self) -> int:
        return len(self._data)

    def __iter__(self) -> Iterator[N]:
        return iter(self._data)

    @overload
    def __getitem__(self, index: int) -> N: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> N | Self:
        if isinstance(index, slice):
            return type(self)(self._data[index])
        return self._data[index]

    def __add__(self, other: Self) -> Self:
        return type(self)(self._data + other._data)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._data == other._data

    def __hash__(self) -> int:
        return hash(self._data.tobytes())

    def __repr__(self) -> str:
        shown = ", ".join(str(v) for v in self._data[:6])
        return f"{type(self).__name__}([{shown}{', …' if len(self) > 6 else ''}], len={len(self)})"


class Ints(_Numbers[int]):
    """Token ids, 4 bytes each."""

    typecode = "i"


class Floats(_Numbers[float]):
    """Log-probabilities, 8 bytes each, kept exactly as the sampler gave them."""

    typecode = "d"


def encode_hook(value: Any) -> Any:
    """For msgspec encoders: arrays become lists."""
    if isinstance(value, _Numbers):
        return value.tolist()
    raise TypeError(f"cannot encode {type(value).__name__} in a trace")


def decode_hook(kind: type, value: Any) -> Any:
    """For msgspec decoders: lists become arrays. Raises on anything but finite numbers of the right kind."""
    if kind is Ints:
        if type(value) is not list or any(type(v) is not int for v in value):
            raise TypeError("Expected an array of integers")
        try:
            return Ints(value)
        except OverflowError:
            raise TypeError("Expected an array of 32-bit integers") from None
    if kind is Floats:
        if type(value) is not list or any(type(v) not in (int, float) for v in value):
            raise TypeError("Expected an array of numbers")
        return Floats(value)
    raise TypeError(f"cannot decode {kind.__name__} from a trace")


# Where a spread ends and rounding begins.
#
# Numbers that are all alike seldom have a deviation of exactly zero: their mean is off in its last digit. Whatever
# divides by a deviation asks here first, or it would divide by that digit.

ROUNDING = 1e-12
"""A deviation of no more than this share of the numbers' own size is rounding."""
