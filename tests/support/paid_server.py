"""An OpenAI-compatible server on this machine that plays the example task, counts what it is asked, and can hang."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from baton.tasks.shard_sum import play
from baton.team.protocol import Entry, Request
from baton.trace.records import Sampling

Reply = str | dict[str, Any]


class PaidServer(ThreadingHTTPServer):
    """Each call is counted by its agent when it comes, and again when it was answered."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, say: Callable[[str, str], Reply] | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.say = say or (lambda _agent, text: text)
        """What is answered, from the agent's name and what the example task's reference would say."""
        self.asked: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.hangs: Callable[[str, int], bool] = lambda _agent, _time: False
        """Whether a call is never answered: the agent's name, and how often it has asked."""
        self.released = threading.Event()
        self.lock = threading.Lock()

    @property
    def policy(self) -> str:
        """What to give as --policy."""
        return f"openai:m@http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, *_: Any) -> None:
        """A client that goes away is part of the play."""


class _Handler(BaseHTTPRequestHandler):
    server: PaidServer

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.send_error(404)

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        messages = body["messages"]
        agent, role = re.match(r"You are (\S+), the (\S+) of a team", messages[0]["content"]).groups()  # type: ignore[union-attr]  # it always begins so
        with server.lock:
            server.asked[agent] += 1
            hangs = server.hangs(agent, server.asked[agent])
        if hangs:
            server.released.wait(60)
            return
        reply = server.say(agent, play(_request(messages, agent, role)))
        if isinstance(reply, str):
            choice = {"index": 0, "message": {"role": "assistant", "content": reply}, "finish_reason": "stop"}
            reply = {
                "model": "m",
                "choices": [choice],
                "usage": {"prompt_tokens": 11, "completion_tokens": 3},
            }
        raw = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)
        with server.lock:
            server.answered[agent] += 1


def _request(messages: list[dict[str, str]], agent: str, role: str) -> Request:
    entries = []
    for message in messages:
        text = message["content"]
        told = re.fullmatch(r"<tool_response>\n(.*)\n</tool_response>", text, re.DOTALL)
        speaker: Any = "tool" if told else message["role"]
        entries.append(Entry(speaker, told[1] if told else text))
    return Request(call="", agent=agent, role=role, entries=entries, prompt_ids=None, sampling=Sampling())


@contextmanager
def serving(say: Callable[[str, str], Reply] | None = None) -> Iterator[PaidServer]:
    """A server for as long as the block lasts."""
    server = PaidServer(say)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
