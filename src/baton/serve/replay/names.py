"""Which name of the recording is which name now: one to one, learned as the program goes on.

Harnesses make ids and nicknames anew in every run. A name that a recorded question and the present one have in the same
place is the same name from then on, and no other; answers that mention it are given with the present one.

Invariant: the pairs are a bijection at every moment, and a pair once learned is never unlearned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable


class NamePairs:
    """Pairs of names, recorded and present."""

    def __init__(self) -> None:
        self.now: dict[str, str] = {}
        """By the recorded name."""
        self.recorded: dict[str, str] = {}
        """By the present one."""
        self.kinds: dict[str, str] = {}
        """By the recorded name: which mask it has the form of, or `name`, that a tool told."""

    def fits(self, recorded: str, now: str, more: dict[str, str]) -> bool:
        """Whether a pair agrees with those that are known and with `more`, which it joins if it is new."""
        if (known := self.now.get(recorded, more.get(recorded))) is not None:
            return known == now
        if self.recorded.get(now, recorded) != recorded or now in more.values():
            return False
        more[recorded] = now
        return True

    def learn(self, pairs: dict[str, str], kinds: dict[str, str]) -> None:
        """Keep pairs that `fits` has let pass, and of which kinds they are."""
        self.kinds |= kinds
        for recorded, now in pairs.items():
            self.now[recorded] = now
            self.recorded[now] = recorded

    @property
    def changed(self) -> dict[str, str]:
        """Those that have another name now."""
        return {recorded: now for recorded, now in self.now.items() if recorded != now}

    def renamed(self, text: str) -> str:
        """A recorded text with the present names."""
        return rename(text, self.changed)


def rename(text: str, names: dict[str, str]) -> str:
    """A text with whole words replaced, all at once."""
    inside: Iterable[str] = sorted((name for name in names if name in text), key=len, reverse=True)
    form = "|".join(map(re.escape, inside))
    return re.sub(rf"(?<!\w)(?:{form})(?!\w)", lambda found: names[found[0]], text) if form else text
