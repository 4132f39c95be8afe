"""Reading a GGUF file: its facts, and its tensors as float32.

The part of the format that the models here use (version 3; F32, F16, Q8_0 and Q4_1). A quantised tensor is
blocks of 32 numbers: x = d q for Q8_0, x = d q + m for Q4_1, in float32, so the result is the same to the bit
as the reference implementation's. Format: github.com/ggml-org/ggml, docs/gguf.md.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from baton.errors import FormatError

__all__ = ["Gguf", "read_gguf"]

Reals = NDArray[np.float32]
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_BLOCK = 32
_F32, _F16, _Q4_1, _Q8_0 = 0, 1, 3, 8
_BYTES = {_F32: (1, 4), _F16: (1, 2), _Q4_1: (_BLOCK, 20), _Q8_0: (_BLOCK, 34)}
"""Kind -> numbers and bytes of a block."""


class _Place(NamedTuple):
    """Where a tensor is and what it is."""

    shape: tuple[int, ...]
    kind: int
    start: int


class Gguf:
    """An open file. Tensors are read when they are asked for."""

    def __init__(self, path: Path, facts: dict[str, Any], places: dict[str, _Place]) -> None:
        self.facts = facts
        """Everything the file says of the model, by its own keys."""
        self._places = places
        self._bytes = np.memmap(path, np.uint8, "r")

    @property
    def names(self) -> list[str]:
        return list(self._places)

    def tensor(self, name: str) -> Reals:
        """One tensor, rows first, in float32."""
        shape, kind, start = self._places[name]
        if kind not in _BYTES:
            raise FormatError(f"tensor {name} is of GGUF kind {kind}; expected F32, F16, Q8_0 or Q4_1.")
        numbers, size = _BYTES[kind]
        raw = self._bytes[start : start + int(np.prod(shape)) // numbers * size]
        if kind in (_F32, _F16):
            return raw.view(np.float32 if kind == _F32 else np.float16).astype(np.float32).reshape(shape)
        blocks = raw.reshape(-1, size)
        scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
        if kind == _Q8_0:
            return (scale * blocks[:, 2:].view(np.int8).astype(np.float32)).reshape(shape)
        least = blocks[:, 2:4].copy().view(np.float16).astype(np.float32)
        nibbles = np.concatenate((blocks[:, 4:] & 0x0F, blocks[:, 4:] >> 4), axis=1).astype(np.float32)
        return (scale * nibbles + least).reshape(shape)


def read_gguf(path: str | Path) -> Gguf:
    """Read everything but the tensors' numbers."""
    path = Path(path)
    with path.open("rb") as file:
        reader = _Reader(np.memmap(file, np.uint8, "r"), path)
        if reader.take(4) != b"GGUF" or (version := reader.number("I")) not in (2, 3):
            raise FormatError(f"{path.name} is not a GGUF file of version 2 or 3.")
        del version
        num_tensors, num_facts = reader.number("Q"), reader.number("Q")
        facts = {reader.string(): reader.value(reader.number("I")) for _ in range(num_facts)}
        found = [reader.tensor() for _ in range(num_tensors)]
        step = int(facts.get("general.alignment", 32))
        base = -(-reader.at // step) * step
        return Gguf(path, facts, {name: _Place(shape, kind, base + at) for name, shape, kind, at in found})


class _Reader:
    """A place in the file's head."""

    def __init__(self, data: NDArray[np.uint8], path: Path) -> None:
        self._data = data
        self._path = path
        self.at = 0

    def take(self, size: int) -> bytes:
        if self.at + size > len(self._data):
            raise FormatError(f"{self._path.name} ends too early: it was not copied whole.")
        found = self._data[self.at : self.at + size].tobytes()
        self.at += size
        return found

    def number(self, code: str) -> int:
        return int(struct.unpack(f"<{code}", self.take(struct.calcsize(code)))[0])

    def string(self) -> str:
        return self.take(self.number("Q")).decode()

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            inner, size = self.number("I"), self.number("Q")
            if inner in _SCALARS:
                code = f"<{size}{_SCALARS[inner]}"
                return list(struct.unpack(code, self.take(struct.calcsize(code))))
            return [self.value(inner) for _ in range(size)]
        code = f"<{_SCALARS[kind]}"
        return struct.unpack(code, self.take(struct.calcsize(code)))[0]

    def tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        """Name, shape (the file's is columns first), kind, and offset after the head."""
        name = self.string()
        shape = tuple(self.number("Q") for _ in range(self.number("I")))[::-1]
        return name, shape, self.number("I"), self.number("Q")
