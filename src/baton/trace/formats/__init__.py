"""Files that hold traces, in and out: read any of them, write any of them.

What a file is when it is read is told from its content, never from its name; what it becomes when
it is written is told from its name. A format of your own is a `Format`.
"""

from baton.trace.formats.files import encode, read, read_all, write
from baton.trace.formats.format import Format, find_format, known_formats
from baton.trace.formats.recognition import detect, format_of_name

__all__ = [
    "Format",
    "detect",
    "encode",
    "find_format",
    "format_of_name",
    "known_formats",
    "read",
    "read_all",
    "write",
]
