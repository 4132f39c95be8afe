"""Files that a test changes on purpose: without the checksum that would tell of it."""

from __future__ import annotations

import re


def unsealed(text: str) -> str:
    """The lines of traces, without their checksums."""
    return re.sub(r',"crc":\d+}$', "}", text, flags=re.MULTILINE)
