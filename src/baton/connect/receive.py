"""An OTLP receiver on loopback: programs send their spans here, and their traces are there to look at.

    baton receive --out runs/mine
    OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 python my_agents.py

Invariant: a request that was acknowledged is on disk (`request_journal`), so killing the receiver loses nothing that a
client counts as delivered. Requests are decoded before they are acknowledged: what cannot be read is refused with 400
and a line that says why, and is not kept. With `redact`, or without payloads, what may not be kept is taken out of a
request before it is written down. Traces are brought up to date by one thread behind it.

Safety: bound to a loopback address; only requests that name one as their host are answered; bodies, unpacked bodies,
connections and waiting times have limits.
"""

from __future__ import annotations

import socket
import threading
import zlib
from collections import Counter
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from msgspec import Struct

from baton.connect.import_report import ImportReport
from baton.connect.readers.otlp.json_spans import decode_json, spans_of
from baton.connect.readers.otlp.protobuf import decode_logs, decode_traces
from baton.connect.readers.otlp.span import LogRecord, OtelSpan, Unreadable
from baton.connect.receiving.kept_content import KeptContent, request_of
from baton.connect.receiving.kept_traces import KeptTraces
from baton.connect.receiving.otlp_answers import accepted, refused
from baton.connect.receiving.request_journal import RequestJournal
from baton.errors import UsageError

DEFAULT_PORT = 4318
"""OTLP over HTTP, by its specification."""
_SIGNALS = {"/v1/traces": "traces", "/v1/logs": "logs", "/v1/metrics": "metrics"}
_HOSTS = ("127.0.0.1", "localhost", "[::1]")
_KINDS = {"application/x-protobuf": False, "application/protobuf": False, "application/json": True}
_CHUNK_BYTES = 1 << 16


class ReceiveLimits(Struct, frozen=True, kw_only=True):
    """What a client may ask of the receiver."""

    body_bytes: int = 32 * 2**20
    """Of one request, as sent."""
    unpacked_bytes: int = 256 * 2**20
    """Of one request, unpacked."""
    seconds: float = 30.0
    """A client that sends nothing for so long is let go."""
    connections: int = 64
    """At once; further ones are asked to come back."""


class Refused(Exception):
    """A request that gets no success."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


class Receiver:
    """Takes requests until `close`; `serve` runs in the caller's thread."""

    def __init__(
        self,
        out: Path,
        *,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        limits: ReceiveLimits | None = None,
        redact: Iterable[str] | None = None,
        payloads: bool = True,
    ) -> None:
        """`redact` takes secrets out, and what matches its patterns; `payloads=False` keeps nothing that was said."""
        self._content = KeptContent(redact=redact, payloads=payloads)
        if host not in ("127.0.0.1", "localhost", "::1"):
            raise UsageError(
                f"the host is {host!r}; expected 127.0.0.1, localhost or ::1: it receives on this machine only."
            )
        self.limits = limits or ReceiveLimits()
        self.counts: Counter[str] = Counter()
        """What came in and what became of it."""
        self.complaints: list[str] = []
        """The first few refusals, in words."""
        self._counting = threading.Lock()
        self._server = _listen(host, port, self)
        try:
            self.journal = RequestJournal(out)
            self.kept = KeptTraces(out, self.journal, self._content)
        except BaseException:
            self._server.server_close()
            raise
        self.port = int(self._server.server_address[1])
        self.address = f"http://{'[::1]' if host == '::1' else '127.0.0.1'}:{self.port}"

    def serve(self) -> None:
        """Answer until `stop` is called."""
        self.kept.start()
        self._server.serve_forever(poll_interval=0.2)

    def stop(self) -> None:
        """Take no further request; may be called from any other thread."""
        self._server.shutdown()

    def close(self) -> None:
        """Finish: what was acknowledged becomes traces. After `serve` has ended."""
        self._server.server_close()
        self.journal.close()
        self.kept.close()

    def count(self, what: str, times: int = 1) -> None:
        with self._counting:
            self.counts[what] += times

    def complain(self, why: str) -> None:
        with self._counting:
            self.counts["refused"] += 1
            if len(self.complaints) < 5 and why not in self.complaints:
                self.complaints.append(why)

    def take(self, signal: str, body: bytes, *, is_json: bool) -> tuple[int, str]:
        """Decode, write down, hand on; the number of spans that were rejected, and why."""
        if signal == "metrics":
            self.count("metrics requests dropped")
            return 0, ""
        lost: list[str] = []
        found = decoded(signal, body, is_json=is_json, lost=lost)
        good = [one for one in found if one.trace_id and one.span_id]
        nameless = len(found) - len(good) if signal == "traces" else 0
        if good and self._content.rewrites:
            cleaned = ImportReport()
            good = self._content.kept(good, cleaned)
            body, is_json = request_of(good), True
            self.count("secrets redacted", sum(cleaned.redacted.values()))
            with self._counting:
                self.kept.report.redacted.update(cleaned.redacted)
        if good:
            try:
                self.journal.write(signal, body, is_json=is_json)
            except OSError as error:
                raise Refused(503, f"the request could not be written down: {error.strerror}") from None
            self.kept.add(good)
        self.count("spans" if signal == "traces" else "log records", len(good))
        self.count("requests")
        why = [f"{nameless} spans have no trace id or no span id"] if nameless else []
        why += [f"{len(lost)} spans cannot be read: {lost[0]}"] if lost else []
        if why:
            self.count("spans rejected", nameless + len(lost))
        return nameless + len(lost), "; ".join(why)


def decoded(
    signal: str, body: bytes, *, is_json: bool, lost: list[str] | None = None
) -> list[OtelSpan | LogRecord]:
    """The spans or log records of a request; `Refused` says what is wrong with it.

    `lost`: single spans of it that cannot be read go there, with what is wrong; None: they are reason to refuse it.
    """
    try:
        if is_json:
            value = decode_json(body)
            if not isinstance(value, dict):
                raise Unreadable(f"{type(value).__name__} where an object is expected")
            wanted = OtelSpan if signal == "traces" else LogRecord
            found = [one for one in spans_of(value, "", lost) if isinstance(one, wanted)] if value else []
        else:
            found = [*decode_traces(body, "", lost)] if signal == "traces" else [*decode_logs(body)]
        if lost and not found:
            raise Unreadable(lost[0])
        return found
    except Unreadable as error:
        kind = "JSON" if is_json else "protobuf"
        raise Refused(400, f"this is no OTLP {kind} request of {signal}: {error}") from None


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        self.request.settimeout(self.server.receiver.limits.seconds)
        super().setup()

    def do_POST(self) -> None:
        receiver, is_json = self.server.receiver, False
        try:
            signal, is_json = self._asked()
            body = self._body()
            rejected, why = receiver.take(signal, body, is_json=is_json)
        except Refused as error:
            receiver.complain(error.why)
            self._answer(error.status, refused(error.status, error.why, is_json=is_json), is_json=is_json)
            return
        except (TimeoutError, ConnectionError):
            receiver.complain("a client stopped sending in the middle of a request")
            self.close_connection = True
            return
        self._answer(200, accepted(signal, rejected, why, is_json=is_json), is_json=is_json)

    def do_GET(self) -> None:
        self._answer(405, refused(405, "send spans by POST to /v1/traces", is_json=True), is_json=True)

    do_PUT = do_DELETE = do_PATCH = do_HEAD = do_OPTIONS = do_GET

    def _asked(self) -> tuple[str, bool]:
        host = self.headers.get("Host", "")
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        if name not in _HOSTS:
            raise Refused(403, "this receiver answers on this machine only")
        kind = (self.headers.get("Content-Type") or "").split(";")[0].strip().lower()
        path = self.path.split("?")[0].rstrip("/")
        if path not in _SIGNALS:
            raise Refused(404, f"there is no {self.path[:80]!r} here; expected /v1/traces or /v1/logs")
        if kind not in _KINDS:
            raise Refused(
                415,
                f"Content-Type is {kind[:80]!r}; expected application/x-protobuf or application/json "
                "(gRPC is not spoken)",
            )
        return _SIGNALS[path], _KINDS[kind]

    def _body(self) -> bytes:
        limits = self.server.receiver.limits
        if "chunked" in (self.headers.get("Transfer-Encoding") or "").lower():
            body = _chunks(self.rfile, limits.body_bytes)
        else:
            length = self.headers.get("Content-Length") or ""
            if not length.isdigit():
                raise Refused(411, "the request has no Content-Length")
            if int(length) > limits.body_bytes:
                self.close_connection = True  # what it sends is not read
                raise Refused(
                    413, f"the request has {int(length):,} bytes; at most {limits.body_bytes:,} are taken"
                )
            body = _read(self.rfile, int(length))
        packing = (self.headers.get("Content-Encoding") or "identity").strip().lower()
        if packing in ("gzip", "deflate"):
            return _unpacked(body, limits.unpacked_bytes)
        if packing not in ("", "identity"):
            raise Refused(415, f"Content-Encoding is {packing[:40]!r}; expected gzip or none")
        return body

    def _answer(self, status: int, body: bytes, *, is_json: bool) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json" if is_json else "application/x-protobuf")
            self.send_header("Content-Length", str(len(body)))
            if status == 503:
                self.send_header("Retry-After", "1")
            if status != 200:
                self.send_header("Connection", "close")  # the rest of its body may not have been read
                self.close_connection = True
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)
        except (ConnectionError, TimeoutError):
            self.close_connection = True  # it did not wait for its answer

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """What is no HTTP request at all."""
        self.server.receiver.complain(f"a request that is no HTTP: {message or code}")
        self.command = getattr(self, "command", None) or "GET"
        self.request_version = "HTTP/1.1"  # the default would send no status line
        self._answer(code, refused(code, message or "this is no HTTP request", is_json=True), is_json=True)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed for a request: the counts say it."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], receiver: Receiver, family: socket.AddressFamily) -> None:
        self.address_family = family
        self.receiver = receiver
        self._free = threading.BoundedSemaphore(receiver.limits.connections)
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.receiver.complain(f"more than {self.receiver.limits.connections} connections at once")
            body = refused(503, "too many connections at once", is_json=True)
            head = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
            head += f"Content-Length: {len(body)}\r\n\r\n"
            try:
                request.settimeout(1.0)
                request.sendall(head.encode() + body)
            except OSError:
                pass
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """A connection that broke is its client's affair."""
        self.receiver.complain("a connection broke off")


def _listen(host: str, port: int, receiver: Receiver) -> _Server:
    family = socket.AF_INET6 if host == "::1" else socket.AF_INET
    try:
        return _Server((host, port), receiver, family)
    except OverflowError:
        raise UsageError(f"the port is {port}; expected 0 to 65535.") from None
    except OSError as error:
        raise UsageError(
            f"port {port} cannot be listened to: {error.strerror}. Another receiver or collector may be there. "
            "Type: --port 0, for one that is free"
        ) from None


def _read(file: BufferedIOBase, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        part = file.read(min(_CHUNK_BYTES, size - len(found)))
        if not part:
            raise ConnectionError("the body ended early")
        found += part
    return bytes(found)


def _chunks(file: BufferedIOBase, most: int) -> bytes:
    """A body of which nobody says the length before."""
    found = bytearray()
    while True:
        line = file.readline(64)
        try:
            size = int(line.split(b";")[0], 16)
        except ValueError:
            raise Refused(400, "a chunk of the body has no length") from None
        if size < 0 or len(found) + size > most:
            raise Refused(413, f"the request has more than {most:,} bytes")
        found += _read(file, size)
        if file.readline(1024) not in (b"\r\n", b"\n", b""):
            if size:
                raise Refused(400, "a chunk of the body is longer than it says")
            continue
        if not size:
            return bytes(found)


def _unpacked(body: bytes, most: int) -> bytes:
    """Never more than the limit, whatever the packed body holds."""
    machine = zlib.decompressobj(zlib.MAX_WBITS | 32)  # 32: gzip or zlib, by its head
    try:
        found = machine.decompress(body, most + 1)
    except zlib.error as error:
        raise Refused(400, f"the body cannot be unpacked: {error}") from None
    if len(found) > most:
        raise Refused(413, f"the request has more than {most:,} bytes once unpacked")
    if not machine.eof:
        raise Refused(400, "the packed body is cut off")
    return found
