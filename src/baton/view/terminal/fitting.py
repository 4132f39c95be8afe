"""Lines and tables that fit a terminal of any width. Nothing is cut: what is too long goes on below.

A line is broken between words, and its rest hangs under its beginning. A table first breaks its longest cells; where
that is not enough it goes on below, with its first column again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Sequence

Line = list[tuple[str, str]]
"""Parts of one line: text that is safe to print, and its style (rich's words, or none)."""

_GAP = 2
_LABEL = re.compile(r"\s*\S+(?: \S+){0,3}\s{2,}(?=\S)(?!.*\s\s)")
_BRANCHES = re.compile(r"[ ─-]*[│├└|`][ │├└─|`-]*")
_RAILS = str.maketrans("├└─`-", "│    ")
_COMMAND = re.compile(r"\s*(?:Type: |# Type: )?baton [a-z]")
_SHELL_WORDS = re.compile(r"(?:'[^']*'|\"[^\"]*\"|[^\s'\"])+|\s+|['\"]")
_WORDS = re.compile(r"\S+|\s+")
_PARTS = re.compile(r"(?<=\w[-_/:])(?=[^\W\d])")
"""Where a name may be broken in a narrow column: after a hyphen, before a letter."""


def cells(text: str) -> int:
    """How many columns a text takes: Chinese and Japanese characters take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def padded(text: str, width: int, *, right: bool = False) -> str:
    """The text with spaces up to a width."""
    space = " " * max(0, width - cells(text))
    return space + text if right else text + space


def wrapped(line: Line, width: int) -> list[Line]:
    """One line as several that fit, a command with a backslash wherever it is broken."""
    whole = "".join(text for text, _ in line)
    if cells(whole) <= width:
        return [line]
    is_command = _COMMAND.match(whole) is not None
    room, rest = width - 2 * is_command, _rest(whole, width)
    hang = cells(rest)
    words = _SHELL_WORDS if is_command else _WORDS
    lines: list[Line] = [[]]
    taken, fresh = 0, True
    for text, style in line:
        for word in words.findall(text):
            size = cells(word)
            if word.isspace():
                if fresh and len(lines) > 1:
                    continue
            elif is_command and word == "#" and not fresh:  # what follows is a remark, not the command
                lines[-1] = _stripped(lines[-1])
                lines.append([(rest, "dim")])
                taken, fresh, is_command, room = hang, True, False, width
            elif taken + size > room and not fresh:
                lines[-1] = [*_stripped(lines[-1]), *([(" \\", "")] if is_command else [])]
                lines.append([(rest, "dim")])
                taken, fresh = hang, True
            if taken + size > width and not word.isspace() and not is_command:
                for piece in _pieces(word, max(1, width - taken), max(1, width - hang)):
                    if not fresh:
                        lines.append([(rest, "dim")])
                    lines[-1].append((piece, style))
                    taken, fresh = hang + cells(piece), False
                continue
            lines[-1].append((word, style))
            taken, fresh = taken + size, fresh and word.isspace()
    return [_stripped(each) for each in lines]


def wrapped_text(text: str, width: int) -> str:
    """A text of several lines, each of them fitted."""
    return "\n".join(
        "".join(part for part, _ in piece)
        for row in text.split("\n")
        for piece in wrapped([(row, "")], width)
    )


def table_lines(
    rows: Sequence[Sequence[str]],
    room: int | None = None,
    *,
    head: str = "dim",
    right: Container[int] = (),
    styles: Sequence[str] | None = None,
) -> list[Line]:
    """Rows in columns, the first row in the style of a head; columns `right` are set to the right.

    `room` None: as wide as it comes. `styles` has one for every row and takes the place of `head`.
    """
    if not rows:
        return []
    of_row = list(styles) if styles is not None else [head, *[""] * (len(rows) - 1)]
    natural = [max(map(cells, column)) for column in zip(*rows, strict=True)]
    if room is None or _total(natural) <= room:
        return list(_rows(rows, natural, range(len(natural)), of_row, right))
    cap = max(16, room // 3)
    words = [_least(column, cap, lambda word: [word]) for column in zip(*rows, strict=True)]
    parts = [_least(column, cap, _PARTS.split) for column in zip(*rows, strict=True)]
    lines: list[Line] = []
    if _total(parts) > room:  # it goes on below, so that there is no need to break the names of its rows
        words[0] = parts[0] = min(natural[0], cap)
    for block in _blocks(parts, room):
        own = [[each[k] for k in block] for each in (natural, words, parts)]
        widths = _shrunk(own[0], own[1], own[2], room)
        if lines:
            lines.append([])
        lines += _rows(rows, widths, block, of_row, right)
    return lines


def _rows(
    rows: Sequence[Sequence[str]],
    widths: Sequence[int],
    block: Sequence[int],
    styles: Sequence[str],
    right: Container[int],
) -> Iterator[Line]:
    for row, style in zip(rows, styles, strict=True):
        columns = [_cell_lines(row[k], width) for k, width in zip(block, widths, strict=True)]
        for number in range(max(map(len, columns))):
            texts = (
                padded(column[number] if number < len(column) else "", width, right=k in right)
                for column, width, k in zip(columns, widths, block, strict=True)
            )
            yield [((" " * _GAP).join(texts).rstrip(), style)]


def _cell_lines(text: str, width: int) -> list[str]:
    if cells(text) <= width:
        return [text]
    lines = [""]
    for word in text.split(" "):
        gap = " " if lines[-1] else ""
        for part in _PARTS.split(word) if cells(word) > width else [word]:
            for piece in _pieces(part, width, width):
                if cells(lines[-1] + gap + piece) <= width:
                    lines[-1] += gap + piece
                else:
                    lines.append(piece)
                gap = ""
    return lines


def _pieces(word: str, first: int, rest: int) -> Iterator[str]:
    """A word that is too long for a line, in parts."""
    kept = ""
    for char in word:
        if kept and cells(kept + char) > first:
            yield kept
            kept, first = "", rest
        kept += char
    yield kept


def _least(column: Sequence[str], cap: int, split: Callable[[str], list[str]]) -> int:
    """How narrow a column may be: its longest word, or part of a word, or as much of that as is bearable."""
    found = (cells(part) for cell in column for word in cell.split(" ") for part in split(word))
    return max(1, min(cap, max(found)))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _shrunk(natural: list[int], words: list[int], parts: list[int], room: int) -> list[int]:
    """Widths that fit, the widest column giving way first: between words, and within them only where it must be."""
    widths, least = (natural, words) if _total(words) <= room else (words, parts)
    widths = list(map(min, widths, natural))
    while _total(widths) > room:
        able = [k for k in range(len(widths)) if widths[k] > least[k]]
        if not able:
            return widths
        widths[max(able, key=lambda k: widths[k])] -= 1
    return widths


def _blocks(least: Sequence[int], room: int) -> list[list[int]]:
    """Which columns stand side by side; the first is in every block."""
    blocks: list[list[int]] = [[0]]
    for k in range(1, len(least)):
        if len(blocks[-1]) > 1 and _total([least[j] for j in (*blocks[-1], k)]) > room:
            blocks.append([0])
        blocks[-1].append(k)
    return blocks


def _rest(whole: str, width: int) -> str:
    """What the rest of a line begins with: the rails of a tree, or space, up to under what follows its label."""
    if branches := _BRANCHES.match(whole):
        rails = branches[0].translate(_RAILS)
        return rails + "  " if cells(rails) < width * 2 // 3 else "  "
    label = _LABEL.match(whole)
    if label and label.end() <= min(24, width // 3):
        return " " * label.end()
    return " " * min(len(whole) - len(whole.lstrip()) + 2, width // 2)


def _stripped(line: Line) -> Line:
    """Without the spaces at its end."""
    kept = list(line)
    while kept and not kept[-1][0].rstrip():
        kept.pop()
    return [*kept[:-1], (kept[-1][0].rstrip(), kept[-1][1])] if kept else []
