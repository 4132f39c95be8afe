"""What a recording told a program beside answers: which models there are, and how many tokens a question has."""

from __future__ import annotations

from baton.serve.exchange import Ask
from baton.serve.journal import KeptSession, question_digest


class RecordedBeside:
    """Told again as it was. A question that was not counted in these words, for there may be a time in it, gets the
    first count that is left of one with as many messages."""

    def __init__(self, session: KeptSession) -> None:
        self.models = session.models
        self._left = list(session.counted)
        self._known = {one.question: one.tokens for one in session.counted}

    def count(self, ask: Ask) -> int | None:
        """None: the recording tells of no such count."""
        digest, messages = question_digest(ask), len(ask.messages)
        found = next((one for one in self._left if one.question == digest), None)
        if found is None and digest not in self._known:
            found = next((one for one in self._left if one.messages == messages), None)
        if found is not None:
            self._left.remove(found)
            return found.tokens
        return self._known.get(digest)
