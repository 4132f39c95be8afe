"""The endpoint as a web application: which path means what, who may ask, and how answers and refusals are told."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct
from starlette.requests import ClientDisconnect, Request

from baton.connect.receive import Refused, decoded
from baton.errors import BatonError, nearest
from baton.serve.backend import Backend, Unanswerable, caller_headers
from baton.serve.dialects import codec_of
from baton.serve.dialects.codec import BadAsk, DialectCodec, Resolve, check_choice
from baton.serve.dialects.listings import models_body, tokens_body
from baton.serve.dialects.messages.codec import MessagesCodec
from baton.serve.dialects.sse import event
from baton.serve.exchange import Ask, Dialect, Exchange, Posted
from baton.serve.journal import SUFFIX, sessions_in
from baton.serve.request_body import let_it_finish, read_body
from baton.serve.session_keys import check_name, session_of
from baton.serve.sessions import ProgramSession
from baton.serve.told import WAITING, AnswerTelling, GoneError, Receive, Send
from baton.trace.records import encode_hook

if TYPE_CHECKING:
    from baton.serve.server import Serving

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_PATH = re.compile(r"(?:/s/(?P<name>[^/]+))?(?P<rest>(?:/[^/]*)*)")
_ASKS: dict[str, Dialect] = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "responses",
    "/v1/messages": "messages",
}
_LARGE = 1 << 17
"""Bytes of a body that takes long enough to read for others to notice."""
_JSON = {"content-type": "application/json"}
_STREAM = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
_encoder = msgspec.json.Encoder(enc_hook=encode_hook)


class _Reward(Struct, forbid_unknown_fields=True):
    """The body of a posted reward."""

    value: float
    name: str | None = None
    target: str | None = None


class _End(Struct, forbid_unknown_fields=True):
    """The body of a posted end."""

    status: Literal["ok", "failed", "cut"] = "ok"
    answer: str | None = None


def make_endpoint(serving: Serving) -> Any:
    """The ASGI application of a server."""

    async def endpoint(scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await _Asked(serving, Request(scope, receive), receive, send).handle()  # type: ignore[arg-type]

    return endpoint


class _Asked:
    """One request."""

    def __init__(self, serving: Serving, request: Request, receive: Receive, send: Send) -> None:
        self.serving = serving
        self.request = request
        self.headers: dict[str, str] = dict(request.headers.items())
        self._telling = AnswerTelling(send, receive, serving.client_limits.seconds)
        self._codec: DialectCodec = codec_of("chat")

    async def handle(self) -> None:
        """Answer, or refuse in the words of the dialect that was spoken; never a stack."""
        try:
            await self._handled()
        except (GoneError, ClientDisconnect):
            pass
        except BadAsk as error:
            await self._refuse(str(error), status=error.status, field=error.field)
        except Unanswerable as error:
            await self._refuse(str(error), status=error.status, passing=error.passing)
        except BatonError as error:
            await self._refuse(str(error), status=400)
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            why = f"the server failed on this ({type(error).__name__}); its terminal says more."
            await self._refuse(why, status=500)
        finally:
            self._telling.close()

    async def _handled(self) -> None:
        self._check_caller()
        found = _PATH.fullmatch(self.request.url.path.rstrip("/"))
        name, path = (found["name"], found["rest"]) if found is not None else (None, "")
        method = self.request.method
        if path in _ASKS and method == "POST":
            self._codec = codec_of(_ASKS[path])
            await self._answer(self._name(name))
        elif path == "/v1/messages/count_tokens" and method == "POST":
            self._codec = codec_of("messages")
            await self._count(self._name(name))
        elif path == "/v1/models" and method == "GET":
            await self._models(self._name(name))
        elif path in ("/v1/traces", "/v1/logs") and method == "POST":
            await self._spans(self._name(name), path.removeprefix("/v1/"))
        elif name is not None and path in ("/reward", "/end") and method == "POST":
            await self._posted(self._name(name), path)
        elif name is not None and not path and method == "GET":
            await self._json(_state(await self._known(name)))
        elif name is None and not path and method in ("GET", "HEAD"):
            await self._json({"baton": "serve", "sessions": sorted(self.serving.sessions)})
        else:
            known = ", ".join(f"POST {one}" for one in _ASKS)
            raise Unanswerable(
                f"there is no {method} {self.request.url.path[:80]} here; expected {known}, or one of these after "
                "/s/NAME.",
                status=404,
            )

    def _check_caller(self) -> None:
        host = self.headers.get("host", "")
        name = host if host.endswith("]") else host.rpartition(":")[0] if ":" in host else host
        if name not in _LOOPBACK:
            raise Unanswerable("this server answers on this machine only.", status=403)
        if (
            self.headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
            or "origin" in self.headers
        ):
            raise Unanswerable("this server answers programs, not web pages.", status=403)

    def _name(self, name: str | None) -> str:
        """Of the session; it is opened when what came for it has been read, not before."""
        return session_of(name, self.headers)

    def _find_response(self, name: str) -> Resolve:
        def find(id: str) -> Exchange | None:
            session = self.serving.sessions.get(name)
            return None if session is None else session.find_response(id)

        return find

    async def _known(self, name: str) -> ProgramSession:
        """A session that is there: asking for its state makes none, nor does what is said of it."""
        if not self.serving.is_known(check_name(name)):
            there = sorted(path.name.removesuffix(SUFFIX) for path in sessions_in(self.serving.out))
            raise Unanswerable(
                f"there is no session {name!r} here: one begins with its first call. "
                f"{nearest(name, {*there, *self.serving.sessions})}",
                status=404,
            )
        return await self.serving.session_beside(name)

    # -- asks ---------------------------------------------------------------------------------------

    async def _answer(self, name: str) -> None:
        body = await read_body(self.request, self.serving.client_limits)
        if self.serving.is_known(name):  # what it asks may name an earlier answer
            await self.serving.session_beside(name)
        ask = await self._read(self._codec.read, body, name)
        check_choice(ask)
        session = await self.serving.session_beside(name)
        caller_headers.set(self.headers)
        exchange = await self._asked(session, ask)
        try:
            await self._tell(exchange, stream=ask.stream)
        except BaseException:
            session.left(exchange.id)
            raise
        session.heard(exchange)

    async def _read(self, read: Callable[..., Ask], body: bytes, name: str) -> Ask:
        """A large body is read beside the loop, so that nobody waits for it."""
        given = (body, self.headers, self._find_response(name))
        return read(*given) if len(body) < _LARGE else await asyncio.to_thread(read, *given)

    async def _asked(self, session: ProgramSession, ask: Ask) -> Exchange:
        """Waits for the answer as long as the client does; in a stream it is told now and then that somebody works."""
        left = self._telling.watch()
        asking = asyncio.create_task(session.ask(ask, self.headers))
        patience = self.serving.client_limits.quiet_seconds if ask.stream else None
        while True:
            await asyncio.wait({asking, left}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
            try:
                if left.done():
                    raise GoneError
                if not self._telling.begun:
                    await self._telling.begin(200, _STREAM)
                await self._telling.go_on(WAITING)
            except GoneError:
                asking.cancel()  # the answer is made all the same: the program may come back for it
                raise

    async def _tell(self, exchange: Exchange, *, stream: bool) -> None:
        headers, pieces = dict(_STREAM), self._codec.stream(exchange)
        if not stream:
            body = _encoder.encode(self._codec.body(exchange))
            headers, pieces = {**_JSON, "content-length": str(len(body))}, iter((body,))
        if not self._telling.begun:
            await self._telling.begin(200, {**headers, "x-baton-exchange": exchange.id})
        await self._telling.end(pieces)

    async def _count(self, name: str) -> None:
        body = await read_body(self.request, self.serving.client_limits)
        ask = await self._read(MessagesCodec().read_count, body, name)
        session, backend = self._opened(name)
        count = getattr(backend, "count_tokens", None)
        counted = None if count is None else await count(ask)
        counted = _estimate(ask) if counted is None else counted
        if session is not None:
            session.counted(ask, counted)
        await self._json(tokens_body(counted))

    async def _models(self, name: str) -> None:
        session, backend = self._opened(name)
        listed = getattr(backend, "models", None)
        models = (backend.name,) if listed is None else listed()
        if session is not None:
            session.listed(models)
        await self._json(models_body(models))

    def _opened(self, name: str) -> tuple[ProgramSession | None, Backend]:
        """The session, if it is open, and who answers it: what is no call opens none."""
        session = self.serving.sessions.get(name)
        return session, self.serving.backend if session is None else session.backend

    # -- what is said of a session --------------------------------------------------------------------

    async def _posted(self, name: str, path: str) -> None:
        body = await read_body(self.request, self.serving.client_limits)
        session = await self._known(name)
        now = time.time()
        try:
            if path == "/reward":
                given = msgspec.json.decode(body, type=_Reward)
                if given.target is not None and session.find(given.target) is None:
                    raise Unanswerable(
                        f"there is no exchange {given.target[:80]!r} in this session.", status=404
                    )
                if not abs(given.value) < float("inf"):
                    raise Unanswerable("the reward is no finite number.")
                posted = Posted(
                    session=name, reward=given.value, name=given.name, target=given.target, at=now
                )
            else:
                end = msgspec.json.decode(body or b"{}", type=_End)
                posted = Posted(session=name, ended=True, status=end.status, answer=end.answer, at=now)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            form = '{"value": 1.0}' if path == "/reward" else '{"status": "ok"}'
            raise Unanswerable(f"the body cannot be read: {error}. Expected JSON like {form}.") from None
        session.post(posted)
        await self._json(_state(session))

    async def _spans(self, name: str, signal: str) -> None:
        body = await read_body(self.request, self.serving.client_limits)
        is_json = "json" in self.headers.get("content-type", "")
        try:
            await asyncio.to_thread(decoded, signal, body, is_json=is_json)
        except Refused as error:
            raise Unanswerable(error.why, status=error.status) from None
        (await self.serving.session_beside(name)).receive(signal, body, is_json=is_json)
        kind = "application/json" if is_json else "application/x-protobuf"
        await self._whole(200, {"content-type": kind}, b"{}" if is_json else b"")

    # -- telling ----------------------------------------------------------------------------------------

    async def _json(self, content: Any, status: int = 200) -> None:
        await self._whole(status, _JSON, _encoder.encode(content))

    async def _refuse(
        self, why: str, *, status: int, passing: bool = False, field: str | None = None
    ) -> None:
        self.serving.complain(why)
        told = self._codec.refusal(why, status=status, passing=passing, field=field)
        if self._telling.begun:  # in the middle of a stream: its last event
            with contextlib.suppress(GoneError):
                await self._telling.end((event(told.body, "error"),))
            return
        body = _encoder.encode(told.body)
        headers = {**_JSON, **told.headers, "connection": "close", "content-length": str(len(body))}
        with contextlib.suppress(GoneError, ClientDisconnect):
            await self._telling.begin(told.status, headers)
            await self._telling.go_on(b"" if self.request.method == "HEAD" else body)
            # The rest of its body may be on its way: hanging up now would take the answer from it.
            await let_it_finish(self.request, self.serving.client_limits)
            await self._telling.end(())

    async def _whole(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        with contextlib.suppress(GoneError):  # it did not wait for its answer
            await self._telling.begin(status, {**headers, "content-length": str(len(body))})
            await self._telling.end(() if self.request.method == "HEAD" else (body,))


def _state(session: ProgramSession) -> dict[str, Any]:
    """What a person or a harness wants to know of a session."""
    end = session.ended
    exchanges = session.exchanges
    return {
        "session": session.name,
        "calls": len(exchanges),
        "answered": sum(one.reply is not None for one in exchanges),
        "tokens": session.spending.tokens,
        "rewards": [one.reward for one in session.posted if one.reward is not None],
        "ended": None if end is None else end.status or "ok",
    }


def _estimate(ask: Ask) -> int:
    """Where nobody can count: a token for every four bytes."""
    return len(_encoder.encode([ask.messages, ask.tools])) // 4
