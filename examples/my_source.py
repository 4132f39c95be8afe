"""A reader of your own: another system's files become sightings, and Baton joins those into traces.

A sighting carries its own identity (`key`) and place (`order`): shuffled or doubled, a file gives the same trace.

    baton import talk.jsonl --from my_source:ChatLog --out talks
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

import baton
from baton.connect.import_report import ImportReport
from baton.connect.seen import Seen, SeenEvent
from baton.testing import check_source

TALK = '{"chat": "c1", "n": 1, "from": "Ada", "to": "Bo", "text": "Is 9.11 more than 9.9?"}'


class Message(msgspec.Struct):
    """One line of a chat."""

    chat: str
    n: int
    to: str
    text: str
    speaker: str = msgspec.field(name="from")


class ChatLog:
    """Reads chats, one message a line."""

    kind, about = "chat-log", "chats, one message a line (.jsonl)"

    def recognises(self, place: Path) -> bool:
        return place.is_file() and parsed(place.read_bytes()[:9_999].partition(b"\n")[0]) is not None

    def read(self, place: Path, report: ImportReport) -> Iterator[Seen]:
        for number, line in enumerate(place.read_bytes().splitlines(), 1):
            report.read()
            if (said := parsed(line)) is None:
                report.skip("not a message of a chat", at=f"{place.name}:{number}")
                continue
            own = {"session": said.chat, "key": f"{said.n}", "order": (said.n,), "type": "message"}
            yield SeenEvent(**own, agent=said.speaker, to=said.to, content=said.text)


def parsed(line: bytes) -> Message | None:
    try:
        return msgspec.json.decode(line, type=Message)
    except (ValueError, RecursionError):
        return None


if __name__ == "__main__":
    Path("talk.jsonl").write_text(TALK)
    check_source(ChatLog(), Path("talk.jsonl"))
    print(baton.import_traces("talk.jsonl", source=ChatLog()).traces)
