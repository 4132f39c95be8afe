"""The threads of one session: who is called what, who started whom by which call, and what each gave back when."""

from __future__ import annotations

from msgspec import Struct, field

from baton.connect.readers.codex.entries import (
    AGENT_ARGUMENTS,
    AGENT_OUTPUTS,
    AgentArguments,
    CodexItem,
    decoded,
    text_of,
)

SPAWNS = frozenset({"spawn_agent"})
SENDS = frozenset({"send_input", "send_message", "followup_task", "assign_task"})
WAITS = frozenset({"wait_agent", "wait"})
ENDS = frozenset({"close_agent", "interrupt_agent"})
RESUMES = frozenset({"resume_agent"})
OF_THE_TEAM = SPAWNS | SENDS | WAITS | ENDS | RESUMES


class Gave(Struct, gc=False):
    """A turn of a started thread that ended with an answer: its return."""

    key: str
    t: float
    words: str


class Member(Struct):
    """One thread."""

    key: str
    name: str
    role: str | None = None
    parent: str | None = None
    path: str | None = None
    spawn: str | None = None
    speaks: bool = False
    """Whether what people say to it stands in entries of its own, apart from what the program adds."""
    gave: list[Gave] = field(default_factory=list)


class CodexAsked(Struct, gc=False):
    """A call that starts an agent."""

    call: str
    by: str
    t: float
    arguments: AgentArguments


class CodexTeam(Struct):
    """Filled by a first look at all threads, before any is told."""

    session: str
    mark: str = ""
    """Of a session that several recordings tell, which one this is: a part of names."""
    members: dict[str, Member] = field(default_factory=dict)
    asked: dict[str, CodexAsked] = field(default_factory=dict)
    started: dict[str, str] = field(default_factory=dict)
    """Call -> thread."""
    refused: set[str] = field(default_factory=set)
    names: dict[str, str] = field(default_factory=dict)
    sent: dict[str, list[tuple[float, str]]] = field(default_factory=dict)
    """Thread -> messages on their way to it: when, key."""

    def find(self, name: str | None) -> str | None:
        if not name:
            return None
        return self.names.get(name) or self.names.get(name.rsplit("/", 1)[-1])

    def add(self, member: Member, nickname: str | None) -> None:
        self.members[member.key] = member
        for name in (member.key, member.path, nickname, (member.path or "").rsplit("/", 1)[-1]):
            if name:
                self.names.setdefault(name, member.key)

    def look(self, thread: str, kind: str, item: CodexItem, t: float) -> None:
        """What one entry of a thread tells of others."""
        if kind == "response_item":
            self._look_at_item(thread, item, t)
        elif kind == "event_msg":
            if item.type == "task_complete" and self.members[thread].parent is not None:
                gave = self.members[thread].gave
                words = item.last_agent_message or ""
                gave.append(Gave(f"{thread}{self.mark}/return/{len(gave)}", t, words))
            elif item.type == "user_message" or (item.item is not None and item.item.type == "UserMessage"):
                self.members[thread].speaks = True
            elif item.type == "collab_agent_spawn_end" and item.call_id and item.new_thread_id:
                self.started[item.call_id] = item.new_thread_id
            elif item.item is not None and item.item.id is not None:
                shown = item.item
                if shown.tool == "spawn_agent" and shown.receiver_thread_ids:
                    self.started[shown.id or ""] = shown.receiver_thread_ids[0]
                elif shown.kind == "started" and shown.agent_thread_id:
                    self.started[shown.id or ""] = shown.agent_thread_id
            elif item.event_id and item.agent_thread_id and bytes(item.kind) == b'"started"':
                self.started[item.event_id] = item.agent_thread_id  # a sub_agent_activity

    def _look_at_item(self, thread: str, item: CodexItem, t: float) -> None:
        if item.type == "function_call" and item.call_id is not None and item.name in OF_THE_TEAM:
            told = decoded(AGENT_ARGUMENTS, text_of(item.arguments)) or AgentArguments()
            if item.name in SPAWNS:
                self.asked[item.call_id] = CodexAsked(item.call_id, thread, t, told)
            elif item.name in SENDS:
                self.sent.setdefault(told.target or told.id or "", []).append((t, item.call_id))
        elif item.type == "function_call_output" and item.call_id in self.asked:
            words = text_of(item.output)
            out = decoded(AGENT_OUTPUTS, words)
            call = item.call_id or ""
            if out is not None and out.agent_id:
                self.started.setdefault(call, out.agent_id)
                if out.nickname:
                    self.names.setdefault(out.nickname, out.agent_id)
            elif out is not None and out.task_name:
                self.names.setdefault(f"call:{call}", out.task_name)
            else:
                self.refused.add(call)

    def settle(self) -> None:
        """Join what only a name joins, and give threads without a file of their own a place in the team."""
        for call, asked in self.asked.items():
            task = self.names.pop(f"call:{call}", None) or asked.arguments.task_name
            child = self.started.get(call) or (self.find(task) if call not in self.refused else None)
            if child is None and call not in self.refused:
                child = f"agent:{call}"  # known by its call alone
            if child is None or child == asked.by:
                self.started.pop(call, None)
                continue
            self.refused.discard(call)
            self.started[call] = child
            if child not in self.members:
                name = asked.arguments.task_name or asked.arguments.agent_type or child
                self.add(Member(key=child, name=name, role=asked.arguments.agent_type, parent=asked.by), task)
            member = self.members[child]
            member.spawn = member.spawn or call
            member.parent = member.parent or asked.by
        for member in self.members.values():
            if member.parent not in self.members:
                member.parent = None
        by_name, self.sent = self.sent, {}
        for name, letters in by_name.items():
            found = self.find(name)
            if found is not None:
                self.sent.setdefault(found, []).extend(sorted(letters))
