"""A surface of your own: how actions are written in an answer. Here, one JSON object per line.

`parse(render(action))` gives the action back, exactly; whatever a model says, `parse` gives actions or errors that it
can act on, in time linear in the text. Lines between actions are the model's own notes.

    baton run shard-sum --surface my_surface:JsonLines --out runs/json
"""

from collections.abc import Sequence
from typing import Any

import msgspec

import baton
from baton.team.action import VERBS, Action
from baton.team.surface import Parsed, ParseError, ToolSpec
from baton.team.surface.parsing import decode_json
from baton.testing import check_surface


class JsonLines:
    """{"verb": "spawn", "role": "worker", "task": "count"}"""

    name = "json-lines"

    def __init__(self, tools: Any = ()) -> None:
        """A surface is made for a team's tools; this one needs to know nothing of them."""

    def parse(self, text: str, verbs: frozenset[str]) -> list[Parsed | ParseError]:
        found, start = [], 0
        for line in text.split("\n"):
            if line.startswith("{"):
                found.append(self._item(line, verbs, start, start + len(line)))
            start += len(line) + 1
        return found or [ParseError("Write at least one line of JSON, beginning with {.", 0, len(text))]

    def _item(self, line: str, verbs: frozenset[str], start: int, end: int) -> Parsed | ParseError:
        try:
            action = msgspec.convert(decode_json(line), Action)
        except (ValueError, msgspec.ValidationError) as error:
            return ParseError(f"This line is no action: {str(error)[:200]}.", start, end)
        verb = str(type(action).__struct_config__.tag)
        wrong = ParseError(f"You may not use {verb!r} here; use {sorted(verbs)}.", start, end)
        return Parsed(action, start, end) if verb in verbs else wrong

    def render(self, action: Action) -> str:
        return msgspec.json.encode(action).decode()

    def describe(self, verbs: frozenset[str], tools: Sequence[ToolSpec]) -> str:
        forms = [f"{verb} {VERBS[verb].__struct_fields__}" for verb in sorted(verbs)]
        return f"Act by lines of JSON, each a verb and its fields: {forms}. Tools: {[t.name for t in tools]}."

    def schemas(self, *_: Any) -> tuple[dict[str, Any], ...]:
        return ()  # a model that writes lines is not offered tool calls


if __name__ == "__main__":
    check_surface(JsonLines())
    print(baton.run("shard-sum", surface=JsonLines()).rewards)
