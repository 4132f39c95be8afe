"""From context entries to the ids a model reads, at the start of a context and after an answer.

At the start the ids are `tokenizer.apply_chat_template`'s, generation prompt included. Later only the new
part may be encoded, because the answer's ids are kept as sampled: the template is rendered once around a
stand-in answer, and what follows the stand-in is the continuation (its end-of-turn token left out when
the model has sampled it already).

What entries say is data: a special token spelled out in one is encoded as the characters it is made of,
so no text can end a turn or speak in another's name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from baton.errors import UsageError
from baton.team.policy import Answer, EngineError, Entry

__all__ = ["Encoder", "PlainTemplate"]

_STAND_IN = "baton7answer"
_OPEN, _CLOSE = "\ue0b0", "\ue0b1"  # private-use characters around the number of a spelled-out token


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
        self._spelled = re.compile("|".join(map(re.escape, self._special)) or r"(?!)")
        if template is None and not getattr(tokenizer, "chat_template", None):
            raise UsageError(
                "this model's tokenizer has no chat template. Put chat_template.jinja in the model's folder, "
                "or pass template=PlainTemplate() (torch:DIR?template=plain) for plain `speaker: text` lines."
            )

    def encode(self, entries: Sequence[Entry], after: Answer | None) -> list[int]:
        """Ids that entries add after an answer (None: at the start)."""
        entries = [Entry(entry.speaker, self._set_aside(entry.text)) for entry in entries]
        if self._plain is not None:
            turn_end = "" if after is None else self._plain.end
            return self._ids(turn_end + self._plain.render(entries), special=after is None)
        if after is None:
            return self._ids(self._render(entries), special=False)
        whole = self._render([Entry("user", "?"), Entry("assistant", _STAND_IN), *entries])
        _, found, rest = whole.partition(_STAND_IN)  # the first: an entry may hold the word too
        if not found:
            raise EngineError(
                "the chat template drops earlier answers, so a conversation cannot be continued in it."
            )
        return self._ids(self._without_end(rest, after), special=False)

    def _without_end(self, rest: str, after: Answer) -> str:
        if after.completion_ids:
            last: str = self._tokenizer.decode([after.completion_ids[-1]], skip_special_tokens=False)
            if after.completion_ids[-1] in self._tokenizer.all_special_ids:
                return rest.removeprefix(last)
        return rest

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

    def _ids(self, text: str, *, special: bool) -> list[int]:
        ids: list[int] = []
        for k, part in enumerate(re.split(f"{_OPEN}(\\d+){_CLOSE}", text)):
            if k % 2:  # a special token that somebody spelled out: its characters, not itself
                ids += self._tokenizer(
                    self._special[int(part)], add_special_tokens=False, split_special_tokens=True
                )["input_ids"]
            elif part or not k:
                ids += self._tokenizer.encode(part, add_special_tokens=special and not k)
        return ids


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
