"""A server on this machine that plays shard-sum behind the OpenAI protocol, bills as told, and keeps its books."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from baton.tasks.shard_sum import play
from baton.team.protocol import Entry, Request
from baton.trace.records import Sampling

Usage = Callable[[str, str], Any]
"""From the prompt's text and the answer to the `usage` of the reply; None: it is left out."""
_TOOL = re.compile(r"<tool_response>\n(.*)\n</tool_response>", re.DOTALL)


def by_words(prompt: str, answer: str) -> dict[str, int]:
    """A tokenizer unlike ours: every word and every sign is a token, and the template adds seven."""
    return {
        "prompt_tokens": 7 + len(re.findall(r"\w+|\S", prompt)),
        "completion_tokens": len(answer.split()) + 1,
    }


def shard_sum_answers(entries: list[Entry]) -> str:
    """The task's scripted play, by what the agent was told of its role."""
    told = re.match(r"You are \S+, the (\S+) of a team", entries[0].text)
    role = told[1] if told else ""
    request = Request(
        call="", agent="", role=role, entries=entries, prompt_ids=None, sampling=Sampling(), tools=()
    )
    return play(request)


class BillingServer(ThreadingHTTPServer):
    """Its `books` are what it billed, call by call; None where it told nobody."""

    daemon_threads = True

    def __init__(self, usage: Usage, answers: Callable[[list[Entry]], str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.usage = usage
        self.answers = answers
        self.books: list[Any] = []
        self.lock = threading.Lock()

    @property
    def policy(self) -> str:
        return f"openai:odd-model@http://127.0.0.1:{self.server_address[1]}/v1"

    @property
    def billed(self) -> int:
        """All that it asks to be paid for."""
        return sum(each["prompt_tokens"] + each["completion_tokens"] for each in self.books)

    def handle_error(self, *_: Any) -> None:
        """A client that goes away is none of its business."""


class _Handler(BaseHTTPRequestHandler):
    server: BillingServer

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._reply({})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        entries = [_entry(message) for message in body["messages"]]
        answer = self.server.answers(entries)
        usage = self.server.usage("\n".join(entry.text for entry in entries), answer)
        with self.server.lock:
            self.server.books.append(usage)
        message = {"role": "assistant", "content": answer}
        reply: dict[str, Any] = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
        if answer == "nonsense":
            reply = {"choices": []}
        self._reply(reply if usage is None else {**reply, "usage": usage})

    def _reply(self, reply: dict[str, Any]) -> None:
        raw = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


def _entry(message: dict[str, str]) -> Entry:
    tool = _TOOL.fullmatch(message["content"])
    return Entry("tool", tool[1]) if tool else Entry(message["role"], message["content"])  # type: ignore[arg-type]


@contextmanager
def billing_server(
    usage: Usage = by_words, answers: Callable[[list[Entry]], str] = shard_sum_answers
) -> Iterator[BillingServer]:
    """The server, for as long as it is needed."""
    server = BillingServer(usage, answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
