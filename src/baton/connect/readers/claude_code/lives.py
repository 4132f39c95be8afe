"""The second look: an agent's entries, in the order of its life, become sightings.

A life is read front to back. What reaches an agent (a result, a return, a message) is held until its next act, which
depends on it. An agent's last words to whoever started it are its return, and are told where they arrive: as the result
of the call that started it, or as a notice. The same return may arrive twice (a notice, and a look at the task's
output): it is one return unless the agent has worked in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct, field

from baton.connect.readers.claude_code.between import Lives, words_of
from baton.connect.readers.claude_code.entries import (
    NOTHING,
    SPAWN_RESULTS,
    AgentNote,
    Block,
    ClaudeEntry,
    PlainBlock,
    PlainEntry,
    SendInput,
    SpawnResult,
    decoded,
    entry_of,
    is_plain,
    plain_text,
    result_text,
)
from baton.connect.readers.claude_code.index import (
    MAIN,
    SENDING,
    SPAWNING,
    CallParts,
    ClaudeRow,
)
from baton.connect.readers.claude_code.people import SessionAgent
from baton.connect.readers.claude_code.texts import (
    PROGRAM_SENDER,
    ClaudeLetter,
    gone_in,
    kind_of,
    letters,
    notices,
    spoken,
)
from baton.connect.seen import Link, Seen, SeenAgent, SeenCall, SeenEvent, SeenSession
from baton.trace.vocabulary import Decision, EventType, Status

_MOST_CHARACTERS = 12  # of one token, on average over an answer
_TOO_LOW = "a count of output that its words belie, as its stream began with it: kept, and too low"
_USES = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
_OUTPUT_TOOLS = frozenset({"TaskOutput", "AgentOutputTool", "AgentOutput"})
_STATUS: dict[str, Status] = {
    "completed": "ok", "failed": "failed", "error": "failed", "killed": "cancelled", "stopped": "cancelled",
    "interrupted": "cancelled",
}  # fmt: skip


class ClaudeAnswer(Struct, gc=False):
    """One answer of the model while its parts come in."""

    row: ClaudeRow
    begun: float | None
    """When what it answers had come in: the entry before it in the agent's life."""
    parts: int = 0
    acted: bool = False
    said: list[str] = field(default_factory=list)
    thought: list[str] = field(default_factory=list)
    tools: int = 0
    size: int = 0
    """Characters of what its calls were given."""
    model: str | None = None
    reason: str | None = None
    failed: bool = False


class ClaudeLife:
    """One agent's entries, in order."""

    def __init__(self, lives: Lives, person: SessionAgent) -> None:
        self.lives = lives
        self.person = person
        self.session = lives.index.key
        self.pending: list[Link] = []
        self.answers: dict[str, ClaudeAnswer] = {}
        self.tools: dict[str, str] = {}
        self.opened = person.key == MAIN
        self.told: list[Seen] = []
        self.tell = self.told.append
        self.held: list[tuple[SeenCall, int]] = []
        self.latest: float | None = None
        self.called: dict[str, float] = {}
        """Tool call -> when."""
        if person.spawn is not None or person.why is not None:
            self.pending.append(Link(person.spawn or f"{person.key}/spawn", "spawn", person.why))

    def entry(self, row: ClaudeRow, entry: ClaudeEntry | PlainEntry) -> None:
        """What an entry tells goes to `told`, a list: generators within generators take their time."""
        if entry.type == "assistant":
            self._answered(row, entry)
        elif entry.type == "user":
            self._heard(row, entry)
        elif type(entry) is ClaudeEntry:
            self._noted(row, entry)
        self.latest = row.t or self.latest

    def _noted(self, row: ClaudeRow, entry: ClaudeEntry) -> None:
        if entry.type == "attachment" and entry.attachment is not None:
            if entry.attachment.messages is not None:
                mail = [
                    ClaudeLetter(one.sender or "", (one.text or "").strip())
                    for one in entry.attachment.messages
                ]
                self._letters(row, mail)
                return
            said = entry.attachment.prompt
            text = said if isinstance(said, str) else "".join(part.text or "" for part in said or ())
            self._words(row, text, 0)
        elif entry.type == "queue-operation":
            for notice in notices(result_text(entry.content)):
                self._notice(row, notice.task, notice.result, notice.status, arrives=False)
        elif entry.type == "system":
            trigger = entry.compactMetadata.trigger if entry.compactMetadata else None
            self._event(row, 0, f"{row.uuid}/compact", "orchestrator_decision", decision="none",
                              extra={"compaction": trigger or "unknown"})  # fmt: skip

    def finish(self) -> None:
        """Returns whose words are not in the agent's own transcript, or whose transcript is not there."""
        for given in self.lives.returns.get(self.person.key, ()):
            if not given.told:
                self.tell(msgspec.structs.replace(given.event, after=self._due()))
        # Some versions write the counts that a started agent's stream began with, and never the last ones. Such an
        # agent has answers longer than their tokens can be; then none of its counts that no end stands beside is sure.
        # What a session's file repeats of an agent has such counts alone.
        begun = self.person.key in self.lives.index.echoed or any(
            _belied(call, size) for call, size in self.held
        )
        for call, _ in self.held:
            unsure = begun and call.finish_reason is None and call.completion_tokens is not None
            if unsure:
                self.lives.report.join("counts of a stream's beginning, left out")
            self.tell(msgspec.structs.replace(call, completion_tokens=None) if unsure else call)
        self.held.clear()

    # What the agent says.

    def _answered(self, row: ClaudeRow, entry: ClaudeEntry | PlainEntry) -> None:
        message, key = entry.message, row.call
        if message is None or key is None:
            self.lives.report.skip("an answer without a message", self.lives.at(row))
            return
        if message.model == "<synthetic>" and not entry.isApiErrorMessage:
            self.lives.report.skip("words that the program put in the model's place", self.lives.at(row))
            return
        answer = self.answers.get(key)
        if answer is None:
            answer = self.answers[key] = ClaudeAnswer(row, self.latest)
        answer.parts += 1
        answer.model = message.model or answer.model
        answer.reason = message.stop_reason or answer.reason
        if entry.isApiErrorMessage:
            answer.failed = True
        said = message.content
        blocks: Sequence[Block | PlainBlock] = (
            [PlainBlock(type="text", text=said)] if isinstance(said, str) else said or ()
        )
        for place, block in enumerate(blocks):
            kind = block.type
            if kind in _USES and block.id is not None:
                answer.tools += 1
                self._calls(row, place, block.id, block.name or "unknown", bytes(block.input), answer)
            elif kind == "text":
                answer.said.append(block.text or "")
            elif kind == "thinking":
                answer.thought.append(block.thinking or "")
            elif block.tool_use_id is not None:  # a tool that the provider runs answers within the answer
                self._result(row, place, self._whole(row, place, block), None)
        parts = self.lives.index.calls.get(key)
        if parts is None or answer.parts >= parts.parts:
            self._complete(row, answer, parts or CallParts())
            del self.answers[key]

    def _complete(self, row: ClaudeRow, answer: ClaudeAnswer, parts: CallParts) -> None:
        assert row.call is not None
        words = "\n".join(filter(None, answer.said))
        extra: dict[str, Any] = {}
        if parts.cached is not None:
            extra["cache_read_input_tokens"] = parts.cached
        thought = "\n".join(filter(None, answer.thought))
        if thought:
            extra["thinking"] = thought
        if answer.parts > 1:
            self.lives.report.join("the parts of one answer", answer.parts - 1)
        first, begun, failed = answer.row, answer.begun, answer.failed
        billed = not failed and (parts.prompt_tokens != 0 or parts.completion_tokens)
        call = SeenCall(
            session=self.session, key=row.call, at=self.lives.at(first), agent=self.person.key,
            order=(first.t, first.depth, 0.0), t=begun or first.t or None,
            duration_s=max(0.0, row.t - begun) if begun and row.t else None,
            policy=None if failed else answer.model, completion=words,
            prompt_tokens=parts.prompt_tokens if billed else None,
            completion_tokens=parts.completion_tokens if billed else None,
            finish_reason=answer.reason, status="failed" if failed else None, extra=extra,
        )  # fmt: skip
        size = answer.size + len(words) + len(thought)
        if self.person.key == MAIN:
            if _belied(call, size):
                self.lives.report.mend(_TOO_LOW, call.at)
            self.tell(call)
        else:
            self.held.append((call, size))
        if answer.tools == 0 and (words or failed):
            self._last_words(row, answer, words)

    def _last_words(self, row: ClaudeRow, answer: ClaudeAnswer, words: str) -> None:
        """An answer that calls nothing: the main agent stops; another one returns, if its return arrives."""
        status: Status | None = "failed" if answer.failed else None
        if self.person.key == MAIN:
            decision: Decision = "continue" if answer.reason in ("max_tokens", "pause_turn") else "stop"
            self._event(row, 99, f"{row.call}/words", "orchestrator_decision", decision=decision,
                              call=row.call, content=words, status=status)  # fmt: skip
            return
        times = self.lives.index.times.get(self.person.key, ())
        for given in self.lives.returns.get(self.person.key, ()):
            if not given.told and given.t >= row.t and not any(row.t < at <= given.t for at in times):
                given.told = True
                own = (
                    words if words and words in given.words else given.words
                )  # the program puts words around it
                self.tell(
                    msgspec.structs.replace(
                        given.event,
                        call=row.call,
                        after=self._due(),
                        content=own,
                        t=answer.begun or row.t or None,
                    )
                )
                return
        self._event(row, 99, f"{row.call}/words", "orchestrator_decision", decision="none", call=row.call,
                          content=words, status=status)  # fmt: skip

    def _calls(
        self, row: ClaudeRow, place: int, key: str, name: str, given: bytes, answer: ClaudeAnswer
    ) -> None:
        """A tool that the agent calls, by its key and name, with what it was given."""
        people, index = self.lives.people, self.lives.index
        answer.size += len(given)
        self.tools[key] = name
        self.called[key] = row.t
        content = given.decode("utf-8", "replace") or "{}"
        if (
            name not in SPAWNING
            and name not in SENDING
            and key not in people.started
            and key not in people.resumed
        ):
            t = row.t or None
            if not answer.acted:
                answer.acted = True
                t = answer.begun or t  # what a call says first began when the call did
            self.tell(SeenEvent(
                session=self.session, key=key, at=self.lives.at(row), agent=self.person.key, type="tool_call", t=t,
                call=row.call, order=(row.t, row.depth, float(place)),
                after=self._due() if self.pending else (), content=content, media_type="application/json", tool=name,
            ))  # fmt: skip
            return
        if name in SENDING and key in index.sent:
            self._sends(row, place, key, index.sent[key].asked, content)
            return
        back = people.resumed.get(key)
        if back is not None:
            prompt = index.spawns[key].asked.prompt
            self._event(row, place, key, "message", to=back if back in people.agents else None,
                              decision="delegate", content=prompt, call=row.call)  # fmt: skip
            return
        child = people.started.get(key)
        if child is None and name not in SPAWNING:
            self._event(row, place, key, "tool_call", tool=name, content=content,
                              media_type="application/json", call=row.call)  # fmt: skip
            return
        spawn = index.spawns.get(key)
        prompt = spawn.asked.prompt if spawn is not None else content
        person = people.agents.get(child) if child is not None else None
        mine = person is not None and person.spawn == key
        self._event(
            row, place, key, "spawn", to=child, content=prompt, call=row.call, tool=name,
            status="failed" if child is None else None, why=person.why if person and mine else None,
        )  # fmt: skip

    def _sends(self, row: ClaudeRow, place: int, key: str, asked: SendInput, content: str) -> None:
        name = asked.to or asked.recipient
        receivers = self.lives.receivers(self.person.key, asked)
        extra: dict[str, Any] = {} if receivers or not name else {"to": name}
        words = words_of(asked)
        for number, receiver in enumerate(receivers or [None]):
            self._event(row, place, key if number == 0 else f"{key}/{number}", "message", to=receiver,
                              content=content if words is None else words, call=row.call, extra=extra)  # fmt: skip

    # What reaches the agent.

    def _heard(self, row: ClaudeRow, entry: ClaudeEntry | PlainEntry) -> None:
        message = entry.message
        if type(entry) is PlainEntry and self._is_odd(entry):
            entry = entry_of(self.lives.line(row)) or entry
            message = entry.message
        said = None if message is None else message.content
        if entry.isCompactSummary:
            text = said if isinstance(said, str) else "".join(part.text or "" for part in said or ())
            self._event(row, 0, f"{row.uuid}/summary", "orchestrator_decision", decision="none", content=text,
                              extra={"compaction": "summary"})  # fmt: skip
            return
        blocks: Sequence[Block | PlainBlock] = (
            [PlainBlock(type="text", text=said)] if isinstance(said, str) else said or ()
        )
        told = None
        if type(entry) is ClaudeEntry:
            note = bytes(entry.toolUseResult)
            told = decoded(SPAWN_RESULTS, note) if note.startswith(b"{") else None
        words = []
        for place, block in enumerate(blocks):
            if block.type == "tool_result" and block.tool_use_id is not None:
                self._result(row, place, block, told)
            elif block.type == "text" and block.text:
                words.append(block.text)
        if entry.isMeta:
            if not words:
                return
            text = "\n".join(words)
            if kind_of(text) not in ("notice", "letter"):
                if self.person.key == MAIN or not self._mail(row):
                    self.lives.report.skip("a note of the program in the user's place", self.lives.at(row))
                return
        if words:
            self._words(row, "\n".join(words), len(blocks))
        elif not blocks:
            self.lives.report.skip("a user's entry that says nothing", self.lives.at(row))

    def _whole(self, row: ClaudeRow, place: int, block: Block | PlainBlock) -> Block | PlainBlock:
        """A result, as it is written if that is no text."""
        if type(block) is PlainBlock and not is_plain(block.content):
            entry = entry_of(self.lives.line(row))
            said = None if entry is None or entry.message is None else entry.message.content
            return said[place] if type(said) is list else block
        return block

    def _is_odd(self, entry: PlainEntry) -> bool:
        """Whether more of an entry must be known: it holds what an agent gave back, or a result that is no text."""
        people = self.lives.people
        said = None if entry.message is None else entry.message.content
        if type(said) is list:
            for block in said:
                if block.tool_use_id in people.started or block.tool_use_id in people.resumed:
                    return True
                if type(block.content) is list and not is_plain(block.content):
                    return True
        note = entry.toolUseResult
        return type(note) is AgentNote and note.task is not NOTHING

    def _result(
        self, row: ClaudeRow, place: int, block: Block | PlainBlock, told: SpawnResult | None
    ) -> None:
        call = block.tool_use_id
        assert call is not None
        people, index = self.lives.people, self.lives.index
        child = people.started.get(call) or people.resumed.get(call)
        text = plain_text(block.content) if type(block) is PlainBlock else result_text(block.content)  # type: ignore[arg-type]
        if child is not None:
            launched = told is not None and (
                told.isAsync or told.status in ("async_launched", "teammate_spawned")
            )
            launched = launched or text.startswith(("Async agent launched", "Spawned successfully"))
            if launched:
                return
            stopped = told is None and block.is_error
            status: Status = "failed" if stopped else _STATUS.get((told and told.status) or "completed", "ok")
            extra: dict[str, Any] = {}
            if told is not None:
                text = result_text(told.content) or text  # without the words that the program puts around it
                noted = (("totalTokens", told.totalTokens), ("totalDurationMs", told.totalDurationMs))
                extra = {name: value for name, value in noted if value is not None}
            self.pending.append(Link(self.lives.gives_back(child, text, status, row, extra), "return"))
            return
        if call in index.sent or call in index.spawns:
            return  # whether a message went out, or why an agent was not started, is told by its own event
        if told is not None and told.task is not None and told.task.task_id in people.agents:
            task = told.task
            if task.status in _STATUS and self.tools.get(call) in (None, *_OUTPUT_TOOLS):
                self._notice(row, task.task_id or "", task.result or task.output or text, task.status)
        t, begun = row.t, self.called.pop(call, None)
        self.tell(SeenEvent(
            session=self.session, key=f"{call}/result", at=self.lives.at(row), agent=self.person.key,
            type="tool_result", tool=self.tools.get(call), content=text, status="failed" if block.is_error else None,
            after=(Link(call, "tool_dependency"),), order=(t, row.depth, float(place)),
            t=begun or t or None, duration_s=max(0.0, t - begun) if begun and t else None,
        ))  # fmt: skip

    def _words(self, row: ClaudeRow, text: str, place: int) -> None:
        text = spoken(text)
        kind = kind_of(text) if text else "program"
        if kind == "notice":
            for notice in notices(text):
                self._notice(row, notice.task, notice.result, notice.status)
        elif kind == "letter":
            self._letters(row, letters(text))
        elif kind == "program":
            self.lives.report.skip("a note of the program in the user's place", self.lives.at(row))
        elif not self.opened:
            self.opened = True  # the prompt, which the spawn has told
        elif self._mail(row):
            return
        elif self.person.key == MAIN and not self.lives.asked_by_person and kind == "words":
            self.lives.asked_by_person = True
            self.tell(SeenSession(session=self.session, key=self.session, at=self.lives.at(row), task=text))
        else:
            self._event(row, place, f"{row.uuid}/person", "human_intervention", content=text,
                              status="cancelled" if kind == "interrupted" else None)  # fmt: skip

    def _mail(self, row: ClaudeRow) -> bool:
        """Whether what is said here is what another agent sent: its message has been told by the sender."""
        sent = self.lives.mail.get(self.person.key, [])
        due = [letter for letter in sent if letter[0] <= row.t]
        for letter in due:
            sent.remove(letter)
            self.pending.append(Link(letter[1], "message"))
        return bool(due)

    def _letters(self, row: ClaudeRow, mail: list[ClaudeLetter]) -> None:
        """Messages of a team as they arrive; told here only where the sender's transcript does not tell them."""
        sent = self.lives.mail.get(self.person.key, [])
        for number, letter in enumerate(mail):
            known = next((one for one in sent if one[2].strip() == letter.text and one[0] <= row.t), None)
            if known is not None:
                sent.remove(known)
                self.pending.append(Link(known[1], "message"))
                continue
            key = f"{row.uuid}/letter/{number}"
            sender = self.lives.people.find(letter.sender)
            if sender is None and letter.sender == PROGRAM_SENDER:
                gone = self.lives.people.find(gone_in(letter.text))
                if gone is None or gone == self.person.key:
                    self.lives.report.skip("a note of the program in the user's place", self.lives.at(row))
                else:
                    self._event(row, number, key, "despawn", to=gone, content=letter.text)
                continue
            if sender is None or sender == self.person.key:  # somebody whose transcript is not here
                sender = f"mate:{letter.sender}"
                self.lives.people.names[letter.sender] = sender
                self.tell(
                    SeenAgent(session=self.session, key=sender, at=self.lives.at(row), name=letter.sender)
                )
            decision: Decision = "delegate" if '"task_assignment"' in letter.text[:200] else "communicate"
            self.tell(SeenEvent(
                session=self.session, key=key, at=self.lives.at(row), agent=sender, type="message", t=row.t or None,
                order=(row.t, 0.0, float(number)), to=self.person.key, content=letter.text, decision=decision,
            ))  # fmt: skip
            self.pending.append(Link(key, "message"))

    def _notice(self, row: ClaudeRow, task: str, words: str, how: str, arrives: bool = True) -> None:
        """A task in the background has ended; `arrives`: the agent is told, so its next act depends on it."""
        if task not in self.lives.people.agents:
            self.lives.report.skip("a notice of a command in the background", self.lives.at(row))
            return
        key = self.lives.gives_back(task, words, _STATUS.get(how, "ok"), row, {})
        if arrives and all(link.key != key for link in self.pending):
            self.pending.append(Link(key, "return"))

    def _due(self) -> tuple[Link, ...]:
        due, self.pending = tuple(self.pending), []
        return due

    def _event(
        self,
        row: ClaudeRow,
        place: int,
        key: str,
        type: EventType,
        *,
        after: tuple[Link, ...] = (),
        t: float | None = None,
        call: str | None = None,
        content: str | None = None,
        **fields: Any,
    ) -> None:
        """Tell an event of this life; an act of the agent takes what it was waiting for, a result does not."""
        if type != "tool_result" and self.pending:
            after += self._due()
        t = t or row.t or None
        if call is not None:
            answer = self.answers.get(call)
            if answer is not None and not answer.acted:
                answer.acted = True
                t = answer.begun or t  # what a call says first began when the call did
        self.tell(
            SeenEvent(
                session=self.session, key=key, at=self.lives.at(row), agent=self.person.key, type=type, t=t, call=call,
                order=(row.t, row.depth, float(place)), after=after, content=content, **fields,
            )
        )  # fmt: skip


def _belied(call: SeenCall, size: int) -> bool:
    """Whether an answer without an end is longer than its tokens can be."""
    most = _MOST_CHARACTERS * ((call.completion_tokens or 0) + 1)
    return call.finish_reason is None and call.completion_tokens is not None and size > most
