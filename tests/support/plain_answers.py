"""What answers `tests/serve/programs/plain.py`: a script whose guesses are drawn by the key of a call."""

from __future__ import annotations

import json
import re
from typing import Any
from zlib import crc32

from baton.serve.exchange import Ask


def answer(ask: Ask, key: str) -> Any:
    """Hire once, guess as workers, and sum up by whom was hired."""
    last = ask.messages[-1]
    if "lead:" in last.text:
        return ("hire", {})
    if "guess:" in last.text:
        return str(crc32(key.encode()) % 6 + 1)
    hired = next(json.loads(one.text)["nickname"] for one in ask.messages if one.speaker == "tool")
    total = sum(map(int, re.findall(r"\d+", last.text)))
    return f"{hired} says {total}"
