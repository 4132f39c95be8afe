"""The journal of a session: what was asked, answered and posted, each a line, on disk before anybody hears of it.

Invariant: lines are only ever added, each by one write, and an answer's line is there before its first byte leaves. So
killing the server loses no answer that a program has heard; a last line that was cut off was never acknowledged, and is
taken away when the session goes on.

A program repeats its conversation in every call. So messages, tools and how both were worded are written once, under
their digests, and of a prompt that grew from an earlier exchange only the ids that are new: a session of n calls takes
O(n) of disk.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from baton.errors import CorruptError, UsageError
from baton.serve.exchange import Ask, Exchange, Posted, Reply, ToolOffer, Utterance
from baton.serve.kept_wording import PackedWording, pack, unpack
from baton.serve.session_keys import canonical_bytes, digest_of
from baton.trace.formats.recognition import SESSIONS
from baton.trace.records import Ints, decode_hook, encode_hook

FOLDER = SESSIONS
SUFFIX = ".jsonl"


class JournalLine(Struct, tag_field="line", frozen=True, kw_only=True, omit_defaults=True):
    """What all lines have in common: `line` tells them apart."""


class AskedLine(JournalLine, tag="asked", frozen=True, kw_only=True):
    """An ask, before anybody answers it."""

    exchange: Exchange
    """Its ask without messages, tools and wording."""
    same: int = 0
    """How many messages at the beginning are those of the exchange that it grows from."""
    messages: tuple[str, ...]
    """The others, by digest."""
    tools: str
    new_messages: dict[str, Utterance] = field(default_factory=dict)
    new_tools: dict[str, tuple[ToolOffer, ...]] = field(default_factory=dict)
    wording: PackedWording | None = None


class AnsweredLine(JournalLine, tag="answered", frozen=True, kw_only=True):
    """An answer, before the program hears it; `reply.prompt_ids` without the first `keep`."""

    id: str
    reply: Reply
    duration_s: float


class RefusedLine(JournalLine, tag="refused", frozen=True, kw_only=True):
    """No answer is given."""

    id: str
    why: str


class RetriedLine(JournalLine, tag="retried", frozen=True, kw_only=True):
    """The program asked again for what it had not heard."""

    id: str


class HeardLine(JournalLine, tag="heard", frozen=True, kw_only=True):
    """The program read the whole answer."""

    id: str


class PostedLine(JournalLine, tag="posted", frozen=True, kw_only=True):
    """A reward, or the end."""

    posted: Posted


class SpansLine(JournalLine, tag="spans", frozen=True, kw_only=True):
    """An OTLP request of the session's program, as it came."""

    signal: str
    is_json: bool
    body: bytes


class AboutLine(JournalLine, tag="about", frozen=True, kw_only=True):
    """What the session is, said by whoever opened it: which engine answers, what it was forked from."""

    meta: dict[str, Any]


class CountedLine(JournalLine, tag="counted", frozen=True, kw_only=True):
    """The program was told how many tokens a question has."""

    question: str
    """Its digest."""
    messages: int
    """How many it has."""
    tokens: int


class ListedLine(JournalLine, tag="listed", frozen=True, kw_only=True):
    """The program was told which models there are."""

    models: tuple[str, ...]


AnyLine = (
    AskedLine | AnsweredLine | RefusedLine | RetriedLine | HeardLine | PostedLine | SpansLine | AboutLine
    | CountedLine | ListedLine
)  # fmt: skip

_encoder = msgspec.json.Encoder(enc_hook=encode_hook)
_decoder = msgspec.json.Decoder(AnyLine, dec_hook=decode_hook)


class KeptSession:
    """What a journal tells of a session."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.by_id: dict[str, Exchange] = {}
        """In the order in which they were asked."""
        self.heard: set[str] = set()
        """Exchanges whose answer the program read to its end."""
        self.posted: list[Posted] = []
        self.spans: list[SpansLine] = []
        self.counted: list[CountedLine] = []
        self.models: tuple[str, ...] = ()
        """Those that the program was told of, if it asked."""
        self.about: dict[str, Any] = {}
        """What was said of the session; it is in the header of its trace."""
        self.digests: dict[str, list[str]] = {}
        """Exchange -> digests of its messages."""
        self.messages: dict[str, Utterance] = {}
        self.digest_of: dict[Utterance, str] = {}
        """The other way round, of messages that are texts: long conversations come again and again."""
        self.tools: dict[str, tuple[ToolOffer, ...]] = {}
        self.wordings: dict[str, Any] = {}
        """Pieces of asks' wording, by digest."""
        self.worded: dict[str, list[str]] = {}
        """Exchange -> digests of how its messages were worded."""

    @property
    def exchanges(self) -> list[Exchange]:
        return list(self.by_id.values())

    @property
    def ended(self) -> Posted | None:
        """What said that it ended; None: it goes on."""
        return next((one for one in self.posted if one.ended), None)

    def take(self, line: AnyLine) -> None:
        """Add what a line tells."""
        if isinstance(line, AskedLine):
            self.messages |= line.new_messages
            self.digest_of |= {said: name for name, said in line.new_messages.items() if not said.others}
            self.tools |= line.new_tools
            told = [*self.digests_before(line.exchange)[: line.same], *line.messages]
            self.digests[line.exchange.id] = told
            ask = msgspec.structs.replace(
                line.exchange.ask,
                messages=tuple(self.messages[one] for one in told),
                tools=self.tools[line.tools] if line.tools else (),
            )
            if line.wording is not None:
                self.wordings |= line.wording.new
                before_it = self.worded.get(line.exchange.grows_from or "", [])
                wording, keys = unpack(line.wording, self.wordings, before_it)
                self.worded[line.exchange.id] = keys
                ask = msgspec.structs.replace(ask, wording=wording)
            self.by_id[line.exchange.id] = msgspec.structs.replace(line.exchange, ask=ask)
        elif isinstance(line, AnsweredLine):
            before = self.by_id[line.id]
            reply = self.whole(before, line.reply)
            self.by_id[line.id] = msgspec.structs.replace(before, reply=reply, duration_s=line.duration_s)
        elif isinstance(line, RefusedLine):
            self.by_id[line.id] = msgspec.structs.replace(self.by_id[line.id], refused=line.why)
        elif isinstance(line, RetriedLine):
            before = self.by_id[line.id]
            self.by_id[line.id] = msgspec.structs.replace(before, retries=before.retries + 1)
        elif isinstance(line, HeardLine):
            self.heard.add(line.id)
        elif isinstance(line, PostedLine):
            self.posted.append(line.posted)
        elif isinstance(line, AboutLine):
            self.about |= line.meta
        elif isinstance(line, CountedLine):
            self.counted.append(line)
        elif isinstance(line, ListedLine):
            self.models = line.models
        else:
            self.spans.append(line)

    def digests_of(self, ask: Ask) -> tuple[list[str], str]:
        """`digests`, of which those of earlier messages are known."""
        known = self.digest_of
        tools = digest_of(canonical_bytes(ask.tools)) if ask.tools else ""
        return [
            (None if one.others else known.get(one)) or digest_of(canonical_bytes(one))
            for one in ask.messages
        ], tools

    def digests_before(self, exchange: Exchange) -> list[str]:
        """Those of the exchange that this one grows from."""
        return self.digests.get(exchange.grows_from or "", [])

    def whole(self, exchange: Exchange, reply: Reply) -> Reply:
        """A reply with the whole prompt's ids again."""
        if not reply.keep or reply.prompt_ids is None:
            return reply
        return msgspec.structs.replace(
            reply, prompt_ids=self.kept_ids(exchange, reply.keep) + reply.prompt_ids
        )

    def kept_ids(self, exchange: Exchange, keep: int) -> Ints:
        """The first ids of what an exchange grew from."""
        before = self.by_id[exchange.grows_from or ""].reply
        if before is None or before.prompt_ids is None:
            raise KeyError(exchange.grows_from)
        said = before.choices[exchange.choice].completion_ids or Ints()
        return (before.prompt_ids + said)[:keep]


class SessionJournal:
    """The open journal of one session; one process at a time writes it."""

    def __init__(self, path: Path) -> None:
        """Goes on with a journal that is there."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = (
                f"cannot write {str(path)!r}: {error.strerror}. Give a folder that can be written: --out DIR"
            )
            raise UsageError(why) from None
        there = path.exists()
        self.kept = read_session(path) if there else KeptSession(path.name.removesuffix(SUFFIX))
        self._writing = threading.Lock()
        if there:
            with self._opened() as file:
                _take_cut_line_away(file)

    def asked(self, exchange: Exchange, messages: list[str], tools: str) -> None:
        """`messages` and `tools` are the digests of the ask's."""
        ask, kept = exchange.ask, self.kept
        bare = msgspec.structs.replace(
            exchange, ask=msgspec.structs.replace(ask, messages=(), tools=(), wording={})
        )
        said = dict(zip(messages, ask.messages, strict=True))
        before = kept.digests_before(exchange)
        same = len(before) if before == messages[: len(before)] else 0
        self._add(
            AskedLine(
                exchange=bare,
                same=same,
                messages=tuple(messages[same:]),
                tools=tools,
                new_messages={one: text for one, text in said.items() if one not in kept.messages},
                new_tools={} if not tools or tools in kept.tools else {tools: ask.tools},
                wording=pack(ask.wording, kept.wordings, kept.worded.get(exchange.grows_from or "", [])),
            )
        )

    def answered(self, exchange: Exchange, reply: Reply, duration_s: float) -> Exchange:
        """The exchange with its answer, on disk."""
        bare = reply
        if reply.keep and reply.prompt_ids is not None:
            bare = msgspec.structs.replace(reply, prompt_ids=reply.prompt_ids[reply.keep :])
        self._add(AnsweredLine(id=exchange.id, reply=bare, duration_s=duration_s))
        return self.kept.by_id[exchange.id]

    def refused(self, exchange: Exchange, why: str) -> None:
        self._add(RefusedLine(id=exchange.id, why=why))

    def retried(self, exchange: Exchange) -> None:
        self._add(RetriedLine(id=exchange.id))

    def heard(self, exchange: Exchange) -> None:
        self._add(HeardLine(id=exchange.id))

    def post(self, posted: Posted) -> None:
        self._add(PostedLine(posted=posted))

    def tell(self, meta: dict[str, Any]) -> None:
        self._add(AboutLine(meta=meta))

    def counted(self, ask: Ask, tokens: int) -> None:
        self._add(CountedLine(question=question_digest(ask), messages=len(ask.messages), tokens=tokens))

    def listed(self, models: tuple[str, ...]) -> None:
        self._add(ListedLine(models=models))

    def receive(self, signal: str, body: bytes, *, is_json: bool) -> None:
        self._add(SpansLine(signal=signal, is_json=is_json, body=body))

    def _add(self, line: AnyLine) -> None:
        """On disk first, then in memory. `OSError`: it is in neither."""
        raw = _encoder.encode(line) + b"\n"
        with self._writing, self._opened() as file:
            size = os.fstat(file).st_size
            try:
                if os.write(file, raw) != len(raw):
                    raise OSError(28, "No space left on device")
            except OSError:
                os.ftruncate(file, size)  # half a line would make the next one unreadable
                raise
            self.kept.take(line)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """Opened for each line: sessions are many, and what a process may hold open is not."""
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            yield file
        finally:
            os.close(file)


def digests(ask: Ask) -> tuple[list[str], str]:
    """Of each message, and of the tools together (empty: there are none)."""
    tools = digest_of(canonical_bytes(ask.tools)) if ask.tools else ""
    return [digest_of(canonical_bytes(one)) for one in ask.messages], tools


def question_digest(ask: Ask) -> str:
    """Equal for questions with equal messages and tools."""
    messages, tools = digests(ask)
    return digest_of(canonical_bytes([*messages, tools]))


def read_session(path: Path) -> KeptSession:
    """What a journal tells; a last line that was cut off is not told."""
    kept = KeptSession(path.name.removesuffix(SUFFIX))
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UsageError(f"cannot read the session {str(path)!r}: {error.strerror}.") from None
    for number, raw in enumerate(lines[:-1], start=1):
        try:
            kept.take(_decoder.decode(raw))
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError, IndexError) as error:
            raise CorruptError(
                f"line {number} of {str(path)!r} is no line of a session's journal: {error}."
            ) from None
    return kept


def journal_path(out: Path, name: str) -> Path:
    return out / FOLDER / f"{name}{SUFFIX}"


def sessions_in(out: Path) -> list[Path]:
    """The journals of a folder, by name."""
    return sorted((out / FOLDER).glob(f"*{SUFFIX}"))


def _take_cut_line_away(file: int) -> None:
    """A last line that has no end was never acknowledged."""
    size = os.fstat(file).st_size
    end = size
    while end:
        start = max(0, end - 65_536)
        found = os.pread(file, end - start, start).rfind(b"\n")
        if found >= 0:
            end = start + found + 1
            break
        end = start
    if end != size:
        os.ftruncate(file, end)
