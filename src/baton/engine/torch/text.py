"""From sampled ids to text: where each token ends in it, and whether a stop string was reached.

A character may be spread over several tokens and a token may change how the one before it reads, so text
is decoded in windows: a token that completes no character ends where the one before it ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["Decoder", "Reader"]


class Decoder:
    """A tokenizer's decoding, with the pieces of single tokens remembered."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._backend = getattr(tokenizer, "backend_tokenizer", None)
        self._pieces: dict[int, str] = {}

    def decode(self, ids: Sequence[int]) -> str:
        if self._backend is not None:
            return str(self._backend.decode(ids, skip_special_tokens=True))
        return str(self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def text_and_ends(self, ids: Sequence[int]) -> tuple[str, list[int]]:
        """The text of `ids`, and for each the offset where it ends."""
        text = self.decode(ids)
        ends, at = [], 0
        for piece in map(self._piece, ids):
            if not text.startswith(piece, at):
                break
            at += len(piece)
            ends.append(at)
        if at == len(text) and len(ends) == len(ids) and "\ufffd" not in text:
            return text, ends
        reader = Reader(self)
        ends = [len(reader.push(token)) for token in ids]
        text = reader.finish()
        if ids:
            ends[-1] = len(text)
        return text, ends

    def _piece(self, token: int) -> str:
        piece = self._pieces.get(token)
        if piece is None:
            piece = self._pieces[token] = self.decode([token])
        return piece


class Reader:
    """Text as it comes, token by token."""

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
