"""The life of one thread: its items, bills and turns become sightings.

An answer of the model is the run of items that it wrote (reasoning, words, calls) until something reaches it or its
bill comes. The bill may come after the results of its tools: it belongs to the latest answer that has none. Bills that
repeat the one before are the program's bookkeeping and are not counted; one without an answer (a compaction) is a call
whose words are not known.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from baton.connect.import_report import ImportReport
from baton.connect.readers.codex.answers import CodexAnswer, Where, difference, whole
from baton.connect.readers.codex.entries import (
    AGENT_ARGUMENTS,
    AGENT_OUTPUTS,
    NOTIFICATIONS,
    AgentArguments,
    CodexItem,
    CodexUsage,
    decoded,
    text_of,
)
from baton.connect.readers.codex.team import (
    ENDS,
    OF_THE_TEAM,
    RESUMES,
    SENDS,
    SPAWNS,
    WAITS,
    CodexTeam,
    Gave,
    Member,
)
from baton.connect.seen import Link, Seen, SeenCall, SeenEvent, SeenSession
from baton.trace.vocabulary import Decision, EventType, Status

_CALLS = frozenset({
    "function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call",
    "image_generation_call",
})  # fmt: skip
_RUN_BY_PROVIDER = frozenset({"web_search_call", "image_generation_call"})
_SAID = frozenset(["message", "agent_message"])
_OUTPUTS = frozenset(["function_call_output", "custom_tool_call_output", "tool_search_output"])
_CONTEXT = re.compile(
    r"\s*(<(environment_context|user_instructions|permissions|skills?_instructions|skill|turn_aborted|apps|plugins|"
    r"collaboration_mode|personality|model_switch|user_shell_command|recommended_\w+|INSTRUCTIONS|hook\w*)\b"
    r"|# AGENTS\.md instructions|Another language model started to solve this problem)"
)
_NOTICE = re.compile(r"<subagent_notification>\s*(\{.*\})\s*</subagent_notification>", re.DOTALL)
_FINAL = re.compile(r"Message Type: (\w+).*?\nPayload:\n", re.DOTALL)
_NO_USAGE = CodexUsage()
_STATUSES = msgspec.json.Decoder(dict[str, Any])
_EXIT = re.compile(r'(?:Process exited with code|Exit code:|"exit_code":) ?(\d+)')


def _exit(words: str) -> re.Match[str] | None:
    """Where it is said how a command ended; all forms of it hold these letters, which are found sooner."""
    return _EXIT.search(words) if "xit" in words else None


_MORE_THAN_BILLED = "a total grew by more than its last bill: a bill between is not in the file, nor counted"


class Thread:
    """Reads one thread front to back."""

    def __init__(self, team: CodexTeam, member: Member, report: ImportReport) -> None:
        self.team = team
        self.member = member
        self.report = report
        self.told: list[Seen] = []
        self.tell = self.told.append
        self.model: str | None = None
        self.answer: CodexAnswer | None = None
        self.answers = 0
        self.total: CodexUsage | None = None
        self.gave = 0
        self.latest: float | None = None
        self.called: dict[str, float | None] = {}
        """Tool call -> when."""
        self.asked = False
        self.tools: dict[str, str] = {}
        self.received: set[str] = set()
        self.last_words: tuple[CodexAnswer, str] | None = None
        self.pending: list[Link] = [Link(member.spawn, "spawn")] if member.spawn is not None else []

    def entry(self, where: Where, kind: str, item: CodexItem) -> None:
        """What an entry tells goes to `told`, a list: generators within generators take their time."""
        if kind == "response_item":
            self._item(where, item)
            # What an answer answers: a result, or words that are not the model's.
            said = item.type in _OUTPUTS or (item.type in _SAID and item.role != "assistant")
        else:
            self._noted(where, kind, item)
            said = kind == "turn_context"
        if said or item.type == "task_started":
            self.latest = where.t or self.latest

    def _noted(self, where: Where, kind: str, item: CodexItem) -> None:
        if kind == "turn_context":
            self.model = item.model or self.model
        elif kind == "token_usage_record":
            self.bill(where, item.usage, item.thread_token_usage, item.response_id)
        elif kind == "event_msg" and item.type == "token_count":
            info = item.info
            if info is not None:
                self.bill(where, info.last_token_usage, info.total_token_usage, None)
        elif kind == "event_msg" and item.type == "task_complete":
            self.turn_done(where)
        elif kind == "event_msg" and item.type == "user_message":
            self._person(where, text_of(item.message))
        elif kind == "event_msg" and item.item is not None and item.item.type == "UserMessage":
            self._person(where, text_of(item.item.content))
        elif kind == "compacted":
            self._event(
                where, f"{self.member.key}/compacted/{where.mark}", "orchestrator_decision", decision="none",
                content=text_of(item.message) or None, extra={"compaction": "history"},
            )  # fmt: skip
        elif kind == "resumed":
            self.asked = True  # what was asked first is not in these entries
        elif kind == "inter_agent_communication":
            self._letter(where, item)
        else:
            what = f"{kind}: {item.type}" if item.type else kind
            self.report.skip(f"a note of the program, nothing of the team ({what[:60]})")

    # What the model says.

    def _item(self, where: Where, item: CodexItem) -> None:
        kind = item.type
        if kind in _OUTPUTS:
            if self.answer is not None:
                self.answer.heard = True
            self._output(where, item)
        elif kind in _CALLS:
            answer = self._open(where)
            answer.tools += 1
            answer.ended = where.t
            answer.goes_on |= kind not in _RUN_BY_PROVIDER
            self._calls(where, item, answer)
        elif kind == "message" and item.role == "assistant":
            answer = self._open(where)
            answer.words.append(text_of(item.content))
            answer.last, answer.ended = where, where.t
        elif kind == "reasoning":
            self._open(where).ended = where.t
        elif kind == "message":
            self._heard()
            self._words(where, item)
        elif kind == "agent_message":
            self._heard()
            self._letter(where, item)
        else:
            self.report.skip(f"a note of the program, nothing of the team ({str(kind)[:40]})")

    def _heard(self) -> None:
        if self.answer is not None:
            self.answer.heard = True

    def _open(self, where: Where) -> CodexAnswer:
        """The answer that is coming in: a new one, if the one before has its bill or was followed by anything."""
        answer = self.answer
        if answer is None or answer.heard or answer.usage is not None:
            self.close()
            answer = self._begin(where, self._due())
        return answer

    def _begin(self, where: Where, due: tuple[Link, ...]) -> CodexAnswer:
        key = f"{self.member.key}{self.team.mark}/call/{self.answers}"
        self.answer = answer = CodexAnswer(key=key, where=where, due=due, model=self.model, begun=self.latest)
        self.answers += 1
        return answer

    def _now(self) -> CodexAnswer:
        assert self.answer is not None
        return self.answer

    def close(self) -> None:
        """The answer is whole: nothing more will come of it."""
        answer, self.answer = self.answer, None
        if answer is None:
            return
        words = "\n".join(filter(None, answer.words))
        usage = answer.usage or _NO_USAGE
        extra: dict[str, Any] = {}
        if (cached := whole(usage.cached_input_tokens)) is not None:
            extra["cached_input_tokens"] = cached
        if (thought := whole(usage.reasoning_output_tokens)) is not None:
            extra["reasoning_output_tokens"] = thought
        if answer.response:
            extra["response_id"] = answer.response
        self.tell(SeenCall(
            session=self.team.session, key=answer.key, at=answer.where.at, agent=self.member.key,
            order=answer.where.order, t=answer.begun or answer.where.t, policy=answer.model, completion=words,
            duration_s=max(0.0, answer.ended - answer.begun) if answer.ended and answer.begun else None,
            prompt_tokens=whole(usage.input_tokens), completion_tokens=whole(usage.output_tokens), extra=extra,
        ))  # fmt: skip
        if answer.goes_on or not words or answer.last is None:
            self.pending[:0] = answer.due
            return
        if self.member.parent is None:
            self._event(answer.last, f"{answer.key}/words", "orchestrator_decision", decision="stop",
                              call=answer.key, content=words, after=answer.due, t=answer.begun)  # fmt: skip
        else:
            self._drop_words()
            self.last_words = (answer, words)

    def _drop_words(self) -> None:
        """Words of a started thread after which its turn went on: no return."""
        if self.last_words is not None:
            answer, words = self.last_words
            self.last_words = None
            self._event(
                answer.last or answer.where, f"{answer.key}/words", "orchestrator_decision", decision="none",
                call=answer.key, content=words, after=answer.due, t=answer.begun,
            )  # fmt: skip

    def bill(
        self, where: Where, last: CodexUsage | None, total: CodexUsage | None, response: str | None
    ) -> None:
        if total is not None and total == self.total and response is None:
            self.report.join("a bill that repeats the one before")
            return
        before, self.total = self.total, total
        if last is None and total is not None:
            last = difference(total, before)
        elif last is not None and total is not None and before is not None:
            grown = (total.total_tokens or 0) - (before.total_tokens or 0)
            if grown > (last.total_tokens or 0):
                self.report.mend(_MORE_THAN_BILLED, where.at)
        if last is None or not (last.input_tokens or last.output_tokens or last.total_tokens):
            return
        if self.answer is None or self.answer.usage is not None:
            self.close()  # a bill without an answer: what was said is not in the file
            self._begin(where, ()).heard = True
        answer = self._now()
        answer.usage, answer.response = last, response

    def turn_done(self, where: Where) -> None:
        """A turn has ended; of a started thread, this is its return."""
        self.close()
        if self.member.parent is None:
            return
        gave = self.member.gave[self.gave] if self.gave < len(self.member.gave) else None
        self.gave += 1
        if gave is None:
            return
        call: str | None = None
        due: tuple[Link, ...] = ()
        t = where.t
        if self.last_words is not None:
            answer, _ = self.last_words
            call, due, t = answer.key, answer.due, answer.begun or where.t
            self.last_words = None
        self.tell(SeenEvent(
            session=self.team.session, key=gave.key, at=where.at, agent=self.member.key, type="return", t=t,
            order=where.order, to=self.member.parent, content=gave.words, call=call, status="ok",
            after=due + self._due(),
        ))  # fmt: skip

    def finish(self) -> None:
        self.close()
        self._drop_words()

    def _calls(self, where: Where, item: CodexItem, answer: CodexAnswer) -> None:
        key = item.call_id or item.id or f"{answer.key}/{answer.tools}"
        name = item.name or {"local_shell_call": "shell"}.get(
            item.type or "", (item.type or "").removesuffix("_call")
        )
        self.tools[key] = name
        self.called[key] = where.t
        words = text_of(item.arguments) or text_of(item.input) or text_of(item.action)
        after, answer.due = answer.due, ()
        t = answer.begun if answer.tools == 1 else None  # what a call says first began when the call did
        if item.type != "function_call" or name not in OF_THE_TEAM:
            self._tool(where, key, name, words, answer.key, after, t)
            return
        fields: dict[str, Any] = {"call": answer.key, "after": after, "t": t}
        told = decoded(AGENT_ARGUMENTS, words) or AgentArguments()
        said = told.message or "".join(part.text or "" for part in told.items or ()) or None
        to = self.team.find(told.target or told.id)
        if name in SPAWNS:
            child = self.team.started.get(key)
            self._event(where, key, "spawn", to=child, tool=name, content=said,
                              status=None if child else "failed", **fields)  # fmt: skip
        elif name in SENDS:
            decision: Decision = "delegate" if name in ("followup_task", "assign_task") else "communicate"
            self._event(where, key, "message", to=to, content=said, decision=decision, **fields)
        elif name in WAITS:
            self._event(where, key, "orchestrator_decision", decision="wait", content=words, **fields)
        elif name in ENDS and to is not None:
            self._event(where, key, "despawn", to=to, tool=name, **fields)
        elif name in RESUMES:
            self._event(where, key, "orchestrator_decision", decision="continue", content=words,
                              extra={"resumes": told.id or told.target}, **fields)  # fmt: skip
        else:
            self._tool(where, key, name, words, answer.key, after, t)

    def _tool(
        self,
        where: Where,
        key: str,
        name: str,
        words: str,
        call: str,
        after: tuple[Link, ...],
        t: float | None,
    ) -> None:
        self.tell(SeenEvent(
            session=self.team.session, key=key, at=where.at, agent=self.member.key, type="tool_call", t=t or where.t,
            order=where.order, after=after, tool=name, content=words, call=call,
            media_type="application/json" if words[:1] in "{[" else "text/plain",
        ))  # fmt: skip

    # What reaches the thread.

    def _output(self, where: Where, item: CodexItem) -> None:
        key = item.call_id or item.id or f"{where.mark}"
        words = text_of(item.output) or text_of(item.tools)
        name = self.tools.get(key)
        if name in WAITS:
            out = decoded(AGENT_OUTPUTS, words)
            for agent, status in (out.status if out and isinstance(out.status, dict) else {}).items():
                self._arrives(where, agent, bytes(status))
        if name in OF_THE_TEAM:
            return
        failed = _exit(words[:400]) or (_exit(words[-200:]) if words[:1] == "{" else None)
        bad = failed is not None and failed.group(1) != "0"
        bad = (
            bad
            or b'"success":false' in bytes(item.output)[-40:]
            or words.startswith(("unsupported call", "aborted"))
        )
        begun, t = self.called.pop(key, None), where.t
        self.tell(SeenEvent(
            session=self.team.session, key=f"{key}/result", at=where.at, agent=self.member.key, type="tool_result",
            order=where.order, tool=name, content=words, status="failed" if bad else None, t=begun or t,
            duration_s=max(0.0, t - begun) if begun and t else None, after=(Link(key, "tool_dependency"),),
        ))  # fmt: skip

    def _words(self, where: Where, item: CodexItem) -> None:
        words = text_of(item.content)
        notice = _NOTICE.search(words)
        if notice is not None:
            told = decoded(NOTIFICATIONS, notice.group(1))
            if told is not None:
                self._arrives(where, told.agent_id or told.agent_path, bytes(told.status))
            return
        if item.role != "user" or _CONTEXT.match(words):
            self.report.skip("a note of the program in the user's place", where.at)
        elif self.member.speaks:
            self.report.skip("words that an entry of their own repeats", where.at)
        else:
            self._person(where, words)

    def _person(self, where: Where, words: str) -> None:
        """Somebody says something: the task, another agent, or a person."""
        if self._mail(where):
            return
        if not self.asked:
            self.asked = True  # the task, or what the spawn has told
            if self.member.parent is None:
                self.tell(
                    SeenSession(session=self.team.session, key=self.team.session, at=where.at, task=words)
                )
            return
        self._event(where, f"{self.member.key}/person/{where.mark}", "human_intervention", content=words)

    def _mail(self, where: Where) -> bool:
        """Whether another thread has sent what is said here."""
        if not self.asked and self.member.parent is not None:
            return False
        sent = self.team.sent.get(self.member.key, [])
        due = [letter for letter in sent if where.t is None or letter[0] <= where.t]
        for letter in due[:1]:
            sent.remove(letter)
            self.pending.append(Link(letter[1], "message"))
        return bool(due)

    def _letter(self, where: Where, item: CodexItem) -> None:
        """A message between agents as it arrives; the sender's thread has told it."""
        words = text_of(item.content)
        final = _FINAL.match(words)
        author = self.team.find(item.author)
        if final is not None and final.group(1) == "FINAL_ANSWER" and author is not None:
            given = self._given(author, where)
            if given is not None:
                self._receive(given.key)
            return
        if not self.asked and self.member.parent is not None:
            self.asked = True
            return
        self._mail(where)

    def _given(self, agent: str, where: Where) -> Gave | None:
        before = [gave for gave in self.team.members[agent].gave if where.t is None or gave.t <= where.t]
        return before[-1] if before else None

    def _arrives(self, where: Where, name: str | None, status: bytes) -> None:
        """How an agent stands: one that has completed has returned, which its own thread tells."""
        agent = self.team.find(name)
        held = decoded(_STATUSES, status) or {}
        if agent is None or not ("completed" in held or "errored" in held):
            return
        given = self._given(agent, where)
        if given is None and not self.team.members[agent].gave:
            words = told if isinstance(told := next(iter(held.values())), str) else str(told)
            given = Gave(f"{agent}{self.team.mark}/return/0", where.t or 0.0, words)
            self.team.members[agent].gave.append(given)
            bad: Status = "failed" if "errored" in held else "ok"
            self.tell(SeenEvent(
                session=self.team.session, key=given.key, at=where.at, agent=agent, type="return", t=where.t,
                order=(0.0, where.t or 0.0), to=self.team.members[agent].parent, content=words, status=bad,
            ))  # fmt: skip
        if given is not None:
            self._receive(given.key)

    def _receive(self, key: str) -> None:
        """A return reaches this thread, the first time it does: a wait and a notice may both bring it."""
        if key in self.received:
            self.report.join("a return that arrived twice")
        else:
            self.received.add(key)
            self.pending.append(Link(key, "return"))

    def _due(self) -> tuple[Link, ...]:
        due, self.pending = tuple(self.pending), []
        return due

    def _event(
        self,
        where: Where,
        key: str,
        type: EventType,
        *,
        after: tuple[Link, ...] = (),
        t: float | None = None,
        **fields: Any,
    ) -> None:
        self.tell(
            SeenEvent(
                session=self.team.session, key=key, at=where.at, agent=self.member.key, type=type, t=t or where.t,
                order=where.order, after=after, **fields,
            )
        )  # fmt: skip
