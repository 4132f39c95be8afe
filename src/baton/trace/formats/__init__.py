"""Files that hold traces, in and out: read any of them, write any of them.

What a file is when it is read is told from its content, never from its name; what it becomes when
it is written is told from its name.
"""

from baton.trace.formats.detect import FORMATS, TEXT_FORMATS, detect, format_of_name
from baton.trace.formats.files import encode, read, read_all, write

__all__ = [
    "FORMATS",
    "TEXT_FORMATS",
    "detect",
    "encode",
    "format_of_name",
    "read",
    "read_all",
    "write",
]
