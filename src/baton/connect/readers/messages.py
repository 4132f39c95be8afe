"""Plain lists of chat messages: OpenAI's, Anthropic's and ShareGPT's forms, as JSON or JSON Lines.

A file is one conversation (a list of messages, or one message to a line) or many (a list of conversations, or one to a
line; an object that holds its list, under `messages`, `conversations`, `traj` and the like). Each is one session.

What is read: an assistant's message is a call and what it led to; a tool's message is the result of the call it
names; a person's word after the first, which is the task, is a human intervention. Messages of several names are a
group chat. Token counts are there where a message has `usage`. Who spawned whom is not in such files and is not
concluded.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Final

from baton.connect.import_report import ImportReport
from baton.connect.readers.chat_messages import ChatMessage, ChatToolUse, as_text, chat_message, usage_of
from baton.connect.readers.group_chat import ChatEntry, group_chat
from baton.connect.readers.json_documents import JsonDocument, documents, first_document
from baton.connect.readers.place_names import any_of, digest, files_of, session_of
from baton.connect.seen import Link, Seen, SeenAgent, SeenCall, SeenEvent, SeenReward, SeenSession

ENDINGS: Final = (".json", ".jsonl", ".ndjson")
LAST_WORD: Final = "the conversation ends with it"
BY_ORDER: Final = "results without ids are taken in the order of the calls"
ONE_MORE: Final = "another speaker goes on with the same conversation"
_LISTS = (
    "messages",
    "conversations",
    "conversation",
    "traj",
    "dialog",
    "dialogue",
    "chat",
    "prompt",
    "items",
)
_IDS = ("id", "conversation_id", "session_id", "trace_id", "uuid", "instance_id")


class MessagesSource:
    """Lists of chat messages."""

    kind = "messages"
    about = "lists of chat messages (OpenAI, Anthropic, ShareGPT), JSON or JSON Lines"
    single_files = True

    def recognises(self, place: Path) -> bool:
        return any_of(place, _is_mine, ENDINGS)

    def read(self, place: Path, report: ImportReport) -> Iterator[Seen]:
        for path in files_of(place, ENDINGS):
            yield from _file(path, report)


def _is_mine(path: Path) -> bool:
    value = first_document(path)
    if isinstance(value, list) and value:
        return _is_message(value[0]) or _messages_of(value[0]) is not None
    return _is_message(value) or _messages_of(value) is not None


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and (
        ("role" in value and ("content" in value or "tool_calls" in value))
        or ("from" in value and "value" in value)
        or value.get("type") in ("function_call", "function_call_output")
    )


def _is_answer(value: Any) -> bool:
    message = chat_message(value)
    return message is not None and message.role == "assistant"


def _messages_of(value: Any) -> list[Any] | None:
    """The messages of a conversation; None where the value is no conversation."""
    if isinstance(value, list):
        return value if value and _is_message(value[0]) else None
    if not isinstance(value, dict):
        return None
    for name in _LISTS:
        found = value.get(name)
        if isinstance(found, list) and found and _is_message(found[0]):
            answer = value.get("completion") if name == "prompt" else None
            return [*found, *answer] if isinstance(answer, list) else found
    return None


def _file(path: Path, report: ImportReport) -> Iterator[Seen]:
    found = documents(path, report, is_one=lambda first: not _is_message(first))
    first = next(found, None)
    while first is not None and not _is_message(first.value) and _messages_of(first.value) is None:
        report.read()
        report.skip("an entry that is no conversation", first.at)
        first = next(found, None)
    if first is None:
        return
    if _is_message(first.value):  # one message to a line
        rows = [first.value, *(row.value for row in found)]
        answered = next((place for place, row in enumerate(rows) if _is_answer(row)), 0)
        yield from _conversation(rows, session_of(path, rows[: answered + 1]), str(path), {}, report)
        return
    names: set[str] = set()
    for row in chain((first,), found):
        messages = _messages_of(row.value)
        if messages is None:
            report.read()
            report.skip("an entry that is no conversation", row.at)
            continue
        session = _session(path, row, messages)
        if session in names:
            report.join("a conversation that stands twice in its file")
            continue
        names.add(session)
        meta = {} if isinstance(row.value, list) else {k: v for k, v in row.value.items() if not _is_talk(v)}
        yield from _conversation(messages, session, row.at, meta, report)


def _is_talk(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and _is_message(value[0])


def _session(path: Path, row: JsonDocument, messages: list[Any]) -> str:
    if isinstance(row.value, dict):
        for name in _IDS:
            given = row.value.get(name)
            if isinstance(given, str | int) and not isinstance(given, bool) and given != "":
                return f"{path.stem}-{given}" if row.number else str(given)
    if not row.number:
        return session_of(path, messages[0])
    return f"{path.stem}-{digest(messages, 6)}"  # by content: lines may stand in any order


def _conversation(
    values: list[Any], session: str, at: str, meta: dict[str, Any], report: ImportReport
) -> Iterator[Seen]:
    report.read(len(values))
    messages: list[tuple[int, ChatMessage]] = []
    for place, value in enumerate(values):
        message = chat_message(value)
        if message is None:
            report.skip("an entry that is no message", f"{at}[{place}]")
        else:
            messages.append((place, message))
    task = next((message.text for _, message in messages if message.role == "user"), None)
    yield SeenSession(session=session, key=session, at=at, task=task, meta={"row": meta} if meta else {})
    if type(meta.get("reward")) in (int, float):
        yield SeenReward(session=session, key="reward", value=float(meta["reward"]), at=at, by="messages")
    speakers = [_speaker(values[place], message) for place, message in messages]
    if len({name for name in speakers if name is not None}) > 1 and not any(m.uses for _, m in messages):
        said = [
            ChatEntry(
                speaker=name or message.role, text=message.text, key=str(place), at=f"{at}[{place}]",
                role=None if name else message.role, person=name is None and message.role == "user",
            )
            for (place, message), name in zip(messages, speakers, strict=True)
        ]  # fmt: skip
        yield from group_chat(said, session)
    else:
        yield from _Conversation(session, at, report).sightings(messages, speakers)


def _speaker(value: Any, message: ChatMessage) -> str | None:
    sender = value.get("sender")
    return sender if isinstance(sender, str) and sender else message.name


class _Conversation:
    """One assistant, or several that take over from each other, with tools and a person."""

    def __init__(self, session: str, at: str, report: ImportReport) -> None:
        self.session = session
        self.at = at
        self.report = report
        self.agents: set[str] = set()
        self.agent: str | None = None
        self.prompt: list[tuple[str, str]] = []
        self.call: str | None = None
        self.last: str | None = None  # the last event
        self.open: list[tuple[ChatToolUse, str, str]] = []  # tool use, its event, its agent

    def sightings(
        self, messages: list[tuple[int, ChatMessage]], speakers: list[str | None]
    ) -> Iterator[Seen]:
        answers = [place for place, message in messages if message.role == "assistant"]
        last = answers[-1] if answers else -1
        ends = bool(messages) and messages[-1][0] == last and not messages[-1][1].uses
        first_agent = next(
            (
                name or "assistant"
                for (_, message), name in zip(messages, speakers, strict=True)
                if message.role == "assistant"
            ),
            "assistant",
        )
        asked = False
        for (place, message), name in zip(messages, speakers, strict=True):
            if message.role == "assistant":
                yield from self._answer(place, message, name or "assistant", ends and place == last)
            for number, answer in enumerate(message.answers):
                yield from self._result(place, number, answer)
            if message.role != "assistant" and (message.text or not message.answers):
                self.prompt.append((name or message.role, message.text))
                if message.role == "user":
                    if asked:
                        yield from self._person(place, message, self.agent or first_agent)
                    asked = True

    def _known(self, agent: str, at: str) -> Iterator[Seen]:
        if agent not in self.agents:
            self.agents.add(agent)
            yield SeenAgent(session=self.session, key=agent, name=agent, at=at)

    def _person(self, place: int, message: ChatMessage, agent: str) -> Iterator[Seen]:
        yield from self._known(agent, self.at)
        self.last = f"{place}"
        yield SeenEvent(
            session=self.session, key=self.last, agent=agent, type="human_intervention", order=(place,),
            content=message.text, at=f"{self.at}[{place}]",
        )  # fmt: skip

    def _answer(self, place: int, message: ChatMessage, agent: str, ends: bool) -> Iterator[Seen]:
        at = f"{self.at}[{place}]"
        yield from self._known(agent, at)
        after: tuple[Link, ...] = ()
        if self.agent is not None and self.agent != agent and self.last is not None:
            after = (Link(self.last, "message", ONE_MORE),)
        self.agent = agent
        call = f"{place}"
        prompt_tokens, completion_tokens = usage_of(message.usage)
        yield SeenCall(
            session=self.session, key=call, agent=agent, order=(place,), at=at, policy=message.model,
            parent=self.call, prompt=tuple(self.prompt), completion=message.text,
            prompt_tokens=prompt_tokens, completion_tokens=completion_tokens,
            finish_reason=message.finish_reason,
            extra={"reasoning": message.reasoning} if message.reasoning else {},
        )  # fmt: skip
        self.call = call
        self.prompt.clear()
        for number, use in enumerate(message.uses):
            self.last = f"{place}.{number}"
            self.open.append((use, self.last, agent))
            yield SeenEvent(
                session=self.session, key=self.last, agent=agent, type="tool_call", order=(place, number),
                tool=use.name, content=use.arguments, media_type="application/json", call=call, at=at,
                after=after if not number else (), extra={"tool_call_id": use.id} if use.id else {},
            )  # fmt: skip
        if not message.uses:
            self.last = f"{place}"
            yield SeenEvent(
                session=self.session, key=self.last, agent=agent, type="orchestrator_decision",
                order=(place,), content=message.text, call=call, at=at, after=after,
                decision="stop" if ends else "continue", why=LAST_WORD if ends else None,
            )  # fmt: skip

    def _result(self, place: int, number: int, answer: Any) -> Iterator[Seen]:
        self.prompt.append(("tool", answer.text))
        matching = [each for each in self.open if answer.id is not None and each[0].id == answer.id]
        why = None
        if not matching and self.open:
            named = [each for each in self.open if answer.name in (None, each[0].name)]
            loose = [each for each in named if answer.id is None or each[0].id is None]
            matching, why = loose[:1], BY_ORDER
        if not matching:
            self.report.skip("a tool's answer to a call that is not there", f"{self.at}[{place}]")
            return
        use, event, agent = matching[0]
        self.open.remove(matching[0])
        self.last = f"{place}.r{number}"
        yield SeenEvent(
            session=self.session, key=self.last, agent=agent, type="tool_result", order=(place, number),
            tool=use.name, content=answer.text, after=(Link(event, "tool_dependency", why),),
            status="failed" if answer.failed else None, at=f"{self.at}[{place}]",
            extra={"tool_call_id": as_text(answer.id)} if answer.id else {},
        )  # fmt: skip
