"""How a command reads what was typed, shows its help, and says that it does not understand."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from typing import Any, NoReturn

from baton.errors import nearest
from baton.view.terminal.fitting import wrapped_text
from baton.view.terminal.live import hush


def complain(message: str) -> None:
    """What is wrong, on standard error: it fits the terminal there, and stays one line elsewhere."""
    hush()
    wide = max(40, shutil.get_terminal_size().columns) if sys.stderr.isatty() else None
    print(message if wide is None else wrapped_text(message, wide), file=sys.stderr)


class _Help(argparse.RawDescriptionHelpFormatter):
    """Examples and lists keep their lines, and what is too long for the screen goes on below."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        filled = super()._fill_text(text, width, indent)
        return wrapped_text(filled, width + 2) if sys.stdout.isatty() else filled

    def _format_usage(self, *given: Any) -> str:
        return wrapped_text(super()._format_usage(*given), self._width + 2)


class CommandParser(argparse.ArgumentParser):
    """Reads the words of one command. A mistake is one line, with the option that was probably meant."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"formatter_class": _Help, **settings})

    def print_help(self, file: Any = None) -> None:
        """As argparse does, except that what cannot be written is an error here, and not passed over."""
        hush()
        print(self.format_help(), end="", file=file, flush=True)

    def error(self, message: str) -> NoReturn:
        given = re.match(r"unrecognized arguments: (--[\w-]+)", message)
        hint = nearest(given[1], _options(self)) if given else ""
        if hint.startswith("Did"):
            message += f". {hint}"
        complain(f"{self.prog}: {message}\nType: {self.prog} --help")
        raise SystemExit(2)


def _options(parser: argparse.ArgumentParser) -> set[str]:
    """The options of a command and of its parts."""
    found: set[str] = set()
    for action in parser._actions:
        found.update(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            found.update(*map(_options, action.choices.values()))
    return found
