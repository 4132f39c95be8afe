"""Between text and ids: from context entries to the ids a model reads, and from sampled ids to what they say.

At the start the ids are `tokenizer.apply_chat_template`'s, generation prompt included. Later only the new
part may be encoded, because the answer's ids are kept as sampled: the template is rendered once around a
stand-in answer, and what follows the stand-in is the continuation (its end-of-turn token left out when
the model has sampled it already).

What entries say is data: a special token spelled out in one is encoded as the characters it is made of,
so no text can end a turn or speak in another's name.

Members of a group, forks and agents of one role read the same entries, so the ids of the latest are remembered,
unless the template can say different things of the same entries (it asks for the date, or for chance).
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from functools import cache, cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

from msgspec import Struct

from baton.errors import MissingExtraError, UsageError
from baton.team.protocol import Answer, EngineError, Entry
from baton.trace.records import Ints


def open_tokenizer(folder: str | Path, *, plain: bool = False) -> Any:
    """The tokenizer of a Hugging Face folder; nothing is downloaded and no code of its runs.

    It has a chat template, unless entries are to be written as plain lines.
    """
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise MissingExtraError("a model's tokenizer", "torch") from None

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UsageError(f"{str(folder)!r} holds no tokenizer: {first}") from None
    if not plain and not getattr(tokenizer, "chat_template", None):
        raise UsageError(
            f"the tokenizer in {str(folder)!r} has no chat template. Put chat_template.jinja beside it."
        )
    return tokenizer


class Decoder:
    """From sampled ids to text, and where each token ends in it.

    A character may be spread over several tokens and a token may change how the one before it reads, so text is decoded
    in windows: a token that completes no character ends where the one before it ended. Byte-level BPE, where tokens are
    stretches of bytes and nothing else, is read from the bytes, with the same outcome. Pieces of single tokens are
    remembered.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._backend = getattr(tokenizer, "backend_tokenizer", None)
        self._byte_level = type(getattr(self._backend, "decoder", None)).__name__ == "ByteLevel"
        self._pieces: dict[int, str] = {}
        self._bytes: dict[int, bytes] = {}

    def decode(self, ids: Sequence[int]) -> str:
        if self._backend is not None:
            return str(self._backend.decode(ids, skip_special_tokens=True))
        return str(self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def reader(self) -> TokenReader | ByteReader:
        """What reads text that comes token by token."""
        return ByteReader(self) if self._byte_level else TokenReader(self)

    def text_and_ends(self, ids: Sequence[int]) -> tuple[str, list[int]]:
        """The text of `ids`, and for each the offset where it ends."""
        if not self._byte_level:
            text = self.decode(ids)
            ends, at = [], 0
            for piece in map(self._piece, ids):
                if not text.startswith(piece, at):
                    break
                at += len(piece)
                ends.append(at)
            if at == len(text) and len(ends) == len(ids) and "\ufffd" not in text:
                return text, ends
        else:
            known = self._bytes
            pieces = [known[token] if token in known else self.bytes_of(token) for token in ids]
            whole = b"".join(pieces)
            if whole.isascii():
                return whole.decode(), list(accumulate(map(len, pieces)))
        reader = self.reader()
        ends = [len(reader.push(token)) for token in ids]
        text = reader.finish()
        if ids:
            ends[-1] = len(text)
        return text, ends

    def spoken(self, ids: Sequence[int], ends: Container[int], stops: Sequence[str]) -> tuple[str, list[int]]:
        """What an answer says, and where each of its ids ends in it: without its end mark, and up to a stop."""
        said = ids[:-1] if ids and ids[-1] in ends else ids
        text, places = self.text_and_ends(said)
        found = [at for stop in stops if stop and (at := text.find(stop)) >= 0]
        if found:
            text = text[: min(found)]
        places = [min(place, len(text)) for place in places]
        return text, places + [len(text)] * (len(ids) - len(said))

    def learn(self, vocabulary: int) -> None:
        """Look up what every token is made of, so that no answer waits for it. For a GPU, which would wait too."""
        if self._byte_level:
            for token in range(vocabulary):
                self.bytes_of(token)

    def bytes_of(self, token: int) -> bytes:
        """What a token of a byte-level tokenizer is made of; nothing where it is special."""
        found = self._bytes.get(token)
        if found is None:
            found = self._bytes[token] = self._made_of(token)
        return found

    def _made_of(self, token: int) -> bytes:
        if token in self._special:
            return b""
        assert self._backend is not None
        name = self._backend.id_to_token(token) or ""
        try:
            return bytes(map(_alphabet().__getitem__, name))
        except KeyError:
            return str(name).encode()  # an added token, which stands for itself

    @cached_property
    def _special(self) -> frozenset[int]:
        """Tokens that stand for nothing in a text."""
        assert self._backend is not None
        added = self._backend.get_added_tokens_decoder()
        return frozenset(number for number, each in added.items() if each.special)

    def _piece(self, token: int) -> str:
        piece = self._pieces.get(token)
        if piece is None:
            piece = self._pieces[token] = self.decode([token])
        return piece


@cache
def _alphabet() -> dict[str, int]:
    """Which character stands for which byte: printable ones for themselves, the others from 256 on (GPT-2)."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in own]
    return {chr(byte): byte for byte in own} | {chr(256 + n): byte for n, byte in enumerate(others)}


class ByteReader:
    """Text as it comes, token by token, where tokens are bytes."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._unread = b""
        """Since the last whole character."""
        self.text = ""

    def push(self, token: int) -> str:
        """Add one token; returns the text so far, without a character that is not complete."""
        piece = self._decoder.bytes_of(token)
        if not piece:
            return self.text
        unread = self._unread + piece
        longer = unread.decode(errors="replace")
        if longer.endswith("\ufffd"):
            self._unread = unread
        else:
            self.text += longer
            self._unread = b""
        return self.text

    def finish(self) -> str:
        """The text with whatever was still incomplete."""
        self.text += self._unread.decode(errors="replace")
        self._unread = b""
        return self.text


class TokenReader:
    """Text as it comes, token by token, for any tokenizer."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._ids: list[int] = []
        self._window = 0
        """Where the decoding window begins; the text of ids before `_read` is settled."""
        self._read = 0
        self.text = ""

    def push(self, token: int) -> str:
        """Add one token; returns the text so far, without a character that is not complete."""
        self._ids.append(token)
        settled = self._decoder.decode(self._ids[self._window : self._read])
        longer = self._decoder.decode(self._ids[self._window :])
        if len(longer) > len(settled) and not longer.endswith("\ufffd"):
            self.text += longer[len(settled) :]
            self._window, self._read = self._read, len(self._ids)
        return self.text

    def finish(self) -> str:
        """The text with whatever was still incomplete."""
        settled = self._decoder.decode(self._ids[self._window : self._read])
        self.text += self._decoder.decode(self._ids[self._window :])[len(settled) :]
        self._window = self._read = len(self._ids)
        return self.text


_STAND_IN = "baton7answer"
_OPEN, _CLOSE = "\ue0b0", "\ue0b1"  # private-use characters around the number of a spelled-out token
_REMEMBERED = 1024
_LONGEST = 65_536
"""Characters of entries; longer ones are not remembered. With the number above it bounds the memory taken."""
_FICKLE = ("strftime_now", "random")


class PlainTemplate(Struct, frozen=True, kw_only=True):
    """For models without a chat template: each entry is its speaker's mark, the text and `end`.

    A context ends with the assistant's mark. The model ends its turn with its end-of-sequence token.
    """

    system: str = "system: "
    user: str = "user: "
    assistant: str = "assistant: "
    tool: str = "tool: "
    end: str = "\n"

    def render(self, entries: Sequence[Entry]) -> str:
        """Entries as text, up to where the answer begins."""
        return "".join(f"{getattr(self, e.speaker)}{e.text}{self.end}" for e in entries) + self.assistant


class Encoder:
    """A tokenizer and how entries become text for it."""

    def __init__(self, tokenizer: Any, template: PlainTemplate | None) -> None:
        self._tokenizer = tokenizer
        self._plain = template
        self._special = sorted(
            {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special},
            key=len,
            reverse=True,
        )
        self._ends: dict[int, str] = {}
        """By the last id of an answer, its text if it is special, else nothing."""
        self._remembered = lru_cache(_REMEMBERED)(self._encoded)
        self._spelled = re.compile("|".join(map(re.escape, self._special)) or r"(?!)")
        if template is None and not getattr(tokenizer, "chat_template", None):
            raise UsageError(
                "this model's tokenizer has no chat template. Put chat_template.jinja in the model's folder, "
                "or pass template=PlainTemplate() (torch:DIR?template=plain) for plain `speaker: text` lines."
            )

    def encode(self, entries: Sequence[Entry], after: Answer | None) -> Ints:
        """Ids that entries add after an answer (None: at the start)."""
        template = None if self._plain is not None else self._tokenizer.chat_template
        given = (template, tuple(entries), None if after is None else self._sampled_end(after))
        fickle = template is not None and (
            not isinstance(template, str) or any(word in template for word in _FICKLE)
        )
        if fickle or sum(len(entry.text) for entry in entries) > _LONGEST:
            return self._encoded(*given)
        return self._remembered(*given)

    def _encoded(self, _template: object, given: tuple[Entry, ...], sampled_end: str | None) -> Ints:
        """`sampled_end`: the end-of-turn token, if the answer before ends with it; None: no answer before."""
        entries = [Entry(entry.speaker, self._set_aside(entry.text)) for entry in given]
        if self._plain is not None:
            turn_end = "" if sampled_end is None else self._plain.end
            return self._ids(turn_end + self._plain.render(entries), special=sampled_end is None)
        if sampled_end is None:
            return self._ids(self._render(entries), special=False)
        whole = self._render([Entry("user", "?"), Entry("assistant", _STAND_IN), *entries])
        _, found, rest = whole.partition(_STAND_IN)  # the first: an entry may hold the word too
        if not found:
            raise EngineError(
                "the chat template drops earlier answers, so a conversation cannot be continued in it."
            )
        return self._ids(rest.removeprefix(sampled_end), special=False)

    def _sampled_end(self, after: Answer) -> str:
        if not after.completion_ids or self._plain is not None:
            return ""
        last = after.completion_ids[-1]
        if last not in self._ends:
            special = last in self._tokenizer.all_special_ids
            self._ends[last] = self._tokenizer.decode([last], skip_special_tokens=False) if special else ""
        return self._ends[last]

    def _render(self, entries: Sequence[Entry]) -> str:
        try:
            return self._apply(entries)
        except Exception as error:
            plainer = _merged(entries)
            try:
                return self._apply(plainer)
            except Exception:
                raise EngineError(f"the chat template refused this context: {error}") from error

    def _apply(self, entries: Sequence[Entry]) -> str:
        messages = [{"role": e.speaker, "content": e.text} for e in entries]
        return str(self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))

    def _set_aside(self, text: str) -> str:
        """`text` with every special token in it replaced by its number between marks."""
        text = text.replace(_OPEN, "").replace(_CLOSE, "")
        return self._spelled.sub(lambda found: f"{_OPEN}{self._special.index(found[0])}{_CLOSE}", text)

    def _ids(self, text: str, *, special: bool) -> Ints:
        ids: list[int] = []
        for k, part in enumerate(re.split(f"{_OPEN}(\\d+){_CLOSE}", text)):
            if k % 2:  # a special token that somebody spelled out: its characters, not itself
                ids += self._tokenizer(
                    self._special[int(part)], add_special_tokens=False, split_special_tokens=True
                )["input_ids"]
            elif part or not k:
                ids += self._tokenizer.encode(part, add_special_tokens=special and not k)
        return Ints(ids)


def _merged(entries: Sequence[Entry]) -> list[Entry]:
    """For templates that want user and assistant by turns: what is not the assistant's is the user's."""
    merged: list[Entry] = []
    for entry in entries:
        speaker = "assistant" if entry.speaker == "assistant" else "user"
        if merged and merged[-1].speaker == speaker:
            merged[-1] = Entry(speaker, f"{merged[-1].text}\n\n{entry.text}")
        else:
            merged.append(Entry(speaker, entry.text))  # type: ignore[arg-type]  # one of two
    return merged
