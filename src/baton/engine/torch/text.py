"""From sampled ids to text: where each token ends in it, and whether a stop string was reached.

A character may be spread over several tokens and a token may change how the one before it reads, so text
is decoded in windows: a token that completes no character ends where the one before it ended. Byte-level
BPE, where tokens are stretches of bytes and nothing else, is read from the bytes, with the same outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

__all__ = ["ByteReader", "Decoder", "Reader"]


class Decoder:
    """A tokenizer's decoding, with the pieces of single tokens remembered."""

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

    def reader(self) -> Reader | ByteReader:
        """For text that comes token by token."""
        return ByteReader(self) if self._byte_level else Reader(self)

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
        reader = self.reader()
        ends = [len(reader.push(token)) for token in ids]
        text = reader.finish()
        if ids:
            ends[-1] = len(text)
        return text, ends

    def bytes_of(self, token: int) -> bytes:
        """What a token of a byte-level tokenizer is made of; nothing where it is special."""
        found = self._bytes.get(token)
        if found is None:
            found = self._bytes[token] = self._made_of(token)
        return found

    def _made_of(self, token: int) -> bytes:
        if not self._piece(token):
            return b""
        assert self._backend is not None
        name, alphabet = self._backend.id_to_token(token), _alphabet()
        if all(char in alphabet for char in name):
            return bytes(alphabet[char] for char in name)
        return str(name).encode()  # an added token, which stands for itself

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
        unread = self._unread + self._decoder.bytes_of(token)
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


class Reader:
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
