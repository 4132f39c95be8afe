"""Where the `baton` command starts: Ctrl-C while Python imports what it needs ends it without a word.

Before a command runs there is nothing to keep or to tidy up, so the system's own way of ending is the right one.
"""

from __future__ import annotations

import signal


def main() -> int:
    """Import the commands, and run the one that was typed."""
    heard = signal.signal(signal.SIGINT, signal.SIG_DFL)
    from baton.cli import main as run

    signal.signal(signal.SIGINT, heard)
    return run()
