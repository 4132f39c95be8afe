"""The endpoint: programs are pointed at it by an environment variable, run as they are, and leave traces.

    with Serving(Path("runs/mine"), backend) as serving:
        print(serving.address)      # OPENAI_BASE_URL=…/s/NAME/v1, ANTHROPIC_BASE_URL=…/s/NAME

One event loop in a thread of its own answers all sessions; their traces are brought up to date by another thread behind
it (`following`). Safety: bound to a loopback address; only requests that name one as their host are answered, so that
no name on the web can be pointed here, and none that a web page sends; bodies, connections and waits have limits.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from baton.errors import MissingExtraError, UsageError
from baton.serve.backend import Backend, Unanswerable
from baton.serve.following import Following
from baton.serve.journal import FOLDER, journal_path
from baton.serve.limits import ClientLimits, SessionLimits
from baton.serve.session_keys import check_name
from baton.serve.sessions import ProgramSession
from baton.trace.formats.durable import Lock

if TYPE_CHECKING:
    import uvicorn

T = TypeVar("T")
DEFAULT_PORT = 8377
_HOSTS = {"127.0.0.1": socket.AF_INET, "localhost": socket.AF_INET, "::1": socket.AF_INET6}
_START_SECONDS = 30.0
_STOP_SECONDS = 5.0


class Serving:
    """A running endpoint; `close` ends it."""

    def __init__(
        self,
        out: Path,
        backend: Backend,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        limits: SessionLimits | None = None,
        client_limits: ClientLimits | None = None,
        seed: str = "0",
        traces: bool = True,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        """`about` is said of every session in its trace.

        `limits` and `seed` are those of sessions that nobody opened before. `traces`: write them as they come."""
        self.out = out
        self.backend = backend
        self.limits = (limits or SessionLimits()).check()
        self.client_limits = client_limits or ClientLimits()
        self.seed = seed
        self.about = dict(about or {})
        self.complaints: list[str] = []
        """The first few refusals, in words."""
        self.refusals = 0
        self._sessions: dict[str, ProgramSession] = {}
        self._opening = threading.Lock()
        self._opening_one: dict[str, threading.Lock] = {}
        """Each session that is being opened has a lock of its own: its journal may be long, and others go on."""
        self._socket = _listening(host, port)  # first: a port that is taken leaves no folder behind
        try:
            self._held = _claimed(out)
        except BaseException:
            self._socket.close()
            raise
        self.port = int(self._socket.getsockname()[1])
        self.address = f"http://{'[::1]' if host == '::1' else '127.0.0.1'}:{self.port}"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: uvicorn.Server | None = None
        self._failed: BaseException | None = None
        self._following = Following(self) if traces else None
        self._thread = threading.Thread(target=self._serve, name="baton-serve", daemon=True)
        self._start()

    # -- sessions -----------------------------------------------------------------------------------

    @property
    def sessions(self) -> dict[str, ProgramSession]:
        """All that are open, by name."""
        return dict(self._sessions)

    def open_session(
        self,
        name: str,
        *,
        backend: Backend | None = None,
        limits: SessionLimits | None = None,
        seed: str | None = None,
        group: str | None = None,
    ) -> ProgramSession:
        """A session with a backend, limits or a random stream of its own; it may not be open yet."""
        with self._opening_of(name):
            if name in self._sessions:
                raise UsageError(f"the session {name!r} is open already.")
            return self._open(name, backend=backend, limits=limits, seed=seed, group=group)

    def session(self, name: str) -> ProgramSession:
        """The session of this name, opened if it is not."""
        found = self._sessions.get(name)
        if found is not None:
            return found
        with self._opening_of(name):
            return self._sessions.get(name) or self._open(name)

    async def session_beside(self, name: str) -> ProgramSession:
        """The same on the server's loop, where nobody may wait while the journal of an earlier server is read."""
        if name in self._sessions or not self.is_known(name):
            return self.session(name)
        return await asyncio.to_thread(self.session, name)

    def is_known(self, name: str) -> bool:
        """Whether there is such a session, open or of an earlier server."""
        return name in self._sessions or journal_path(self.out, name).exists()

    def end_session(self, name: str) -> ProgramSession:
        """Close a session for good and forget it; its journal and trace stay."""
        session = self.session(name)
        self.call(_ended(session))
        if self._following is not None:
            self._following.bring_up_to_date(session)
        self.call(session.close())
        with self._opening:
            self._sessions.pop(name, None)
        return session

    def _open(
        self,
        name: str,
        *,
        backend: Backend | None = None,
        limits: SessionLimits | None = None,
        seed: str | None = None,
        group: str | None = None,
    ) -> ProgramSession:
        self._check_room()
        made = ProgramSession(
            self.out,
            check_name(name),
            backend or self.backend,
            limits=limits or self.limits,
            seed=self.seed if seed is None else seed,
            group=group,
            about=self.about,
        )
        with self._opening:
            self._check_room()
            self._sessions[name] = made
        return made

    def _check_room(self) -> None:
        if len(self._sessions) >= self.client_limits.sessions:
            raise Unanswerable(f"the server has its {self.client_limits.sessions:,} sessions.", status=503)

    @contextlib.contextmanager
    def _opening_of(self, name: str) -> Iterator[None]:
        with self._opening:
            lock = self._opening_one.setdefault(name, threading.Lock())
        with lock:
            try:
                yield
            finally:
                with self._opening:
                    if name in self._sessions:  # from now on nobody waits for it
                        self._opening_one.pop(name, None)

    def complain(self, why: str) -> None:
        """A refusal, for whoever watches the server."""
        self.refusals += 1
        if len(self.complaints) < 5 and why not in self.complaints:
            self.complaints.append(why)

    # -- the thread ---------------------------------------------------------------------------------

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something on the server's loop, from any other thread."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """Take no further request; every session's trace is up to date when this returns."""
        if self._server is None:
            return
        try:
            if self._following is not None:
                self._following.close()
            for session in self.sessions.values():
                self.call(session.close())
            self.call(self.backend.close())
        finally:
            self._server.should_exit = True
            self._thread.join()
            self._server = None
            self._held.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> None:
        ready = threading.Event()
        self._ready = ready
        self._thread.start()
        if not ready.wait(_START_SECONDS) or self._failed is not None:
            self._held.release()
            self._socket.close()
            raise self._failed or UsageError(f"the server did not start within {_START_SECONDS:g} seconds.")
        if self._following is not None:
            self._following.start()

    def _serve(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:
            self._failed = error
        finally:
            self._ready.set()

    async def _run(self) -> None:
        try:
            import uvicorn

            from baton.serve.patience import protocol_with_patience
            from baton.serve.web import make_endpoint
        except ImportError:
            raise MissingExtraError("baton serve", "serve") from None
        self._loop = asyncio.get_running_loop()
        self._server = uvicorn.Server(
            uvicorn.Config(
                make_endpoint(self),
                http=protocol_with_patience(self.client_limits.seconds),
                ws="none",
                lifespan="off",
                log_level="critical",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                limit_concurrency=self.client_limits.connections,
                timeout_keep_alive=75,
                timeout_graceful_shutdown=int(_STOP_SECONDS),
                h11_max_incomplete_event_size=65_536,
            )
        )
        # Signals are the caller's affair.
        self._server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
        self._loop.call_soon(self._ready.set)
        await self._server.serve(sockets=[self._socket])


async def _ended(session: ProgramSession) -> None:
    session.end()


def _claimed(out: Path) -> Lock:
    try:
        (out / FOLDER).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot serve into {str(out)!r}: {error.strerror}. Give a folder that can be written: --out DIR"
        ) from None
    return Lock(out / ".serving-lock", f"another server writes into {out}: one process at a time.")


def _listening(host: str, port: int) -> socket.socket:
    if host not in _HOSTS:
        raise UsageError(
            f"the host is {host!r}; expected 127.0.0.1, localhost or ::1: it serves this machine only."
        )
    # Named as TCP's: only then does asyncio send small pieces at once, and not 40 ms later.
    made = socket.socket(_HOSTS[host], socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(("127.0.0.1" if host == "localhost" else host, port))
    except OverflowError:
        made.close()
        raise UsageError(f"the port is {port}; expected 0 to 65535.") from None
    except OSError as error:
        made.close()
        raise UsageError(
            f"port {port} cannot be listened to: {error.strerror}. Type: --port 0, for one that is free"
        ) from None
    made.listen(512)
    return made
