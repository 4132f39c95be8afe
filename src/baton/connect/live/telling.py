"""One run as a recorder tells it: verbs that become sightings, with the place and the dependencies of each.

Invariant: what is sent to an agent (a task, a message, a result, control) is what its next answer depends on: the first
event of the next call that begins after it came. An event that no call said depends on all that has come. So parallel
acts of one answer do not depend on each other's results. The order is the order of arrival: hooks run in the program
itself, and what arrives later was no cause of what arrived before.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from typing import Any

from baton.connect.live.prompts import Growth
from baton.connect.seen import Link, Seen, SeenAgent, SeenCall, SeenEvent, SeenSession
from baton.trace.vocabulary import Decision, EdgeType, EventType, Status, Topology

_START = time.time() - time.monotonic()


def now() -> float:
    """Seconds since 1970 that never go backwards."""
    return _START + time.monotonic()


class Telling:
    """One session. Not locked: a recorder calls it with its own lock held."""

    def __init__(self, see: Callable[[Seen], None], session: str, *, system: str) -> None:
        self.session = session
        self.see = see
        self.system = system
        self.known: set[str] = set()
        """Keys of the agents that were told of."""
        self.growth = Growth()
        self._count = 0
        self._asked = False
        self._due: dict[str, dict[str, EdgeType]] = {}
        self._said: dict[str, str] = {}  # agent -> its last call
        self._read: dict[str, dict[str, EdgeType]] = {}  # call -> what had come when it was asked

    def begin(self, *, task: str | None = None, topology: Topology | None = None, **meta: Any) -> None:
        self.see(
            SeenSession(
                session=self.session,
                key=self.session,
                system=self.system,
                task=task,
                topology=topology,
                started=now(),
                finished=False,
                meta={name: value for name, value in meta.items() if value is not None},
            )
        )

    def asked(self, task: str | None) -> None:
        """What the run was asked; the first time counts."""
        if task and not self._asked:
            self._asked = True
            self.see(SeenSession(session=self.session, key=self.session, task=task))

    def finish(self, **metrics: float) -> None:
        self.see(SeenSession(session=self.session, key=self.session, finished=True, metrics=metrics))

    def agent(
        self,
        key: str,
        name: str,
        *,
        role: str | None = None,
        parent: str | None = None,
        why: str | None = None,
    ) -> str:
        """Somebody is there; said once."""
        if key not in self.known:
            self.known.add(key)
            self.see(SeenAgent(session=self.session, key=key, name=name, role=role, parent=parent, why=why))
        return key

    def call(self, key: str, agent: str, *, opened: float | None = None, **known: Any) -> str:
        """An answer of a model, or what is known of it so far: more may be told under the same key."""
        if self._said.get(agent) != key and key not in self._read:
            self._read[key] = self._due.pop(agent, {})
        self._said[agent] = key
        self.see(SeenCall(session=self.session, key=key, agent=agent, order=self._order(), t=opened, **known))
        return key

    def event(
        self,
        type: EventType,
        key: str,
        agent: str,
        *,
        content: Any = None,
        after: Iterable[tuple[str, EdgeType]] = (),
        extra: dict[str, Any] | None = None,
        opened: float | None = None,
        call: str | None = None,
        **known: Any,
    ) -> str:
        text, media_type = as_text(content)
        links = dict.fromkeys([*self._came(type, agent, call).items(), *after])
        self.see(
            SeenEvent(
                session=self.session,
                key=key,
                agent=agent,
                type=type,
                order=self._order(),
                t=now() if opened is None else opened,
                content=text,
                media_type=media_type,
                call=call,
                after=tuple(Link(source, edge) for source, edge in links),
                extra={name: value for name, value in (extra or {}).items() if value is not None},
                **known,
            )
        )
        return key

    def _came(self, type: EventType, agent: str, call: str | None) -> dict[str, EdgeType]:
        if type == "tool_result":  # no act of the agent's
            return {}
        return self._due.pop(agent, {}) if call is None else self._read.pop(call, {})

    def spawn(self, key: str, agent: str, child: str, task: Any = None, **known: Any) -> None:
        """The child's life begins, or goes on: what it does next depends on this."""
        self.event("spawn", key, agent, content=task, to=child, **known)
        self.owe(child, key, "spawn")

    def returns(self, key: str, agent: str, to: str, result: Any = None, **known: Any) -> None:
        self.event("return", key, agent, content=result, to=to, **known)
        self.owe(to, key, "return")

    def message(
        self,
        key: str,
        agent: str,
        to: str | None,
        text: Any = None,
        *,
        among: Iterable[str] | None = None,
        **known: Any,
    ) -> None:
        """To one agent; to None: to all, or all `among` whom it is said."""
        self.event("message", key, agent, content=text, to=to, **known)
        everybody = self.known if among is None else set(among)
        for receiver in everybody - {agent} if to is None else {to}:
            self.owe(receiver, key, "message")

    def hand_over(self, key: str, agent: str, to: str, text: Any = None, **known: Any) -> None:
        """Control passes to an agent beside this one; nobody is born and nobody returns."""
        self.event("message", key, agent, content=text, to=to, decision="delegate", **known)
        self.owe(to, key, "message")

    def tool_call(self, key: str, agent: str, tool: str | None, arguments: Any = None, **known: Any) -> None:
        self.event("tool_call", key, agent, content=arguments, tool=tool, **known)

    def tool_result(self, key: str, agent: str, tool: str | None, result: Any = None, **known: Any) -> None:
        """`key` is the call's."""
        self.event(
            "tool_result",
            f"{key}/result",
            agent,
            content=result,
            tool=tool,
            after=[(key, "tool_dependency")],
            **known,
        )

    def decide(self, key: str, agent: str, decision: Decision, text: Any = None, **known: Any) -> None:
        self.event("orchestrator_decision", key, agent, content=text, decision=decision, **known)

    def stop(
        self, key: str, agent: str, answer: Any = None, status: Status | None = None, **known: Any
    ) -> None:
        self.decide(key, agent, "stop", answer, status=status, **known)

    def owe(self, agent: str, key: str, edge: EdgeType) -> None:
        self._due.setdefault(agent, {})[key] = edge

    def last_call(self, agent: str) -> str | None:
        return self._said.get(agent)

    def _order(self) -> tuple[float, ...]:
        self._count += 1
        return (now(), float(self._count))


def as_text(content: Any) -> tuple[str | None, str]:
    """Content as text with its media type; what is no JSON is told by its own words."""
    if content is None:
        return None, "text/plain"
    if isinstance(content, str):
        return content, "text/plain"
    if isinstance(content, bytes):
        return content.decode("utf-8", "replace"), "text/plain"
    try:
        return json.dumps(content, ensure_ascii=False, default=_plain), "application/json"
    except (TypeError, ValueError):
        return str(content), "text/plain"


def _plain(value: Any) -> Any:
    for name in ("model_dump", "dict", "to_json"):
        method = getattr(value, name, None)
        if callable(method):
            try:
                return method()
            except Exception:  # a stranger's method: whatever it raises, its words will do
                continue
    return str(value)
