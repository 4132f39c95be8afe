"""A server of the campaigns: it plays shard-sum's own script over HTTP, misbehaves where its path says so, and keeps a
log of what it was asked and what it answered, which nobody else writes.

It is a process of its own. `http://HOST:PORT/NAME/v1` misbehaves as `misbehaviours.MISBEHAVIOURS[NAME]` does; any other
name answers well, slower or faster by question, and stands in the log, so that runs can be told apart by it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

from baton.tasks.shard_sum import play
from baton.team.protocol import Entry, Request
from baton.trace.records import Sampling
from campaigns.misbehaviours import MISBEHAVIOURS

_HEAD_BYTES = 1 << 20


class Exchange:
    """One request on a connection, and ways to answer it that an HTTP library would not offer."""

    def __init__(self, connection: socket.socket, headers: dict[str, str], body: dict[str, Any]) -> None:
        self.connection = connection
        self.headers = headers
        self.body = body
        self.right = completion(_say(body), body)

    def send(self, raw: bytes) -> None:
        self.connection.sendall(raw)

    def answer(self, body: Any, status: str = "200 OK", length: int | None = None, **headers: str) -> None:
        """A whole response; `body` that is not bytes is written as JSON."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        told = {
            "Content-Type": "application/json",
            "Content-Length": str(len(raw) if length is None else length),
        }
        told |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = "".join(f"{name}: {value}\r\n" for name, value in told.items())
        self.send(f"HTTP/1.1 {status}\r\n{lines}\r\n".encode("utf-8", "surrogateescape") + raw)

    def reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()


def completion(content: Any, body: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A right reply, of which a misbehaviour may change a part."""
    words = sum(len(m["content"].split()) for m in (body or {}).get("messages", ()))
    message = {"role": "assistant", "content": content, **more.pop("message", {})}
    choice = {"index": 0, "message": message, "finish_reason": "stop", **more.pop("choice", {})}
    usage = {"prompt_tokens": words, "completion_tokens": len(str(content).split())}
    return {"model": "served", "choices": [choice], "usage": usage, **more}


def _say(body: dict[str, Any]) -> str:
    """What the script says, from what a server is sent."""
    entries = []
    for message in body["messages"]:
        tool = re.fullmatch(r"<tool_response>\n(.*)\n</tool_response>", message["content"], re.DOTALL)
        entries.append(Entry("tool", tool[1]) if tool else Entry(message["role"], message["content"]))
    role = re.search(r"You are \S+, the (\S+) of a team", entries[0].text)
    told = any("sum the numbers in shards" in e.text for e in entries if e.speaker == "user")
    name = "branch" if role and role[1] == "main" and told else role[1] if role else "worker"
    asked = Request(call="", agent="", role=name, entries=entries, prompt_ids=None, sampling=Sampling())
    return play(asked)


def _seconds(body: dict[str, Any]) -> float:
    """How long an answer takes: most are quick, one in six holds up those that came back before it."""
    draw = int(body.get("seed", 0)) % 997 / 997
    return 0.7 if draw < 1 / 6 else 0.01 + 0.1 * draw


class _Server:
    def __init__(self, log: Path) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._seen: Counter[tuple[str, str]] = Counter()
        self._first: dict[str, str] = {}
        self._lock = threading.Lock()

    def serve(self) -> None:
        while True:
            connection, _ = self.socket.accept()
            threading.Thread(target=self._serve_one, args=(connection,), daemon=True).start()

    def _serve_one(self, connection: socket.socket) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream = connection.makefile("rb")
            while self._exchange(connection, stream):
                pass
        except (OSError, ValueError):
            pass  # a client that goes away is part of the play
        finally:
            connection.close()

    def _exchange(self, connection: socket.socket, stream: Any) -> bool:
        """One request and its answer; whether the connection stays open."""
        first = stream.readline(_HEAD_BYTES).decode().split()
        if len(first) < 2:
            return False
        headers = {}
        while (line := stream.readline(_HEAD_BYTES)) not in (b"\r\n", b"\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        raw = stream.read(int(headers.get("content-length", 0)))
        if first[0] != "POST":
            connection.sendall(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")
            return True
        body = json.loads(raw)
        name = first[1].strip("/").partition("/")[0]
        key = blake2b(raw, digest_size=8).hexdigest()
        self._note("asked", name, key)
        exchange = Exchange(connection, headers, body)
        kind, misbehave = MISBEHAVIOURS.get(name, ("well", None))
        if misbehave is not None and self._is_due(kind, name, key):
            return bool(misbehave(exchange))
        time.sleep(0.003 if misbehave else _seconds(body))
        exchange.answer(exchange.right)
        self._note("answered", name, key)
        return True

    def _is_due(self, kind: str, name: str, key: str) -> bool:
        """The very first question of a run is answered; one that a second try cures is misbehaved at once only."""
        with self._lock:
            self._seen[name, key] += 1
            first = self._first.setdefault(name, key)
            return key != first and (kind != "cured" or self._seen[name, key] == 1)

    def _note(self, what: str, name: str, key: str) -> None:
        line = json.dumps({"t": time.monotonic(), "what": what, "name": name, "key": key})
        os.write(self._log, f"{line}\n".encode())


@contextmanager
def serving(log: Path) -> Iterator[str]:
    """A server in a process of its own: its address, `http://HOST:PORT`."""
    log.touch()
    server = _Server(log)
    child = os.fork()
    if child == 0:
        try:
            server.serve()
        finally:
            os._exit(0)
    port = server.socket.getsockname()[1]
    server.socket.close()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def read_log(log: Path) -> list[dict[str, Any]]:
    """What was asked and answered so far, in order."""
    return [json.loads(line) for line in log.read_text().splitlines()]
