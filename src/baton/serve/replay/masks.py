"""What may differ between two runs of a program without being a difference: times, ids, ports, temporary places.

A text is cut into literal pieces and masked values. Two texts are the same under masks where the literals are equal and
the values of the same kinds. A kind lets its values differ freely (durations, ports), or as two clocks do (a date
that is not of the day of its run is no reading of a clock), or keeps them apart (ids): there the same value has to
stand for the same value in the whole session, one to one.

Invariant: a mask names a form that a clock, an allocator or a random number has. No mask covers words, whole paths, or
numbers that are not part of such a form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from baton.errors import UsageError


class Mask(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A form whose values may differ from run to run."""

    name: str
    pattern: str
    """A regular expression of Python."""
    ids: bool = False
    """Its values are names: the same one stands for the same one throughout, and an answer that says the recorded one
    is given with the new one."""
    clock: bool = False
    """Its values are times: one that has a date may differ where both are of the days on which the runs were."""


_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}"
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6}"
_CLOCK = r"[0-2]?\d:[0-5]\d(?::[0-5]\d(?:[.,]\d{1,9})?)?(?:\s?[AaPp]\.?[Mm]\b\.?)?"
_SECONDS = r"(?:[0-2]?\d:[0-5]\d:[0-5]\d(?:[.,]\d{1,9})?|[0-2]?\d:[0-5]\d\s?[AaPp]\.?[Mm]\b)"
_ZONE = r"(?:\s?(?:Z\b|UTC\b|GMT\b|[A-Z]{3,4}\b|[+-]\d\d:?\d\d\b))?"
_DATE = (
    r"(?:(?:19|20)\d\d[-/.][01]\d[-/.][0-3]\d"
    rf"|(?:{_DAY},?\s+)?{_MONTH}\.?\s+[0-3]?\d(?:st|nd|rd|th)?,?\s+(?:19|20)\d\d"
    rf"|(?:{_DAY},?\s+)?[0-3]?\d\.?\s+{_MONTH}\.?,?\s+(?:19|20)\d\d"
    r"|[01]?\d/[0-3]?\d/(?:19|20)\d\d)"
)
_NUMBER = r"\d+(?:\.\d+)?"
_TIMED = r"(?:duration|elapsed|latency|took|wall(?:[ _-]?(?:clock|time))?|runtime|uptime)"
_UNIT = r"(?:ns|[uµ]s|ms|s|secs?|seconds?|milliseconds?|mins?|minutes?)"

SHIPPED: tuple[Mask, ...] = (
    Mask(
        name="uuid",
        pattern=r"(?<![0-9A-Za-z])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b",
        ids=True,
    ),
    Mask(
        name="time",
        pattern=(
            rf"\b(?:{_DAY}\s+{_MONTH}\s+[0-3]?\d\s+{_CLOCK}(?:\s+[AP]M)?{_ZONE}\s+(?:19|20)\d\d"
            rf"|{_DATE}(?:(?:T|,?\s+(?:at\s+)?){_CLOCK}{_ZONE})?"
            rf"|(?<![\d:.]){_SECONDS}{_ZONE}(?![\d:])|(?<=[Tt]ime: ){_CLOCK}|(?<=[Tt]ime is ){_CLOCK})"
        ),
        clock=True,
    ),
    Mask(
        name="epoch",
        pattern=r"(?<![\w.])1[5-9]\d{8}(?:\d{3}|\d{6}|\d{9})?(?:\.\d{1,9})?(?![\w.]*\d)",
        clock=True,
    ),
    Mask(
        name="duration",
        pattern=(
            rf"(?i:\b{_TIMED}[a-z_]*(?:[\"'\\]*\s*(?:[:=>]|\bis\b)?\s*|[ _]in\s+){_NUMBER}(?:\s?{_UNIT}\b)?)"
            rf"|(?<![\w.])(?:\d+\.\d{{3,}}\s?{_UNIT}|\d+\.\d+(?:ns|[uµ]s|ms|s))\b|(?i:\b(?:in|after)\s+{_NUMBER}\s?(?:ns|[uµ]s|ms)\b)"
        ),
    ),
    Mask(name="ulid", pattern=r"\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b", ids=True),
    Mask(
        name="id",
        pattern=(
            r"\b(?:call|toolu|msg|resp|run|req|chatcmpl|thread|task|item|fc|fco|rs|sess|session|trace|span|pyd_ai)[_-]"
            r"+(?=[A-Za-z0-9_]*\d)[A-Za-z0-9_]{6,}\b"
        ),
        ids=True,
    ),
    Mask(
        name="hex",
        pattern=r"\b(?:0x)?(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,128}\b",
        ids=True,
    ),
    Mask(
        name="port",
        pattern="|".join(
            rf"(?<={host}:)\d{{2,5}}\b" for host in (r"127\.0\.0\.1", r"0\.0\.0\.0", "localhost", r"\[::1\]")
        ),
    ),
    Mask(name="pid", pattern=r"\b(?i:pid)[\"'\\]*\s*[:=#]?\s*\d{1,7}\b"),
    Mask(
        name="temp",
        pattern=(
            r"\btmp(?=[a-z0-9_]*[0-9_])[a-z0-9_]{8}\b|\btmp\.[A-Za-z0-9]{6,12}\b|\bpytest-of-\w+/pytest-\d+\b"
            r"|(?<=/var/folders/)\w\w/\w+(?=/T\b)|(?<=/tmp/)[A-Za-z][\w.]*?-(?=\w*\d|[a-z]*[A-Z])[A-Za-z0-9]{6}\b"
        ),
        ids=True,
    ),
)

NAME_FIELDS = ("id", "uuid", "nickname")
"""What a field is called, or ends with, in which a tool tells a name that it has made."""
NOTES = ("task-notification", "subagent_notification")
"""Tags around what a harness tells an agent when it happens to be known, be it a turn earlier or later."""


class MaskSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person adds to the masks, as a TOML file has it."""

    mask: tuple[Mask, ...] = ()
    name_fields: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class MaskedText(Struct, frozen=True):
    """A text as its literal pieces and the masked values between them: one literal more than values."""

    literals: tuple[str, ...]
    kinds: tuple[str, ...]
    values: tuple[str, ...]


class Masks:
    """The masks in force. `exact`: none at all, so that only equal texts are the same."""

    def __init__(self, settings: MaskSettings = MaskSettings(), *, exact: bool = False) -> None:  # noqa: B008
        self.every: tuple[Mask, ...] = () if exact else (*settings.mask, *SHIPPED)
        self.exact = exact
        self.name_fields = () if exact else (*NAME_FIELDS, *settings.name_fields)
        self.notes = () if exact else (*NOTES, *settings.notes)
        self.ids = {f"m{place}" for place, mask in enumerate(self.every) if mask.ids}
        self.clocks = {f"m{place}" for place, mask in enumerate(self.every) if mask.clock}
        for mask in settings.mask:
            _check(mask)

    def called(self, kind: str) -> str:
        """The name of the mask of a kind."""
        return self.every[int(kind[1:])].name if kind[:1] == "m" and kind[1:].isdigit() else kind

    @cached_property
    def _form(self) -> str:
        return "|".join(f"(?P<m{place}>{mask.pattern})" for place, mask in enumerate(self.every))

    @cached_property
    def _plain(self) -> re.Pattern[str]:
        return re.compile(self._form)

    @cached_property
    def _field(self) -> str:
        """A field by whose name its value is one: `"agent_id": "x"`, `agentId: x`, `<task-id>x</task-id>`."""
        names = "|".join(f"(?i:{re.escape(name)})" for name in self.name_fields)
        ends = "|".join(re.escape(name.capitalize()) for name in self.name_fields)
        key = rf"(?:\b(?:\w+[_\- ])?(?:{names})|\b[a-z]\w*(?:{ends}))\b"
        return rf"{key}[\"'\\]*\s*[:=>]\s*[\"'\\]*(?P<named>\w(?:[\w.@-]*\w)?)"

    def cut(self, text: str, *, names: Iterable[str] = (), tells_names: bool = False) -> MaskedText:
        """A text in pieces. `names` are known to be renamed; in a text that `tells_names` the fields of names count."""
        if self.exact:
            return MaskedText((text,), (), ())
        known = sorted({name for name in names if name and name in text}, key=len, reverse=True)
        if not known and not tells_names:
            pattern = self._plain
        else:
            parts = [rf"(?P<name>(?<!\w)(?:{'|'.join(map(re.escape, known))})(?!\w))"] if known else []
            parts += [self._field] if tells_names else []
            pattern = re.compile("|".join([*parts, self._form]))
        literals, kinds, values, end = [], [], [], 0
        for found in pattern.finditer(text):
            kind = "named" if tells_names and found["named"] is not None else found.lastgroup
            if kind is None:
                continue
            begin, stop = found.span(kind)
            if kind == "named" and found[kind].isdigit() and stop - begin < _LONG_NUMBER:
                continue  # a count, and no name
            literals.append(text[end:begin])
            kinds.append(kind)
            values.append(found[kind])
            end = stop
        return MaskedText((*literals, text[end:]), tuple(kinds), tuple(values))

    @cached_property
    def note(self) -> re.Pattern[str] | None:
        """What a harness tells when it happens to be known."""
        if not self.notes:
            return None
        tags = "|".join(map(re.escape, self.notes))
        return re.compile(rf"<(?P<tag>{tags})>.*?</(?P=tag)>", re.DOTALL)


_LONG_NUMBER = 6


def _check(mask: Mask) -> None:
    try:
        compiled = re.compile(mask.pattern)
    except re.error as error:
        raise UsageError(f"mask {mask.pattern!r} is no regular expression: {error}.") from None
    if compiled.search("") is not None:
        raise UsageError(
            f"mask {mask.pattern!r} fits nothing at all, so it would fit everywhere. Write a longer one."
        )
    if compiled.groups and re.search(r"\\[1-9]|\(\?P=", mask.pattern):
        raise UsageError(f"mask {mask.pattern!r} refers back to a group, which masks cannot. Write it out.")


def read_masks(path: str | Path | None, patterns: Sequence[str] = (), *, exact: bool = False) -> Masks:
    """The masks of a TOML file and of `--mask`, before the shipped ones."""
    if exact and (path is not None or patterns):
        raise UsageError("--exact takes no masks. Leave --mask and --masks out, or --exact.")
    told = MaskSettings()
    if path is not None:
        told = _read(Path(path))
    given = tuple(Mask(name=f"mask {pattern}", pattern=pattern) for pattern in patterns)
    return Masks(
        MaskSettings(mask=(*given, *told.mask), name_fields=told.name_fields, notes=told.notes), exact=exact
    )


def _read(path: Path) -> MaskSettings:
    try:
        document: Any = msgspec.toml.decode(path.read_bytes())
        return msgspec.convert(document, MaskSettings)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path}: {error}. Expected [[mask]] tables with name, pattern and perhaps ids = true, "
            "name_fields = [...], notes = [...]."
        ) from None
