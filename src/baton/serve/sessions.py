"""A session: one run of a program, as the endpoint sees it.

Everything here runs on the server's event loop. An ask is written down, answered by the backend, written down again and
only then given out. An ask that the program makes again because it did not hear the answer (an SDK's retry, a broken
connection, a server that was killed) is no second draw: it gets the first one's answer.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from baton.serve.backend import Backend, GrownAsk, Unanswerable
from baton.serve.dialects.names import response_id, with_ids
from baton.serve.exchange import Ask, Exchange, Posted
from baton.serve.growth import GrowthIndex
from baton.serve.journal import SessionJournal, journal_path
from baton.serve.limits import SessionLimits, Spending
from baton.serve.session_keys import ask_digest, exchange_id, telling_headers

_RETRY = "x-stainless-retry-count"
_OWN_IDS = ("x-baton-agent", "x-claude-code-agent-id", "thread-id")
ENDED = 410
"""HTTP's word for what was there and is no more: no client asks that again."""


class ProgramSession:
    """One session, open for calls."""

    def __init__(
        self,
        out: Path,
        name: str,
        backend: Backend,
        *,
        limits: SessionLimits | None = None,
        seed: str = "0",
        group: str | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        """`seed` and `group` name the random stream: sessions alike in both draw alike. None: a group of its own."""
        self.name = name
        self.backend = backend
        self._about = dict(about or {})
        self.journal = SessionJournal(journal_path(out, name))
        self.spending = Spending(limits or SessionLimits())
        self._stream = f"{seed}/{name if group is None else group}"
        self._growth = GrowthIndex()
        self._same: dict[str, list[str]] = {}
        """Digest of an ask -> ids of the exchanges that asked it."""
        self._pending: dict[str, asyncio.Task[Exchange]] = {}
        self._listening: Counter[str] = Counter()
        """Exchange -> how many connections wait for its answer or read it."""
        self._responses: dict[str, str] = {}
        """Id of an answer, as the program knows it -> the exchange."""
        self._conversation: dict[str, str] = {}
        """Exchange -> the conversation that it belongs to, for the limit on agents."""
        self.changed = 0
        """Grows with every line: who follows the session looks whether it did."""
        for exchange in self.journal.kept.by_id.values():
            self._recall(exchange)

    @property
    def exchanges(self) -> list[Exchange]:
        return self.journal.kept.exchanges

    @property
    def posted(self) -> list[Posted]:
        return self.journal.kept.posted

    @property
    def ended(self) -> Posted | None:
        """What said that it ended; None: it goes on."""
        return self.journal.kept.ended

    def find(self, id: str) -> Exchange | None:
        return self.journal.kept.by_id.get(id)

    def find_response(self, id: str) -> Exchange | None:
        """The exchange whose answer the program knows by this id."""
        return self.find(self._responses.get(id, ""))

    async def ask(self, ask: Ask, headers: Mapping[str, str]) -> Exchange:
        """The exchange with its answer; `heard` or `left` has to follow. Raises `Unanswerable` where there is none."""
        messages, tools = self.journal.kept.digests_of(ask)
        digest = ask_digest(ask, messages, tools)
        again = self._unheard(digest, retried=headers.get(_RETRY, "0") not in ("", "0"))
        if again is not None:
            return await self._told_again(again)
        if self.ended is not None:
            raise Unanswerable(f"the session {self.name!r} has ended.", status=ENDED)
        grown = self._growth.find(ask, telling_headers(headers))
        conversation = self._conversation_of(None if grown is None else grown.before.id, headers, digest)
        why = self.spending.reached(conversation)
        if why is not None:
            self.end("cut", why)
            raise Unanswerable(f"{why}: the session {self.name!r} has ended.", status=ENDED)
        exchange = Exchange(
            session=self.name,
            id=exchange_id(digest, len(self._same.get(digest, ()))),
            number=len(self.journal.kept.by_id),
            ask=ask,
            headers=telling_headers(headers),
            grows_from=None if grown is None else grown.before.id,
            choice=0 if grown is None else grown.choice,
            begun=time.time(),
        )
        self.tell(self._about)
        self._write(lambda: self.journal.asked(exchange, messages, tools))
        self._same.setdefault(digest, []).append(exchange.id)
        self._conversation[exchange.id] = conversation
        return await self._wait(exchange.id, self._start(exchange, grown))

    def heard(self, exchange: Exchange) -> None:
        """The program has read the whole answer."""
        self.left(exchange.id)
        self._write(lambda: self.journal.heard(exchange))

    def left(self, id: str) -> None:
        """A connection that listened to this exchange does so no more."""
        self._listening[id] -= 1
        if self._listening[id] <= 0:
            del self._listening[id]

    def post(self, posted: Posted) -> None:
        """A reward, or the end. The end said twice is one end: later only how the process ended is added to it."""
        first = self.ended
        if posted.ended and first is not None:
            if posted.exit_code is None or first.exit_code is not None:
                return
            posted = replace(posted, status=first.status or posted.status, why=first.why)
        self._write(lambda: self.journal.post(posted))

    def end(self, status: Literal["ok", "failed", "cut"] | None = None, why: str | None = None) -> None:
        self.post(Posted(session=self.name, ended=True, status=status, why=why, at=time.time()))

    def tell(self, meta: dict[str, Any]) -> None:
        """What the session is: it stands in the header of its trace."""
        if any(self.journal.kept.about.get(name) != value for name, value in meta.items()):
            self._write(lambda: self.journal.tell(meta))

    def counted(self, ask: Ask, tokens: int) -> None:
        """The program is about to be told how many tokens a question has."""
        self._write(lambda: self.journal.counted(ask, tokens))

    def listed(self, models: tuple[str, ...]) -> None:
        """The program is about to be told which models there are."""
        if models != self.journal.kept.models:
            self._write(lambda: self.journal.listed(models))

    def receive(self, signal: str, body: bytes, *, is_json: bool) -> None:
        """Spans of the program."""
        self._write(lambda: self.journal.receive(signal, body, is_json=is_json))

    async def close(self) -> None:
        """Answers under way are given up; the journal has their asks."""
        for task in self._pending.values():
            task.cancel()
        await asyncio.gather(*self._pending.values(), return_exceptions=True)

    # -- answering --------------------------------------------------------------------------------

    def _start(self, exchange: Exchange, grown: GrownAsk | None) -> asyncio.Task[Exchange]:
        """The answer is made whether the program waits for it or not: it may come back for it.

        It is counted here and not in the task, which runs later: calls that come at once would all find room.
        """
        ask, aside = self.spending.begin(exchange.ask, self._conversation[exchange.id])
        task = asyncio.create_task(self._answer(exchange, ask, aside, grown))
        self._pending[exchange.id] = task
        task.add_done_callback(lambda done: self._settled(exchange.id, done))
        return task

    def _settled(self, id: str, done: asyncio.Task[Exchange]) -> None:
        self._pending.pop(id, None)
        if not done.cancelled():
            done.exception()  # whoever waits is told; if nobody does, that is no fault

    async def _answer(self, exchange: Exchange, ask: Ask, aside: int, grown: GrownAsk | None) -> Exchange:
        began, done = time.monotonic(), exchange
        try:
            drawn = await self.backend.reply(ask, key=f"{self._stream}/{exchange.id}", growth=grown)
            reply = with_ids(drawn, ask=ask, exchange_id=exchange.id)
            self._write(lambda: self.journal.answered(exchange, reply, time.monotonic() - began))
            done = self.journal.kept.by_id[exchange.id]
        except Unanswerable as error:
            if not error.passing:
                why = str(error)
                self._write(lambda: self.journal.refused(exchange, why))
            raise
        finally:
            self.spending.finish(done, aside)
        self._remember(done, exchange.ask)
        return done

    def _remember(self, exchange: Exchange, asked: Ask | None = None) -> None:
        """An answer that later asks may go on from."""
        self._growth.add(exchange, asked)
        self._responses[response_id(exchange)] = exchange.id

    def _write(self, line: Callable[[], object]) -> None:
        """A line in the journal; what cannot be written down is not acknowledged."""
        try:
            line()
        except OSError as error:
            why = f"the session {self.name!r} cannot be written down: {error.strerror}."
            raise Unanswerable(why, status=507) from None
        self.changed += 1

    async def _wait(self, id: str, task: asyncio.Task[Exchange]) -> Exchange:
        self._listening[id] += 1
        try:
            return await asyncio.shield(task)  # a client that leaves cancels its request, not the answer
        except BaseException:
            self.left(id)
            raise

    def _unheard(self, digest: str, *, retried: bool) -> Exchange | None:
        """The exchange that the program asks for again; None: this ask is a new one."""
        kept = self.journal.kept
        same = [kept.by_id[one] for one in self._same.get(digest, ())]
        unheard = [one for one in same if one.id not in kept.heard and one.refused is None]
        if retried:
            return (unheard or same)[-1] if same else None
        return next((one for one in unheard if one.id not in self._listening), None)

    async def _told_again(self, exchange: Exchange) -> Exchange:
        if exchange.refused is not None:
            raise Unanswerable(exchange.refused)
        self._write(lambda: self.journal.retried(exchange))
        if exchange.reply is not None:
            self._listening[exchange.id] += 1
            return self.journal.kept.by_id[exchange.id]
        task = self._pending.get(exchange.id) or self._start(
            exchange, self._growth.find(exchange.ask, exchange.headers)
        )
        return await self._wait(exchange.id, task)

    def _conversation_of(self, before: str | None, headers: Mapping[str, str], digest: str) -> str:
        """Names who asks as far as limits go: a harness's own id, or the conversation that this one goes on."""
        own = next((headers[name] for name in _OWN_IDS if headers.get(name)), None)
        return own or self._conversation.get(before or "", digest)

    def _recall(self, exchange: Exchange) -> None:
        """An exchange of an earlier life of the server."""
        digest = ask_digest(exchange.ask, *self.journal.kept.digests_of(exchange.ask))
        self._same.setdefault(digest, []).append(exchange.id)
        conversation = self._conversation_of(exchange.grows_from, exchange.headers, digest)
        self._conversation[exchange.id] = conversation
        if exchange.reply is not None:
            self._remember(exchange)
        self.spending.charge_again(exchange, conversation)
