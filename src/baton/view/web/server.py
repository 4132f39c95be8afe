"""The page on loopback: static files that ship with the package, and answers as JSON.

Read-only unless a fork is attached. Safety, all of it tested:
- whoever has not the key that `baton view` prints gets no answer: others may work on the same machine;
- bound to a loopback address, and only requests whose Host is one are answered, so that no name on the web can
  be pointed here (DNS rebinding);
- a content policy that lets the page run its own files and nothing else, and lets nothing be inserted as markup
  (Trusted Types);
- what changes anything is a POST, and needs a token that only the page itself can read, and the page's own origin.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from baton.compose.started_runs import RunOrder
from baton.compose.steering import Wish
from baton.errors import BatonError, MissingExtraError, UsageError
from baton.view.web.answers import Answers
from baton.view.web.assets import PAGE, index, script, style
from baton.view.web.attached import Attached, Change
from baton.view.web.command import Command
from baton.view.web.noted import NoteChange
from baton.view.web.stream import Glances, changes, checked_topics
from baton.view.web.traces import Library

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response


T = TypeVar("T")
_HOSTS = ("127.0.0.1", "localhost", "[::1]")
_OWN = ("same-origin", "none")  # what a browser says of the page itself, and of a typed address
_MOST_POSTED_BYTES = 1_000_000
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_FILES: dict[str, tuple[Callable[[], str], str]] = {
    "": (index, "text/html"),
    "all.js": (script, "text/javascript"),
    "all.css": (style, "text/css"),
    "icon.svg": ((PAGE / "icon.svg").read_text, "image/svg+xml"),
}
"""Everything that is ever served, by name: no name becomes a path."""
_POSTED = ("fork", "note", "label", "cancel", "save", "steer", "start", "end")
_COMMANDS: dict[str, tuple[Callable[[Command], Callable[[Any, Any], Any]], type[Any]]] = {
    "steer": (lambda command: command.steer, Wish),
    "start": (lambda command: command.start, RunOrder),
}
_NO_KEY = (
    "this viewer answers only who has its key. Open the whole address that `baton view` printed, with ?key=."
)
_encoder = msgspec.json.Encoder(enc_hook=str)


def make_app(library: Library, attached: Attached, *, key: str | None = None) -> Starlette:
    """The web application that serves the page and answers it from this library.

    `key`: only who knows it is answered; a browser shows it once, in the address that was printed, and gets a cookie.
    """
    try:
        from starlette.applications import Starlette
        from starlette.concurrency import run_in_threadpool
        from starlette.middleware import Middleware
        from starlette.middleware.base import BaseHTTPMiddleware
        from starlette.responses import RedirectResponse, Response, StreamingResponse
        from starlette.routing import Route
    except ImportError:
        raise MissingExtraError("the web viewer", "view") from None

    answers = Answers(library, attached)
    glances = Glances(answers.stamp_of)
    token = secrets.token_urlsafe(32)

    def reply(content: Any, status: int = 200) -> Response:
        return Response(_encoder.encode(content), status, media_type="application/json")

    async def guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        if _host(request.headers.get("host", "")) not in _HOSTS:
            response = reply({"error": "this viewer answers on this machine only."}, 403)
        elif (
            request.url.path.startswith("/api/")
            and request.headers.get("sec-fetch-site", "same-origin") not in _OWN
        ):
            response = reply({"error": "this viewer answers its own page only."}, 403)
        elif key is not None and request.url.path == "/" and _same(request.query_params.get("key", ""), key):
            response = RedirectResponse("/", 303)  # without the key: an address is shown, kept and copied
            name = _cookie(request)
            response.set_cookie(name, key, httponly=True, samesite="strict")
        elif key is not None and not _same(request.cookies.get(_cookie(request), ""), key):
            response = reply({"error": _NO_KEY}, 403)
        else:
            response = await call_next(request)
        response.headers.update(_HEADERS)
        return response

    async def ask(request: Request) -> Response:
        name = request.path_params["name"]
        found, status = await run_in_threadpool(_answered, answers.get, name, request.query_params)
        if name == "setup" and status == 200:
            found["token"] = token
        return reply(found, status)

    async def change(request: Request) -> Response:
        origin = request.headers.get("origin", "")
        given = request.headers.get("x-baton-token", "")
        if origin != f"http://{request.headers.get('host', '')}" or not _same(given, token):
            return reply({"error": "only the viewer's own page may change anything."}, 403)
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MOST_POSTED_BYTES:
                return reply({"error": f"a change has at most {_MOST_POSTED_BYTES:,} bytes."}, 413)
        query, name = request.query_params, request.url.path.rpartition("/")[2]
        if name == "fork":
            found, status = await run_in_threadpool(
                _answered, _read, answers.fork, query, bytes(body), Change
            )
        elif name in ("steer", "start"):
            act, kind = _COMMANDS[name]
            found, status = await run_in_threadpool(
                _answered, _read, act(answers.command), query, bytes(body), kind
            )
        elif name == "note":
            found, status = await run_in_threadpool(
                _answered, _read, answers.note, query, bytes(body), NoteChange
            )
        else:
            found, status = await run_in_threadpool(_answered, answers.act, name, query)
        return reply(found, status)

    async def stream(request: Request) -> Response:
        topics, status = _answered(checked_topics, request.query_params.getlist("watch"))
        if status != 200:
            return reply(topics, status)
        return StreamingResponse(changes(glances, topics), media_type="text/event-stream")

    async def export(request: Request) -> Response:
        found, status = await run_in_threadpool(_answered, answers.table.exported, request.query_params)
        if status != 200:
            return reply(found, status)
        kind, name, content = found
        told = {"content-disposition": f'attachment; filename="{name}"'}
        return StreamingResponse(content, media_type=kind, headers=told)

    async def page(request: Request) -> Response:
        name = request.path_params.get("name", "")
        if name not in _FILES:
            return reply({"error": f"there is no page {name[:80]!r} here."}, 404)
        made, kind = _FILES[name]
        return Response(made(), media_type=kind)

    app = Starlette(
        routes=[
            Route("/", page),
            Route("/page/{name:path}", page),
            *(Route(f"/api/{name}", change, methods=["POST"]) for name in _POSTED),
            Route("/api/stream", stream),
            Route("/api/export", export),
            Route("/api/{name}", ask),
        ],
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=guard)],
    )
    app.state.glances = glances
    return app


def _cookie(request: Request) -> str:
    """Browsers keep one set of cookies for all ports of a host: each viewer has a name of its own there."""
    return f"baton-{request.url.port or 80}"


def _same(given: str, key: str) -> bool:
    return secrets.compare_digest(given.encode(), key.encode())


def _answered(function: Callable[..., Any], *given: Any) -> tuple[Any, int]:
    """What went wrong as an answer: in a sentence for a person, never a stack."""
    try:
        return function(*given), 200
    except BatonError as error:
        return {"error": str(error)}, 400
    except OSError as error:
        return {"error": f"a file cannot be read: {error}."}, 400
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        return {"error": f"the viewer failed on this ({type(error).__name__}); the terminal says more."}, 500


def _read(act: Callable[[Any, T], Any], query: Any, body: bytes, kind: type[T]) -> Any:
    """Do what was posted, where it is what it has to be."""
    try:
        change = msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"the change cannot be read: {error}.") from None
    return act(query, change)


def _host(header: str) -> str:
    """The host of a Host header, without its port."""
    return header if header.endswith("]") else header.rpartition(":")[0] if ":" in header else header


def listen(port: int | None) -> socket.socket:
    """A socket on loopback: on the port asked for, or on the usual one if it is free, or on any."""
    for candidate in (8321, 0) if port is None else (port,):
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind(("127.0.0.1", candidate))
        except OSError as error:
            made.close()
            if candidate == port:
                raise UsageError(f"port {port} cannot be used: {error.strerror}. Type: --port 0") from None
            continue
        made.listen(128)
        return made
    raise UsageError("no port is free on this machine.")


def serve(app: Starlette, at: socket.socket) -> None:
    """Answer requests on this socket until Ctrl-C."""
    with contextlib.suppress(KeyboardInterrupt):
        server_of(app).run(sockets=[at])


def server_of(app: Starlette) -> uvicorn.Server:
    """The server of an application that `make_app` made. When it is to end, it ends the pages' channels first."""
    try:
        import uvicorn
    except ImportError:
        raise MissingExtraError("the web viewer", "view") from None

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            app.state.glances.end()  # pages listen without end, and a server waits for whom it answers
            await super().shutdown(sockets)

    return Server(uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off"))
