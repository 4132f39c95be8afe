"""A byte tokenizer for engines without a model, so that scripted and tabular play is token in, token out too.

Ids 0–255 are UTF-8 bytes; 256–259 mark who speaks; 260 ends a turn; from 1024 on, one id stands for a
whole option of a finite choice (a hash of its text, so the same option has the same id in every process).
One entry is `mark, bytes, END`; a context ends with the assistant's mark, and its completion is either
`bytes, END` or one option id, which needs no END. Ids are a pure function of the text: nothing is learned
and nothing grows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

from baton.team.protocol import Answer, Entry
from baton.trace.records import Floats, Ints

MARKS = {"system": 256, "user": 257, "assistant": 258, "tool": 259}
END = 260
FIRST_OPTION = 1024
_MEMO_CHARS = 512


def encode_entries(entries: Sequence[Entry], after: Answer | None) -> Ints:
    """Ids that `entries` add to a context after an answer (None: at its start)."""
    ids: list[int] = []
    if after is not None and after.completion_ids:
        last = after.completion_ids[-1]
        if last != END and last < FIRST_OPTION:
            ids.append(END)  # the answer was cut off at its token limit
    for entry in entries:
        ids.append(MARKS[entry.speaker])
        ids += entry.text.encode("utf-8", "surrogatepass")
        ids.append(END)
    ids.append(MARKS["assistant"])
    return Ints(ids)


def completion(text: str) -> tuple[Ints, Ints, Floats]:
    """A whole answer as ids (with END), where each ends in the text, and zeros for its log-probs."""
    return _remembered(text) if len(text) <= _MEMO_CHARS else _completion(text)


def _completion(text: str) -> tuple[Ints, Ints, Floats]:
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) == len(text):
        ends = [*range(1, len(raw) + 1), len(raw)]
    else:
        # Only a character's last byte completes it; the bytes before end where the last character did.
        ends, chars = [], 0
        for i in range(len(raw)):
            if i + 1 == len(raw) or raw[i + 1] & 0xC0 != 0x80:
                chars += 1
            ends.append(chars)
        ends.append(chars)
    return Ints([*raw, END]), Ints(ends), Floats.from_buffer(bytes(8 * len(raw) + 8))


# Scripts say the same few things again and again, and the arrays are immutable.
_remembered = lru_cache(maxsize=4096)(_completion)


@lru_cache(maxsize=65536)
def option_id(option: str) -> int:
    """The id of an option: 30 bits of its hash, above every other id."""
    digest = blake2b(option.encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return FIRST_OPTION + (int.from_bytes(digest, "little") >> 2)
