"""What answers the voters in `tests/serve/programs`: each of the equal questions otherwise, by how often it came."""

from __future__ import annotations

from zlib import crc32

from baton.serve.exchange import Ask

VOTES = ("north", "up the river, then left", "south by 12 miles", "north-east", "nowhere")


def answer(ask: Ask, key: str) -> str:
    """The key ends with the exchange's id, and that with its number among equal questions."""
    last = ask.messages[-1].text
    if last.startswith("Seat"):
        return f"I said so ({crc32(key.encode()) % 90})"
    if last.startswith("The votes"):
        return f"counted: {last.splitlines()[1]}"
    return VOTES[int(key.rpartition("-")[2]) if "-" in key else 0]
