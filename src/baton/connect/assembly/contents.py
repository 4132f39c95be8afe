"""What sightings say, as it may stand in a trace: without secrets, in text that can be written, each content once.

Everything that came from outside and is kept passes here, and only here: texts, names, properties.
"""

from __future__ import annotations

import math
import zlib
from typing import Any, Protocol

import msgspec

from baton.connect.import_report import ImportReport
from baton.trace.records import Payload, content_address

_PACK_FROM_BYTES = 2048  # below it, packing takes longer than reading and assembling together
_PACK_LEVEL = 1
_DEEPEST = 24
_MAX_INT = 2**63 - 1
_LONGEST_NAME = 200
_JSON = msgspec.json.Encoder()
_JSON_TYPE = "application/json"


class Redactor(Protocol):
    """Takes secrets out of a text and counts them in the report."""

    def __call__(self, text: str, report: ImportReport) -> str: ...

    def under(self, name: str, text: str, report: ImportReport) -> str:
        """A text that stands under a name, which may say that it is a secret."""
        ...


class Contents:
    """Makes payloads, names and properties for one trace after another."""

    def __init__(
        self, report: ImportReport, *, redact: Redactor | None = None, keep_payloads: bool = True
    ) -> None:
        self.keep_payloads = keep_payloads
        self.payloads: dict[str, Payload] = {}
        self._report = report
        self._redact = redact
        self.keep_ids = redact is None
        """Token ids say what their text does, and no pattern finds anything in them."""
        self.names: dict[str, str] = {}
        """Word of the source -> as it is kept, of those that `name` was asked for."""
        self._latest: str | None = None
        """The last text."""
        self._address: str | None = None
        """Where it is."""

    def begin(self) -> None:
        """The next trace."""
        self.payloads = {}
        self._latest = self._address = None

    def payload(self, text: str | None, media_type: str = "text/plain") -> str | None:
        """The address of a text, which is kept under it."""
        if text is None:
            return None
        if self._redact is not None:
            text = self._redact(text, self._report)
        elif text == self._latest:  # most often nothing: what a call says that acts
            return self._address
        try:
            raw = text.encode()
        except UnicodeEncodeError:  # half of a pair
            raw = text.encode("utf-8", "surrogatepass")
        self._latest = text
        self._address = ref = self._kept(raw, media_type)
        return ref

    def json(self, value: Any) -> str | None:
        """The address of a value as JSON."""
        raw = _JSON.encode(value)
        if self._redact is not None:
            return self.payload(raw.decode(), _JSON_TYPE)
        return self._kept(raw, _JSON_TYPE)

    def _kept(self, raw: bytes, media_type: str) -> str:
        ref = content_address(raw)
        if ref not in self.payloads:
            size = len(raw)
            self.payloads[ref] = (
                Payload(ref=ref, size=size, media_type=media_type, data=raw)
                if size < _PACK_FROM_BYTES and self.keep_payloads
                else self._packed(ref, raw, media_type)
            )
        return ref

    def _packed(self, ref: str, raw: bytes, media_type: str) -> Payload:
        if not self.keep_payloads:
            return Payload(ref=ref, size=len(raw), media_type=media_type)
        packed = zlib.compress(raw, _PACK_LEVEL)
        if len(packed) < len(raw):
            return Payload(ref=ref, size=len(raw), media_type=media_type, codec="zlib", data=packed)
        return Payload(ref=ref, size=len(raw), media_type=media_type, data=raw)

    def name(self, name: str | None) -> str | None:
        """A short word of the source: an agent, a tool, a model. Empty is None."""
        if not name:
            return None
        known = self.names.get(name)
        if known is None:
            known = self.names[name] = self.text(name)[:_LONGEST_NAME]
        return known

    def is_plain(self, text: str) -> bool:
        """Whether a text may stand as it is without a look."""
        return self._redact is None and text.isascii()

    def text(self, text: str) -> str:
        if self._redact is not None:
            text = self._redact(text, self._report)
        return text if text.isascii() else text.encode("utf-8", "replace").decode()

    def properties(self, given: dict[str, Any]) -> dict[str, Any]:
        """`extra` and `meta`: what JSON can hold and a store can read back. Without payloads, no text."""
        if not given:
            return {}
        if self._redact is None and self.keep_payloads:
            for key, value in given.items():
                if type(key) is not str or not key.isascii():
                    break
                if type(value) is str:
                    if not value.isascii():
                        break
                elif type(value) is not int or not -_MAX_INT <= value <= _MAX_INT:
                    break
            else:  # as most are
                return given.copy()
        found = {self.text(str(key)): self._under(str(key), value, 0) for key, value in given.items()}
        if self.keep_payloads:
            return found
        return {key: value for key, value in found.items() if isinstance(value, bool | int | float)}

    def _under(self, key: str, value: Any, depth: int) -> Any:
        if self._redact is not None and isinstance(value, str):
            value = self._redact.under(key, value, self._report)
            return value if value.isascii() else value.encode("utf-8", "replace").decode()
        return self._value(value, depth)

    def _value(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return value if -_MAX_INT <= value <= _MAX_INT else _huge(value)
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        if depth >= _DEEPEST:
            self._report.mend("properties nested too deep were cut off")
            return "…"
        if isinstance(value, dict):
            return {
                self.text(str(key)): self._under(str(key), each, depth + 1) for key, each in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._value(each, depth + 1) for each in value]
        return self.text(str(value))


def _huge(value: int) -> str:
    """Python refuses to print the longest integers; so does every store to hold them."""
    return str(value) if value.bit_length() <= 4096 else f"an integer of {value.bit_length():,} bits"
