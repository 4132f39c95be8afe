"""`python -m baton.corpus`: check the records; every problem is one line, and the exit code says whether."""

from __future__ import annotations

import sys

from baton.corpus.records_read import load
from baton.errors import BatonError


def main() -> int:
    try:
        corpus = load()
    except BatonError as error:
        print(error, file=sys.stderr)
        return 1
    print(
        f"{len(corpus.papers)} retained, {len(corpus.excluded)} excluded and {len(corpus.beyond)} further "
        "records are in order."
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
